"""Services joined by ordered links, against an oracle: nothing missed, nothing repeated, or it is said."""

from __future__ import annotations

from collections import Counter

import pytest

from heliograph.discovery.resources import snapshots, spreading
from tests.discovery.resources.story import Story
from tests.many import cases

BATCH = 50  # seeds of one test of the sweep
EXCUSED_MAX = {"on the move": 0.06, "old host": 0.03, "orphan": 0.03}  # of the requests in a batch (story.py says why)


@pytest.mark.req("R6", "R9", "R13")
@pytest.mark.parametrize("tree", [True, False], ids=["tree", "cyclic"])
@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", range(8))
def test_every_request_gets_what_the_oracle_says(seed: int, tree: bool, faults: bool) -> None:
    story = Story(seed, tree=tree, faults=faults)
    assert story.play() == []
    assert not story.excused["old host"] + story.excused["orphan"] or faults


def in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every snapshot of more than one resource has several parts, one of which is on a link at a time."""
    monkeypatch.setattr(snapshots, "ADVERTISEMENTS_PER_BODY_MAX", 1)
    monkeypatch.setattr(spreading, "ADVERTISEMENTS_PER_BODY_MAX", 1)
    monkeypatch.setattr(snapshots, "PARTS_AT_ONCE", 1)


@pytest.mark.req("R2", "R13")
@pytest.mark.parametrize("tree", [True, False], ids=["tree", "cyclic"])
@pytest.mark.parametrize("seed", range(100, 104))
def test_the_same_holds_if_snapshots_come_in_many_parts(monkeypatch: pytest.MonkeyPatch, seed: int, tree: bool) -> None:
    in_many_parts(monkeypatch)
    assert Story(seed, tree=tree, faults=True).play() == []


@pytest.mark.parametrize("batch", cases(sweep=[0], soak=range(1, 4)))
def test_the_same_holds_for_many_stories_if_snapshots_come_in_many_parts(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    in_many_parts(monkeypatch)
    seeds = range(5_000 + batch * BATCH, 5_000 + (batch + 1) * BATCH)
    problems = {seed: Story(seed, tree=seed % 2 == 0, faults=True).play() for seed in seeds}
    assert {seed: found[0] for seed, found in problems.items() if found} == {}


@pytest.mark.parametrize("batch", cases(sweep=range(5), soak=range(5, 20)))
def test_every_request_of_many_stories_gets_what_the_oracle_says(batch: int) -> None:
    problems = {}
    asked, excused = 0, Counter[str]()
    for seed in range(1_000 + batch * BATCH, 1_000 + (batch + 1) * BATCH):
        story = Story(seed, tree=seed % 2 == 0, faults=seed % 4 != 3)
        found = story.play()
        if found:
            problems[seed] = found[0]
        asked += len(story.asked)
        excused += story.excused
    assert problems == {}
    assert {reason: count for reason, count in excused.items() if count > EXCUSED_MAX[reason] * asked} == {}
