"""history: a store that holds ten million publications: how soon it serves, how much memory it takes, how fast it
replays, what a narrow topic costs it, and whether a reader that catches up slows live delivery.

In:    nothing; a temporary folder on the disk that TMPDIR names (about 900 MB).
Out:   seconds until the store is found; MiB of its process then, and after a replay; publications a second to one
       reader; CPU seconds of the store for a narrow topic, when it has no summaries of topics yet and with them; live
       delivery alone and while a reader catches up, with the store in its own process and embedded in the
       broker of the live traffic.
State: none.
Not here: what it takes to store (store.py), the vault alone (vault.py).

Live publications are sent at a fixed rate, whatever happens to those before. Delivery is slower by the share of them
that did not arrive while they were being sent: that has a budget. Their ages at arrival are told beside it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import table
from benchmarks.generator import RunError
from benchmarks.ports import free_port
from benchmarks.store import REPLAY_BUDGET, OurPublisher, _connected, _process
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.model.origin import origin_of
from heliograph.vault import Append, Put, Vault
from heliograph.wire.bodies import Subscribe, encode
from heliograph.wire.frames import Kind, control, event
from heliograph.wire.stores import MAIN

SAYS = "a store with 10 million publications: start, memory, and what catching up costs live delivery"
HELD = 10_000_000
RUN = 10_000
NARROW_EVERY, NARROW_RUN = 100, 50  # of a hundred runs this one is on the narrow topic
NARROW_TOPIC, NARROW = b"bench/narrow", HELD // NARROW_EVERY
START_S, MEMORY_MIB, SLOWER, NARROW_CPU_S = 2.0, 150.0, 0.20, 0.2  # budgets
PLACES = ("own", "embedded")
REPLAYED = 1_000_000
RATE = 50_000  # live publications a second, whatever else happens
BATCH = 50  # sent at once
STAMP = Struct("<d")
MARK = b"heliograph-live-"
FILLING = b"x" * (256 - len(MARK) - STAMP.size)
PAYLOAD_BYTES = len(MARK) + STAMP.size + len(FILLING)
NAME = "bench"


def fill(folder: Path) -> None:
    """A vault as a store of before would have written it, without the network in between: no summaries of topics."""
    backend = SqliteVault(Vault(name=NAME, place=str(folder)))
    backend.open()
    backend.commit([[Put("id", (7).to_bytes(8, "little"))]])
    begin = time.time_ns() - HELD * 1_000
    for start in range(0, HELD, RUN * 10):
        changes = []
        for first in range(start, start + RUN * 10, RUN):
            topic = NARROW_TOPIC if first // RUN % NARROW_EVERY == NARROW_RUN else b"bench/t"
            frames = b"".join(event(topic, b"%032d" % number, 5, number + 1) for number in range(first, first + RUN))
            at = begin + first * 1_000
            changes.append(Append(MAIN, frames, RUN, at, at))
        backend.commit([changes])
        backend.tidy(True)
    backend.close()


def start(stack: ExitStack, folder: Path, embedded: bool) -> tuple[int, int, Any, float]:
    """The broker of live traffic and the store. Their ports; the store's process, and when it was started."""
    key = folder / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    store, hub = free_port(), free_port()
    program = [sys.executable, "-m", "heliograph.cli.main"]
    common = ["--network-key-file", str(key), "--log-level", "warning"]
    run = ["store", "run", "--listen", f"127.0.0.1:{store}", "--name", NAME, "--place", str(folder)]
    link: list[str] = []
    if not embedded:
        listen = ["--listen", f"127.0.0.1:{hub}", "--name", "hub", "--no-discovery"]
        stack.enter_context(_process([*program, "broker", "run", *listen, *common], str(folder)))
        _connected(hub).close()
        link = ["--link", f"127.0.0.1:{hub}"]
    began = time.perf_counter()
    process = stack.enter_context(_process([*program, *run, "--pattern", "bench/#", *link, *common], str(folder)))
    return store if embedded else hub, store, process, began


def _found(store: int) -> OurPublisher:
    """Wait until the store serves."""
    _connected(store).close()
    return OurPublisher(store)


def _start_s_empty() -> float:
    """The same with nothing in the vault, to tell what the history adds."""
    with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as folder, ExitStack() as stack:
        _, store, _, began = start(stack, Path(folder), False)
        _found(store)
        return time.perf_counter() - began


def _mib(process: Any) -> float:
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True, text=True, check=True)
    return int(said.stdout) / 1_024


def _narrow_cpu_s(reader: OurPublisher, process: Any) -> float:
    """CPU seconds of the store while a reader gets what is on the narrow topic."""
    meter = psutil.Process(process.pid)
    before = meter.cpu_times()
    reader.replay(HELD, NARROW_TOPIC.decode(), NARROW)
    after = meter.cpu_times()
    return float(after.user + after.system - before.user - before.system)


