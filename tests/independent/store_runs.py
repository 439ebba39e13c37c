"""Runs with stores on live networks whose brokers and stores are killed, stopped, and come back, under load.

In:    a seed and a folder.
Out:   a Kept: what was acknowledged, and what is wrong.
State: the processes of one network at a time.
Not here: the clients (store_clients.py), what is right (store_oracle.py).

Two to five brokers in one or two clusters, a broker with a store, and a store in its own process, all linked at random.
The first broker is never killed, so that one client can watch it all live.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.ports import free_ports
from tests.independent.client import Client
from tests.independent.network import COMMAND
from tests.independent.store_clients import Publisher, Reader, whole_log
from tests.independent.store_oracle import Kept, judge

STORES = ("x", "y")  # each serves the topics below its name
SETTLED_S = 60.0  # at most, after the last fault
READY_S = 60.0
POLL_S = 0.1


@dataclass
class Node:
    """A process on a port of its own."""

    command: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = None


class Nodes:
    """Brokers and stores, by name."""

    def __init__(self, seed: int, folder: Path) -> None:
        draw = Random(f"nodes {seed}")
        self._folder = folder
        (folder / "key").write_text("ab" * 32)
        (folder / "key").chmod(0o600)
        brokers = [f"b{number}" for number in range(draw.randint(2, 5))]
        self.nodes: dict[str, Node] = {}
        clusters = draw.randint(1, 2)
        for name in (*brokers, *STORES):
            others = list(self.nodes)
            links = draw.sample(others, min(len(others), draw.randint(1, 2)))
            self.nodes[name] = Node(self._command(name, links, f"c{draw.randrange(clusters)}"), 0)
        for name, port in zip(self.nodes, free_ports(len(self.nodes)), strict=True):
            self.nodes[name].port = port
        for node in self.nodes.values():
            node.command = [self._resolved(word, node) for word in node.command]
            self._start(node)

    def _command(self, name: str, links: Sequence[str], cluster: str) -> list[str]:
        common = ["--name", name, "--cluster", cluster, "--network-key-file", "key", "--listen", "port:"]
        common += [word for other in links for word in ("--link", f"port:{other}")]
        if name == "y":
            return ["store", "run", *common, "--pattern", "y/#", "--place", "vaults"]
        store = ["--store", "--store-pattern", "x/#", "--store-place", "vaults"] if name == "x" else []
        return ["broker", "run", *common, "--no-discovery", *store]

    def _resolved(self, word: str, node: Node) -> str:
        if not word.startswith("port:"):
            return word
        return f"127.0.0.1:{(self.nodes[word[5:]] if word[5:] else node).port}"

    def _start(self, node: Node) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
        folders = {f"HELIOGRAPH_{kind}_DIR": str(self._folder / kind.lower()) for kind in ("RUNTIME", "STATE")}
        with (self._folder / "log").open("ab") as log:
            node.process = subprocess.Popen(
                [COMMAND, *node.command], cwd=self._folder, env=kept | folders, stdout=log, stderr=log
            )

    async def ready(self) -> None:
        """Wait until all of them accept links."""
        async with asyncio.timeout(READY_S):
            for node in self.nodes.values():
                while not await accepts(node.port):
                    await asyncio.sleep(POLL_S)

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
        self._start(node)

    def end(self) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait()


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@contextmanager
def running(seed: int, folder: Path) -> Iterator[Nodes]:
    nodes = Nodes(seed, folder)
    try:
        yield nodes
    finally:
        nodes.end()


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
