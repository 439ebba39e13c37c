"""Stores that are away while programs publish reliably through the public client, against an oracle of its own.

In:    seeds, which fix the network, the programs and who is away for how long.
Out:   claims: what was acknowledged is stored once, in order; nothing is stored behind a hole; other stores go on.
State: the processes of one network at a time.
Not here: the runs (absent_runs.py); `python -m tests.independent --absent 1..20` prints their figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.independent.absent_oracle import (
    Absence,
    Absent,
    Attempt,
    attempts_of,
    judge_lane,
    judge_others,
    judge_patience,
)
from tests.independent.absent_runs import with_absences
from tests.many import cases


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("N10", "N11")
@pytest.mark.parametrize("seed", cases(sweep=[1, 2], soak=[3, 4, 5]))
def test_publishers_wait_for_a_store_that_is_away_and_nothing_is_stored_behind_a_hole(
    seed: int, tmp_path: Path
) -> None:
    kept = with_absences(seed, tmp_path)
    print(kept.figures)
    assert kept.acknowledged > 100
    assert kept.wrong == 0, kept.problems


# The oracle sees each kind of fault that is planted into a right result.

TIMEOUT_S = 2.0
STORED = Attempt(1, 0.0, 0.1, "ok")
WAITED = [STORED, Attempt(2, 1.0, 3.0, "time_out"), Attempt(3, 1.5, 3.0, "time_out"), Attempt(4, 4.0, 4.1, "ok")]
AWAY = [Absence("x", 0.9, 3.5, alone=True)]


def lane(attempts: list[Attempt], stored: list[int]) -> tuple[int, int, int, int]:
    kept = Absent()
    judge_lane(kept, "p x", attempts, stored, TIMEOUT_S)
    return kept.lost, kept.twice, kept.misordered, kept.behind_holes


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([1, 4], (0, 0, 0, 0)),
        ([1, 2, 4], (0, 0, 0, 0)),  # it was sent, and is stored later
        ([1], (1, 0, 0, 0)),
        ([1, 1, 4], (0, 1, 0, 0)),
        ([4, 1], (0, 0, 1, 0)),
        ([1, 3, 4], (0, 0, 0, 1)),
    ],
)
def test_the_oracle_counts_what_a_log_has_against_what_was_told(
    stored: list[int], expected: tuple[int, int, int, int]
) -> None:
    assert lane(WAITED, stored) == expected


def test_without_waiting_a_hole_closes_when_the_first_of_those_that_waited_has_failed() -> None:
    told = [Attempt(number, 0.5 * number, 9.0, "time_out", waits=False) for number in range(1, 8)]
    assert lane(told, [5, 6, 7]) == (0, 0, 0, 0)  # 1 failed at 2.5, and all behind it with it
    assert lane(told, [4, 5, 6, 7]) == (0, 0, 0, 1)


def test_what_nobody_published_is_seen() -> None:
    kept = Absent()
    judge_lane(kept, "p x", WAITED, [1, 4, 9], TIMEOUT_S)
    assert len(kept.problems) == 1


@pytest.mark.parametrize(
    ("attempts", "absences", "count"),
    [
        (WAITED, AWAY, 0),
        (WAITED, [], 2),  # nothing was away
        ([STORED, Attempt(2, 1.0, 2.0, "time_out")], AWAY, 1),  # too early
        ([STORED, Attempt(2, 1.0, 3.0, "store_missing")], AWAY, 1),
        ([STORED, Attempt(2, 1.0, 41.0, "time_out")], AWAY, 1),  # it was back long ago
    ],
)
def test_the_oracle_sees_failures_that_are_not_allowed(
    attempts: list[Attempt], absences: list[Absence], count: int
) -> None:
    kept = Absent()
    judge_patience(kept, "p x", attempts, TIMEOUT_S, absences)
    assert len(kept.problems) == count, kept.problems


def test_the_oracle_sees_a_lane_that_stands_still_with_the_store_of_another() -> None:
    away = [Absence("x", 1.0, 6.0, alone=True)]
    for told, outcome, count in ((2.1, "ok", 0), (6.1, "ok", 1), (5.0, "time_out", 1)):
        kept = Absent()
        judge_others(kept, "p y", "y", [Attempt(number, 2.0, told, outcome) for number in range(20)], away)
        assert len(kept.problems) == count


def test_a_flush_tells_of_what_was_handed_over_before_it_began() -> None:
    handed: list[dict[str, Any]] = [
        {"kind": "handed", "lane": "x", "number": number, "begin": number, "end": number + 0.1, "outcome": "ok"}
        for number in (1, 3, 5)
    ]
    flushes: list[dict[str, Any]] = [
        {"kind": "flushed", "begin": 2.0, "end": 2.5, "outcome": "ok"},
        {"kind": "flushed", "begin": 2.9, "end": 4.0, "outcome": "time_out"},  # it may tell of 3, too
        {"kind": "flushed", "begin": 4.5, "end": 4.6, "outcome": "ok"},
        {"kind": "flushed", "begin": 6.0, "end": 6.5, "outcome": "ok"},
    ]
    found = attempts_of([*handed, *flushes], "x")
    times = [(one.number, one.told, one.outcome) for one in found]
    assert times == [(1, 2.5, "ok"), (3, 4.6, "time_out"), (5, 6.5, "ok")]
