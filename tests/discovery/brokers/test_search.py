"""The search: a broker is found, the nearest one, by whatever way is left; or it says why not, in time."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.config import AccessConfig, RuleConfig
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import SOCKET, DirectoryConfig, DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.messages import (
    Acknowledgement,
    Challenge,
    DiscoveryRequest,
    DiscoveryResponse,
    Message,
    MessageKind,
    Ping,
    Pong,
    Relay,
    Usage,
)
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.discovery.brokers.status import UsageSample
from heliograph.errors import Reason, UsageError
from heliograph.machine import SocketFailed, SocketOpened
from tests.discovery.brokers.stage import GIB, NO_MULTICAST, Plan, Stage, star
from tests.discovery.brokers.test_messages import EXAMPLES

MS = 1_000_000
AT_BDN = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
ALONE = ResponderConfig(multicast=NO_MULTICAST)
BY_BDN = DiscoveryConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)
NOBODY = DiscoveryConfig(multicast=NO_MULTICAST)
BDN = ("192.0.2.100", 4719)
COOKIE = bytes(range(16))
OPEN_TOPICS = AccessConfig(rules=(RuleConfig(effect="allow", topics=("Services/#",)),))


class Talk:
    """A search, driven by hand; it asks one directory."""

    def __init__(self, **more: Any) -> None:
        fields = {"directories": ("192.0.2.100:4719",), "multicast": NO_MULTICAST} | more
        self.config = DiscoveryConfig(**fields)
        self.search = BrokerSearch(self.config, seed=1)
        self.now = 1_000_000 * MS
        self.search.clock(10**18, self.now)
        self.search.tell(SocketOpened(SOCKET, ("192.0.2.7", 40_000)), self.now)
        ((_, request),) = self.said()
        self.id, self.nonce = messages.decode(DiscoveryRequest, request.body).id, request.cookie

    def hear(self, source: tuple[str, int], data: bytes) -> None:
        self.search.receive_datagram(SOCKET, source, data, self.now)

    def said(self) -> list[tuple[tuple[str, int], Message]]:
        return [(to, messages.unpack(data)) for _, to, data in self.search.take().datagrams]

    def wait(self, ms: float) -> None:
        self.now += int(ms * MS)
        self.search.wake(self.now)

    def acknowledge(self, brokers: int = 0, **more: Any) -> None:
        self.hear(BDN, messages.write(Challenge(self.id, self.nonce), COOKIE))
        self.hear(BDN, messages.write(Acknowledgement(self.id, 1, "bdn", brokers, **more), COOKIE))

    def answer(self, number: int, **more: Any) -> None:
        fields = {"attempt": 1, "broker": f"b{number}", "ports": {"tcp": 4717, "udp": 4717}} | more
        address = (f"198.51.{number // 250}.{number % 250}", 4717)
        self.hear(address, messages.write(DiscoveryResponse(self.id, **fields)))

    def pings(self) -> list[tuple[tuple[str, int], Message]]:
        return [(to, message) for to, message in self.said() if message.kind is MessageKind.PING]

    def pong(self, source: tuple[str, int], ping: Message) -> None:
        self.hear(source, messages.write(Pong(messages.decode(Ping, ping.body).sent_ns), ping.cookie))


# -- collecting and choosing ----------------------------------------------------------------------------------------


@pytest.mark.req("B11")
def test_when_all_that_are_known_have_answered_it_does_not_wait() -> None:
    talk = Talk()
    talk.acknowledge(brokers=3)
    for number in range(3):
        assert talk.pings() == []
        talk.answer(number)
    assert len(talk.pings()) == 3


@pytest.mark.req("B11")
def test_when_enough_answered_it_waits_for_others_only_as_long_again() -> None:
    talk = Talk()
    talk.acknowledge(brokers=9)
    talk.wait(20)
    talk.answer(0)
    talk.wait(19)
    assert talk.pings() == []
    talk.wait(2)
    assert len(talk.pings()) == 1


@pytest.mark.req("B11")
def test_answers_of_overloaded_brokers_do_not_end_the_wait() -> None:
    talk = Talk(answers_min=1)
    hot = Usage(cpu_permille=990)
    talk.acknowledge(brokers=2)
    talk.wait(20)
    talk.answer(0, usage=hot)
    talk.wait(500)
    assert talk.pings() == []
    talk.answer(1)
    assert len(talk.pings()) == 2


@pytest.mark.req("B11")
def test_the_ceiling_ends_the_wait_for_better_ones() -> None:
    talk = Talk(timeout_ms=1_000)
    talk.acknowledge(brokers=9)
    talk.answer(0, usage=Usage(cpu_permille=990))
    talk.wait(1_000)
    assert len(talk.pings()) == 1


@pytest.mark.req("B10")
def test_ten_thousand_answers_cost_no_more_than_fifty() -> None:
    talk = Talk()
    talk.acknowledge(brokers=10_000)
    for number in range(10_000):
        talk.answer(number)
    assert talk.search.report("overview")["candidates"] == talk.config.answers_max == 50
    assert len(talk.pings()) == talk.config.targets_max


def peak_bytes(answers: int) -> int:
    """What a search takes at most while so many brokers answer."""
    talk = Talk()
    talk.acknowledge(brokers=answers)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(answers):
            talk.answer(number)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.req("B10")
def test_ten_thousand_answers_take_no_more_memory_than_a_hundred() -> None:
    peak_bytes(100)  # what is made once, on first use
    assert peak_bytes(10_000) <= 2 * peak_bytes(100)


@pytest.mark.req("B12")
def test_at_most_the_target_set_is_pinged_several_times_and_the_nearest_wins() -> None:
    talk = Talk(targets_max=3, pings=3)
    talk.acknowledge(brokers=6)
    for number in range(6):
        talk.answer(number, error_ns=0, timestamp_ns=10**18 - number * MS)
    pinged: dict[tuple[str, int], int] = {}
    for _ in range(20):
        pings = talk.pings()
        for number, (to, ping) in enumerate(sorted(pings, key=lambda ping: ping[0])):
            pinged[to] = pinged.get(to, 0) + 1
            talk.wait(2 + number)
            talk.pong(to, ping)
        if talk.search.result is not None:
            break
        talk.wait(1)
    result = talk.search.result
    assert result is not None
    assert len(pinged) == 3
    assert max(pinged.values()) == 3
    assert result.proven
    assert result.findings[0].round_trip_ms == min(
        finding.round_trip_ms for finding in result.findings if finding.round_trip_ms is not None
    )


def play_pings(talk: Talk, round_trips_ms: dict[str, float], ms: int = 400) -> list[str]:
    """Hosts answer pings after this time, others never; who was pinged, in order, until the search ends."""
    pinged: list[str] = []
    due: list[tuple[int, tuple[str, int], Message]] = []
    for _ in range(10 * ms):
        for to, ping in talk.pings():
            pinged.append(to[0])
            if to[0] in round_trips_ms:
                due.append((talk.now + int(round_trips_ms[to[0]] * MS), to, ping))
        for at, to, ping in [one for one in due if one[0] <= talk.now]:
            due.remove((at, to, ping))
            talk.pong(to, ping)
        if talk.search.result is not None:
            break
        talk.wait(0.1)
    return pinged


@pytest.mark.req("B12")
def test_where_a_broker_names_a_host_that_is_pinged_and_dialled_once_the_broker_is_proven() -> None:
    """b0 answers from nearby, but its clients are to dial a host that is far; b1 is nearer than that."""
    talk = Talk(pings=3)
    talk.acknowledge(brokers=2)
    talk.answer(0, host="203.0.113.1")
    talk.answer(1)
    pinged = play_pings(talk, {"198.51.0.0": 1, "203.0.113.1": 30, "198.51.0.1": 5})
    assert pinged[:2] == ["198.51.0.0", "198.51.0.1"]
    assert pinged.count("198.51.0.0") == 1  # nobody else is pinged on its word before it has answered
    assert "203.0.113.1" in pinged
    result = talk.search.result
    assert result is not None
    assert result.broker == "b1"

    alone = Talk(pings=3)
    alone.acknowledge(brokers=1)
    alone.answer(0, host="203.0.113.1")
    pinged = play_pings(alone, {"198.51.0.0": 1, "203.0.113.1": 20})
    assert pinged == ["198.51.0.0", *["203.0.113.1"] * 3]
    result = alone.search.result
    assert result is not None
    assert result.urls == ("heliograph://203.0.113.1:4717", "heliograph://198.51.0.0:4717")
    assert result.findings[0].round_trip_ms == pytest.approx(20, abs=0.2)
    assert result.targets[0].address == "198.51.0.0:4717"


@pytest.mark.req("B12")
def test_a_broker_whose_named_host_answers_no_pings_is_measured_where_its_answer_came_from() -> None:
    talk = Talk(pings=3)
    talk.acknowledge(brokers=1)
    talk.answer(0, host="203.0.113.1")
    pinged = play_pings(talk, {"198.51.0.0": 1})
    assert 1 <= pinged.count("203.0.113.1") <= 3
    result = talk.search.result
    assert result is not None
    assert result.proven
    assert result.findings[0].round_trip_ms == pytest.approx(1, abs=0.2)
    assert result.urls == ("heliograph://203.0.113.1:4717", "heliograph://198.51.0.0:4717")  # as its operator wants


@pytest.mark.req("B12")
def test_a_named_host_that_answers_late_still_counts() -> None:
    talk = Talk(pings=3)
    talk.acknowledge(brokers=2)
    talk.answer(0, host="203.0.113.1")
    talk.answer(1)
    play_pings(talk, {"198.51.0.0": 100, "203.0.113.1": 200, "198.51.0.1": 150}, ms=1_500)
    result = talk.search.result
    assert result is not None
    assert result.broker == "b1"


@pytest.mark.req("B12")
def test_the_first_ping_to_a_name_is_not_counted_since_the_name_is_looked_up_meanwhile() -> None:
    talk = Talk(pings=2)
    talk.acknowledge(brokers=1)
    talk.answer(0, host="b0.example")
    pinged = play_pings(talk, {"198.51.0.0": 1, "b0.example": 3})
    assert pinged == ["198.51.0.0", *["b0.example"] * 3]


@pytest.mark.req("B12")
def test_a_broker_that_never_answers_makes_nobody_ping_the_host_that_it_names() -> None:
    talk = Talk(pings=3, timeout_ms=1_000)
    talk.acknowledge(brokers=1)
    talk.answer(0, host="203.0.113.1")
    assert "203.0.113.1" not in play_pings(talk, {"203.0.113.1": 1}, ms=2_500)


def test_nothing_is_sent_after_the_end() -> None:
    talk = Talk(pings=1)
    talk.acknowledge(brokers=1)
    talk.answer(0)
    ((to, ping),) = talk.pings()
    talk.pong(to, ping)
    effects = talk.search.take()
    assert effects.stop
    assert effects.wake_at is None
    talk.wait(10_000)
    talk.answer(1)
    talk.acknowledge(5)
    assert talk.said() == []


@pytest.mark.req("B10")
def test_a_challenge_is_answered_once_and_only_for_its_own_request() -> None:
    talk = Talk()
    talk.hear(BDN, messages.write(Challenge(bytes(16), talk.nonce), COOKIE))
    talk.hear(BDN, messages.write(Challenge(talk.id, bytes(16)), COOKIE))  # by somebody who knows the id only
    talk.hear(("203.0.113.66", 1), messages.write(Challenge(talk.id, talk.nonce), COOKIE))
    assert talk.said() == []
    for _ in range(3):
        talk.hear(BDN, messages.write(Challenge(talk.id, talk.nonce), COOKIE))
    ((to, request),) = talk.said()
    assert (to, request.cookie) == (BDN, COOKIE)


@given(st.lists(st.tuples(st.sampled_from(EXAMPLES), st.integers(0, 3), st.binary(max_size=60)), max_size=10))
def test_no_messages_make_it_raise_or_send_more_than_it_would(
    heard: list[tuple[messages.MessageBody, int, bytes]],
) -> None:
    talk = Talk()
    for body, flags, chain in heard:
        data = messages.pack(Message(messages.KINDS[type(body)], flags, bytes(16), messages.encode(body), chain))
        talk.hear(BDN, data)
    assert len(talk.said()) <= len(heard)


@given(st.lists(st.binary(max_size=1_300), max_size=8))
def test_noise_changes_nothing(noise: list[bytes]) -> None:
    talk = Talk()
    for data in noise:
        talk.hear(BDN, data)
    assert talk.said() == []


def test_it_takes_only_the_commands_and_questions_it_knows() -> None:
    talk = Talk()
    with pytest.raises(UsageError):
        talk.search.tell("hurry", 0)
    with pytest.raises(UsageError):
        talk.search.report("weather")


def test_without_a_socket_it_ends_with_a_reason() -> None:
    search = BrokerSearch(NOBODY, seed=1)
    search.tell(SocketFailed(SOCKET, "Permission denied"), 0)
    assert search.result is not None
    assert search.result.reason is Reason.BROKER_NOT_FOUND


# -- in a world -----------------------------------------------------------------------------------------------------


@pytest.mark.req("B12")
@pytest.mark.parametrize("seed", range(1, 11))
def test_the_nearest_willing_broker_is_found_through_a_directory(seed: int) -> None:
    stage = Stage(star(5, AT_BDN), seed=seed, directories=[DirectoryConfig()])
    result = stage.find(BY_BDN)
    assert result.broker == "b0"
    assert result.proven
    assert result.urls == ("heliograph://b0:4717",)
    assert len(result.findings) == 5
    assert all(finding.verdict for finding in result.findings)
    assert result.times_ms["total"] < 400


@pytest.mark.req("B16")
def test_a_newly_added_idle_broker_is_preferred_by_the_next_search() -> None:
    busy = UsageSample(700, 8 * GIB, 7 * GIB)
    plans = [Plan(f"b{number}", 10, ("b0",) if number else (), usage=busy) for number in range(3)]
    new = Plan("new", 10, ("b0",), usage=UsageSample(20, 8 * GIB, 1 * GIB))
    assert Stage(plans).find(DiscoveryConfig()).broker.startswith("b")
    result = Stage([*plans, new]).find(DiscoveryConfig())
    assert result.broker == "new"
    assert "the least busy" in result.text


def test_an_overloaded_broker_is_left_alone_however_near_it_is() -> None:
    hot = Plan("hot", 1, usage=UsageSample(980, 8 * GIB, GIB))
    assert Stage([hot, Plan("cool", 20)]).find(DiscoveryConfig()).broker == "cool"
    assert Stage([hot]).find(DiscoveryConfig()).broker == "hot"


@pytest.mark.req("B11")
def test_wrong_clocks_do_not_hide_the_nearest_broker() -> None:
    for seed in range(1, 6):
        stage = Stage(star(12), seed=seed, skew_ms=5_000)
        assert stage.find(DiscoveryConfig(targets_max=5)).broker == "b0"


@pytest.mark.req("B18")
def test_a_broker_looks_for_a_broker_to_join_in_the_same_way() -> None:
    stage = Stage(star(3, AT_BDN), directories=[DirectoryConfig()])
    assert stage.find(replace(BY_BDN, role="broker", name="b9")).broker == "b0"


@pytest.mark.req("B13")
def test_dead_directories_do_not_matter_while_one_answers() -> None:
    stage = Stage(star(3, AT_BDN), directories=[DirectoryConfig()])
    config = replace(BY_BDN, directories=("dead:4719", "bdn:4719", "gone:4719"))
    result = stage.find(config)
    assert result.broker == "b0"
    assert result.tried[0] == "directory dead:4719: asked once, no answer"


@pytest.mark.req("B14")
def test_without_any_directory_multicast_finds_the_lan_and_all_that_is_linked_to_it() -> None:
    far = [Plan(f"far{number}", 2, ("b0",), ALONE) for number in range(2)]
    stage = Stage([Plan("b0", 10), *far])
    result = stage.find(DiscoveryConfig(directories=("dead:4719",)))
    assert result.broker in ("far0", "far1")
    assert len(result.findings) == 3
    assert result.tried[1] == "multicast 239.255.71.17:4718: an answer"


@pytest.mark.req("B15")
def test_remembered_brokers_are_asked_when_no_directory_answers_and_spread_the_request() -> None:
    stage = Stage([replace(plan, responder=ALONE) for plan in star(4)])
    remembered = (Remembered("gone", "gone:4717", 0), Remembered("b3", "b3:4717", 0))
    result = stage.find(replace(NOBODY, directories=("dead:4719",)), remembered=remembered)
    assert result.broker == "b0"
    assert "remembered broker b3:4717: an answer" in result.tried
    assert result.targets[0].broker == "b0"
    assert all(target.address == f"{target.broker}:4717" for target in result.targets)


@pytest.mark.req("B15")
def test_the_static_list_comes_last() -> None:
    stage = Stage([replace(plan, responder=ALONE) for plan in star(3)])
    config = replace(NOBODY, directories=("dead:4719",), brokers=("b2:4717",))
    result = stage.find(config, remembered=(Remembered("gone", "gone:4717", 0),))
    assert result.broker == "b0"
    assert [words.split(":")[0] for words in result.tried] == [
        "directory dead",
        "remembered broker gone",
        "listed broker b2",
    ]


def test_where_nobody_answers_a_listed_broker_that_takes_links_is_what_is_left_unproven() -> None:
    stage = Stage([Plan("b7", 5, responder=replace(ALONE, policy="silent"))])
    result = stage.find(replace(NOBODY, brokers=("b7:4717", "b8:4717"), timeout_ms=500))
    assert result.found
    assert not result.proven
    assert result.urls == ("heliograph://b7:4717",)
    assert result.text.startswith("unproven: ")


def test_where_no_listed_broker_takes_links_there_is_none() -> None:
    result = Stage([]).find(replace(NOBODY, brokers=("b7:4717",), timeout_ms=500))
    assert not result.found
    assert result.reason is Reason.BROKER_NOT_FOUND
    assert result.tried == ("listed broker b7:4717: asked 4 times, no answer, and it takes no links",)


@pytest.mark.req("B13")
def test_when_nobody_is_there_it_fails_with_a_reason_within_twice_the_timeout() -> None:
    stage = Stage([])
    for config in (NOBODY, DiscoveryConfig(), replace(NOBODY, directories=("dead:4719",))):
        before = stage.now
        result = stage.find(replace(config, timeout_ms=1_000))
        assert result.reason is Reason.BROKER_NOT_FOUND
        assert not result.found
        assert result.times_ms["total"] <= 2_000
        assert stage.now - before <= 2_100 * MS


@pytest.mark.req("B13")
def test_brokers_that_die_between_answer_and_ping_are_passed_over() -> None:
    stage = Stage([Plan(f"b{number}", 5 + number, ("b0",) if number else ()) for number in range(4)])
    search = stage.search(replace(DiscoveryConfig(), targets_max=2, ping_ms=300), wait=False)
    while search.report("overview")["candidates"] < 4:
        stage.run(0.001)
    for name in ("b0", "b1"):
        stage.block("client*", name)
    while search.result is None:
        stage.run(0.05)
    assert search.result.broker == "b2"
    verdicts = {finding.broker: finding.verdict for finding in search.result.findings}
    assert "without an answer" in verdicts["b0"]


@pytest.mark.req("B20")
def test_answers_are_relayed_by_the_directory_when_none_comes_directly() -> None:
    """Behind NAT, say: what brokers send does not arrive, what the directory sends does."""
    for advertise in ("bdn:4719", ""):  # relayed by datagram, or on the directory's topic
        plans = [replace(plan, access=OPEN_TOPICS) for plan in star(3, replace(AT_BDN, advertise_host="name.example"))]
        directory = DirectoryConfig(advertise=advertise, links=("b0:4717",))
        stage = Stage(plans, directories=[directory])
        search = stage.search(BY_BDN, wait=False)
        stage.block("b*", "client*")
        stage.world.network.blocked.pop(("bdn", "client1"))
        while search.result is None:
            stage.run(0.05)
        result = search.result
        assert result.found
        assert not result.proven
        assert all(finding.relayed for finding in result.findings)
        assert result.urls[0] == "heliograph://name.example:4717"
        assert result.times_ms["total"] < 3_000


@pytest.mark.req("B5")
def test_a_directory_is_asked_by_tcp_where_no_datagram_comes_through() -> None:
    plans = star(3, replace(AT_BDN, advertise_host="name.example"))
    stage = Stage(plans, directories=[DirectoryConfig(advertise="bdn:4719")])
    stage.world.datagrams.worsen("client*", "*", 1.0)
    stage.world.datagrams.worsen("*", "client*", 1.0)
    result = stage.find(replace(NOBODY, directory_links=("bdn:4719", "nowhere:1")))
    assert result.found
    assert len(result.findings) == 3
    assert all(finding.relayed for finding in result.findings)
    assert result.tried[0].startswith("directory by TCP bdn:4719")


def test_a_broker_that_speaks_nothing_we_do_is_no_candidate() -> None:
    talk = Talk(transports=("tls",))
    talk.acknowledge(brokers=2)
    talk.answer(0, ports={"tcp": 4717, "udp": 4717})
    assert talk.search.report("overview")["candidates"] == 0
    talk.answer(1, ports={"tls": 4717, "udp": 4717})
    assert talk.search.report("overview")["candidates"] == 1


def test_only_a_directory_that_was_asked_relays() -> None:
    talk = Talk()
    response = messages.write(DiscoveryResponse(talk.id, 1, "b0", ports={"tcp": 1, "udp": 1}), pad=False)
    relay = messages.write(Relay(talk.id, response, "198.51.100.1"), COOKIE)
    talk.hear(BDN, relay)
    talk.hear(("203.0.113.66", 1), relay)
    assert talk.search.report("overview")["candidates"] == 0
    talk.acknowledge(brokers=1)
    talk.said()
    talk.hear(BDN, messages.write(Relay(talk.id, response, "198.51.100.1"), bytes(16)))  # not by the directory
    assert talk.search.report("overview")["candidates"] == 0
    talk.hear(BDN, relay)
    ((to, _),) = talk.pings()
    assert to == ("198.51.100.1", 1)


@pytest.mark.slow
def test_a_search_of_a_large_network_asks_no_more_than_its_budget() -> None:
    stage = Stage([Plan(f"b{number:02}", 5, ("b00",) if number else ()) for number in range(60)], settle_s=8)
    result = stage.find(replace(DiscoveryConfig(), answers_max=20, multicast=NO_MULTICAST, brokers=("b07:4717",)))
    assert result.found
    assert len(result.findings) <= 20
    assert sum(finding.round_trip_ms is not None for finding in result.findings) <= 10
