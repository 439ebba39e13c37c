"""What a link costs: measured, smoothed, and told only where it matters to somebody."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.routing.leadership import coarse
from heliograph.broker.routing.ports import Neighbour
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N4")
MS = 1_000_000


def heard(neighbour: Neighbour, *round_trips_ms: float) -> list[int]:
    """The costs that others are told while pongs take so long."""
    costs = []
    for round_trip_ms in round_trips_ms:
        if neighbour.measure(int(round_trip_ms * MS), outside=False):
            neighbour.told_cost = neighbour.cost
            costs.append(neighbour.cost)
    return costs


def a_neighbour() -> Neighbour:
    link: Any = None
    neighbour = Neighbour(link, 7, "n", "main", 1, True)
    assert heard(neighbour, 4) == [2_000]
    return neighbour


def test_one_pong_after_a_stall_is_told_as_little_more_and_taken_back() -> None:
    more, back = heard(a_neighbour(), 1_600, *[4] * 30)
    assert more < 3_000
    assert 2_000 <= back < 2_100


def test_a_way_that_became_long_for_good_is_told_as_long() -> None:
    costs = heard(a_neighbour(), *[40] * 40)
    assert costs == sorted(costs)
    assert 17_000 < costs[-1] <= 20_000


def test_a_cost_between_gateways_is_told_anew_when_it_differs_by_an_eighth() -> None:
    told = coarse(1_600)
    assert told == 1_536
    assert [coarse(cost, told) for cost in (1_345, 1_500, 1_728)] == [told] * 3
    assert [coarse(cost, told) for cost in (1_343, 1_729)] == [coarse(1_343), coarse(1_729)]
    assert coarse(1_343) != told


def test_what_happens_to_a_link_between_clusters_is_no_news_for_the_members_inside() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]}, {"a": "near", "b": "near", "c": "far"})
    before = mesh["b"].broker._routing.view.map.me.number
    mesh.kill("c")
    mesh.pass_time(50)
    assert mesh["b"].broker._routing.view.map.me.number == before
    assert [row["outside"] for row in mesh.report("a", "map")["gateways"] if row["broker"] == "b"] == [{}]
