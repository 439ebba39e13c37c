"""Answers about resources on random live networks, against an oracle that judges each resource by itself.

In:    seeds, which fix the network, where owners and requesters are, and what they do.
Out:   claims: no answer with default options shows an old value or a withdrawn resource, or misses a registered one.
State: the processes of one network at a time.
Not here: the runs (resource_runs.py); `python -m tests.independent --resources 1..20` prints their figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.independent.resource_history import BY_TEXT, State, histories_of
from tests.independent.resource_oracle import Answers, judge
from tests.independent.resource_runs import with_resources
from tests.many import cases

Note = dict[str, Any]


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("R6", "R9")
@pytest.mark.parametrize("seed", cases(sweep=[1, 2], soak=[3, 4, 5]))
def test_every_answer_with_default_options_is_true_now(seed: int, tmp_path: Path) -> None:
    kept = with_resources(seed, tmp_path)
    print(kept.figures)
    assert kept.resources > kept.answers > 150
    assert kept.wrong == 0, kept.problems


# The oracle sees each kind of fault that is planted into a right result.

BROKERS = {"owner": "a", "other": "b", "asker": "c"}
WIDE = "memory <= 64 and load >= 0 and n >= 0"


def call(do: str, begin: float, end: float, **more: Any) -> Note:
    return {"kind": "call", "do": do, "actor": "owner", "begin": begin, "end": end, "outcome": "ok", **more}


def registered(key: str, begin: float, load: float) -> Note:
    values = {"memory": 8, "load": load, "n": 1}
    options = {"model": "dynamic", "attributes": {"system": "linux"}, "where": WIDE, "values": values}
    return call("register", begin, begin + 1, key=key, options=options, memory_max=64, id=f"id-{key}")


def row(key: str, load: float, host: str = "a") -> list[Any]:
    return [f"id-{key}", key, host, {"system": "linux", "memory": 8, "load": load, "n": 1}]


def asked(begin: float, end: float, rows: list[list[Any]], **more: Any) -> Note:
    options = {"where": "load < 2"} | more.pop("options", {})
    whole = {"complete": True, "missing": [], **more}
    return call("discover", begin, end, options=options, rows=rows, **whole) | {"actor": "asker"}


HISTORY = [
    registered("x", 0, load=0.5),
    call("update", 10, 11, key="x", values={"memory": 8, "load": 1.0, "n": 1}),
    call("withdraw", 20, 21, key="x"),
    registered("y", 30, load=1.5),
]


@pytest.mark.parametrize(
    ("question", "wrong"),
    [
        (asked(2, 3, [row("x", 0.5)]), {}),
        (asked(0.5, 0.7, []), {}),  # it was being registered
        (asked(0.5, 0.7, [row("x", 0.5)]), {}),
        (asked(9, 10.5, [row("x", 0.5)]), {}),
        (asked(9, 10.5, [row("x", 1.0)]), {}),
        (asked(20.5, 22, [row("x", 1.0)]), {}),
        (asked(12, 13, [row("x", 0.5)]), {"old values": 1}),
        (asked(2, 3, [row("x", 1.0)]), {"old values": 1}),  # not yet
        (asked(3.5, 4, []), {"missed": 1}),
        (asked(12, 20.5, []), {}),
        (asked(21.5, 22, [row("x", 1.0)]), {"withdrawn": 1}),
        (asked(2, 3, [row("x", 0.5)], options={"where": "memory > 16"}), {"unfit": 1}),
        (asked(2, 3, [row("x", 0.5), row("x", 0.5)]), {}),
        (asked(2, 3, [row("x", 0.5, host="b")]), {}),
        (asked(3.5, 4, [["id-z", "z", "a", None]]), {"missed": 1}),
        (asked(2, 3, [], complete=False, missing=["a"]), {"incomplete": 1}),
        (asked(3.5, 4, [], complete=False, missing=["b"]), {"incomplete": 1, "missed": 1}),
        (asked(2, 3, [row("x", 0.5)], outcome="time_out"), {}),
    ],
)
def test_the_oracle_judges_each_resource_between_request_and_answer(question: Note, wrong: dict[str, int]) -> None:
    kept = Answers()
    judge(kept, [*HISTORY, question], BROKERS)
    counts = ("old values", "missed", "withdrawn", "unfit", "incomplete")
    assert {what: kept.figures[what] for what in counts if kept.figures[what]} == wrong, kept.problems


@pytest.mark.parametrize(
    "question",
    [
        asked(2, 3, [row("x", 0.5), row("x", 0.5)]),
        asked(2, 3, [row("x", 0.5, host="b")]),
        asked(2, 3, [row("x", 0.5), ["id-z", "z", "a", None]]),
        asked(2, 3, [row("x", 0.5)], outcome="time_out"),
        asked(2, 3, [row("x", 0.5)], complete=False, missing=["b"]),
    ],
)
def test_the_oracle_sees_other_wrongs(question: Note) -> None:
    kept = Answers()
    judge(kept, [*HISTORY, question], BROKERS)
    assert len(kept.problems) == 1


def test_a_registration_and_the_end_of_a_static_resource_may_still_spread_to_other_brokers() -> None:
    static = {"model": "static", "attributes": {"load": 1}}
    history = [
        call("register", 0, 1, key="s", options=static, id="id-s"),
        call("withdraw", 10, 11, key="s"),
        registered("d", 20, load=1.0),
        call("withdraw", 30, 31, key="d"),
    ]
    row_s = ["id-s", "s", "a", {"load": 1}]
    cases: list[tuple[Note, int, int]] = [
        (asked(2, 2.5, [], options={"model": "static"}), 0, 1),
        (asked(3.5, 4, [], options={"model": "static"}), 1, 0),
        (asked(12, 12.5, [row_s], options={"model": "static"}), 0, 1),
        (asked(13.5, 14, [row_s], options={"model": "static"}), 1, 0),
        (asked(22, 22.5, []), 0, 1),
        (asked(23.5, 24, []), 1, 0),
        (asked(32, 32.5, [row("d", 1.0)]), 1, 0),  # the host knows
        (asked(2, 2.5, [], options={"model": "static"}) | {"actor": "owner"}, 1, 0),
    ]
    for question, wrong, spreading in cases:
        kept = Answers()
        judge(kept, [*history, question], BROKERS)
        assert (kept.wrong, kept.spreading) == (wrong, spreading), (question, kept.problems)


def test_the_best_may_leave_out_only_what_others_beat() -> None:
    history = [registered("x", 0, load=0.5), registered("y", 0, load=1.5), registered("z", 0, load=1.5)]
    best = {"best": 1, "order": "load"}
    for rows, count in (([row("x", 0.5)], 0), ([row("y", 1.5)], 1), ([row("x", 0.5), row("y", 1.5)], 1), ([], 1)):
        kept = Answers()
        judge(kept, [*history, asked(3.5, 4, rows, options=best)], BROKERS)
        assert len(kept.problems) == count, (rows, kept.problems)


def test_a_refusal_that_is_due_is_no_problem_and_any_other_is() -> None:
    outside = call("update", 2, 3, key="x", values={}, is_outside=True)
    for outcome, count in (("resource_out_of_range", 0), ("ok", 1), ("time_out", 1)):
        _, problems = histories_of([HISTORY[0], {**outside, "outcome": outcome}], BROKERS)
        assert len(problems) == count


def test_a_resource_without_values_is_judged_by_its_ranges() -> None:
    state = State(0, 1, True, "dynamic", "a", {"system": "bsd"}, 8, None)
    fits = {text: state.fits(condition, "dynamic") for text, condition in BY_TEXT.items()}
    assert [text for text in fits if fits[text]] == ["true", "memory > 4", "load < 2"]
    assert not state.fits(BY_TEXT["true"], "static")
