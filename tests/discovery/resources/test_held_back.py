"""An advertisement is held back only if every request that overlaps it comes to its host anyway."""

from __future__ import annotations

import pytest

from tests.discovery.resources.net import Net


@pytest.mark.req("R3", "R6")
def test_a_resource_with_more_attributes_than_the_covering_one_is_found() -> None:
    net = Net(["a", "b"], [("a", "b")])
    net.register("a", 1, "x <= 9")
    net.register("a", 2, "x <= 5 and y <= 5")
    net.register("a", 3, "x <= 4 and y <= 5")
    net.update("a", 2, 1, x=2, y=3)
    net.update("a", 3, 1, x=3, y=3)
    net.run(1)
    told = net.nodes["b"].core.table.hosts[net.ids["a"]].resources
    assert sorted(told) == [1, 2], "the third is covered by the second: requests for it come anyway"
    answers = net.ask("b", "x >= 1 and y >= 1")
    net.run(2)
    assert [answer.is_complete for answer in answers] == [True]
    assert sorted(each.id for each in answers[0].found) == [2, 3]
