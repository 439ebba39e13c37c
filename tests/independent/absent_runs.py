"""Runs with stores that are away for seconds, alone or with a broker that restarts, while programs publish reliably.

In:    a seed and a folder.
Out:   an Absent: what was acknowledged, what failed, and what is wrong.
State: the processes of one network and of two publishing programs at a time.
Not here: the programs (programs/reliable_publisher.py), what is right (absent_oracle.py).

Two to four brokers in a ring, a broker with the store of x/#, and a process with the store of y/#, each linked to two
brokers. The logs are read by the independent client, at two brokers.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.independent.absent_oracle import (
    OK,
    Absence,
    Absent,
    attempts_of,
    judge_lane,
    judge_others,
    judge_patience,
    numbers_in,
)
from tests.independent.processes import Processes, Program, program
from tests.independent.store_clients import Taken, whole_log
from tests.independent.store_runs import STORES, command_of

HOWS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
TIMEOUTS_S = (2.0, 3.0, 40.0, 40.0)
LONG_S = 15.0  # one absence in five seeds
RECOVERED_S = 60.0
POLL_S = 0.1
AFTER_S = 1.0  # publishing goes on after the last absence
LANES = {"x": ["x/1", "x/2"], "y": ["y/1"]}


def with_absences(seed: int, folder: Path) -> Absent:
    """Publish while stores are away, one after the other; then read both logs whole."""
    draw = Random(f"absent {seed}")
    brokers = [f"b{number}" for number in range(draw.randint(2, 4))]
    links = {name: [brokers[place - 1]] if place else [] for place, name in enumerate(brokers)}
    if len(brokers) > 2:
        links[brokers[-1]].append(brokers[0])
    links |= {store: draw.sample(brokers, 2) for store in STORES}
    with Processes(folder, {name: command_of(name, to, "c0") for name, to in links.items()}) as nodes:
        return asyncio.run(_play(seed, nodes, brokers, draw))


async def _play(seed: int, nodes: Processes, brokers: list[str], draw: Random) -> Absent:
    await nodes.ready()
    timeout = draw.choice(TIMEOUTS_S)
    planned = _planned(seed, brokers, draw)
    until = nodes.folder / "until"
    programs = []
    for waits in (True, False):
        count = draw.randint(1, len(brokers))
        addresses = [f"heliograph://127.0.0.1:{nodes.nodes[name].port}" for name in draw.sample(brokers, count)]
        given = {
            "addresses": addresses,
            "lanes": LANES,
            "waits": waits,
            "request_timeout": timeout,
            "until": str(until),
        }
        name = "waits" if waits else "hands-over"
        programs.append(Program(program("reliable_publisher"), nodes.folder, name, **given))
    kept = Absent(faults=len(planned))
    try:
        for each in programs:
            await each.wrote("warm")
        absences = []
        for plan in planned:
            absences.append(await _be_away(nodes, **plan))
            await _recovered(programs[0])
        await asyncio.sleep(AFTER_S)
        until.touch()
        for each in programs:
            kept.problems += await each.ended()
    finally:
        for each in programs:
            each.kill()
    logs = [[(await whole_log(nodes.nodes[place].port, f"{store}/1"))[1] for store in STORES] for place in ("b0", "b1")]
    if logs[0] != logs[1]:
        kept.problems.append("two brokers gave different logs")
    for each in programs:
        judge_program(kept, each, dict(zip(STORES, logs[0], strict=True)), timeout, absences)
    return kept


def _planned(seed: int, brokers: list[str], draw: Random) -> list[dict[str, Any]]:
    """One or two absences, in half of the cases together with the restart of a broker."""
    seconds = [LONG_S] if seed % 5 == 0 else [draw.uniform(1.0, 5.0) for _ in range(draw.randint(1, 2))]
    return [
        {
            "store": draw.choice(STORES),
            "how": draw.choice(HOWS),
            "seconds": each,
            "pause": draw.uniform(0.2, 1.0),
            "broker": draw.choice(brokers) if draw.random() < 0.5 else "",
        }
        for each in seconds
    ]


async def _be_away(
    nodes: Processes, *, store: str, how: signal.Signals, seconds: float, pause: float, broker: str
) -> Absence:
    """Carry out one absence; when it began and ended."""
    await asyncio.sleep(pause)
    begin = time.monotonic()
    away = [nodes.away(store, how, seconds)]
    if broker:
        away.append(nodes.away(broker, signal.SIGKILL, min(1.0, seconds / 2)))
    await asyncio.gather(*away)
    await nodes.ready()  # a process that was started takes its time
    return Absence(store, begin, time.monotonic(), alone=not broker)


async def _recovered(publisher: Program) -> None:
    """Return when something that is published from now on was acknowledged on each lane, by a publisher that waits."""
    now = time.monotonic()
    async with asyncio.timeout(RECOVERED_S):
        while {note["lane"] for note in publisher.notes() if _is_stored_after(note, now)} != set(LANES):
            await asyncio.sleep(POLL_S)


def _is_stored_after(note: dict[str, Any], moment: float) -> bool:
    return bool(note["kind"] == "published" and note["outcome"] == OK and note["begin"] > moment)


def judge_program(
    kept: Absent, publisher: Program, logs: dict[str, list[Taken]], timeout: float, absences: list[Absence]
) -> None:
    notes = publisher.notes()
    for lane in LANES:
        where = f"{publisher.name} {lane}"
        attempts = attempts_of(notes, lane)
        judge_lane(kept, where, attempts, numbers_in(logs[lane], publisher.name, lane), timeout)
        judge_patience(kept, where, attempts, timeout, absences)
        if publisher.name == "waits":
            judge_others(kept, where, lane, attempts, absences)
