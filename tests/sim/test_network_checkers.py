"""The checkers of whole networks accept what is right and notice what is wrong: real maps, then falsified ones."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from heliograph.sim.checkers import CHECKERS, Checker
from heliograph.sim.journal import Journal
from heliograph.sim.loop import SECOND, Loop
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_files import parse
from heliograph.sim.scenario_world import ScenarioWorld

pytestmark = pytest.mark.req("O7", "N4")

SCENARIO = parse("""
[scenario]
name = "by hand"
[topology]
links = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "c"]]
heartbeat_ms = 200
suspect_ms = 500
dead_ms = 1000
forget_ms = 1500 # who spoke for itself while its cluster was found is forgotten before the maps are taken
[topology.brokers.a]
cluster = "near"
slot = 0
[topology.brokers.b]
cluster = "near"
slot = 1
[topology.brokers.c]
cluster = "far"
slot = 0
[topology.brokers.d]
cluster = "far"
slot = 1
[topology.brokers.e]
cluster = "far"
slot = 2
[topology.clients.p]
broker = "a"
[topology.clients.s]
broker = "d"
""")


@pytest.fixture(scope="module")
def truth() -> dict[str, dict[str, Any]]:
    """The maps of five brokers that had time to find each other."""
    stage = ScenarioWorld(SCENARIO, 1)
    stage.world.run(3 * SECOND)
    return {name: stage.ask(name, "map") for name in SCENARIO.topology.brokers}


class World:
    """A journal, one checker, and maps as a test wants them."""

    def __init__(self, name: str, maps: dict[str, Any], scenario: Scenario = SCENARIO) -> None:
        self.loop = Loop()
        self.journal = Journal(self.loop)
        self.maps: dict[str, Any] = deepcopy(maps)
        self.checker: Checker = CHECKERS[name](scenario, self.journal, self._ask)

    def _ask(self, host: str, question: str) -> Any:
        return self.maps[host] if question == "map" else {"broker": self.maps[host]["broker"]}

    def write(self, kind: str, who: str, *details: Any, after_s: float = 0) -> None:
        self.loop.now += int(after_s * SECOND) + 1
        self.loop.step += 1
        self.journal.write(kind, who, *details)

    def row(self, host: str, table: str, broker: str) -> dict[str, Any]:
        found: dict[str, Any] = next(row for row in self.maps[host][table] if row["broker"] == broker)
        return found

    def verdict(self) -> list[str]:
        self.checker.end()
        return [violation.text for violation in self.checker.violations]


# Maps.


def test_maps_accepts_a_network_that_knows_itself(truth: dict[str, Any]) -> None:
    assert World("maps", truth).verdict() == []


Falsify = Callable[[World], Any]
LIES: dict[str, tuple[Falsify, str]] = {
    "a neighbour is missing": (lambda world: world.maps["a"]["neighbours"].clear(), "a is linked to []"),
    "a neighbour is suspected": (lambda world: world.row("a", "neighbours", "b").update(suspected=True), "a is linked"),
    "a member is missing": (
        lambda world: world.maps["d"].update(members=world.maps["d"]["members"][1:]),
        "d has as members in reach",
    ),
    "a member is out of reach": (lambda world: world.row("d", "members", "e").update(cost=None), "d has as members"),
    "a member has a link too many": (
        lambda world: world.row("b", "members", "a")["links"].update(x=1),
        "b has as links of a",
    ),
    "two members have one slot": (lambda world: world.row("c", "members", "e").update(slot=1), "c has a slot twice"),
    "another speaks": (lambda world: world.maps["e"].update(leader="d"), "e has d as leader, but it is c"),
    "a gateway is missing": (lambda world: world.maps["e"]["gateways"].clear(), "e has as gateways in reach []"),
    "a gateway has a link too few": (
        lambda world: world.row("e", "gateways", "b").update(outside={"d": 1}),
        "e has as links of gateway b",
    ),
    "a cluster is missing": (lambda world: world.maps["a"]["clusters"].clear(), "a has as leaders of other parts []"),
    "an interest of a member is missing": (
        lambda world: world.row("d", "members", "e").update(interests=0),
        "d has 0 interests of e",
    ),
    "interests of a cluster differ": (
        lambda world: world.maps["b"]["clusters"][0].update(interests=99),
        "interests of the part of c",
    ),
    "a broker does not run": (lambda world: world.maps.update(e=None), "e does not run"),
}


@pytest.mark.parametrize("lie", LIES)
def test_maps_notices_when(lie: str, truth: dict[str, Any]) -> None:
    world = World("maps", truth)
    falsify, complaint = LIES[lie]
    falsify(world)
    assert any(complaint in text for text in world.verdict()), world.verdict()


def test_maps_tells_when_the_network_is_settled_and_when_it_is_disturbed(truth: dict[str, Any]) -> None:
    world = World("maps", truth)
    world.checker.look()
    world.write("fault", "b", "crash")
    world.checker.look()
    world.write("healed", "b", "crash")
    world.maps["a"]["neighbours"].clear()
    world.checker.look()
    world.maps["a"] = deepcopy(truth["a"])
    world.checker.look()
    told = [world.journal.counts[kind] for kind in ("settled", "disturbed")]
    assert told == [2, 1]


def test_maps_expects_links_that_were_added_and_none_that_were_removed(truth: dict[str, Any]) -> None:
    world = World("maps", truth)
    world.write("linked", "a", "e")
    assert any("a is linked to ['b'], but should have ['b', 'e']" in text for text in world.verdict())
    world = World("maps", truth)
    world.write("unlinked", "e", "c")
    assert any("c is linked to ['b', 'd', 'e'], but should have ['b', 'd']" in text for text in world.verdict())


# Ways.


def settled(truth: dict[str, Any], *links: tuple[str, str]) -> World:
    """A publication of p, which s wants, and the links that carried it."""
    world = World("ways", truth)
    world.write("subscribing", "s", 1, "x/+", "drop_oldest", True)
    world.write("settled", "the network")
    world.write("published", "p", 1, "x/1", b"")
    for one, other in links:
        world.write("carried", one, other, "p", 1)
    return world


def test_ways_accepts_a_publication_that_goes_straight_to_where_it_is_wanted(truth: dict[str, Any]) -> None:
    assert settled(truth, ("a", "b"), ("b", "c"), ("c", "d")).verdict() == []


def test_ways_notices_a_broker_that_saw_what_it_should_not(truth: dict[str, Any]) -> None:
    world = settled(truth, ("a", "b"), ("b", "c"), ("c", "d"), ("c", "e"))
    assert world.verdict() == ["e saw publication 1 of p on x/1, and was not on the way"]


def test_ways_notices_a_link_that_carried_a_publication_twice(truth: dict[str, Any]) -> None:
    [text] = settled(truth, ("a", "b"), ("b", "c"), ("c", "d"), ("c", "d")).verdict()
    assert text.startswith("a link carried publication 1 of p twice")


def test_ways_notices_detours(truth: dict[str, Any]) -> None:
    world = World("ways", truth)
    for one, other in (("c", "d"), ("d", "c")):
        world.row(one, "members", other)["via"] = "e"
        world.row(one, "neighbours", other)["cost"] = 1
    for one, other in (("c", "e"), ("d", "e"), ("e", "c"), ("e", "d")):
        world.row(one, "neighbours", other)["cost"] = 1_000
    assert any("times as long as the shortest, above 1.7" in text for text in world.verdict())


def test_ways_notices_where_no_way_leads(truth: dict[str, Any]) -> None:
    world = World("ways", truth)
    world.maps["a"]["clusters"].clear()
    assert "no way leads from a to d" in world.verdict()


# Forgotten.

BRIEF = replace(SCENARIO, topology=replace(SCENARIO.topology, dead_ms=3_000, forget_ms=4_000))


def test_forgotten_accepts_a_network_that_remembers_only_what_is_there(truth: dict[str, Any]) -> None:
    world = World("forgotten", truth, BRIEF)
    for host in truth:
        world.write("started", host, 1)
    world.write("fault", "b", "stall")
    world.write("healed", "b", "stall", after_s=1)
    world.write("settled", "the network", after_s=10)
    world.loop.now += 1
    assert world.verdict() == []


def test_forgotten_notices_who_remembers_a_broker_that_was_replaced(truth: dict[str, Any]) -> None:
    world = World("forgotten", truth, BRIEF)
    world.write("started", "b", 1)
    world.maps["b"]["broker"] = "b.2"
    world.write("started", "b", 2, after_s=5)
    world.maps["c"]["remembered"] = ["gateway b", "wide b"]
    world.write("settled", "the network", after_s=10)
    assert world.verdict() == [
        f"c still remembers {what} b, which was replaced 10 s ago" for what in ("gateway", "wide")
    ]


def test_forgotten_notices_what_is_kept_after_the_last_change(truth: dict[str, Any]) -> None:
    world = World("forgotten", truth, BRIEF)
    world.write("unlinked", "d", "e")
    world.maps["a"]["remembered"] = ["wide d"]
    world.write("settled", "the network", after_s=10)
    [text] = world.verdict()
    assert text.startswith("a still remembers wide d, ")


def test_forgotten_says_so_if_a_run_is_too_short_for_it(truth: dict[str, Any]) -> None:
    world = World("forgotten", truth, BRIEF)
    world.write("fault", "b", "stall", after_s=5)
    world.write("healed", "b", "stall", after_s=1)
    assert world.verdict() == ["the run ends before anything has to be forgotten"]
