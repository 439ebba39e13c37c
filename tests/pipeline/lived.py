"""A short life of a real network, archived, and the log that its clients kept of it.

In:    a folder.
Out:   live(): four broker processes a-b-c and d at a, clients that come and go, two brokers that are killed, of which
       one comes back; a Life says what happened, and where the store is.
State: the processes, which end with the block.
Not here: what the pipeline must say of it (test_views.py).

The store is at a, and keeps System/# too. Monitors report every second. Nothing waits for a time: it waits for what an
administrator, who watches System/Brokers/#, hears.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

import heliograph
from benchmarks.ports import free_ports
from heliograph.errors import RefusedError
from heliograph.live.client import Client
from tests.live.processes import Process

LINKS = {"a": (), "b": ("a",), "c": ("b",), "d": ("a",)}
SECONDS = 60.0
FAR, TIES = "far/c", "ties"  # topics
FAR_COUNT = 550  # publications at c in each of its lives
TIE_COUNT = 60  # topics, each with one publication of each of two publishers
SAMPLES_LEAST = 3  # of paths from c to a, which the advice needs
SILENT_S = 3.5  # more than three intervals
DENIED = (3, 2)  # attempts in each of c's lives


@dataclass
class Stay:
    """A client at a broker, as the client saw it: each end is between two moments of this machine's clock."""

    broker: str
    name: str
    began: tuple[float, float]
    ended: tuple[float, float] | None = None
    how: str = ""  # "goodbye", or "killed" with its broker


@dataclass
class Life:
    """What happened."""

    folder: Path
    url: str = ""
    token: Path = Path()
    stays: dict[str, Stay] = field(default_factory=dict)
    killed: dict[str, tuple[float, float]] = field(default_factory=dict)
    back: float = 0.0  # when c was started again
    heard: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)  # broker, about, row
    ties: list[tuple[str, str]] = field(default_factory=list)  # topic and payload, in the order of arrival
    began: float = 0.0
    ended: float = 0.0

    def connected(self) -> dict[str, int]:
        """How many clients each living broker had at the end."""
        here = [stay.broker for stay in self.stays.values() if stay.ended is None]
        return {broker: here.count(broker) for broker in ("a", "b", "c")}


class Network:
    """The processes, and the clients by name."""

    def __init__(self, folder: Path) -> None:
        self.life = Life(folder, began=time())
        self.clients: dict[str, Client] = {}
        self._ports = dict(zip(LINKS, free_ports(len(LINKS)), strict=True))
        self._processes: dict[str, Process] = {}
        self._news = asyncio.Condition()
        (folder / "key").touch(0o600)
        (folder / "key").write_text("k" * 64)
        (folder / "settings.toml").write_text("[monitor]\ninterval_s = 1\n")
        self.life.url = self.url("a")
        self.life.token = folder / "run" / f"admin-{self._ports['a']}.token"

    def url(self, broker: str) -> str:
        return f"heliograph://127.0.0.1:{self._ports[broker]}"

    def start(self, broker: str) -> None:
        folder = self.life.folder
        options = ["--config", str(folder / "settings.toml"), "--network-key-file", str(folder / "key")]
        options += ["--name", broker, "--listen", f"127.0.0.1:{self._ports[broker]}", "--no-discovery"]
        for other in LINKS[broker]:
            options += ["--link", f"127.0.0.1:{self._ports[other]}"]
        if broker == "a":
            options += ["--store", "--store-place", str(folder / "kept")]
            options += ["--store-pattern", "#", "--store-pattern", "System/#"]
        self._processes[broker] = Process(folder, "--log-format", "json", *options)

    async def ready(self, *brokers: str) -> None:
        for broker in brokers:
            await asyncio.to_thread(self._processes[broker].line, "ready in")

    def kill(self, broker: str) -> None:
        before = time()
        self._processes[broker].process.kill()
        self._processes[broker].process.wait()
        self.life.killed[broker] = (before, time())
        for stay in self.life.stays.values():
            if stay.broker == broker and stay.ended is None:
                stay.ended, stay.how = self.life.killed[broker], "killed"

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        for process in self._processes.values():
            process.process.kill()
            process.process.wait()

    async def come(self, broker: str, name: str, **more: Any) -> Client:
        before = time()
        client = self.clients[name] = await heliograph.connect(self.url(broker), name=name, timeout=SECONDS, **more)
        self.life.stays[name] = Stay(broker, name, (before, time()))
        return client

    async def go(self, name: str) -> None:
        before = time()
        await self.clients.pop(name).close()
        self.life.stays[name].ended, self.life.stays[name].how = (before, time()), "goodbye"

    async def hear(self, publication: Any) -> None:
        async with self._news:
            _, _, broker, about = publication.topic.split("/")
            self.life.heard.append((broker, about, json.loads(publication.payload)))
            self._news.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._news:
            await self._news.wait_for(holds)

    def rows(self, broker: str, about: str, since: float = 0.0) -> list[dict[str, Any]]:
        """What a broker said so far of what was at this moment or later."""
        mine = (row for who, what, row in self.life.heard if (who, what) == (broker, about))
        return [row for row in mine if row["time_us"] > since * 1_000_000]


