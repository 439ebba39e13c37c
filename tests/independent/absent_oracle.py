"""What a publisher is promised while a store is away, checked against the logs of the stores.

In:    what publishing programs were told and when, the logs as read at two brokers, when which store was away.
Out:   an Absent with counts, and the problems in words.
State: none.
Not here: the programs (programs/reliable_publisher.py), the runs (absent_runs.py).

The promises are those of docs/how-to/publish-reliably.md: what was acknowledged is stored once, in the order in which
it was published; only a store that is away for `request_timeout` makes a publication fail; nothing that waited behind a
failed publication for the same store is stored if that one is not; other stores' publications go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.independent.store_clients import Taken
from tests.wire.stdlib_client import unpack

OK, TIME_OUT = "ok", "time_out"
EARLY_S = 0.5  # between the end of the wait and the moment at which the program writes it down, or looks at its clock
BACK_S = 20.0  # a store that was there for so long is to have acknowledged
BEGUN = 15  # publications by then; a publisher that did not get so far has no processor
WAITED_S = 4.0  # a store that is away for so long lets others show that they go on


@dataclass(frozen=True)
class Attempt:
    """A publication, as its publisher saw it."""

    number: int
    begin: float
    told: float  # when the publisher knew what became of it
    outcome: str
    waits: bool = True  # the call itself ended with the outcome; otherwise a flush told it


@dataclass(frozen=True)
class Absence:
    """When the store of a lane was away; ``alone``: nothing else was."""

    lane: str
    begin: float
    end: float
    alone: bool


@dataclass
class Absent:
    """Counts of one run, and what was wrong."""

    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    twice: int = 0
    misordered: int = 0
    behind_holes: int = 0
    faults: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        return self.lost + self.twice + self.misordered + self.behind_holes + len(self.problems)

    @property
    def figures(self) -> dict[str, int]:
        return {
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "lost": self.lost,
            "twice": self.twice,
            "misordered": self.misordered,
            "behind a hole": self.behind_holes,
            "faults": self.faults,
            "problems": len(self.problems),
        }


def attempts_of(notes: Sequence[Mapping[str, Any]], lane: str) -> list[Attempt]:
    """What a program wrote down about one lane, in the order in which it published."""
    flushes = sorted((note for note in notes if note["kind"] == "flushed"), key=lambda note: float(note["begin"]))
    found = []
    for note in notes:
        if note.get("lane") != lane:
            continue
        waits = note["kind"] == "published" or note["outcome"] != OK
        told, outcome = (note["end"], note["outcome"]) if waits else _flushed(note, flushes)
        found.append(Attempt(note["number"], note["begin"], told, outcome, waits))
    return sorted(found, key=lambda attempt: attempt.number)


def _flushed(note: Mapping[str, Any], flushes: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """When a publication without waiting was told as stored or not: by the first flush that began after it, unless one
    before that, which was under way, told of a failure."""
    outcome = ""
    for flush in flushes:
        if flush["end"] < note["begin"]:
            continue
        outcome = outcome or ("" if flush["outcome"] == OK else flush["outcome"])
        if flush["begin"] >= note["end"]:
            return flush["end"], outcome or OK
    return float("inf"), outcome or "never flushed"


def numbers_in(log: Sequence[Taken], name: str, lane: str) -> list[int]:
    """The numbers of one publisher's publications on a lane, in the order of the log."""
    texts = (unpack(one.raw).payload.split() for one in log)
    return [int(text[2]) for text in texts if text[:2] == [name.encode(), lane.encode()]]


def judge_lane(kept: Absent, where: str, attempts: Sequence[Attempt], stored: Sequence[int], timeout: float) -> None:
    """Compare what a publisher was told about a lane with what its store has, in the order of its log."""
    times = Counter(stored)
    promised = [attempt.number for attempt in attempts if attempt.outcome == OK]
    kept.acknowledged += len(promised)
    kept.failed += len(attempts) - len(promised)
    if lost := [number for number in promised if not times[number]]:
        kept.lost += len(lost)
        kept.problems.append(f"{where}: {len(lost)} acknowledged and not stored, the first is {lost[0]}")
    kept.twice += sum(count - 1 for count in times.values())
    kept.misordered += sum(one > other for one, other in pairwise(stored))
    if foreign := times.keys() - {attempt.number for attempt in attempts}:
        kept.problems.append(f"{where}: {len(foreign)} stored that nobody published")
    _judge_holes(kept, where, attempts, times, timeout)


def _judge_holes(
    kept: Absent, where: str, attempts: Sequence[Attempt], times: Mapping[int, int], timeout: float
) -> None:
    """What is stored must not have been published while one before it, which is not stored, still waited."""
    hole, until = 0, 0.0
    for attempt in attempts:
        if not times.get(attempt.number, 0):
            if attempt.waits:
                surely = attempt.told - EARLY_S
            else:  # it may have failed with the first one that it waited behind
                surely = until if attempt.begin < until else attempt.begin + timeout
            hole, until = (attempt.number, surely) if surely > until else (hole, until)
        elif attempt.begin < until:
            kept.behind_holes += 1
            kept.problems.append(f"{where}: {attempt.number} is stored, and waited behind {hole}, which is not")


def judge_patience(
    kept: Absent, where: str, attempts: Sequence[Attempt], timeout: float, absences: Sequence[Absence]
) -> None:
    """A publication fails only with one that has waited for the whole time, while something was away."""
    for attempt in attempts:
        if attempt.outcome == OK:
            continue
        name = f"{where}: {attempt.number}"
        if attempt.outcome != TIME_OUT:
            kept.problems.append(f"{name} failed with {attempt.outcome}")
        first = min(each.begin for each in attempts if each.number <= attempt.number and _ends_with(each, attempt))
        if attempt.told - first < timeout - EARLY_S:
            kept.problems.append(f"{name} failed after {attempt.told - first:.2f} s of {timeout} s")
        away = sum(max(0.0, min(each.end, attempt.told) - max(each.begin, first)) for each in absences)
        if not absences or (attempt.waits and attempt.told - first - away > BACK_S):
            kept.problems.append(f"{name} failed though everything was there")


def _ends_with(one: Attempt, other: Attempt) -> bool:
    return abs(one.told - other.told) < EARLY_S


def judge_others(kept: Absent, where: str, lane: str, attempts: Sequence[Attempt], absences: Sequence[Absence]) -> None:
    """While only another store was away, and for a while, some publications of this lane were acknowledged."""
    for away in absences:
        if away.lane == lane or not away.alone or away.end - away.begin < WAITED_S:
            continue
        during = [attempt for attempt in attempts if away.begin <= attempt.begin and attempt.told <= away.end]
        begun = sum(away.begin <= attempt.begin <= away.end for attempt in attempts)
        if begun >= BEGUN and not any(attempt.outcome == OK for attempt in during):
            kept.problems.append(f"{where}: nothing was acknowledged while the store of {away.lane} was away")
