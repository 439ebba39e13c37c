"""Real processes, killed without warning while publications are stored: what was acknowledged is read, once, in order.

In:    three brokers, two of them with a store, one in SQLite and one in PostgreSQL; kill -9 in turn.
Out:   claims about what publishers were told and what readers got.
State: processes, ended with the test.
Not here: the simulated runs, which find more (test_faults.py, the scenarios stores-*).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from heliograph.live.loop import Driver
from heliograph.live.loop import run as run_loop
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.reader import DurableReader
from tests.live.processes import Process
from tests.stores.stage import sequences
from tests.vaults.postgres import Server

pytestmark = [pytest.mark.live, pytest.mark.req("N10")]

SECONDS = float(os.environ.get("HELIOGRAPH_KILL_S", "20"))  # under load; `make soak` has it run for longer
COUNT = int(75 * SECONDS)  # of each of two publishers
KILLS = int(SECONDS / 4)
PAUSE_S = 1.0 if SECONDS < 60 else 3.5  # between two kills, on average
PATIENCE_S = 60.0 + SECONDS


class Nodes:
    """Broker processes on fixed ports, started again after each kill."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self._folder = folder
        (folder / "key").write_text("ab" * 32)
        (folder / "key").chmod(0o600)
        self.ports = {name: free_port() for name in places}
        self._places = places
        self._running: dict[str, Process] = {}
        for name in places:
            self.start(name)

    def start(self, name: str) -> None:
        others = [other for other in self.ports if other < name]
        links = [word for other in others for word in ("--link", f"127.0.0.1:{self.ports[other]}")]
        place = self._places[name]
        store = ["--store", "--store-pattern", f"{name}/#", "--store-place", place] if place else []
        options = ["--listen", f"127.0.0.1:{self.ports[name]}", "--name", name, "--no-discovery", *links, *store]
        self._running[name] = Process(
            self._folder, *options, "--network-key-file", str(self._folder / "key"), "--log-format", "json"
        )

    def kill(self, name: str) -> None:
        process = self._running[name]
        process.send(signal.SIGKILL)
        process.process.wait()
        self.start(name)

    def look_after(self) -> None:
        """Start what ended by itself: PostgreSQL may hold the lock of a store that was killed for a moment."""
        for name, process in list(self._running.items()):
            if process.process.poll() is not None:
                self.start(name)

    def end(self) -> None:
        for process in self._running.values():
            process.process.kill()
            process.process.wait()


@contextmanager
def nodes(folder: Path, places: dict[str, str]) -> Iterator[Nodes]:
    made = Nodes(folder, places)
    try:
        yield made
    finally:
        made.end()


def test_kill_9_under_load_loses_repeats_and_reorders_nothing(tmp_path: Path, postgres: Server) -> None:
    notebook = Notebook()
    with nodes(tmp_path, {"a": "", "b": str(tmp_path / "vaults"), "c": postgres.url}) as three:
        addresses = {name: ("127.0.0.1", port) for name, port in three.ports.items()}
        at = [addresses["a"], addresses["c"], addresses["b"]]
        writers = {
            "w1": ReliablePublisher("w1", at, 1, notebook, topics=["b/1", "b/2"], count=COUNT, every_ms=10),
            "w2": ReliablePublisher("w2", at[::-1], 1, notebook, topics=["c/1"], count=COUNT, every_ms=10),
        }
        reader = DurableReader("reader", [addresses["c"], addresses["a"]], 1, notebook, pattern="#", window=500)
        run_loop(_play(three, {**writers, "reader": reader}, list(writers.values()), notebook))
    print(summary(notebook, {writer.origin for writer in writers.values()}))
    assert notebook.count == 2 * COUNT
    for writer in writers.values():
        assert sequences(notebook, "reader", writer.origin) == list(range(1, COUNT + 1))
    assert notebook.gaps == notebook.resets == notebook.refused == []


def summary(notebook: Notebook, origins: set[int]) -> str:
    """What a soak is about, in one line."""
    read = [sequences(notebook, "reader", origin) for origin in sorted(origins)]
    acknowledged = sum(len(numbers) for stores in notebook.acknowledged.values() for numbers in stores.values())
    lost = acknowledged - sum(len(set(numbers)) for numbers in read)
    duplicated = sum(len(numbers) - len(set(numbers)) for numbers in read)
    misordered = sum(first > second for numbers in read for first, second in pairwise(numbers))
    told = f"{lost:,} lost, {duplicated:,} duplicated, {misordered:,} misordered, {KILLS} kills"
    return f"live stores: {acknowledged:,} acknowledged, {told}"


async def _play(
    three: Nodes, machines: dict[str, object], writers: list[ReliablePublisher], notebook: Notebook
) -> None:
    driver = Driver(machines)  # type: ignore[arg-type]
    driver.start()
    draw = random.Random(7)
    loop = asyncio.get_running_loop()
    try:
        begin = loop.time()
        while not notebook.count and loop.time() < begin + PATIENCE_S:
            await asyncio.sleep(0.2)
        for number in range(KILLS):
            await asyncio.sleep(PAUSE_S * (0.5 + draw.random()))
            three.look_after()
            three.kill("bcabc"[number % 5])
        while loop.time() < begin + 2 * PATIENCE_S:
            await asyncio.sleep(0.2)
            three.look_after()
            if all(writer.is_done for writer in writers) and sum(map(len, notebook.read.values())) >= 2 * COUNT:
                break
    finally:
        await driver.stop()
