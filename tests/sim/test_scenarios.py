"""Every shipped scenario holds, from several seeds; a run in which nothing happens does not.

Those with many brokers are in test_network_scenarios.py; tests/stores/test_scenarios.py says what else holds with
stores.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from _pytest.mark import ParameterSet

from heliograph.sim.run import RunResult, play
from heliograph.sim.scenario import Fault, Workload
from heliograph.sim.scenario_files import load, shipped
from tests.sweep.seeds import seeds_of

OTHERS = ("network-", "resources-", "topics-", "contents")  # played by tests of their own
NAMES = [name for name in shipped() if not name.startswith(OTHERS)]


def played(with_stores: bool) -> list[ParameterSet]:
    return [
        pytest.param(name, seed, marks=[pytest.mark.slow] if number else [])  # `make quick` plays one of each
        for name in NAMES
        if name.startswith("stores-") is with_stores
        for number, seed in enumerate(seeds_of(name))
    ]


@pytest.mark.req("O7", "N6", "N15")
@pytest.mark.parametrize(("name", "seed"), played(with_stores=False))
def test_a_shipped_scenario_holds(name: str, seed: int) -> None:
    assert held(name, seed).delivered > 500


@pytest.mark.req("N10", "N11", "O7")
@pytest.mark.parametrize(("name", "seed"), played(with_stores=True))
def test_a_shipped_scenario_with_stores_holds(name: str, seed: int) -> None:
    [acknowledged] = [text for text in held(name, seed).measured if text.endswith(" acknowledged")]
    assert int(acknowledged.split()[0]) >= 500


def held(name: str, seed: int) -> RunResult:
    result = play(load(name), seed)
    assert result.ok, "\n".join(
        [result.crash, *map(str, result.violations), f"replay: heliograph simulate {name} --seed {seed}"]
    )
    assert all(result.faults.values())
    return result


@pytest.mark.req("N15")
def test_slow_consumers_lose_what_their_policy_says_and_it_is_counted() -> None:
    result = play(load("slow-consumers"), 1, keep_journal=True)
    notes = [type(entry[4][0]).__name__ for entry in result.journal.entries if entry[2] == "note"]
    links = {entry[4][0]: entry[4][1] for entry in result.journal.entries if entry[2:4] == ("attached", "a")}
    slow = [entry[4] for entry in result.journal.entries if entry[2:4] == ("hung_up", "a")]

    assert "PublicationsDropped" in notes or "PublicationsLost" in notes
    assert "PublisherHeld" in notes
    assert {(links[link].partition(":")[0], reason) for link, reason in slow} == {("leaver", "slow_consumer")}


@pytest.mark.req("N15")
def test_publishers_wait_for_slow_readers_at_other_brokers_through_faults() -> None:
    result = held("hold-across", 1)
    assert result.tally["holds"] > 10


@pytest.mark.req("N19")
def test_requests_of_both_kinds_are_judged() -> None:
    result = held("requests", 1)
    assert result.tally["answerable"] > 50
    assert result.tally["unanswerable"] > 50


@pytest.mark.req("N18", "O8")
def test_the_access_scenario_denies_and_allows() -> None:
    result = play(load("access"), 1, keep_journal=True)
    refused = [entry[4] for entry in result.journal.entries if entry[2] == "refused"]
    received = {(entry[3], entry[4][4]) for entry in result.journal.entries if entry[2] == "received"}

    assert any("subscribe_denied" in text for _, _, text in refused)
    assert any("publish_denied" in text for _, _, text in refused)
    assert ("operator", "plant/sensor-1/secret") in received
    assert ("guest", "plant/sensor-1/temperature") in received
    assert ("guest", "plant/sensor-1/secret") not in received
    assert ("boss", "System/news") in received


def test_a_fault_that_never_struck_fails_a_run() -> None:
    quiet = load("quiet")
    result = play(replace(quiet, fault=(Fault(kind="crash", target="nobody"),)), 1)

    assert [str(each.text) for each in result.violations] == ["fault[0] (crash on nobody) never struck"]


def test_a_run_without_deliveries_fails_if_the_scenario_asks_for_some() -> None:
    quiet = load("quiet")
    deaf = [replace(each, subscribe=("elsewhere",)) if each.subscribe else each for each in quiet.workload]
    result = play(replace(quiet, workload=tuple(deaf)), 1)
    assert "nothing was delivered" in result.violations[0].text

    mute = [Workload(client="sensor", publish=("x",), from_s=9.999), *deaf[1:]]
    result = play(replace(quiet, workload=tuple(mute)), 1)
    assert "nothing was published" in result.violations[0].text
