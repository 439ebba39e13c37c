"""Networks whose brokers all begin at once: what that costs is bounded, and it comes to an end."""

from __future__ import annotations

from random import Random

import pytest

from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_files import parse
from heliograph.sim.scenario_world import ScenarioWorld

pytestmark = [pytest.mark.req("N4"), pytest.mark.slow]

HEAD = """
[scenario]
name = "cold start"
[network]
delay_ms = 1
jitter_ms = 0.5
[topology]
"""


def a_random_graph(brokers: int, clusters: int, seed: int = 1) -> Scenario:
    """Each broker is linked to two earlier ones, which may be the same; nobody was given a slot."""
    random = Random(seed)
    names = [f"b{number}" for number in range(brokers)]
    links = {(name, names[random.randrange(number)]): None for number, name in enumerate(names) if number for _ in "12"}
    lines = [f'[topology.brokers.{name}]\ncluster = "c{n * clusters // brokers}"' for n, name in enumerate(names)]
    return parse(f"{HEAD}links = {[list(pair) for pair in links]}\n" + "\n".join(lines))


def told(stage: ScenarioWorld) -> int:
    return sum(stage.ask(name, "map")["updates_told"] for name in stage.scenario.topology.brokers)


@pytest.mark.parametrize(("brokers", "clusters"), [(30, 1), (60, 1), (60, 3), (100, 5)])
def test_what_a_broker_tells_from_a_cold_start_is_a_small_multiple_of_the_links_there_are(
    brokers: int, clusters: int
) -> None:
    scenario = a_random_graph(brokers, clusters)
    stage = ScenarioWorld(scenario, 1)
    stage.world.run(1 * SECOND)
    maps = [stage.ask(name, "map") for name in scenario.topology.brokers]
    links = len(scenario.topology.links)
    assert all(not report["out_of_reach"] for report in maps)
    assert told(stage) / brokers <= 5 * links
    assert max(report["times_settled"] for report in maps) <= 60, "ways are worked out for many changes at once"


def test_of_more_brokers_than_a_cluster_has_slots_the_rest_is_refused_and_the_others_come_to_rest() -> None:
    scenario = a_random_graph(100, 1)
    stage = ScenarioWorld(scenario, 1)
    stage.world.run(5 * SECOND)
    before = told(stage)
    stage.world.run(15 * SECOND)
    maps = {name: stage.ask(name, "map") for name in scenario.topology.brokers}
    sizes = [len([row for row in report["members"] if row["cost"] is not None]) for report in maps.values()]
    assert max(sizes) <= 64
    assert sizes.count(max(sizes)) == max(sizes), "they know each other"
    slots = [report["slot"] for report, size in zip(maps.values(), sizes, strict=True) if size == max(sizes)]
    assert len(set(slots)) == len(slots)
    assert told(stage) - before < before / 10, "who is refused does not keep the others busy"
