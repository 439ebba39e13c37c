"""vault: how many records a second become durable, through the thread of a vault and SQLite.

In:    nothing; a temporary folder on the disk that TMPDIR names.
Out:   records per second, one at a time and with 1,000 under way; the same of bare writes with fdatasync in groups.
State: none.
Not here: a whole store with publishers; PostgreSQL, whose figures are its server's.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import medians, ratios, spread, table, values
from benchmarks.generator import RunError
from heliograph.errors import Reason
from heliograph.live.loop import Driver
from heliograph.live.loop import run as run_loop
from heliograph.machine import Effects, Instant, LinkId, Outbox, Peer, Ticket
from heliograph.vault import Append, Vault

SAYS = "records a second that are durable: a vault in SQLite, beside bare fdatasync"
BYTES = 256
RUN = 250  # records of one commit where many are under way: what a read of 64 KiB holds
CASES = {"one": (1, 1), "window_1000": (RUN, 1_000 // RUN)}  # records of a commit, commits under way
FIGURE = "records_s"
OURS, LIMIT = "ours", "fdatasync"


class Writer:
    """A machine that keeps a number of commits under way for as long as it may."""

    def __init__(self, records: int, under_way: int) -> None:
        self._append = Append("log", bytes(BYTES * records), records, 0, 0)
        self._under_way = under_way
        self._outbox = Outbox()
        self.goes_on = True
        self.done_records = 0
        self.failure: Reason | None = None

    def begin(self) -> None:
        for _ in range(self._under_way):
            self._outbox.commit((self._append,))

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        self.done_records += self._append.count
        if self.goes_on:
            self._outbox.commit((self._append,))

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        self.failure = reason

    def tell(self, command: Any, now: Instant) -> None:
        if callable(command):
            command()

    def take(self) -> Effects:
        return self._outbox.empty(None)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None: ...

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None: ...

    def receive_datagram(self, socket: str, source: tuple[str, int], data: bytes, now: Instant) -> None: ...

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None: ...

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None: ...

    def clock(self, wall_ns: int, now: Instant) -> None: ...

    def wake(self, now: Instant) -> None: ...

    def report(self, question: str) -> Any: ...


def run(quick: bool) -> dict[str, Any]:
    """Both in turns, on the same disk."""
    seconds = 1.5 if quick else 6.0
    rounds: list[dict[str, Any]] = []
    for number in range(1, (3 if quick else 9) + 1):
        say(f"round {number}")
        for case, (records, under_way) in CASES.items():
            for system in (OURS, LIMIT) if number % 2 else (LIMIT, OURS):
                with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as place:
                    if system == OURS:
                        figure = run_loop(_commit(place, records, under_way, seconds))
                    else:
                        figure = _flush(Path(place) / "file", records * under_way, seconds)
                rounds.append({"round": number, "case": case, "system": system, FIGURE: figure})
    return _result(rounds) | {"quick": quick, "machine": machine.facts()}


async def _commit(place: str, records: int, under_way: int, seconds: float) -> float:
    writer = Writer(records, under_way)
    driver = Driver({"writer": writer})
    driver.start()
    if await driver.open_vault("writer", Vault(name="bench", place=place)) is not None:
        raise RunError("the vault did not open")
    begin = time.perf_counter()
    driver.tell("writer", writer.begin)
    await asyncio.sleep(seconds)
    done, lasted = writer.done_records, time.perf_counter() - begin
    writer.goes_on = False
    await driver.stop()
    if writer.failure is not None:
        raise RunError(f"a commit failed: {writer.failure.word}")
    return done / lasted


def _flush(path: Path, records: int, seconds: float) -> float:
    """What the disk can do: write the same bytes and flush them, and nothing else."""
    data = bytes(BYTES * records)
    flush: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    groups = 0
    begin = time.perf_counter()
    try:
        while (lasted := time.perf_counter() - begin) < seconds:
            os.write(file, data)
            flush(file)
            groups += 1
    finally:
        os.close(file)
    return groups * records / lasted


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {
        system: {case: medians(rounds, system, case, [FIGURE])[FIGURE] for case in CASES} for system in (OURS, LIMIT)
    }
    compared = {case: ratios(rounds, case, OURS, [LIMIT], FIGURE) for case in CASES}
    return {
        "name": "vault",
        "unit": f"records of {BYTES} B a second, flushed to the disk; medians",
        "ours": {"cases": figures[OURS]},
        "peers": {LIMIT: {"cases": figures[LIMIT]}},
        "ratios": {case: {peer: entry["ratio"] for peer, entry in found.items()} for case, found in compared.items()},
        "rounds": rounds,
        "spread": {
            case: {system: spread([*values(rounds, system, case, FIGURE).values()]) for system in (OURS, LIMIT)}
            for case in CASES
        },
        "budget": [],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [case, result["ours"]["cases"][case], result["spread"][case][OURS]]
        + [result["peers"][LIMIT]["cases"][case], result["spread"][case][LIMIT], result["ratios"][case][LIMIT]]
        for case in CASES
    ]
    return table(["case", "records/s", "[min, max]", LIMIT, "[min, max]", "ratio"], rows)
