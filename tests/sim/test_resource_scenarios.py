"""The paper's figures of resource discovery, with whole brokers."""

from __future__ import annotations

import pytest

from heliograph.sim.run import play
from heliograph.sim.scenario_files import load
from tests.sweep.seeds import seeds_of


@pytest.mark.req("R5", "R6", "R8", "R9")
@pytest.mark.parametrize("figure", ["2", "3", "4", "6", "6-normal"])
def test_the_figures_of_the_paper_pass(figure: str) -> None:
    assert play(load(f"resources-figure-{figure}"), 1).violations == []


@pytest.mark.slow
@pytest.mark.req("R9", "R13", "O7")
@pytest.mark.parametrize("seed", seeds_of("resources-clusters"))
def test_clusters_whose_brokers_die_answer_and_tell_watchers_the_truth(seed: int) -> None:
    result = play(load("resources-clusters"), seed)
    assert result.violations == []
    assert not result.crash
    assert result.faults["crash"]
