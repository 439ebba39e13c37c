"""A filter that covers many goes or comes: what follows is told in slices, and nothing is missed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.broker import Broker
from heliograph.broker.routing.reduced import SETTLED_AT_ONCE
from heliograph.matching.covering import ConditionedFilter, InterestSet
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5", "N9")
MANY = 20 * SETTLED_AT_ONCE


class Steps:
    """How many interests found a place in the present input of a broker, and in any input at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        for method in (InterestSet._settle, InterestSet._cover_one):
            monkeypatch.setattr(InterestSet, method.__name__, self._counted(method))
        for inputs in (Broker.receive, Broker.wake):
            monkeypatch.setattr(Broker, inputs.__name__, self._begun(inputs))

    def _counted(self, method: Any) -> Any:
        def one_more(*given: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            return method(*given)

        return one_more

    def _begun(self, method: Any) -> Any:
        def begin(*given: Any) -> None:
            self.now = 0
            method(*given)

        return begin


def a_mesh() -> Mesh:
    """A client at a wants many things; a publisher is in another cluster, which hears of them from a leader."""
    mesh = Mesh({"a": ["b"], "b": ["c"]}, {"a": "near", "b": "near", "c": "far"})
    mesh.client("a", 1)
    mesh.client("c", 2)
    for number in range(MANY):
        mesh.subscribe("a", 1, f"a/{number}", number)
    return mesh


def interests_of_the_cluster(mesh: Mesh) -> int:
    (row,) = mesh.report("c", "map")["clusters"]
    return int(row["interests"])


def test_while_a_filter_that_covers_many_comes_and_goes_no_input_does_much_and_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mesh = a_mesh()
    mesh.pass_time(100)
    told = interests_of_the_cluster(mesh)
    assert told >= MANY
    steps = Steps(monkeypatch)

    mesh.subscribe("a", 1, "a/#", MANY)
    mesh.pass_time(1_000)
    assert interests_of_the_cluster(mesh) == told - MANY + 1

    mesh["a"].unsubscribe(1, MANY)
    mesh.run()
    for number in range(MANY):
        mesh.publish("c", 2, f"a/{number}", b"%d" % number)
        mesh.pass_time(10)
    assert mesh["a"].heard[1].payloads == [b"%d" % number for number in range(MANY)]
    assert interests_of_the_cluster(mesh) == told
    assert SETTLED_AT_ONCE < steps.most <= 3 * SETTLED_AT_ONCE + 1


def test_a_filter_that_comes_back_before_it_is_gone_covers_what_it_covered() -> None:
    mesh = a_mesh()
    mesh.subscribe("a", 1, "a/#", MANY)
    mesh.pass_time(1_000)
    before = interests_of_the_cluster(mesh)
    mesh["a"].unsubscribe(1, MANY)
    mesh.run()
    assert ConditionedFilter(b"a/#") in mesh["a"].broker._routing.advertising.own._answering._covers.roots
    mesh.subscribe("a", 1, "a/#", MANY)
    mesh.pass_time(1_000)
    assert interests_of_the_cluster(mesh) == before
    mesh.publish("c", 2, "a/new", b"new")
    assert mesh["a"].heard[1].payloads == [b"new"]
