"""The paper's Figure 6, message by message."""

from __future__ import annotations

import pytest

from heliograph.discovery.resources.forwarding import NORMAL, SIMILARITY
from heliograph.discovery.resources.request_tables import tables_of
from tests.discovery.resources.net import SECOND, Net

EDGES = [("A", "C"), ("B", "C"), ("C", "D"), ("D", "E"), ("D", "F"), ("E", "G")]
D1, D2 = "x >= 1", "x >= 2"
AGE = 100 * SECOND  # that a request allows, as in the paper
SUBSCRIPTIONS, PUBLICATIONS = "ResourceRequest", "ResourcesFound"


def figure(deliver: str, late: bool = True) -> Net:
    net = Net(list("ABCDEFG"), EDGES)
    for number, at in enumerate("AFG", 1):
        net.register(at, number, "x >= 0")
        net.update(at, number, 1, x=9)
    net.run(1)
    net.kinds.clear()
    first = net.ask("E", D1, deliver=deliver)
    if late:
        net.run(1)
    second = net.ask("B", D2, deliver=deliver, max_age_ns=AGE if deliver == SIMILARITY else 0)
    net.run(5)
    for answers in (first, second):
        assert [answer.is_complete for answer in answers] == [True]
        assert sorted(each.name for each in answers[0].found) == ["R1", "R2", "R3"]
    return net


@pytest.mark.req("R9")
def test_similarity_takes_8_subscription_and_9_publication_messages() -> None:
    net = figure(SIMILARITY)
    assert (net.kinds[SUBSCRIPTIONS], net.kinds[PUBLICATIONS]) == (8, 9)


@pytest.mark.req("R6", "R10")
def test_normal_takes_11_subscription_and_15_publication_messages() -> None:
    net = figure(NORMAL)
    assert (net.kinds[SUBSCRIPTIONS], net.kinds[PUBLICATIONS]) == (11, 15)


@pytest.mark.req("R9")
def test_the_tables_are_as_printed() -> None:
    net = figure(SIMILARITY)
    tables = {name: tables_of(node.core.forwarding) for name, node in net.nodes.items()}
    assert {name: table["listed"] for name, table in tables.items()} == {
        **{name: [D1] for name in "ACDEFG"},
        "B": [D2],
    }
    assert {name: table["cached"] for name, table in tables.items() if table["cached"]} == {
        "B": [f"{D2}(R1, R2, R3)"],
        "E": [f"{D1}(R1, R2, R3)"],
    }
    assert {name: table["waiting"] for name, table in tables.items() if table["waiting"]} == {
        name: [f"{D1}({D2})"] for name in "CDE"
    }


@pytest.mark.req("R9")
@pytest.mark.parametrize("max_age", [AGE, 0], ids=["paper", "default"])
def test_nothing_is_missed_or_repeated_whenever_the_second_comes(max_age: int) -> None:
    for ms in range(12):
        net = Net(list("ABCDEFG"), EDGES)
        for number, at in enumerate("AFG", 1):
            net.register(at, number, "x >= 0")
            net.update(at, number, 1, x=9)
        net.run(1)
        first = net.ask("E", D1)
        net.run(ms / 1_000)
        second = net.ask("B", D2, max_age_ns=max_age)
        net.run(5)
        for answers in (first, second):
            assert [answer.is_complete for answer in answers] == [True]
            assert [answer.attempts for answer in answers] == [1] or max_age == 0
            assert sorted(each.name for each in answers[0].found) == ["R1", "R2", "R3"]
