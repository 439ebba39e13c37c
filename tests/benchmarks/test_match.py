"""The matching benchmark: its oracle is right, its baselines agree, and what was not measured is not met."""

from __future__ import annotations

import random

import pytest

from benchmarks import match, match_topics
from benchmarks.generator import RunError
from benchmarks.match_baselines import Counting, Linear
from benchmarks.match_workloads import Five, Twenty, Workload
from heliograph.matching.boxes.box import matches


@pytest.fixture(params=[Five, Twenty], ids=["W5", "W20s"])
def workload(request: pytest.FixtureRequest) -> Workload:
    made: Workload = request.param(300, 1)
    return made


def test_the_oracle_and_the_baselines_find_what_each_predicate_says(workload: Workload) -> None:
    dice = random.Random(1)
    conjunctions = workload.conjunctions(0, 300)
    counting, linear = Counting(conjunctions), Linear(conjunctions)
    for event in [workload.event(dice) for _ in range(20)]:
        expected = [id for id, conjunction in enumerate(conjunctions) if matches(conjunction, event)]
        assert workload.matching(event) == expected
        assert counting.match(event) == expected
        assert linear.match(event) == expected


def test_a_wrong_answer_ends_the_run(workload: Workload) -> None:
    events = [workload.event(random.Random(1))]
    with pytest.raises(RunError, match=workload.name):
        match._check(workload, events, lambda event: [299, 0], "somebody")


def test_figures_and_budgets_are_told(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "EVENTS", 5)
    one = {"case": workload.name, "size": 10_000, "system": "native", **match._index(workload, 300, "python")}
    topics = match_topics.measure(500, checked=5)
    budgets = match._budgets([one], topics)
    told = {entry["what"]: entry["met"] for entry in budgets}
    assert told[f"{workload.name}, 10,000 subscriptions, an event"] is not None
    assert told[f"{workload.name}, 1,000,000 subscriptions, an event"] is None
    assert told["coverers of an uncovered box among 1,000,000"] is None
    assert one["coverers"] == 0
    result = {"rounds": [one], "ours": {"topics": topics}, "budget": budgets}
    assert workload.name in match.show(result)
