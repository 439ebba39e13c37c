"""Watches of resources on live networks of which a broker is restarted, against an oracle of its own.

In:    seeds, which fix the network, where owners and watchers are, what they do, and which broker restarts.
Out:   claims: every appearance, change and vanishing is told once, and what a watch shows in the end is true.
State: the processes of one network at a time.
Not here: the runs (watch_runs.py); `python -m tests.independent --watches 1..20` prints their figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.independent.resource_history import BY_TEXT, History, State
from tests.independent.watch_oracle import Told, Watched, Window, judge, judge_changes
from tests.independent.watch_runs import with_watches
from tests.many import cases


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("R7", "R8")
@pytest.mark.parametrize("seed", cases(sweep=[1, 2], soak=[3, 4, 5]))
def test_watches_tell_every_change_once_and_show_the_truth(seed: int, tmp_path: Path) -> None:
    kept = with_watches(seed, tmp_path)
    print(kept.figures)
    assert kept.told > 40
    assert kept.wrong == 0, kept.problems


# The oracle sees each kind of fault that is planted into a right result.


def there(begin: float, load: float) -> State:
    return State(begin, begin + 1, True, "dynamic", "a", {}, 64, {"load": load, "n": int(begin)})


# It appears with 10, changes with 20, stops with 30, appears with 40, and is withdrawn.
HISTORY = History(
    "x", "id", [*History("x").states, there(10, 0), there(20, 1), there(30, 3), there(40, 1), State(50, 51)]
)
CHANGES = [
    Told("appeared", {"load": 0, "n": 10}, 12),
    Told("changed", {"load": 1, "n": 20}, 22),
    Told("stopped", None, 32),
    Told("appeared", {"load": 1, "n": 40}, 42),
    Told("vanished", None, 52),
]
AGAIN = [Told("vanished", None, 23), Told("appeared", {"load": 1, "n": 20}, 24)]
FAULT = [Window(22.5, 38)]


def problems(told: Sequence[Told], windows: Sequence[Window] = (), begun: tuple[float, float] = (1, 2)) -> list[str]:
    kept = Watched()
    judge_changes(kept, "w: x", told, HISTORY, BY_TEXT["load < 2"], "dynamic", begun, windows)
    return kept.problems


def test_what_follows_from_the_history_is_right() -> None:
    assert problems(CHANGES) == []
    assert problems([Told("appeared", {"load": 1, "n": 20}, 26), *CHANGES[2:]], begun=(25, 26)) == []
    assert problems(CHANGES[1:], begun=(10.5, 10.7)) != []  # it appears with some values first
    assert problems(CHANGES[3:], begun=(33, 34)) == []


@pytest.mark.parametrize(
    "told",
    [
        CHANGES[:-1],
        CHANGES[1:],
        [*CHANGES[:2], CHANGES[1], *CHANGES[2:]],
        [*CHANGES[:2], *CHANGES[3:]],
        [CHANGES[1], CHANGES[0], *CHANGES[2:]],
        [*CHANGES[:2], *AGAIN, *CHANGES[2:]],
        [*CHANGES[:2], CHANGES[2]._replace(what="vanished"), *CHANGES[3:]],
        [CHANGES[0]._replace(values={"load": 0, "n": 11}), *CHANGES[1:]],
    ],
)
def test_without_a_fault_anything_else_is_wrong(told: list[Told]) -> None:
    assert problems(told) != []


@pytest.mark.parametrize(
    ("told", "is_right"),
    [
        (CHANGES, True),
        ([*CHANGES[:2], *AGAIN, *CHANGES[2:]], True),
        ([*CHANGES[:2], CHANGES[2]._replace(what="vanished"), *CHANGES[3:]], True),
        ([*CHANGES[:2], AGAIN[1], *CHANGES[2:]], False),  # told again without an end
        ([*CHANGES[:2], AGAIN[0], CHANGES[0]._replace(at=24), *CHANGES[2:]], False),  # older than before
        ([*CHANGES[:2], Told("appeared", {"load": 9, "n": 9}, 24), *CHANGES[2:]], False),  # it never was
        ([*CHANGES[:3], *CHANGES[4:]], False),  # what came after the fault was not told
        ([*CHANGES, CHANGES[-1]], False),
        ([CHANGES[0], CHANGES[0], *CHANGES[1:]], False),
    ],
)
def test_during_a_fault_a_watch_may_tell_of_an_end_and_nothing_old(told: list[Told], is_right: bool) -> None:
    assert (problems(told, FAULT) == []) is is_right


@pytest.mark.parametrize(
    ("shown", "more", "count"),
    [
        ({"id-x": {"load": 1, "n": 1}}, [], 0),
        ({}, [], 1),
        ({"id-x": {"load": 0, "n": 1}}, [], 1),
        ({"id-x": {"load": 1, "n": 1}, "id-y": None}, [], 1),
        ({"id-x": {"load": 1, "n": 1}, "mark": None}, [], 0),
        ({"id-x": {"load": 1, "n": 1}}, [{"kind": "stuck", "watch": "w", "missing": [], "problem": ""}], 1),
    ],
)
def test_what_a_watch_shows_in_the_end_is_the_truth(
    shown: dict[str, Any], more: list[dict[str, Any]], count: int
) -> None:
    values = {"load": 1, "n": 1}
    options = {"model": "dynamic", "attributes": {}, "values": values}
    told = {"what": "appeared", "id": "id-x", "values": values, "at": 5}
    call = {"kind": "call", "outcome": "ok", "actor": "o"}
    notes = [
        {"kind": "watch", "watch": "w", "begin": 0, "end": 1},
        {**call, "do": "mark", "begin": 1, "end": 1, "id": "mark"},
        {**call, "do": "register", "key": "x", "begin": 3, "end": 4, "id": "id-x", "options": options},
        {"kind": "change", "watch": "w", **told},
        {"kind": "view", "watch": "w", "resources": shown, "lost": 0, "unreadable": 0},
        *more,
    ]
    kept = Watched()
    judge(kept, notes, {"o": "a"}, {"w": {"where": "load < 2", "model": "dynamic"}}, [])
    assert len(kept.problems) == count, kept.problems
