"""The evaluation pages say what their commands print: the cheapest rows of their tables are measured again.

If a row differs, the behaviour of the product has changed: run the command that the page names, and put its figures on
the page.
"""

from __future__ import annotations

from functools import cache

import pytest

from heliograph.cli.evaluate import _share_rows, _time_rows
from heliograph.evaluation import places, scale, simulated, topics
from heliograph.evaluation.live.resource_counts import _simulated
from heliograph.evaluation.resources import ages, architecture
from heliograph.evaluation.resources.sharing import GAUSSIANS_LEVEL, NORMAL, SIMILARITY, SharingPlan, SharingStage
from heliograph.evaluation.resources.workload import BALANCED, GEOMETRIC, UNIFORM
from heliograph.evaluation.topologies import LAB, MULTICAST, RUNS
from tests.docs.evaluation_tables import differing, tables

BROKERS, RESOURCES, TOPICS = "evaluation-brokers.md", "evaluation-resources.md", "evaluation-topics.md"
SEED = 1


@pytest.mark.req("B15")
def test_round_trips_between_the_sites() -> None:
    shown = tables(BROKERS)[1]
    assert len(shown) == 6
    computed = {row[""]: row for row in places.round_trips()}
    for row in shown:
        assert {name: str(computed[row["name"]][name]) for name in row if name != "name"} == {
            name: text for name, text in row.items() if name != "name"
        }


@pytest.mark.req("B15")
@pytest.mark.parametrize(("topology", "site"), [("unconnected", "tallahassee"), (MULTICAST, LAB)])
def test_broker_discovery(topology: str, site: str) -> None:
    """The first site of a topology, because the others search in what it leaves behind."""
    rows = simulated.evaluate(RUNS, SEED, (site,), (topology,))
    (times,), (shares,) = _time_rows(rows), _share_rows(rows)
    keys = ("topology", "client")
    assert differing(BROKERS, times, (*keys, "nearest")) == {}
    assert differing(BROKERS, shares, (*keys, "ping and choose")) == {}
    (compared,) = [row for row in tables(BROKERS)[6] if (row["topology"], row["client"]) == (topology, site)]
    assert compared["simulated"] == f"{times['mean']:.1f}"


@pytest.mark.req("B15")
def test_many_brokers() -> None:
    assert differing(BROKERS, scale.evaluate(10, seed=SEED), ("brokers", "registered")) == {}


@cache
def stage() -> SharingStage:
    return SharingStage(SharingPlan(), SEED)


@pytest.mark.req("R14")
@pytest.mark.slow
def test_similar_requests() -> None:
    """The first run of a network, because the next one begins at another moment of its brokers' timers."""
    row = stage().run(stage().network(GEOMETRIC), 10, UNIFORM, UNIFORM, NORMAL)
    head = {"resources": GEOMETRIC, "similarity": 10, "deliver": NORMAL}
    assert differing(RESOURCES, head | row, ("resources", "similarity", "deliver", "results_hops")) == {}


@pytest.mark.req("R14")
@pytest.mark.sweep
def test_several_gaussians() -> None:
    row = stage().run(stage().network(BALANCED), GAUSSIANS_LEVEL, UNIFORM, "Gaussian/4", NORMAL)
    assert differing(RESOURCES, {"time": "Gaussian/4", "deliver": NORMAL, **row}, ("time", "deliver")) == {}


@pytest.mark.req("R14")
@pytest.mark.sweep
def test_allowed_ages() -> None:
    row = {"allowed_age_s": 10.0, **ages._Run(stage(), 10.0).row()}
    assert differing(RESOURCES, row, ("allowed_age_s",)) == {}


@pytest.mark.req("R14")
def test_one_broker() -> None:
    plan = architecture.ArchitecturePlan()
    asking = architecture._Asking(plan, SEED, architecture.CENTRAL, True)
    row = asking._run(architecture.STATIC, plan.sizes[0], plan.requests // len(plan.sizes))
    assert differing(RESOURCES, row, ("model", "architecture", "result_size")) == {}


@pytest.mark.req("R14")
@pytest.mark.parametrize("deliver", [NORMAL, SIMILARITY])
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_the_simulation_beside_live_brokers(quick: bool, deliver: str) -> None:
    plan = SharingPlan(resources=60, requests=40, edges=4, routers=2, levels=(80,))
    if not quick:
        plan = SharingPlan(resources=200, requests=150, levels=(80,))
    row = _simulated(SharingStage(plan, SEED), 80, deliver)
    assert differing(RESOURCES, row, ("deliver", "how"), number=int(quick)) == {}


@pytest.mark.req("T15")
def test_what_is_computed_on_the_page_of_topics() -> None:
    """Its times are measured and differ from run to run; the delay of the network and the paper's figures do not."""
    shown = next(table for table in tables(TOPICS) if table and "of it network" in table[0])
    computed = {
        (row["topology"], row["what"]): row
        for row in topics.rows_of({what: [1.0, 1.0] for what in topics.EXCHANGES}, topics.LOCAL_MS)
    }
    assert len(shown) == len(computed)
    for row in shown:
        ours = computed[row["place"], row["what"]]
        assert row["of it network"] == f"{ours['network_ms']:.1f}"
        assert (row["paper ms"], row["paper sd"]) == (f"{ours['paper']['mean']:.2f}", f"{ours['paper']['sd']:.2f}")
