"""The best k, cut on the way: exactly what an oracle chooses, and never more than has to travel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.messages import FoundResource, ResourcesFound
from heliograph.discovery.resources.ordering import BestSoFar, best
from tests.discovery.resources.net import Net, Wire
from tests.discovery.resources.test_parts import a_find

NAMES = list("abcdef")
TREES = st.lists(st.integers(0, 4), min_size=5, max_size=5).map(
    lambda parents: [(NAMES[min(parent, place)], NAMES[place + 1]) for place, parent in enumerate(parents)]
)
EXTRA = st.lists(st.sampled_from([("a", "f"), ("b", "e"), ("c", "f"), ("a", "d")]), max_size=3, unique=True)
HOSTED = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 5)), min_size=1, max_size=14)
DELIVERIES = st.sampled_from(["normal", "similarity"])
EVERY = read_condition("load >= 0")
ORDERS = st.sampled_from(["load", "load desc", "near", "together", "other"])


class Packages(Net):
    """A network that writes down the packages of results on each link."""

    def __init__(self, *arguments: Any) -> None:
        self.packages: dict[tuple[str, str], list[list[FoundResource]]] = {}
        super().__init__(*arguments)

    def carry(self, source: str, wire: Wire, payload: bytes) -> None:
        message = messages.decode(payload)
        if isinstance(message, ResourcesFound):
            self.packages.setdefault((source, wire.to), []).append(message.found)
        super().carry(source, wire, payload)


@pytest.mark.req("R12")
@given(
    TREES, EXTRA, HOSTED, ORDERS, st.integers(1, 4), st.sampled_from(NAMES), st.sampled_from(["normal", "similarity"])
)
def test_the_best_are_those_that_an_oracle_chooses_and_few_travel(
    tree: list[tuple[str, str]],
    extra: list[tuple[str, str]],
    hosted: list[tuple[str, int | None]],
    order: str,
    count: int,
    at: str,
    deliver: str,
) -> None:
    known = {frozenset(edge) for edge in tree}
    net = Packages(NAMES, tree + [edge for edge in extra if frozenset(edge) not in known])
    for id, (host, load) in enumerate(hosted, 1):
        net.register(host, id, "load >= 0")
        if load is not None:
            net.update(host, id, 1, load=load)
    net.run(1)
    answers = net.ask(at, "load >= 0", best=count, order=order, deliver=deliver)
    net.run(2)
    core = net.nodes[at].core
    everything = [each for node in net.nodes.values() for each in node.core.hosting.matching(EVERY, net.now)]
    expected = best(everything, count, order, core.gathering._cost)
    assert [each.id for each in answers[0].found] == [each.id for each in expected]
    if order not in ("together", "near"):
        for link, packages in net.packages.items():
            cut = BestSoFar(count, order)
            for package in packages:
                assert len(package) <= count
                assert cut.cut(package) == package, f"{link} carried what could not be chosen"


@pytest.mark.req("R12")
def test_a_broker_on_the_way_passes_on_no_more_than_is_asked_for() -> None:
    """Ten hosts behind one broker, with two resources each."""
    hosts = [f"h{n}" for n in range(10)]
    net = Packages(["a", "b", *hosts], [("a", "b"), *(("b", host) for host in hosts)])
    for id, host in enumerate([*hosts, *hosts], 1):
        net.register(host, id, "load >= 0")
        net.update(host, id, 1, load=id)
    net.run(1)
    answers = net.ask("a", "load >= 0", best=3, order="load")
    net.run(1)
    assert [each.id for each in answers[0].found] == [1, 2, 3]
    assert [each.id for package in net.packages["b", "a"] for each in package] == [1, 11, 2, 3], "in this order"


@given(st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), max_size=4), max_size=6), st.integers(1, 4))
def test_what_is_cut_could_not_have_been_chosen(packages: list[list[tuple[int, int]]], count: int) -> None:
    cut = BestSoFar(count, "load desc")
    passed: list[FoundResource] = []
    seen: dict[int, FoundResource] = {}
    for package in packages:
        found = [a_find(id, 1, load=load) for id, load in dict(package).items() if id not in seen]
        seen.update((each.id, each) for each in found)
        kept = cut.cut(found)
        assert len(kept) <= count
        passed += kept
    whole = best(list(seen.values()), count, "load desc", lambda host: 0)
    assert best(passed, count, "load desc", lambda host: 0) == whole
