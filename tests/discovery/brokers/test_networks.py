"""Brokers of several networks within reach of one search: the chosen one is found, or all are listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers import remembered as remembered_file
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.config import DirectoryConfig, DiscoveryConfig, MulticastConfig, ResponderConfig
from heliograph.discovery.brokers.messages import Acknowledgement, DiscoveryRequest, DiscoveryResponse, MessageKind
from heliograph.discovery.brokers.networks import by_network
from heliograph.discovery.brokers.status import BEFORE_NS, LINKING_NS, NS_PER_S, BrokerStatus
from heliograph.errors import Reason
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage, star
from tests.discovery.brokers.test_directory import Talk as DirectoryTalk
from tests.discovery.brokers.test_search import Talk

CHOOSY = DiscoveryConfig(is_choosy=True, collect_ms_min=50)
AT_BDN = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
BY_BDN = replace(CHOOSY, directories=("bdn:4719",), multicast=NO_MULTICAST)
SETTLED_S = 14  # longer than a broker says that it is settling


def two_stars(one: str = "", other: str = "", responder: ResponderConfig | None = None) -> list[Plan]:
    """Two networks that nothing links; the brokers of the first are nearer."""
    first = [replace(plan, network=one) for plan in star(3, responder)]
    second = [
        replace(plan, name=f"c{number}", links=("c0",) if number else (), near_ms=7 + 5 * number, network=other)
        for number, plan in enumerate(star(3, responder))
    ]
    return first + second


# -- several on one LAN ---------------------------------------------------------------------------------------------


@pytest.mark.req("B14")
@pytest.mark.parametrize("names", [("plant", "office"), ("plant", "")], ids=["both named", "one named"])
def test_of_two_networks_on_one_lan_the_chosen_one_is_found_and_only_its_brokers_count(names: tuple[str, str]) -> None:
    stage = Stage(two_stars(*names))
    for name, first in zip(names, "bc", strict=True):
        result = stage.find(replace(CHOOSY, network=name))
        assert (result.network, result.broker) == (name, f"{first}0")
        assert {finding.broker[0] for finding in result.findings} == {first}


@pytest.mark.req("B14")
@pytest.mark.parametrize("names", [("plant", "office"), ("plant", ""), ("", "")])
def test_where_nobody_said_which_network_all_are_listed_and_none_is_chosen(names: tuple[str, str]) -> None:
    stage = Stage(two_stars(*names), settle_s=SETTLED_S)
    result = stage.find(CHOOSY)
    assert result.reason is Reason.NETWORKS_SEVERAL
    assert not result.found
    assert not result.settling
    assert result.text.startswith("brokers of 2 networks answered: ")
    for name, brokers in zip(names, "bc", strict=True):
        assert (f"{name!r} ({brokers}" if name else f"one without a name ({brokers}") in result.text
        assert f"at heliograph://{brokers}" in result.text
    assert "--network" in result.text
    assert "--url" in result.text


@pytest.mark.req("B11")
def test_one_network_is_found_named_or_not_and_however_far_it_reaches() -> None:
    for name in ("", "plant"):
        stage = Stage([replace(plan, network=name) for plan in star(5)], settle_s=SETTLED_S)
        assert (stage.find(CHOOSY).broker, stage.find(replace(CHOOSY, network=name)).broker) == ("b0", "b0")


def test_who_asks_for_a_network_that_is_not_there_hears_which_are() -> None:
    result = Stage(two_stars("plant", "")).find(replace(CHOOSY, network="plnat", timeout_ms=500))
    assert result.reason is Reason.BROKER_NOT_FOUND
    assert "no broker of network 'plnat' answered, but of others" in result.text
    assert "'plant' (b" in result.text
    assert "one without a name (c" in result.text


@pytest.mark.req("B18")
def test_a_broker_that_joins_hears_only_those_that_it_could_link_to() -> None:
    stage = Stage(two_stars("plant", "office"))
    result = stage.find(DiscoveryConfig(network="office", role="broker", name="new"))
    assert {finding.broker for finding in result.findings} == {"c0", "c1", "c2"}
    assert stage.responder("b0")["counts"]["network_other"] >= 1


# -- islands --------------------------------------------------------------------------------------------------------


@pytest.mark.req("N8", "B11")
def test_an_island_that_starts_gives_no_error_that_lasts() -> None:
    """Whenever somebody looks while it links: either a broker, or several networks that may turn out to be one."""
    for at_s in (0.1, 0.3, 0.6, 1.0, 2.0, 3.0):
        stage = Stage(star(5), settle_s=at_s)
        result = stage.find(replace(CHOOSY, timeout_ms=400))
        assert result.found or result.settling or result.reason is Reason.BROKER_NOT_FOUND, result.text
        stage.run(SETTLED_S)
        assert stage.find(CHOOSY).found


@pytest.mark.req("N8", "B11")
@pytest.mark.parametrize("later_s", [0.5, 5.0, 30.0])
def test_brokers_that_a_failure_parted_are_still_one_network(later_s: float) -> None:
    stage = Stage(star(5), settle_s=SETTLED_S)
    stage.world.crash(stage.world.hosts["b0"])
    stage.run(later_s)
    result = stage.find(CHOOSY)
    assert result.found, result.text


def test_two_networks_whose_brokers_have_the_same_names_are_two() -> None:
    talk = Talk(is_choosy=True, directories=(), multicast=MulticastConfig())
    for number, incarnation in enumerate((5, 9)):
        ports = {"tcp": 4717 + number, "udp": 4717}
        talk.answer(number, broker="broker", island="aa", incarnation=incarnation, ports=ports)
    talk.wait(200)
    assert talk.search.result is not None
    assert talk.search.result.reason is Reason.NETWORKS_SEVERAL
    assert [finding.broker for finding in talk.search.result.findings] == ["broker", "broker"]


def test_one_broker_that_was_started_again_meanwhile_is_one() -> None:
    talk = Talk(is_choosy=True, directories=(), multicast=MulticastConfig())
    for incarnation in (5, 9):
        talk.answer(0, broker="broker", island="aa", incarnation=incarnation)
    talk.wait(200)
    assert talk.pings()


def test_an_answer_of_another_network_counts_even_while_others_are_pinged() -> None:
    talk = Talk(is_choosy=True, directories=(), multicast=MulticastConfig())
    talk.answer(0, island="aa", network="plant")
    talk.wait(50)
    (to, ping), *_ = talk.pings()
    talk.answer(1, island="bb", network="office")
    talk.pong(to, ping)
    talk.wait(2_000)
    assert talk.search.result is not None
    assert talk.search.result.reason is Reason.NETWORKS_SEVERAL


def test_answers_are_collected_for_as_long_as_another_network_might_take() -> None:
    talk = Talk(is_choosy=True, directories=(), multicast=MulticastConfig(), collect_ms_min=50)
    talk.answer(0, island="aa")
    talk.wait(30)
    assert talk.pings() == []
    talk.wait(21)
    assert talk.pings()


# -- directories ----------------------------------------------------------------------------------------------------


@pytest.mark.req("B6")
def test_what_a_named_directory_lists_is_one_network_linked_or_not() -> None:
    plans = [replace(plan, links=()) for plan in star(4, AT_BDN)]
    stage = Stage(plans, directories=[DirectoryConfig(name="bdn")], settle_s=SETTLED_S)
    assert stage.find(BY_BDN).broker == "b0"
    implied = stage.find(replace(BY_BDN, is_implied=True))
    assert implied.reason is Reason.NETWORKS_SEVERAL
    assert "brokers of 4 networks" in implied.text


@pytest.mark.req("B6", "B15")
def test_what_a_named_directory_listed_is_one_network_when_it_is_gone_and_remembered_brokers_answer() -> None:
    plans = [replace(plan, links=()) for plan in star(4, AT_BDN)]
    stage = Stage(plans, directories=[DirectoryConfig(name="bdn")], settle_s=SETTLED_S)
    targets = stage.find(BY_BDN).targets
    listed = remembered_file.decode(remembered_file.encode(targets), targets[0].at_s, 60)
    stage.world.crash(stage.world.hosts["bdn"])
    for _ in range(2):
        found = stage.find(BY_BDN, remembered=listed)
        assert found.broker == "b0"
        assert len(found.findings) == len(listed) > 1
        listed = found.targets
    others = replace(BY_BDN, directories=("other:4719",))
    assert stage.find(others, remembered=listed).reason is Reason.NETWORKS_SEVERAL
    assert stage.find(replace(BY_BDN, is_implied=True), remembered=listed).reason is Reason.NETWORKS_SEVERAL


@pytest.mark.req("B6")
def test_a_directory_that_lists_two_names_is_asked_for_one_of_them() -> None:
    stage = Stage(two_stars("plant", "office", AT_BDN), directories=[DirectoryConfig(name="bdn")], settle_s=SETTLED_S)
    assert stage.find(BY_BDN).reason is Reason.NETWORKS_SEVERAL
    result = stage.find(replace(BY_BDN, network="office"))
    assert result.broker == "c0"
    assert {finding.broker[0] for finding in result.findings} == {"c"}
    assert {row["network"] for row in stage.directory("bdn", "brokers")} == {"plant", "office"}
    missing = stage.find(replace(BY_BDN, network="none", timeout_ms=300))
    assert any("network_other: no broker of it is known here; there is office, plant" in text for text in missing.tried)


@pytest.mark.req("B6")
def test_a_directory_lists_to_a_requester_the_brokers_of_its_network_only() -> None:
    talk = DirectoryTalk()
    talk.register("b1", "aa", network="plant")
    talk.register("c1", "bb", network="office")
    request = DiscoveryRequest(bytes(range(16)), 1, network="office")
    said = [
        messages.decode(Acknowledgement, one.body)
        for _, one in talk.ask(request)
        if one.kind is MessageKind.ACKNOWLEDGEMENT
    ]
    assert [(one.brokers, one.listed) for one in said] == [(1, messages.mark_of("c1"))]


@pytest.mark.req("B11")
def test_two_brokers_of_one_name_that_a_directory_lists_are_both_waited_for() -> None:
    talk = Talk()
    talk.acknowledge(2, listed=messages.marks_of(["broker", "broker"]))
    talk.answer(0, broker="broker", incarnation=5, ports={"tcp": 4717, "udp": 4717})
    assert talk.pings() == []
    talk.answer(1, broker="broker", incarnation=9, ports={"tcp": 4718, "udp": 4717})
    assert len(talk.pings()) == 2


@pytest.mark.req("B14")
def test_the_group_is_not_asked_while_a_named_directory_leads_to_brokers() -> None:
    """Else a stray broker on this LAN would be taken for one of the directory's, or would be an error."""
    plans = [*star(3, AT_BDN), Plan("stray", near_ms=0.1)]
    stage = Stage(plans, directories=[DirectoryConfig(name="bdn")], settle_s=SETTLED_S)
    config = replace(CHOOSY, directories=("bdn:4719",), group_later=True, fallback_ms=300)
    result = stage.find(config)
    assert (result.broker, len(result.findings)) == ("b0", 3)
    gone = stage.find(replace(config, directories=("dead:4719",)))
    assert gone.broker == "stray"


