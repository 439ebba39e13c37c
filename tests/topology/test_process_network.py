"""Topologies: drawn by a rule they survive the loss of any one broker; drawn in a file they are what the file says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.load import parse_settings
from heliograph.errors import ConfigError
from heliograph.topology.process_network import (
    MEMBERS_MAX,
    NetworkTopology,
    PlannedBroker,
    generated,
    read_topology,
)
from tests.architecture.house import ROOT

pytestmark = pytest.mark.req("N3", "O9")

PLANT = """
links = [["hall-1", "hall-2"], ["hall-2", "office"]]

[[brokers]]
name = "hall-1"
cluster = "plant"

[[brokers]]
name = "hall-2"
cluster = "plant"
slot = 0

[[brokers]]
name = "office"
port = 4801
"""

counts = st.integers(1, 60).flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count)))


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_topology(text)
    return caught.value.problems


@given(counts)
def test_a_drawn_network_is_connected_whichever_broker_is_lost(shape: tuple[int, int]) -> None:
    topology = generated(*shape)

    assert len(topology.parts()) == 1
    for broker in topology.brokers[1:] if shape[0] == 2 else topology.brokers:
        assert len(topology.parts(without=[broker.name])) <= 1


@pytest.mark.req("R13")
def test_a_cluster_whose_parts_only_another_one_joins_is_refused() -> None:
    names = "\n".join(f'[[brokers]]\nname = "b{n}"\ncluster = "{"y" if n == 3 else "x"}"' for n in range(5))
    [problem] = problems_of(f'links = [["b0", "b1"], ["b0", "b2"], ["b1", "b3"], ["b3", "b4"]]\n{names}')
    assert problem.startswith("cluster 'x' is in parts that only other clusters join: b0, b1, b2 and b4; link")
    assert read_topology(f'links = [["b0", "b1"], ["b0", "b2"], ["b1", "b3"], ["b2", "b4"]]\n{names}').links


@given(counts)
def test_every_drawn_cluster_holds_together_by_itself(shape: tuple[int, int]) -> None:
    topology = generated(*shape)

    assert len(topology.clusters) == shape[1]
    sizes = [len(members) for members in topology.clusters.values()]
    assert max(sizes) - min(sizes) <= 1
    for cluster in topology.clusters:
        assert len(topology.parts(cluster=cluster)) == 1


def test_clusters_that_meet_have_two_links_without_a_broker_in_common() -> None:
    topology = generated(9, 3)

    between: dict[frozenset[str], list[str]] = {}
    for one, other in topology.links:
        if one[0] != other[0]:
            between.setdefault(frozenset((one[0], other[0])), []).extend((one, other))
    assert {len(ends) for ends in between.values()} == {4}
    assert all(len(set(ends)) == 4 for ends in between.values())
    assert len(between) == 3


def test_a_long_ring_has_ways_across() -> None:
    one_way = generated(16)

    assert ("a1", "a9") in one_way.links
    assert len(one_way.links) == 16 + 8


def test_names_and_slots_follow_the_clusters() -> None:
    topology = generated(5, 2)

    assert [(broker.name, broker.cluster, broker.slot) for broker in topology.brokers] == [
        ("a1", "a", 0),
        ("a2", "a", 1),
        ("a3", "a", 2),
        ("b1", "b", 0),
        ("b2", "b", 1),
    ]


def test_more_brokers_than_a_cluster_has_slots_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"65 brokers in 1 clusters: a cluster has {MEMBERS_MAX} at most"):
        generated(65)


def test_a_file_draws_any_graph_and_free_slots_are_given_out() -> None:
    topology = read_topology(PLANT).with_slots()

    assert topology.clusters == {"plant": ["hall-1", "hall-2"], "main": ["office"]}
    assert {broker.name: (broker.slot, broker.port) for broker in topology.brokers} == {
        "hall-1": (1, 0),
        "hall-2": (0, 0),
        "office": (0, 4801),
    }
    assert topology.neighbours["hall-2"] == ["hall-1", "office"]


def test_consecutive_ports_leave_out_those_that_were_given() -> None:
    topology = read_topology(PLANT).with_ports(4800)

    assert [broker.port for broker in topology.brokers] == [4800, 4802, 4801]
    with pytest.raises(ConfigError, match="must be between 0 and 65535"):
        read_topology(PLANT).with_ports(65_535)


def test_of_many_brokers_none_gets_the_slot_or_port_of_another() -> None:
    given = [PlannedBroker(name="a", port=4_801), PlannedBroker(name="b", port=4_802), PlannedBroker(name="c", slot=1)]
    brokers = (*given, *(PlannedBroker(name=name) for name in "def"))
    topology = NetworkTopology(brokers=brokers).with_ports(4_800).with_slots()

    assert [broker.port for broker in topology.brokers] == [4_801, 4_802, 4_800, 4_803, 4_804, 4_805]
    assert [broker.slot for broker in topology.brokers] == [0, 2, 1, 3, 4, 5]


@pytest.mark.req("O6")
def test_all_problems_of_a_file_are_told_at_once() -> None:
    wrong_types = problems_of('links = [["a"], ["b", "c"]]\nlink = 1\n[[brokers]]\nname = 7\n[[brokers]]\nslott = 1')
    assert [problem.split(":")[0] for problem in wrong_types] == [
        "link",
        "brokers[0].name = 7",
        "brokers[1].slott",
        "brokers[1].name is missing",
        "links[0] = ['a']",
    ]
    assert "did you mean 'links'?" in wrong_types[0]

    both = problems_of('links = [["a", "x"]]\ncolour = 1\n[[brokers]]\nname = "a"\nslot = "one"\nport = 70000\n')
    assert [problem.split()[0].rstrip(":") for problem in both] == [
        "colour", "brokers[0].slot", "brokers[0].port", "links[0]",
    ]  # fmt: skip

    wrong_graph = problems_of(
        'links = [["a", "a"], ["a", "x"], ["a", "b"], ["b", "a"]]\n'
        '[[brokers]]\nname = "a"\nslot = 64\nport = 70000\n'
        '[[brokers]]\nname = "b"\nslot = 1\nport = 4800\n'
        '[[brokers]]\nname = "b"\nslot = 1\n'
        '[[brokers]]\nname = "c d"\nslot = 1\nport = 4800\n'
    )
    assert wrong_graph == [
        "brokers[0].slot = 64: must be between 0 and 63",
        "brokers[0].port = 70000: must be between 0 and 65535 (0 takes a free port)",
        "brokers[2].name = 'b': brokers[1] has this name already",
        "brokers[3].name = 'c d': letters, digits and . _ @ - only",
        "brokers[3].slot = 1: 'b' has it in cluster 'main' already",
        "brokers[3].port = 4800: 'b' has it already",
        "links[0]: 'a' cannot be linked to itself",
        "links[1]: there is no broker 'x'",
        "links[3]: 'b' and 'a' are linked by links[2]",
    ]


@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode("latin-1"))))
def test_any_text_gives_a_topology_or_a_config_error(text: str) -> None:
    problems: list[str] = []
    brokers = 0
    try:
        brokers = len(read_topology(text).brokers)
    except ConfigError as error:
        problems = error.problems
    assert bool(problems) != bool(brokers)


def test_parts_that_do_not_reach_each_other_are_found() -> None:
    topology = read_topology('brokers = [{name = "a"}, {name = "b"}, {name = "c"}]\nlinks = [["a", "c"]]')

    assert topology.parts() == [["a", "c"], ["b"]]


def test_the_how_to_page_draws_a_network_that_survives_the_loss_of_any_broker() -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-network.md").read_text("utf-8")
    (topology,) = [
        read_topology(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[[brokers]]" in block
    ]

    assert len(topology.brokers) == 4
    assert all(len(topology.parts(without=[broker.name])) == 1 for broker in topology.brokers)


def test_the_settings_on_the_how_to_page_are_valid() -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-network.md").read_text("utf-8")
    blocks = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[network]" in block]

    assert [parse_settings(block).broker.network.cluster for block in blocks] == ["plant"]
