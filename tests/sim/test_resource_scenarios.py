"""The paper's figures of resource discovery, with whole brokers."""

from __future__ import annotations

import pytest

from heliograph.sim.run import play
from heliograph.sim.scenario_files import load


@pytest.mark.req("R5", "R6", "R8", "R9")
@pytest.mark.parametrize("figure", ["2", "3", "4", "6", "6-normal"])
def test_the_figures_of_the_paper_pass(figure: str) -> None:
    assert play(load(f"resources-figure-{figure}"), 1).violations == []
