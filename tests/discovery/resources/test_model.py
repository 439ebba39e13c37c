"""Services joined by ordered links, against an oracle: nothing missed, nothing repeated, or it is said."""

from __future__ import annotations

import pytest

from tests.discovery.resources.story import Story

BATCH = 50  # seeds of one test of the sweep


@pytest.mark.req("R6", "R9", "R13")
@pytest.mark.parametrize("tree", [True, False], ids=["tree", "cyclic"])
@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", range(8))
def test_every_request_gets_what_the_oracle_says(seed: int, tree: bool, faults: bool) -> None:
    assert Story(seed, tree=tree, faults=faults).play() == []


@pytest.mark.sweep
@pytest.mark.parametrize("batch", range(20))
def test_every_request_of_many_stories_gets_what_the_oracle_says(batch: int) -> None:
    problems = {}
    for seed in range(1_000 + batch * BATCH, 1_000 + (batch + 1) * BATCH):
        found = Story(seed, tree=seed % 2 == 0, faults=seed % 4 != 3).play()
        if found:
            problems[seed] = found[0]
    assert problems == {}
