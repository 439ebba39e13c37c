"""kill -9 of driver, Java, Python worker, store and broker at random moments: the sink's rows are there once.

In:    a broker, a store in another process, and a stream into it, each started anew in a fresh process after each kill.
Out:   claims about what a reader of the store finds: each row once, each batch in one piece.
State: processes, ended with the test.
Not here: kills at chosen points of a micro-batch (test_crashes.py).

The first kill of each run comes while the first batch is staged or committed, with empty folders: there are users.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

import heliograph
from benchmarks.ports import free_port
from heliograph.errors import HeliographError
from tests.live.processes import Process
from tests.many import cases
from tests.pipeline.crashing import DRIVER, JAVA, STORE, WORKER

ROOT = Path(__file__).parents[2]
BROKER = "broker"
VICTIMS = (DRIVER, JAVA, WORKER, STORE, BROKER)
FILES, FILE_ROWS = 8, 3_000  # two files are a batch, and a task each
KILLS, STARTS = 3, 12
SPAN_S = 4.0  # a kill comes this long after the stream has begun, at most
PATIENCE_S = 240.0


class Network:
    """A broker, and a store at another broker, on fixed ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "key").write_text("ab" * 32)
        (folder / "key").chmod(0o600)
        self.ports = {BROKER: free_port(), STORE: free_port()}
        self.running: dict[str, Process] = {}
        for name in self.ports:
            self.start(name)

    @property
    def url(self) -> str:
        return f"heliograph://127.0.0.1:{self.ports[BROKER]}"

    def start(self, name: str) -> None:
        more = ["--store", "--store-place", str(self._folder / "kept"), "--link", f"127.0.0.1:{self.ports[BROKER]}"]
        options = ["--listen", f"127.0.0.1:{self.ports[name]}", "--name", name, "--no-discovery"]
        own = [*(more if name == STORE else []), "--network-key-file", str(self._folder / "key")]
        self.running[name] = Process(self._folder, *options, *own, "--log-format", "json")

    def kill(self, name: str) -> None:
        process = self.running[name]
        process.send(signal.SIGKILL)
        process.process.wait()
        self.start(name)

    def end(self) -> None:
        for process in self.running.values():
            process.process.kill()
            process.process.wait()


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    made = Network(folder)
    try:
        yield made
    finally:
        made.end()


def write_rows(folder: Path) -> None:
    """Numbered rows, in files whose times give them an order."""
    folder.mkdir()
    for number in range(FILES):
        numbers = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        table = pa.table({"topic": [f"out/{n % 3}" for n in numbers], "value": [str(n) for n in numbers]})
        path = folder / f"{number}.parquet"
        parquet.write_table(table, path)
        os.utime(path, (1_000_000 + number // 2, 1_000_000 + number // 2))


def driver(url: str, folder: Path) -> subprocess.Popen[str]:
    (folder / "begun").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.pipeline.feeding", url, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


def victims(victim: str, process: int) -> list[int]:
    """The processes of a driver to kill."""
    if victim == DRIVER:
        return [process]
    below = psutil.Process(process).children(recursive=True)
    java = [each.pid for each in below if "java" in each.name()]
    if victim == JAVA:
        return java
    of_java = {each.pid for pid in java for each in psutil.Process(pid).children(recursive=True)}
    workers = [each for each in below if each.pid in of_java and "python" in each.name()]
    leaves = [each.pid for each in workers if not each.children()]
    return leaves[-1:]


def _below(process: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(process).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def play(folder: Path, seed: int, killed: dict[str, int]) -> list[int]:
    """Kill at random moments, then let it end; what a reader finds, in its order. ``killed`` counts by victim."""
    draw = random.Random(seed)
    write_rows(folder / "rows")
    with network(folder) as here:
        for name in (BROKER, STORE):
            here.running[name].line("ready in")
        kills = [draw.choice(VICTIMS) for _ in range(KILLS)]
        for _ in range(STARTS):
            code, told = run(here, folder, kills, draw, killed)
            if code == 0 and not kills:
                break
        else:
            raise AssertionError(f"seed {seed}: it does not end: {told[-3_000:]}")
        return read(here.url)


def run(
    here: Network, folder: Path, kills: list[str], draw: random.Random, killed: dict[str, int]
) -> tuple[int | None, str]:
    """One driver, in a fresh process, until it ends or is killed."""
    process = driver(here.url, folder)
    java: list[psutil.Process] = []
    try:
        until = monotonic() + PATIENCE_S
        while process.poll() is None and not (folder / "begun").exists() and monotonic() < until:
            sleep(0.05)
        java = [each for each in _below(process.pid) if "java" in each.name()]
        while kills and process.poll() is None:
            sleep(draw.uniform(0, SPAN_S))
            victim = kills[0]
            if victim in (STORE, BROKER):
                here.kill(victim)
            else:
                found = victims(victim, process.pid)
                for pid in found:
                    os.kill(pid, signal.SIGKILL)
                if not found:
                    break
            kills.pop(0)
            killed[victim] = killed.get(victim, 0) + 1
            if victim in (DRIVER, JAVA):
                break
        process.wait(PATIENCE_S)
    except (psutil.NoSuchProcess, ProcessLookupError):
        pass  # it has ended by itself
    finally:
        process.kill()
        for each in java:
            _end(each)
    return process.returncode, process.communicate()[1]


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
        process.wait(PATIENCE_S)
    except psutil.NoSuchProcess:
        pass


def read(url: str) -> list[int]:
    until = monotonic() + PATIENCE_S
    while True:
        try:
            with heliograph.connect_blocking(url) as client, client.replay("out/#") as replay:
                return [int(one.payload) for one in replay]
        except HeliographError:
            if monotonic() > until:
                raise
            sleep(0.5)


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
@pytest.mark.parametrize("seed", cases(sweep=[1], soak=range(2, 21)))
def test_rows_are_there_once_whatever_is_killed_and_whenever(seed: int, tmp_path: Path) -> None:
    killed: dict[str, int] = {}
    found = play(tmp_path, seed, killed)
    rows = FILES * FILE_ROWS
    lost, repeated = rows - len(set(found)), len(found) - len(set(found))
    print(f"sink, seed {seed}: {rows:,} rows, {lost:,} lost, {repeated:,} repeated, killed {killed}")
    assert (lost, repeated) == (0, 0)
    assert sum(killed.values()) == KILLS
    batches = [batch for batch, _ in groupby(number // (2 * FILE_ROWS) for number in found)]
    assert batches == sorted(set(batches)), "each batch is in one piece, and they are in order"


def test_each_victim_is_killed_in_some_run() -> None:
    drawn: set[Any] = set()
    for seed in range(1, 21):
        draw = random.Random(seed)
        drawn |= {draw.choice(VICTIMS) for _ in range(KILLS)}
    assert drawn == set(VICTIMS)
