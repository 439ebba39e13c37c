"""Subscribers that are stopped or read slowly, under each policy, against an oracle that knows only what a page says.

In:    seeds, which fix the network, who is where, who is slow, how and when.
Out:   claims: losses are told, nothing is lost with `hold`, order and single delivery hold, others are not harmed.
State: the processes of one network at a time.
Not here: the runs (slow_runs.py); `python -m tests.independent --slow 1..20` prints their figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.independent.slow_oracle import DISCONNECT, DROP, FAST, HOLD, SLOW, Got, Slow, got_of, judge
from tests.independent.slow_runs import with_slow_subscribers
from tests.independent.slow_workload import label_of, payload_of
from tests.many import cases


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("N11")
@pytest.mark.parametrize("seed", cases(sweep=[1, 2], soak=[3, 4, 5]))
def test_what_slow_subscribers_lose_is_told_and_nobody_else_loses_anything(seed: int, tmp_path: Path) -> None:
    kept = with_slow_subscribers(seed, tmp_path)
    print(kept.figures)
    assert kept.delivered > 2_000
    assert kept.wrong == 0, (kept.figures, kept.problems)


# The oracle sees each kind of fault that is planted into a right result.

ALL = [("p", number) for number in range(1, 6)]


def verdict(got: Got) -> dict[str, int]:
    """The figures that are not 0, but for what was delivered."""
    kept = Slow()
    judge(kept, got, {"p": 5}, ["p"])
    return {what: count for what, count in kept.figures.items() if count and what != "delivered"}


@pytest.mark.parametrize(
    "right",
    [
        Got("r", DROP, ALL, 0),
        Got("r", DROP, ALL, 0, between=3),
        Got("r", DISCONNECT, ALL, 0),
        Got("r", HOLD, ALL, 0),
        Got("r", FAST, ALL, 0),
    ],
)
def test_what_is_right_is_right(right: Got) -> None:
    assert verdict(right) == {}


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (Got("r", DROP, ALL[3:], 3), {"dropped and told": 3}),
        (Got("r", DROP, ALL[3:], 2), {"dropped and told": 2, "lost untold": 1}),
        (Got("r", DROP, ALL[3:], 2, between=1), {"dropped and told": 2}),
        (Got("r", DROP, ALL[3:], 4), {"dropped and told": 3, "problems": 1}),
        (Got("r", DROP, ALL, 0, SLOW), {"problems": 1}),
        (Got("r", DROP, ALL, 0, is_finished=False), {"problems": 1}),
        (Got("r", DISCONNECT, ALL[:3], 0, SLOW, is_finished=False), {"disconnected and told": 1}),
        (
            Got("r", DISCONNECT, [ALL[0], ALL[3]], 0, SLOW, is_finished=False),
            {"disconnected and told": 1, "lost untold": 2},
        ),
        (Got("r", DISCONNECT, ALL[2:], 0), {"lost untold": 2}),
        (Got("r", DISCONNECT, ALL[:3], 0, "", is_finished=False), {"lost untold": 2, "problems": 1}),
        (Got("r", DISCONNECT, ALL[2:], 2), {"dropped and told": 2, "problems": 1}),
        (Got("r", HOLD, ALL[1:], 1), {"lost with hold": 1, "dropped and told": 1, "problems": 1}),
        (Got("r", FAST, ALL[1:], 1), {"lost by others": 1}),
        (Got("r", DROP, [*ALL, ALL[4]], 0), {"twice": 1}),
        (Got("r", HOLD, [ALL[1], ALL[0], *ALL[2:]], 0), {"misordered": 1}),
        (Got("r", HOLD, [*ALL, ("q", 1)], 0), {"problems": 1}),
    ],
)
def test_the_oracle_sees_what_is_lost_untold_harmed_twice_and_misordered(got: Got, expected: dict[str, int]) -> None:
    assert verdict(got) == expected


def test_what_subscribers_write_down_is_read_back() -> None:
    publisher, number, is_last = label_of(payload_of("p", 5, 100, is_last=True))
    notes: list[dict[str, Any]] = [
        {"kind": "ready"},
        {"kind": "got", "publisher": publisher, "number": number, "lost": 4},
        {"kind": "finished"},
    ]
    assert is_last
    assert got_of(notes, "r", DROP) == Got("r", DROP, [("p", 5)], 4)
    assert got_of([*notes[:2], {"kind": "told", "reason": SLOW}], "r", DROP).told == SLOW
