"""Runs with stores on live networks whose brokers and stores are killed, stopped, and come back, under load.

In:    a seed and a folder.
Out:   a Kept: what was acknowledged, and what is wrong.
State: the processes of one network at a time.
Not here: the clients (store_clients.py), what is right (store_oracle.py), starting processes (processes.py).

Two to five brokers in one or two clusters, a broker with a store, and a store in its own process, all linked at random.
The first broker is never killed, so that one client can watch it all live.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.independent.client import Client
from tests.independent.processes import Processes, common_words
from tests.independent.store_clients import Publisher, Reader, whole_log
from tests.independent.store_oracle import Kept, judge

STORES = ("x", "y")  # each serves the topics below its name
SETTLED_S = 60.0  # at most, after the last fault
POLL_S = 0.1


class Nodes(Processes):
    """Brokers and stores, linked at random."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = Random(f"nodes {seed}")
        brokers = [f"b{number}" for number in range(draw.randint(2, 5))]
        commands: dict[str, list[str]] = {}
        clusters = draw.randint(1, 2)
        for name in (*brokers, *STORES):
            others = list(commands)
            links = draw.sample(others, min(len(others), draw.randint(1, 2)))
            commands[name] = command_of(name, links, f"c{draw.randrange(clusters)}")
        super().__init__(folder, commands)

    async def fault(self, draw: Random) -> None:
        """Something happens to one of them, but for the first broker."""
        node = self.nodes[draw.choice(list(self.nodes)[1:])]
        assert node.process is not None
        if draw.random() < 0.25:
            node.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(draw.uniform(0.3, 5.0))
            node.process.send_signal(signal.SIGCONT)
            return
        node.process.send_signal(draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        await asyncio.to_thread(node.process.wait)
        await asyncio.sleep(draw.choice((0.0, draw.uniform(0.0, 2.0))))
        self.start(node)


def command_of(name: str, links: Sequence[str], cluster: str) -> list[str]:
    """The words that start a broker, a broker with the store x, or the store y."""
    common = common_words(name, links, cluster)
    if name == "y":
        return ["store", "run", *common, "--pattern", "y/#", "--place", "vaults"]
    store = ["--store", "--store-pattern", "x/#", "--store-place", "vaults"] if name == "x" else []
    return ["broker", "run", *common, "--no-discovery", *store]


@contextmanager
def running(seed: int, folder: Path) -> Iterator[Nodes]:
    with Nodes(seed, folder) as nodes:
        yield nodes


def with_stores(seed: int, folder: Path, *, count: int = 1_500, faults: int = 8) -> Kept:
    """Publish, read and have faults; then everything settles, and both logs are read whole at two brokers."""
    with running(seed, folder) as nodes:
        return asyncio.run(_play(seed, nodes, count, faults))


async def _play(seed: int, nodes: Nodes, count: int, faults: int) -> Kept:
    draw = Random(f"stores {seed}")
    await nodes.ready()
    ports = [node.port for node in nodes.nodes.values()]
    publishers = [
        Publisher(f"p{number} {seed}", ports, topics, count)
        for number, topics in enumerate((["x/1", "x/2"], ["y/1"], ["x/1", "y/1", "y/2"]))
    ]
    readers = [
        Reader(f"r{number}", ports, pattern, pattern[0] + "/1", keeps=keeps)
        for number, (pattern, keeps) in enumerate((("x/#", True), ("y/#", False), ("x/1", False), ("y/#", True)))
    ]
    watcher = Client("watcher", draw.randbytes(32))
    await watcher.join("127.0.0.1", ports[0])
    await watcher.subscribe(1, {"filter": "#"})
    reading = [asyncio.create_task(reader.run()) for reader in readers]
    writing = [asyncio.create_task(publisher.run()) for publisher in publishers]
    try:
        for _ in range(faults):
            await asyncio.sleep(draw.uniform(0.2, 1.5))
            await nodes.fault(draw)
        await nodes.ready()
        done = await settled(publishers, readers, writing)
        logs = [
            dict([await whole_log(port, f"{store}/1") for store in STORES])
            for port in (ports[0], nodes.nodes[STORES[0]].port)
        ]
        for reader in readers:
            await _caught_up(reader, len(logs[0][reader.store]))
    finally:
        for task in (*reading, *writing):
            task.cancel()
        ended = await asyncio.gather(*reading, *writing, return_exceptions=True)
        watcher.leave()
    bugs = [repr(each) for each in ended if isinstance(each, Exception)]
    verdict = judge(publishers, readers, logs, watcher.deliveries)
    verdict.problems += bugs if done else [*bugs, "not everything was acknowledged in time"]
    verdict.faults = faults
    return verdict


async def settled(
    publishers: Sequence[Publisher], readers: Sequence[Reader], tasks: Sequence[asyncio.Task[None]]
) -> bool:
    deadline = asyncio.get_running_loop().time() + SETTLED_S
    while asyncio.get_running_loop().time() < deadline:
        if all(publisher.is_done for publisher in publishers) and all(reader.store for reader in readers):
            return True
        if any(task.done() and task.exception() for task in tasks):
            return False
        await asyncio.sleep(POLL_S)
    return False


async def _caught_up(reader: Reader, next: int) -> None:
    deadline = asyncio.get_running_loop().time() + SETTLED_S
    while not next <= reader.expected < 1 << 62 and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_S)
