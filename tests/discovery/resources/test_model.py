"""Services joined by ordered links, against an oracle: nothing missed, nothing repeated, or it is said."""

from __future__ import annotations

import pytest

from tests.discovery.resources.story import Story


@pytest.mark.req("R6", "R9", "R13")
@pytest.mark.parametrize("tree", [True, False], ids=["tree", "cyclic"])
@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", range(8))
def test_every_request_gets_what_the_oracle_says(seed: int, tree: bool, faults: bool) -> None:
    assert Story(seed, tree=tree, faults=faults).play() == []
