"""history: a store that holds ten million publications: how soon it serves, how much memory it takes, and whether a
reader that catches up slows live delivery.

In:    nothing; a temporary folder on the disk that TMPDIR names (about 900 MB).
Out:   seconds until the store is found; MiB of its process then, and after a replay; live publications a second alone
       and while a reader catches up, with the store in its own process and embedded in the broker of the live traffic.
State: none.
Not here: what it takes to store (store.py), the vault alone (vault.py).
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
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import table
from benchmarks.generator import RunError
from benchmarks.peers.server import free_port
from benchmarks.store import PAYLOAD, OurPublisher, _connected, _process
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.model.origin import origin_of
from heliograph.vault import Append, Put, Vault
from heliograph.wire.bodies import Subscribe, encode
from heliograph.wire.frames import Kind, control, event
from heliograph.wire.stores import MAIN

SAYS = "a store with 10 million publications: start, memory, and what catching up costs live delivery"
HELD = 10_000_000
RUN = 10_000
START_S, MEMORY_MIB, SLOWER = 2.0, 150.0, 0.20  # budgets
WINDOW = 1_000
NAME = "bench"


def fill(folder: Path) -> None:
    """A vault as a store would have written it, without the network in between."""
    backend = SqliteVault(Vault(name=NAME, place=str(folder)))
    backend.open()
    backend.commit([[Put("id", (7).to_bytes(8, "little"))]])
    begin = time.time_ns() - HELD * 1_000
    for start in range(0, HELD, RUN * 10):
        changes = []
        for first in range(start, start + RUN * 10, RUN):
            frames = b"".join(
                event(b"bench/t", b"%032d" % number, 5, number + 1) for number in range(first, first + RUN)
            )
            at = begin + first * 1_000
            changes.append(Append(MAIN, frames, RUN, at, at))
        backend.commit([changes])
        backend.tidy(True)
    backend.close()


def start(stack: ExitStack, folder: Path, embedded: bool) -> tuple[int, int, Any]:
    """The broker of live traffic and the store. Their ports; the store's process."""
    key = folder / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    store, hub = free_port(), free_port()
    program = [sys.executable, "-m", "heliograph.cli.main"]
    common = ["--network-key-file", str(key), "--log-level", "warning"]
    run = ["store", "run", "--listen", f"127.0.0.1:{store}", "--name", NAME, "--place", str(folder)]
    if embedded:
        process = stack.enter_context(_process([*program, *run, "--pattern", "bench/#", *common], str(folder)))
        return store, store, process
    listen = ["--listen", f"127.0.0.1:{hub}", "--name", "hub", "--no-discovery"]
    stack.enter_context(_process([*program, "broker", "run", *listen, *common], str(folder)))
    _connected(hub).close()
    link = ["--pattern", "bench/#", "--link", f"127.0.0.1:{hub}"]
    process = stack.enter_context(_process([*program, *run, *link, *common], str(folder)))
    return hub, store, process


def _start_s_empty() -> float:
    """The same with nothing in the vault, to tell what the history adds."""
    with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as folder, ExitStack() as stack:
        began = time.perf_counter()
        _, store, _ = start(stack, Path(folder), False)
        _connected(store).close()
        OurPublisher(store)
        return time.perf_counter() - began


def _mib(process: Any) -> float:
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True, text=True, check=True)
    return int(said.stdout) / 1_024


class Live:
    """One publisher and one subscriber of a topic that no store keeps."""

    def __init__(self, port: int) -> None:
        secret = os.urandom(16)
        self._origin = origin_of(secret)
        self._sequence = 0
        self._ear, self._mouth = _session(port, os.urandom(16)), _session(port, secret)
        self._ear.sendall(control(Kind.SUBSCRIBE, 1, encode(Subscribe(1, "live/t"))))

    def rate(self, seconds: float) -> float:
        """Delivered a second with a thousand under way."""
        sent = came = 0
        out = b""
        began = time.perf_counter()
        while (lasted := time.perf_counter() - began) < seconds:
            if not out and sent - came < WINDOW:
                out, sent = self._batch(250), sent + 250
            ready, room, _ = select.select([self._ear], [self._mouth] if out else [], [], 0.5)
            if room:
                out = out[self._mouth.send(out) :]
            if ready:
                data = self._ear.recv(1 << 18)
                came += data.count(PAYLOAD)
        return came / lasted

    def _batch(self, count: int) -> bytes:
        begin = self._sequence + 1
        self._sequence += count
        numbers = range(begin, begin + count)
        return b"".join(event(b"live/t", PAYLOAD, self._origin, number) for number in numbers)


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


def _slower(port: int, reader_port: int, seconds: float, rounds: int) -> tuple[float, float]:
    """Live publications a second: alone, and while a reader catches up; medians of rounds in turn."""
    live = Live(port)
    live.rate(0.3)
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(live.rate(seconds))
        ready, over = multiprocessing.Event(), multiprocessing.Event()
        reader = multiprocessing.Process(target=catch_up, args=(reader_port, ready, over), daemon=True)
        reader.start()
        if not ready.wait(20):
            raise RunError("the reader did not start")
        beside.append(live.rate(seconds))
        over.set()
        reader.join(20)
        reader.kill()
    return median(alone), median(beside)


def run(quick: bool) -> dict[str, Any]:
    """One vault for all."""
    seconds, rounds = (1.0, 3) if quick else (3.0, 7)
    folder = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    figures: dict[str, float] = {}
    try:
        figures["start_s_empty"] = _start_s_empty()
        say(f"writing {HELD:,} publications")
        fill(folder)
        for place in ("own", "embedded"):
            say(f"the store {'in its own process' if place == 'own' else 'beside its broker'}")
            with ExitStack() as stack:
                began = time.perf_counter()
                port, store, process = start(stack, folder, place == "embedded")
                _connected(store).close()
                reader = OurPublisher(store)
                figures[f"start_s_{place}"] = time.perf_counter() - began
                figures[f"memory_mib_{place}"] = _mib(process)
                reader.replay(500_000)
                figures[f"memory_after_replay_mib_{place}"] = _mib(process)
                alone, beside = _slower(port, store, seconds, rounds)
                figures[f"live_alone_{place}"], figures[f"live_beside_{place}"] = alone, beside
    finally:
        shutil.rmtree(folder)
    return _result(figures) | {"quick": quick, "machine": machine.facts()}


def _result(figures: dict[str, float]) -> dict[str, Any]:
    budget = []
    for place in ("own", "embedded"):
        slower = 1 - figures[f"live_beside_{place}"] / figures[f"live_alone_{place}"]
        for case, least, found in (
            (f"start_s_{place}", START_S, figures[f"start_s_{place}"]),
            (f"memory_after_replay_mib_{place}", MEMORY_MIB, figures[f"memory_after_replay_mib_{place}"]),
            (f"slower_{place}", SLOWER, slower),
        )[: 3 if place == "own" else 2]:  # embedded, both share one core: that figure is told, and has no budget
            budget.append({"case": case, "peer": "", "most": least, "is": round(found, 3), "met": found <= least})
    return {
        "name": "history",
        "unit": f"a store that holds {HELD:,} publications",
        "ours": {"cases": {name: round(value, 2) for name, value in figures.items()}},
        "peers": {},
        "budget": budget,
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    return table(["figure", "ours"], [[name, value] for name, value in result["ours"]["cases"].items()])
