"""Resources for asyncio programs: registrations that renew themselves, answers, and watches that survive a move.

In:    a client; what a program registers, requests and watches.
Out:   requests to the resource service; answers; changes, each once.
State: per registration its secret and latest values; per watch its number at the present broker; how many brokers have
       welcomed the client.
Not here: the service (discovery/resources/service.py), reading news and what counts as a change
          (discovery/resources/news.py, discovery/resources/watching.py).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from heliograph.discovery.resources.conditions import fixed_condition
from heliograph.discovery.resources.news import WatchReader
from heliograph.discovery.resources.watching import ResourceChange, WatchState
from heliograph.errors import ClosedError, HeliographError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.live.options import MODELS, DeliverName, ModelName, ResourceLanguageName, check_word
from heliograph.live.watches import OpenWatches
from heliograph.model.origin import origin_of

SERVICE = "resources"
KEEP_S = 2.0  # between two checks whether the broker still knows a watch, or takes a registration that it refused
LEASE_S = 60.0  # of a registration, unless the program says otherwise
AGAIN_S = 0.2  # wait after a broker was lost
AWAY = (Reason.RESOURCE_UNKNOWN, Reason.SERVICE_UNKNOWN, Reason.SERVICE_GONE)


class ClientTasks:
    """Tasks that are cancelled when their client closes."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Cancel this one too, unless it has ended by then."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def cancel(self) -> None:
        """The client closes."""
        for task in list(self._tasks):
            task.cancel()


class Welcomes:
    """Tells the tasks of a client that a broker has welcomed it: again, or another one."""

    def __init__(self) -> None:
        self.count = 0
        self._last: object = None
        self._waiting = asyncio.Event()

    def hear(self, welcome: object) -> None:
        """The welcome of the broker in use; None while no broker has answered."""
        if welcome is not None and welcome is not self._last:
            self._last = welcome
            self.count += 1
            self._waiting.set()
            self._waiting = asyncio.Event()

    async def after(self, count: int, seconds: float) -> None:
        """Return when there were more welcomes than this, or when the time has passed."""
        if self.count == count:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._waiting.wait()


class AskingClient(Protocol):
    """What this module needs of a client (live/client.py)."""

    @property
    def is_closed(self) -> bool:
        """True if it was closed."""
        ...

    async def ask(self, service: str, body: dict[str, Any], *, longer: float = 0.0) -> dict[str, Any]:
        """Ask a service of the broker, which may take so many seconds longer than ``request_timeout``."""
        ...

    @property
    def _watches(self) -> OpenWatches:
        """Its watches."""
        ...

    @property
    def _tasks(self) -> ClientTasks:
        """The tasks that end with it."""
        ...

    @property
    def _welcomes(self) -> Welcomes:
        """The brokers that welcomed it."""
        ...


@dataclass(frozen=True, slots=True)
class DiscoveredResource:
    """A resource in an answer."""

    id: str
    name: str
    host: str  # the broker that hosts it
    values: dict[str, Any] | None  # None: it has reported none yet
    age_ms: float  # how long ago its owner reported the values, or registered it if it has reported none
    where: str = ""  # of a static resource, its ranges


@dataclass(frozen=True, slots=True)
class ResourceAnswer:
    """The answer to a one-time request."""

    resources: tuple[DiscoveredResource, ...]
    complete: bool
    missing: tuple[str, ...]  # hosting brokers that did not answer in time
    details: dict[str, Any]  # attempts, time taken, which brokers answered; read_ms: how long ago the first was read

    def __iter__(self) -> Iterator[DiscoveredResource]:
        return iter(self.resources)

    def __len__(self) -> int:
        return len(self.resources)


