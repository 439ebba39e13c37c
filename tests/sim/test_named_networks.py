"""A scenario may name networks: a link between brokers of two of them never comes about, and nothing crosses."""

from __future__ import annotations

import pytest

from heliograph.errors import ConfigError
from heliograph.sim.run import play
from heliograph.sim.scenario_files import parse

TWO = """
[scenario]
name = "two-networks"
duration_s = 5
settle_s = 2
[topology]
links = [["a1", "a2"], ["b1", "b2"], ["a2", "b1"]]
[topology.brokers.a1]
network = "plant"
[topology.brokers.a2]
network = "plant"
[topology.brokers.b1]
network = "office"
[topology.brokers.b2]
network = "office"
[topology.clients.feed]
broker = "a1"
[topology.clients.reader]
broker = "a2"
[topology.clients.stranger]
broker = "b?"
count = 2
[[workload]]
client = "feed"
publish = ["x/{k}"]
rate_per_s = 20
from_s = 2
[[workload]]
client = "reader"
subscribe = ["x/+"]
[[workload]]
client = "stranger"
subscribe = ["x/+"]
"""


@pytest.mark.req("N18", "O7")
def test_two_networks_stay_apart_though_one_dials_the_other() -> None:
    result = play(parse(TWO), 1, keep_journal=True)
    told = [(kind, node, str(details)) for _, _, kind, node, details in result.journal.entries]

    assert {node for kind, node, _ in told if kind == "received"} == {"reader"}
    assert {node for kind, node, text in told if kind == "note" and "NETWORK_OTHER" in text} == {"a2", "b1"}


def test_a_name_that_is_none_is_a_problem_of_the_scenario() -> None:
    with pytest.raises(ConfigError, match=r"topology.brokers.a1.network = 'my plant': at most 64"):
        parse(TWO.replace('"plant"', '"my plant"', 1))