# -- telling islands apart ------------------------------------------------------------------------------------------


def a_candidate(name: str, island: str, before: list[str], **more: Any) -> Candidate:
    response = DiscoveryResponse(bytes(16), 1, name, ports={"tcp": 1}, island=island, before=before, **more)
    return Candidate(response, ("192.0.2.1", 1), False, None, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=2)), max_size=8))
def test_islands_are_one_network_if_and_only_if_a_chain_of_common_ones_joins_them(
    told: list[tuple[int, list[int]]],
) -> None:
    everybody = [
        a_candidate(f"b{number}", str(one), list(map(str, before))) for number, (one, before) in enumerate(told)
    ]
    parts: list[set[str]] = []
    for one in everybody:
        mine = {one.response.island, *one.response.before}
        parts = [part for part in parts if not part & mine] + [mine.union(*(part for part in parts if part & mine))]
    found = by_network(everybody, listed=False)
    assert len(found) == len(parts)
    assert sorted(one.name for members in found.values() for one in members) == sorted(one.name for one in everybody)
    assert len(by_network(everybody, listed=True)) == min(1, len(told))


def report(island: str, linking: int = 0) -> dict[str, Any]:
    usage = {"connections": 0, "links": 0, "draining": False, "full": False, "addresses": [], "time": {}}
    return usage | {"address": "main/1", "network": "plant", "island": island, "brokers": 1, "linking": linking}


def test_a_broker_says_that_it_is_settling_after_its_start_a_change_and_while_it_links() -> None:
    status = BrokerStatus()
    steps = [(0, "a", 0, True), (3, "a", 0, False), (4, "b", 0, True), (7, "b", 0, False), (8, "b", 1, True)]
    for second, island, linking, settling in steps:
        now = second * NS_PER_S
        status.heard(report(island, linking), 1, now)
        assert status.is_settling(now) is settling, second
    assert status.before(8 * NS_PER_S) == ["a"]
    assert not status.is_settling(8 * NS_PER_S + LINKING_NS)
    assert status.before(4 * NS_PER_S + BEFORE_NS) == []
