"""The network map: shortest ways, parts of clusters, and what is not believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heliograph.broker.routing.map import RECORDS_MAX, NetworkMap, shortest
from heliograph.wire.broker_bodies import Gateway, Member
from tests.examples import examples

pytestmark = pytest.mark.req("N4")


def a_member(broker: int, links: dict[int, int], cluster: str = "a", number: int = 1, incarnation: int = 1) -> Member:
    return Member(broker, f"b{broker}", cluster, broker % 64, 0, incarnation, number, links)


def a_gateway(broker: int, cluster: str, leader: int, outside: dict[int, int], inside: dict[int, int]) -> Gateway:
    return Gateway(broker, f"b{broker}", cluster, leader, 1, 1, outside, inside)


def a_map(*links: tuple[int, int, int], me: int = 1) -> NetworkMap:
    """A cluster with these links (a, b, cost), seen from one broker."""
    table: dict[int, dict[int, int]] = {me: {}}
    for a, b, cost in links:
        table.setdefault(a, {})[b] = cost
        table.setdefault(b, {})[a] = cost
    known = NetworkMap(a_member(me, table[me]))
    for broker, neighbours in table.items():
        known.learn(a_member(broker, neighbours))
    return known


def test_the_shortest_way_is_taken() -> None:
    known = a_map((1, 2, 10), (2, 3, 10), (1, 3, 50), (3, 4, 1))
    assert known.paths.costs == {1: 0, 2: 10, 3: 20, 4: 21}
    assert known.paths.steps == {2: 2, 3: 2, 4: 2}
    assert known.paths.members == {2: 2, 3: 3, 4: 4}


def test_a_link_counts_only_if_both_ends_report_it() -> None:
    known = a_map((1, 2, 10))
    known.learn(a_member(3, {1: 1, 2: 1}))
    assert 3 not in known.paths.costs
    assert known.out_of_reach() == [3]


def test_a_record_of_an_earlier_life_does_not_confirm_a_link() -> None:
    known = a_map((1, 2, 10))
    me = replace(known.me, number=2, incarnations={2: 7})  # the neighbour has begun anew
    known.learn(me)
    assert 2 not in known.paths.costs
    known.learn(a_member(2, {1: 10}, incarnation=7))
    assert known.paths.costs[2] == 10


@pytest.mark.req("N5")
def test_a_cluster_is_entered_on_the_path_to_what_lies_beyond_it() -> None:
    known = a_map(me=1)
    known.learn(a_gateway(1, "a", 1, {11: 10, 12: 12}, {}))
    known.learn(a_gateway(11, "b", 11, {1: 10}, {12: 10}))
    known.learn(a_gateway(12, "b", 11, {1: 12}, {11: 10}))
    assert known.paths.parts == {11: 11}  # the nearest
    known.learn(replace(known.gateways[12], number=2, outside={1: 12, 21: 10}))
    known.learn(a_gateway(21, "c", 21, {12: 10}, {}))
    assert known.paths.parts == {11: 12, 21: 21}


@pytest.mark.req("O9")
def test_a_map_has_room_for_so_many_brokers_and_no_more() -> None:
    known = a_map((1, 2, 10))
    for broker in range(3, RECORDS_MAX + 100):
        known.learn(a_member(broker, {}))
    assert len(known.members) == RECORDS_MAX
    assert known.learn(a_member(2, {}, number=2)), "who is known is heard all the same"


def test_only_newer_records_are_believed() -> None:
    known = a_map((1, 2, 10))
    assert not known.learn(a_member(2, {}, number=1))
    assert known.learn(a_member(2, {}, number=2))
    assert 2 not in known.paths.costs
    assert known.learn(a_member(2, {1: 5}, number=0, incarnation=2))
    assert known.paths.costs[2] == 10, "our own direction has our own cost"


def test_the_leader_is_the_lowest_slot_that_can_be_reached_inside() -> None:
    known = a_map((5, 6, 1), (6, 7, 1), (2, 5, 1), me=6)
    assert known.paths.leader == 2
    known.learn(a_member(2, {}, number=2))
    assert known.paths.leader == 5


def a_network() -> NetworkMap:
    """Cluster a = {1, 2} (we are 1), b = {11, 12, 13}, c = {21}; 2-11, 13-21, 1-21."""
    known = a_map((1, 2, 10))
    known.learn(a_gateway(2, "a", 1, {11: 100}, {1: 10}))
    known.learn(a_gateway(1, "a", 1, {21: 1_000}, {2: 10}))
    known.learn(a_gateway(11, "b", 11, {2: 100}, {13: 20}))
    known.learn(a_gateway(13, "b", 11, {21: 100}, {11: 20}))
    known.learn(a_gateway(21, "c", 21, {13: 100, 1: 1_000}, {}))
    return known


def test_other_clusters_are_reached_through_their_nearest_gateway() -> None:
    known = a_network()
    assert known.paths.parts == {11: 11, 21: 21}
    assert known.paths.costs[21] == 230, "through cluster b, which is cheaper than the direct link"
    assert known.paths.next_to_part(21) == 2
    assert known.paths.next_to_part(99) is None


def test_a_cluster_that_fell_apart_is_two_parts() -> None:
    known = a_network()
    known.learn(Gateway(13, "b13", "b", 13, 1, 2, {21: 100}, {}))
    assert known.paths.parts == {11: 11, 13: 13, 21: 21}
    assert known.paths.costs[13] == 1_100
    assert known.paths.next_to_part(13) == 21


def test_the_other_part_of_our_own_cluster_is_reached_from_outside() -> None:
    known = a_network()
    known.learn(a_member(3, {}))
    known.learn(a_gateway(3, "a", 3, {21: 7}, {}))
    known.learn(Gateway(21, "c", "c", 21, 1, 2, {13: 100, 1: 1_000, 3: 7}, {}))
    assert 3 not in known.paths.cluster
    assert known.paths.next_to_part(3) == 2


@examples(100)
@given(st.data())
def test_costs_agree_with_plain_relaxation(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    edges: dict[int, dict[int, int]] = {broker: {} for broker in range(size)}
    for _ in range(data.draw(st.integers(0, 16))):
        a, b, cost = data.draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1), st.integers(1, 9)))
        if a != b:
            edges[a][b] = cost
    costs, steps = shortest(0, edges)
    plain = {0: 0}
    for _ in range(size):
        for a, neighbours in edges.items():
            for b, cost in neighbours.items():
                if a in plain and plain[a] + cost < plain.get(b, 1 << 30):
                    plain[b] = plain[a] + cost
    assert costs == plain
    assert set(steps) == set(costs) - {0}
    assert all(step in edges[0] for step in steps.values())


def test_a_member_is_reached_inside_the_cluster_even_where_a_way_through_another_one_is_shorter() -> None:
    known = a_map((1, 2, 9_000))
    known.learn(a_gateway(1, "a", 1, {7: 1}, {2: 9_000}))
    known.learn(a_gateway(2, "a", 1, {7: 1}, {1: 9_000}))
    known.learn(a_gateway(7, "z", 7, {1: 1, 2: 1}, {}))
    assert known.paths.steps == {2: 2, 7: 7}, "a member's slot means nothing to the brokers of another cluster"
    assert known.paths.costs[2] == 9_000