class Live:
    """One publisher, at a fixed rate, and one subscriber, of a topic that no store keeps."""

    def __init__(self, port: int) -> None:
        secret = os.urandom(16)
        self._origin = origin_of(secret)
        self._sequence = 0
        self._ear, self._mouth = _session(port, os.urandom(16)), _session(port, secret)
        self._ear.sendall(control(Kind.SUBSCRIBE, 1, encode(Subscribe(1, "live/t"))))
        self._ear.setblocking(False)
        self._tail = b""

    def run(self, seconds: float) -> tuple[float, list[float]]:
        """Delivered a second, and the ages at arrival, in ms, of one publication in BATCH."""
        came = 0
        ages: list[float] = []
        began = time.perf_counter()
        stop, next_at = began + seconds, began
        while (now := time.perf_counter()) < stop:
            if now >= next_at:
                self._mouth.sendall(self._batch(now))
                next_at += BATCH / RATE
            if select.select([self._ear], [], [], max(0.0, min(next_at, stop) - time.perf_counter()))[0]:
                came += self._hear(ages)
        rate = came / (time.perf_counter() - began)
        self._wait(ages)
        return rate, ages

    def _wait(self, ages: list[float]) -> None:
        """What is still under way is late, not lost: it must not count for the next run."""
        while select.select([self._ear], [], [], 0.3)[0]:
            self._hear(ages)

    def _hear(self, ages: list[float]) -> int:
        data = self._tail + self._ear.recv(1 << 18)
        now, count, start = time.perf_counter(), 0, 0
        while (at := data.find(MARK, start)) >= 0 and at + PAYLOAD_BYTES <= len(data):
            start = at + PAYLOAD_BYTES
            count += 1
            (sent,) = STAMP.unpack_from(data, at + len(MARK))
            if sent:
                ages.append((now - sent) * 1_000)
        self._tail = data[start:][-2 * PAYLOAD_BYTES :]
        return count

    def _batch(self, now: float) -> bytes:
        frames = []
        for number in range(BATCH):
            self._sequence += 1
            payload = MARK + STAMP.pack(0.0 if number else now) + FILLING
            frames.append(event(b"live/t", payload, self._origin, self._sequence))
        return b"".join(frames)


def _session(port: int, secret: bytes) -> socket.socket:
    sock = _connected(port)
    sock.sendall(control(Kind.HELLO, 0, json.dumps({"versions": [1], "secret": secret.hex()}).encode()))
    sock.recv(1 << 16)
    return sock


def catch_up(port: int, ready: Any, over: Any) -> None:
    """In a process of its own: read the history until told to stop."""
    reader = OurPublisher(port)
    ready.set()
    while not over.is_set():
        reader.replay(100_000)


def _compare(port: int, reader_port: int, seconds: float, rounds: int) -> dict[str, float]:
    """Live delivery alone, and while a reader catches up; medians of rounds in turn."""
    live = Live(port)
    live.run(0.3)
    found: dict[str, list[tuple[float, list[float]]]] = {"alone": [], "beside": []}
    for _ in range(rounds):
        found["alone"].append(live.run(seconds))
        ready, over = multiprocessing.Event(), multiprocessing.Event()
        reader = multiprocessing.Process(target=catch_up, args=(reader_port, ready, over), daemon=True)
        reader.start()
        if not ready.wait(20):
            raise RunError("the reader did not start")
        found["beside"].append(live.run(seconds))
        over.set()
        reader.join(20)
        reader.kill()
    figures = {}
    for when, runs in found.items():
        ages = sorted(age for _, some in runs for age in some)
        figures[f"live_s_{when}"] = median(rate for rate, _ in runs)
        figures[f"live_ms_p50_{when}"] = ages[len(ages) // 2]
        figures[f"live_ms_p99_{when}"] = ages[len(ages) * 99 // 100]
    return figures


def run(quick: bool) -> dict[str, Any]:
    """One vault for all."""
    seconds, rounds = (1.5, 3) if quick else (3.0, 7)
    folder = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    figures: dict[str, float] = {}
    try:
        figures["start_s_empty"] = _start_s_empty()
        say(f"writing {HELD:,} publications")
        fill(folder)
        for place in PLACES:
            say(f"the store {'in its own process' if place == 'own' else 'beside its broker'}")
            with ExitStack() as stack:
                port, store, process, began = start(stack, folder, place == "embedded")
                reader = _found(store)
                figures[f"start_s_{place}"] = time.perf_counter() - began
                figures[f"memory_mib_{place}"] = _mib(process)
                if place == PLACES[0]:
                    figures["narrow_cpu_s_first"] = _narrow_cpu_s(reader, process)
                figures[f"narrow_cpu_s_{place}"] = min(_narrow_cpu_s(reader, process) for _ in range(3))
                figures[f"replay_s_{place}"] = max(reader.replay(REPLAYED) for _ in range(2))
                figures[f"memory_after_replay_mib_{place}"] = _mib(process)
                compared = _compare(port, store, seconds, rounds)
                figures |= {f"{name}_{place}": value for name, value in compared.items()}
    finally:
        shutil.rmtree(folder)
    return _result(figures) | {"quick": quick, "machine": machine.facts()}


def _result(figures: dict[str, float]) -> dict[str, Any]:
    budget: list[dict[str, Any]] = []

    def line(case: str, found: float, word: str, limit: float) -> None:
        met = found <= limit if word == "most" else found >= limit
        budget.append({"case": case, "peer": "", word: limit, "is": round(found, 3), "met": met})

    for place in PLACES:
        line(f"start_s_{place}", figures[f"start_s_{place}"], "most", START_S)
        line(f"narrow_cpu_s_{place}", figures[f"narrow_cpu_s_{place}"], "most", NARROW_CPU_S)
        line(f"memory_after_replay_mib_{place}", figures[f"memory_after_replay_mib_{place}"], "most", MEMORY_MIB)
        line(f"replay_s_{place}", figures[f"replay_s_{place}"], "least", REPLAY_BUDGET)
        slower = 1 - figures[f"live_s_beside_{place}"] / figures[f"live_s_alone_{place}"]
        line(f"slower_{place}", slower, "most", SLOWER)
    return {
        "name": "history",
        "unit": f"a store that holds {HELD:,} publications; live: {RATE:,} a second of {PAYLOAD_BYTES} B",
        "ours": {"cases": {name: round(value, 2) for name, value in figures.items()}},
        "peers": {},
        "budget": budget,
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    return table(["figure", "ours"], [[name, value] for name, value in result["ours"]["cases"].items()])