@asynccontextmanager
async def live(folder: Path) -> AsyncIterator[Life]:
    """The whole story. The brokers that are left, and their clients, stay until the block ends."""
    network = Network(folder)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(network.close)
        for broker in LINKS:
            network.start(broker)
        await network.ready(*LINKS)
        watcher = await network.come("a", "watcher", entity="local-admin", token_file=network.life.token)
        await watcher.subscribe("System/Brokers/#", callback=network.hear, listens=True)
        await network.until(lambda: any(row["brokers"] == len(LINKS) for row in network.rows("a", "load")))
        for broker in LINKS:  # reports from before a broker knew of the store and the watcher went nowhere
            await network.until(lambda broker=broker: bool(network.rows(broker, "counters")))
        await _first_life(network)
        network.kill("d")
        network.kill("c")
        for name in [name for name, stay in network.life.stays.items() if stay.how == "killed"]:
            await network.clients.pop(name).close()
        network.life.back = time()
        network.start("c")
        await network.ready("c")
        await _second_life(network)
        yield network.life


async def _first_life(network: Network) -> None:
    await network.come("d", "left")
    await network.come("c", "early")
    await network.come("c", "alive")
    await _publish(network, "c", "first", DENIED[0])
    await network.go("early")
    seen = time()
    for broker in ("c", "d"):
        await network.until(lambda broker=broker: bool(network.rows(broker, "counters", seen)))


async def _second_life(network: Network) -> None:
    await network.until(lambda: any(row["brokers"] == 3 for row in network.rows("c", "load", network.life.back)))
    for number in range(4):
        await network.come("c", f"again-{number}")
    await _publish(network, "c", "second", DENIED[1])
    await network.go("again-0")
    await _tie(network)
    await _sample(network)
    gone = network.life.killed["d"][1] + SILENT_S
    seen = time()
    for broker in ("a", "b", "c"):
        await network.until(lambda broker=broker: bool(network.rows(broker, "counters", max(seen, gone))))
    await network.clients["watcher"].publish("end", "", reliable=True)  # the store has what came before
    network.life.ended = time()


async def _publish(network: Network, broker: str, name: str, denied: int) -> None:
    client = await network.come(broker, name)
    for number in range(FAR_COUNT):
        await client.publish(FAR, f"{name} {number}")
    await client.flush()
    for _ in range(denied):
        await _denied(client.publish("System/forged", ""), client)


async def _denied(publishing: Awaitable[None], client: Client) -> None:
    try:
        await publishing
        await client.flush()
    except RefusedError:
        return
    raise AssertionError("anybody may publish on system topics")


async def _tie(network: Network) -> None:
    """Two publishers on the same topics at the same time. A subscriber at the store's broker hears their order."""
    heard = asyncio.Event()
    ties = network.life.ties

    def hear(publication: Any) -> None:
        ties.append((publication.topic, publication.payload.decode()))
        if len(ties) == 2 * TIE_COUNT:
            heard.set()

    publishers = [await network.come("a", f"tie-{number}") for number in range(2)]
    await network.clients["watcher"].subscribe(f"{TIES}/#", callback=hear, listens=True)
    for topic in range(TIE_COUNT):
        for publisher in publishers if topic % 2 else reversed(publishers):
            name = f"tie-{publishers.index(publisher)}"
            await publisher.publish(f"{TIES}/{topic}", name, headers={"by": name})
        await asyncio.sleep(0.001)  # each pair is sent at once, and most pairs arrive in the same millisecond
    async with asyncio.timeout(SECONDS):
        await heard.wait()
    for number in range(2):
        await network.go(f"tie-{number}")


async def _sample(network: Network) -> None:
    """Publish at c until enough paths to a were sampled."""

    def is_enough() -> bool:
        return sum(row["topic"] == FAR for row in network.rows("a", "hops")) >= SAMPLES_LEAST

    async with asyncio.timeout(SECONDS):
        while not is_enough():
            await network.clients["second"].publish(FAR, "sampled")
            await asyncio.sleep(0.002)
