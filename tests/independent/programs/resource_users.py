"""A program under check: owners of resources, requesters and watchers, each a public client, at several brokers.

In:    on the command line, as JSON: an address for each actor, and watches; on standard input, what to do next.
Out:   a line per call with its moments (time.monotonic) and outcome, per answer, per change and view of a watch.
State: clients, registrations by key, watches.
Not here: what is right (../resource_oracle.py, ../watch_oracle.py).

A line of standard input is {"do": "play", "plan": {actor: [[pause, call], …]}}, "barrier", "watch", "views" or "end".
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Literal

import heliograph

MARKER: dict[Literal["dynamic", "static"], dict[str, Any]] = {  # a resource that every watch of its model wants
    "dynamic": {"attributes": {"system": "linux"}, "where": "memory <= 64 and load >= 0 and n >= 0"},
    "static": {"attributes": {"system": "linux", "memory": 64, "load": 0, "n": 0}},
}
MARKED = {"memory": 64, "load": 0, "n": 0}
BARRIER_S = 15.0
POLL_S = 0.05
PATIENCE_S = 20.0  # of a request


class Users:
    """All clients of this program."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._clients: dict[str, heliograph.Client] = {}
        self._registrations: dict[str, heliograph.ResourceRegistration] = {}
        self._secrets: dict[str, bytes] = {}
        self._watches: dict[str, heliograph.ResourceWatch] = {}
        self._models: dict[str, str] = {}
        self._following: list[asyncio.Task[None]] = []
        self._notes = Path(given["notes"]).open("w", buffering=1)  # noqa: SIM115 (it lives as long as the program)

    def note(self, kind: str, **fields: Any) -> None:
        self._notes.write(json.dumps({"kind": kind, **fields}) + "\n")

    async def connect(self) -> None:
        for actor, address in self._given["actors"].items():
            self._clients[actor] = await heliograph.connect(address, timeout=30.0, request_timeout=PATIENCE_S)
        self.note("ready")

    async def _told(self, call: Awaitable[Any], **fields: Any) -> Any:
        """Carry out a call; write down its moments and how it ended."""
        begin = time.monotonic()
        outcome, found = "ok", None
        try:
            found = await call
        except heliograph.HeliographError as error:
            reason = getattr(error, "reason", None)
            outcome = reason.word if reason is not None else repr(error)
        shown: dict[str, Any] = {"id": found.id} if isinstance(found, heliograph.ResourceRegistration) else {}
        if isinstance(found, heliograph.ResourceAnswer):
            shown["rows"] = [[row.id, row.name, row.host, row.values] for row in found]
            shown |= {"complete": found.complete, "missing": found.missing, "details": found.details}
        self.note("call", **fields, begin=begin, end=time.monotonic(), outcome=outcome, **shown)
        return found

    # -- what a line of standard input asks for ---------------------------------------------------------------------

    async def play(self, plan: dict[str, list[tuple[float, dict[str, Any]]]]) -> None:
        """All actors at once, each its calls one after the other."""
        await asyncio.gather(*(self._act(actor, steps) for actor, steps in plan.items()))

    async def _act(self, actor: str, steps: list[tuple[float, dict[str, Any]]]) -> None:
        client = self._clients[actor]
        for pause, call in steps:
            await asyncio.sleep(pause)
            then = call.pop("then", {})
            await getattr(self, f"_{call['do']}")(client, actor, **call)
            for other, options in then.items():  # asked as soon as the call has ended
                await self._discover(self._clients[other], other, do="discover", options=options)

    async def _register(self, client: heliograph.Client, actor: str, *, key: str, options: Any, **call: Any) -> None:
        calling = client.register_resource(name=key, secret=self._secrets.get(key), **options)
        found = await self._told(calling, actor=actor, key=key, options=options, **call)
        if found is not None:
            self._registrations[key] = found
            self._secrets[key] = bytes.fromhex(found.secret)

    async def _update(self, client: heliograph.Client, actor: str, *, key: str, values: Any, **call: Any) -> None:
        calling = self._registrations[key].update(values)
        await self._told(calling, actor=actor, key=key, values=values, **call)

    async def _withdraw(self, client: heliograph.Client, actor: str, *, key: str, **call: Any) -> None:
        await self._told(self._registrations[key].withdraw(), actor=actor, key=key, **call)

    async def _discover(self, client: heliograph.Client, actor: str, *, options: Any, **call: Any) -> None:
        await self._told(client.discover_resources(**options), actor=actor, options=options, **call)

    async def watch(self, watches: dict[str, dict[str, Any]]) -> None:
        """Begin watches; return when each has its first snapshot."""
        for name, wanted in watches.items():
            begin = time.monotonic()
            client = self._clients[wanted["actor"]]
            watch = client.watch_resources(wanted["where"], model=wanted["model"])
            await watch.__aenter__()
            self._watches[name] = watch
            self._models[name] = wanted["model"]
            self._following.append(asyncio.create_task(self._follow(name, watch)))
            async with asyncio.timeout(BARRIER_S):
                await watch.synced.wait()
            self.note("watch", watch=name, begin=begin, end=time.monotonic())

    async def _follow(self, name: str, watch: heliograph.ResourceWatch) -> None:
        async for change in watch:
            told = {"what": change.kind, "id": change.id, "values": change.values, "host": change.host}
            self.note("change", watch=name, at=time.monotonic(), **told)

    async def barrier(self) -> None:
        """Register a resource at each broker, and return when every watch shows it: all have caught up with all."""
        markers: dict[str, list[str]] = {"dynamic": [], "static": []}
        for actor, client in self._clients.items():
            for model, options in MARKER.items():
                values = MARKED if model == "dynamic" else None
                calling = client.register_resource(name="marker", model=model, values=values, **options)
                found = await self._told(calling, do="mark", actor=actor)
                if found is not None:
                    markers[model].append(found.id)
        deadline = time.monotonic() + BARRIER_S
        for name, watch in self._watches.items():
            while not watch.resources.keys() >= set(markers[self._models[name]]):
                if time.monotonic() > deadline:
                    missing = sorted(set(markers[self._models[name]]) - watch.resources.keys())
                    self.note("stuck", watch=name, missing=missing, problem=repr(watch.problem))
                    break
                await asyncio.sleep(POLL_S)
        self.note("caught up", at=time.monotonic())

    async def views(self) -> None:
        for name, watch in self._watches.items():
            told = {"lost": watch.lost, "unreadable": watch.unreadable}
            self.note("view", watch=name, resources=watch.resources, **told)

    async def end(self) -> None:
        for client in self._clients.values():
            await client.close()


async def main(given: dict[str, Any]) -> None:
    users = Users(given)
    await users.connect()
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    asked: dict[str, Any] = {}
    while asked.get("do") != "end":
        asked = json.loads(await lines.readline())
        await getattr(users, asked["do"])(*(asked[word] for word in ("plan", "watches") if word in asked))
        users.note("done", number=asked["number"])


asyncio.run(main(json.loads(sys.argv[1])))
