"""Topologies: generated shapes are what their names say, and clients find their brokers."""

from __future__ import annotations

from random import Random

import pytest

from heliograph.errors import ConfigError
from heliograph.sim.checkers.maps import reach
from heliograph.sim.scenario_files import parse
from heliograph.topology.simulated import SHAPES, ClientPlan, ScenarioTopology, Shape, home, with_generated


def a_network(shape: str, brokers: int = 9, **more: int) -> ScenarioTopology:
    return with_generated(ScenarioTopology(generate=Shape(shape=shape, brokers=brokers, **more)), Random(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_links_all_its_brokers(shape: str) -> None:
    topology = a_network(shape, clusters=3 if shape == "clusters" else 1)
    graph: dict[str, dict[str, None]] = {name: {} for name in topology.brokers}
    for one, other in topology.links:
        graph[one][other] = graph[other][one] = None

    assert list(topology.brokers) == [f"b{number}" for number in range(1, 10)]
    assert reach("b1", graph) == set(topology.brokers)


def test_the_links_of_plain_shapes_are_known() -> None:
    assert a_network("line", 3).links == (("b1", "b2"), ("b2", "b3"))
    assert a_network("ring", 3).links == (("b1", "b2"), ("b2", "b3"), ("b3", "b1"))
    assert a_network("star", 3).links == (("b2", "b1"), ("b3", "b1"))


def test_clusters_have_slots_bridges_and_chords_of_their_own() -> None:
    topology = a_network("clusters", 12, clusters=3, bridges=2, chords=3)
    inside = [pair for pair in topology.links if len({topology.brokers[name].cluster for name in pair}) == 1]

    assert [(plan.cluster, plan.slot) for plan in topology.brokers.values()][3:6] == [("c1", 3), ("c2", 0), ("c2", 1)]
    assert len(inside) == 3 * 4 + 3
    assert len(topology.links) - len(inside) == 3 * 2


def test_a_generated_network_depends_on_the_seed_only() -> None:
    plan = ScenarioTopology(generate=Shape(shape="random", brokers=20, chords=5))
    assert with_generated(plan, Random(1)) == with_generated(plan, Random(1))
    assert with_generated(plan, Random(1)).links != with_generated(plan, Random(2)).links


def test_clients_of_a_group_take_the_brokers_that_fit_in_turn() -> None:
    topology = a_network("ring", 12)
    plan = ClientPlan(broker="b1?", count=4)  # b10, b11, b12
    assert [home(topology, plan, number) for number in range(1, 5)] == ["b10", "b11", "b12", "b10"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('generate = { shape = "circle", brokers = 3 }', "topology.generate.shape = 'circle': there is line"),
        ('generate = { shape = "ring", brokers = 0 }', "topology.generate.brokers = 0"),
        ('generate = { shape = "ring", brokers = 3, clusters = 4 }', "topology.generate.clusters = 4"),
        ('generate = { shape = "ring", brokers = 65 }', "a cluster has between 1 and 64 brokers"),
        ('links = [["a", "c"]]', "topology.links[0] has 'c'"),
        ('links = [["a", "b"], ["b", "a"]]', "two brokers are linked twice"),
        ("suspect_ms = 100", "topology: heartbeat_ms must be below suspect_ms"),
    ],
)
def test_what_is_wrong_with_a_network_is_said(wrong: str, said: str) -> None:
    text = f'[scenario]\nname = "x"\n[topology]\n{wrong}\n[topology.brokers.a]\n[topology.brokers.b]\n'
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert any(said in problem for problem in caught.value.problems), caught.value.problems