async def discover(client: AskingClient, **asked: Any) -> ResourceAnswer:
    """Ask the service; fetch a long answer in parts."""
    body = {name: value for name, value in asked.items() if value is not None}
    longer = body.get("deadline_ms", 0) / 1_000  # the service answers at the deadline, with what it has by then
    answer = await client.ask(SERVICE, {"do": "discover", **body}, longer=longer)
    rows = list(answer["resources"])
    more = answer.pop("more", None)
    while more:
        part = await client.ask(SERVICE, {"do": "part", **more})
        rows += part["resources"]
        more = part["more"]
    found = tuple(
        DiscoveredResource(*(row["id"], row["name"], row["host"], row["values"], row["age_ms"], row.get("where", "")))
        for row in rows
    )
    details = {name: value for name, value in answer.items() if name not in ("resources", "complete", "missing")}
    return ResourceAnswer(found, answer["complete"], tuple(answer["missing"]), details)


class ResourceRegistration:
    """A registered resource. Until withdrawn, it renews its lease, and registers again if the client has moved."""

    def __init__(
        self,
        client: AskingClient,
        *,
        name: str,
        where: str,
        model: str,
        lease: float,
        language: str,
        secret: bytes | None,
    ) -> None:
        self._client = client
        self._secret = secret or secrets.token_bytes(16)
        self._body = {"where": where, "model": model, "name": name, "language": language, "lease_s": lease}
        self._epoch = time.time_ns()
        self._is_attached = secret is not None  # another broker may have it
        self._is_withdrawn = False
        self._version = 0
        self._lease = lease
        self._task: asyncio.Task[None] | None = None
        self.values: dict[str, Any] | None = None  # the latest, unless a broker refused them
        self._taken: dict[str, Any] | None = None  # the latest that a broker took
        self.broker = ""
        self.problem: HeliographError | None = None  # why the last renewal failed

    @property
    def id(self) -> str:
        """The id under which requesters find it."""
        return f"{origin_of(self._secret):016x}"

    @property
    def secret(self) -> str:
        """The secret that lets its holder update and withdraw the resource, and attach it elsewhere."""
        return self._secret.hex()

    async def _register(self, values: Mapping[str, Any] | None = None) -> None:
        if values is not None:
            self._report(values)
        body = {"do": "register", "secret": self.secret, "epoch": self._epoch, **self._body}
        body["attached"] = self._is_attached
        if self.values is not None:
            body |= {"values": self.values, "version": self._version}
        offered = self.values
        self.broker = str((await self._client.ask(SERVICE, body))["broker"])
        self._taken = offered
        if self._task is None:
            task = asyncio.get_running_loop().create_task(self._renew(), name=f"resource {self.id}")
            self._task = self._client._tasks.keep(task)

    async def update(self, values: Mapping[str, Any]) -> None:
        """Report the latest values. RefusedError if they are outside the advertised ranges: the earlier ones stay."""
        reported = self._report(values)
        try:
            await self._update(reported)
        except RefusedError:
            if self.values is reported:  # and not already replaced by later ones
                self.values = self._taken
            raise
        self._taken = reported

    def _report(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.values = reported = dict(values)
        self._version = max(self._version + 1, time.time_ns())
        return reported

    async def _update(self, values: dict[str, Any]) -> None:
        body = {"do": "update", "secret": self.secret, "values": values, "version": self._version}
        try:
            await self._client.ask(SERVICE, {**body, "lease_s": self._lease})
        except RefusedError as error:
            if error.reason not in AWAY:
                raise
            await self._move()

    async def _move(self) -> None:
        """Attach it to the broker of now, which does not know it."""
        self._epoch = time.time_ns()
        self._is_attached = True
        await self._register()

    async def withdraw(self) -> None:
        """Withdraw it: it can no longer be discovered. RefusedError if it may be, until its lease ends."""
        self._stop()
        if self._is_withdrawn:
            return
        body = {"do": "withdraw", "secret": self.secret}
        try:
            await self._client.ask(SERVICE, body)
        except RefusedError as error:
            if error.reason not in AWAY:
                raise
            await self._move()  # the broker that hosted it gives it up as soon as it hears of this
            await self._client.ask(SERVICE, body)
        self._is_withdrawn = True

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _renew(self) -> None:
        """Renew until withdrawn, and whenever a broker has welcomed the client: one that does not know the resource
        gets it, with its last values."""
        welcomes = self._client._welcomes
        count = welcomes.count
        while not self._client.is_closed:
            pause = max(0.05, self._lease / 3)
            await welcomes.after(count, pause if self.problem is None else min(pause, KEEP_S))
            count = welcomes.count
            try:
                await self._client.ask(SERVICE, {"do": "renew", "secret": self.secret, "lease_s": self._lease})
                self.problem = None
            except RefusedError as error:
                self.problem = error
                if error.reason in AWAY:
                    await self._attach()
            except ClosedError:
                return
            except HeliographError as error:
                self.problem = error

    async def _attach(self) -> None:
        try:
            await self._move()
            self.problem = None
        except HeliographError as error:
            self.problem = error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client.is_closed:
            self._stop()
        else:
            await self.withdraw()


class ResourceWatch:
    """Changes of matching resources: ``async for change in watch``. It continues after a move to another broker."""

    def __init__(
        self, client: AskingClient, *, where: str, model: str, language: str, saved: Mapping[str, Any] | None
    ) -> None:
        self._client = client
        self._body = {"where": where, "model": model, "language": language}
        self._reader = WatchReader(WatchState() if saved is None else WatchState.resumed(saved))
        self._wakes = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._number = 0  # of the watch at the present broker
        self._lost = asyncio.Event()  # its link is gone
        self._error: BaseException | None = None
        self.problem: HeliographError | None = None  # why the broker does not keep the watch; it is asked again
        self.synced = asyncio.Event()  # set when the initial snapshot has arrived

    def saved(self) -> dict[str, Any]:
        """What was reported so far, for a later watch: ``client.watch_resources(…, saved=…)``."""
        return self._reader.state.saved()

    @property
    def resources(self) -> dict[str, dict[str, Any] | None]:
        """The resources that match now, with their values, as far as known."""
        return {id: known.values for id, known in self._reader.state.resources.items() if known.fits}

    @property
    def lost(self) -> int:
        """How many changes were dropped because the program did not read them; after each loss it begins anew."""
        return self._reader.lost

    @property
    def unreadable(self) -> int:
        """How many news of the broker could not be read, and were dropped."""
        return self._reader.unreadable

    def __aiter__(self) -> AsyncIterator[ResourceChange]:
        return self

    async def __anext__(self) -> ResourceChange:
        while (change := self._reader.take()) is None:
            if self._task is not None and self._task.done():
                raise self._error or StopAsyncIteration
            self._wakes.clear()
            await self._wakes.wait()
        return change

    async def next(self, timeout: float | None = None) -> ResourceChange:
        """The next change; TimeoutError if none comes in time."""
        async with asyncio.timeout(timeout):
            return await self.__anext__()

    async def __aenter__(self) -> Self:
        await self._begin()
        task = asyncio.get_running_loop().create_task(self._follow(), name="resource watch")
        task.add_done_callback(self._ended)
        self._task = self._client._tasks.keep(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._client._watches.forget(self._number):
            with suppress(HeliographError):
                await self._client.ask(SERVICE, {"do": "unwatch", "watch": self._number})

    # -- following --------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Begin at the present broker."""
        self._client._watches.end(SERVICE, self._number)
        self._lost.clear()
        self._reader.begin()
        self._number = await self._client._watches.begin(SERVICE, {"do": "watch", **self._body}, self._hear)

    def _hear(self, news: bytes | None) -> None:
        if news is None:
            self._lost.set()
            return
        self._reader.hear(news)
        if self._reader.is_synced:
            self.synced.set()
        self._wakes.set()

    async def _follow(self) -> None:
        """Keep the watch at the client's broker, and ask for what was missed."""
        while not self._client.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEP_S):
                    await self._lost.wait()
            try:
                if not self._client.is_closed and (self._lost.is_set() or not await self._is_known()):
                    await self._begin()
                self.problem = None
            except HeliographError as error:
                self.problem = error
                self._lost.set()  # so that it begins again, whatever became of it
                await asyncio.sleep(AGAIN_S if isinstance(error, NotConnectedError) else KEEP_S)

    async def _is_known(self) -> bool:
        known = await self._client.ask(SERVICE, {"do": "keep", "watch": self._number, "again": self._reader.is_stale})
        if known["known"]:
            self._reader.check(known["number"])
        return bool(known["known"])

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No more changes will come: the client has ended, or the program closed the watch."""
        self._error = self._client._watches.failure or (None if task.cancelled() else task.exception())
        self._wakes.set()


class ResourceCalls:
    """The methods of a client for resources. Mixed into Client, which asks its broker's service."""

    async def register_resource(
        self: AskingClient,
        where: str = "",
        *,
        attributes: Mapping[str, Any] | None = None,
        model: ModelName = "dynamic",
        name: str = "",
        values: Mapping[str, Any] | None = None,
        lease: float = LEASE_S,
        language: ResourceLanguageName = "predicates",
        secret: bytes | None = None,
    ) -> ResourceRegistration:
        """Register a resource: ``where`` gives the ranges of its values, ``attributes={…}`` what never changes.

        ``model`` is "dynamic", or "static" if its values never change; ``values`` are the first ones; ``lease`` is in
        seconds, and renewed while the client lives; ``secret`` is that of an earlier registration. Use it with
        ``async with``, or call ``withdraw()`` at the end.
        """
        check_word("model", model, MODELS)
        if not isinstance(where, str):
            raise UsageError(f"where is a text such as 'memory <= 64'; what never changes is attributes={where!r:.80}")
        fixed = fixed_condition(attributes or {})
        text = " and ".join(part for part in (fixed, where) if part)
        if not text:
            raise UsageError("a resource has attributes: where='memory <= 2', or attributes={'system': 'linux'}")
        registration = ResourceRegistration(
            self, name=name, where=text, model=model, lease=lease, language=language, secret=secret
        )
        await registration._register(values)
        return registration

    async def discover_resources(
        self: AskingClient,
        where: str = "true",
        *,
        model: ModelName = "dynamic",
        language: ResourceLanguageName = "predicates",
        deliver: DeliverName | None = None,
        best: int = 0,
        order: str = "",
        max_age: float = 0.0,
        deadline: float | None = None,
    ) -> ResourceAnswer:
        """The resources that match now. ``best`` limits their number, in an ``order``: by an attribute ("load", "memory
        desc"), "near" this client's broker, or "together", near one another.

        ``deliver`` is "similarity" (share the answers of similar requests), "normal", or "direct" (hosting brokers
        answer straight to this client's broker). Requests that are under way at the same time share what hosts read
        after the later one was made; with ``max_age``, answers to earlier requests are shared too, up to so many
        seconds old. After ``deadline`` seconds the answer names the brokers that did not answer.
        """
        check_word("model", model, MODELS)
        deadline_ms = None if deadline is None else max(10, round(deadline * 1_000))
        return await discover(
            self,
            where=where,
            model=model,
            language=language,
            deliver=deliver,
            best=best,
            order=order,
            max_age_s=max_age,
            deadline_ms=deadline_ms,
        )

    def watch_resources(
        self: AskingClient,
        where: str = "true",
        *,
        model: ModelName = "dynamic",
        language: ResourceLanguageName = "predicates",
        saved: dict[str, Any] | None = None,
    ) -> ResourceWatch:
        """Changes of matching resources: ``async with client.watch_resources("load < 1") as watch``, then ``async for
        change in watch``. A change is "appeared", "changed", "stopped" (it no longer matches) or "vanished". If the
        program reads too slowly, changes are dropped and the watch begins anew: a change of kind "anew", then
        "appeared" for everything that matches. ``saved`` resumes from the state of an earlier watch
        (``watch.saved()``).
        """
        check_word("model", model, MODELS)
        return ResourceWatch(self, where=where, model=model, language=language, saved=saved)
