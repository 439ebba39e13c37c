"""The responder: what a broker says to strangers, to requesters whose address is proven, and to directories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.commands import Drain
from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import GROUP, GROUP_PORT, SOCKET, DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.messages import (
    GROUP_BYTES,
    NO_COOKIE,
    BrokerAdvertisement,
    DiscoveryRequest,
    DiscoveryResponse,
    Message,
    MessageKind,
    Ping,
    Pong,
    Spread,
)
from heliograph.discovery.brokers.responder import Responder
from heliograph.discovery.brokers.status import BrokerStatus, UsageSample
from heliograph.errors import UsageError
from heliograph.machine import SocketOpened
from heliograph.node import BROKER, DISCOVERY
from heliograph.wire.frames import Kind, control
from tests.discovery.brokers.stage import GIB, NO_MULTICAST, Plan, Stage, Stranger, star
from tests.discovery.brokers.test_messages import EXAMPLES
from tests.sim.machines import add, dial, write

ID = bytes(range(16))
B0 = ("b0", DEFAULT_PORT)
REQUEST = DiscoveryRequest(ID, 1, budget=50)
SECOND = 1_000_000_000


def ask(stranger: Stranger, request: DiscoveryRequest, to: tuple[str, int] = B0) -> list[DiscoveryResponse]:
    """Show the cookie, and hear who answers."""
    cookie = stranger.cookie(to, request)
    answers = stranger.send(to, messages.write(request, cookie))
    return [
        messages.decode(DiscoveryResponse, answer.body) for answer in answers if answer.kind is MessageKind.RESPONSE
    ]


@pytest.mark.req("B10")
def test_a_stranger_gets_a_cookie_and_nothing_spreads() -> None:
    stage = Stage(star(3))
    stranger = stage.stranger()
    answers = stranger.send(B0, *[messages.write(REQUEST)] * 3)

    assert [answer.kind for answer in answers] == [MessageKind.CHALLENGE] * 3
    assert all(len(messages.pack(answer)) <= len(messages.write(REQUEST)) for answer in answers)
    assert stage.responder("b0")["counts"] == {"advertised": 2, "challenged": 3}
    assert stage.responder("b1")["remembered"] == 0


@pytest.mark.req("B10")
def test_the_cookie_of_one_address_is_worth_nothing_at_another() -> None:
    stage = Stage(star(1))
    honest, thief = stage.stranger("client-a"), stage.stranger("client-b")
    stolen = honest.cookie(B0, REQUEST)
    answers = thief.send(B0, messages.write(REQUEST, stolen))
    assert [answer.kind for answer in answers] == [MessageKind.CHALLENGE]


@pytest.mark.req("B7")
def test_a_request_with_its_cookie_spreads_and_every_linked_broker_answers_once() -> None:
    stage = Stage([*star(4), Plan("alone", 5)])
    stranger = stage.stranger()
    cookie = stranger.cookie(B0, REQUEST)
    answers = stranger.send(B0, *[messages.write(REQUEST, cookie)] * 3)

    names = [messages.decode(DiscoveryResponse, answer.body).broker for answer in answers]
    assert sorted(names) == ["b0", "b1", "b2", "b3"]
    assert stage.responder("b0")["counts"]["request_repeated"] == 2
    assert stage.responder("alone")["remembered"] == 0


@pytest.mark.req("B13")
def test_a_higher_attempt_is_answered_anew() -> None:
    stage = Stage(star(2))
    stranger = stage.stranger()
    assert len(ask(stranger, REQUEST)) == 2
    assert len(ask(stranger, replace_attempt(2))) == 2
    assert len(ask(stranger, REQUEST)) == 0


@pytest.mark.req("B7")
def test_who_uses_the_id_of_another_search_with_a_higher_attempt_does_not_silence_it() -> None:
    stage = Stage(star(2))
    honest, thief = stage.stranger("client-a"), stage.stranger("client-b")
    assert len(ask(honest, REQUEST)) == 2
    assert len(ask(thief, replace_attempt(64))) == 2
    assert [len(ask(honest, replace_attempt(attempt))) for attempt in (2, 3, 3, 4)] == [2, 2, 0, 2]


def replace_attempt(attempt: int) -> DiscoveryRequest:
    return DiscoveryRequest(ID, attempt, budget=50)


@pytest.mark.req("B9")
def test_an_answer_has_all_that_a_choice_needs() -> None:
    sample = UsageSample(370, 16 * GIB, 4 * GIB)
    config = ResponderConfig(advertise_host="b0.example", geography="EU", institution="ACME")
    stage = Stage([Plan("b0", 5, (), config, sample)])
    (response,) = ask(stage.stranger(), REQUEST)

    assert response.id == ID
    assert response.host == "b0.example"
    assert response.ports == {"udp": DEFAULT_PORT, "tcp": DEFAULT_PORT}
    assert response.address.startswith("main/")
    assert (response.geography, response.institution) == ("EU", "ACME")
    assert response.usage == messages.Usage(0, 0, 370, 16 * GIB, 4 * GIB)
    assert 0 <= response.error_ns < 1_000_000_000
    wall_ns = stage.world.hosts["b0"].wall.wall_ns(stage.now)
    assert abs(response.timestamp_ns - wall_ns) < 1_000_000_000


def test_a_broker_whose_time_is_not_synchronised_says_so() -> None:
    status = BrokerStatus()
    assert status.network_ns(5) == (0, -1)
    status.clock(1_000, 0)
    assert status.network_ns(5) == (1_005, -1)


@pytest.mark.req("B12")
def test_a_ping_comes_back_with_its_own_timestamp_and_cookie() -> None:
    stage = Stage(star(1))
    (pong,) = stage.stranger().send(B0, messages.write(Ping(12_345), bytes(range(16))))
    assert pong.kind is MessageKind.PONG
    assert pong.cookie == bytes(range(16))
    assert messages.decode(Pong, pong.body) == Pong(12_345, "b0")


@pytest.mark.req("B14")
def test_a_multicast_is_challenged_by_all_and_spread_by_the_one_that_sees_its_cookie() -> None:
    stage = Stage(star(3))
    stranger = stage.stranger()
    challenges = stranger.send((GROUP, GROUP_PORT), messages.write(REQUEST).ljust(GROUP_BYTES, b"\0"))
    assert [challenge.kind for challenge in challenges] == [MessageKind.CHALLENGE] * 3
    answers = stranger.send(B0, messages.write(REQUEST, challenges[0].cookie))
    assert [answer.kind for answer in answers] == [MessageKind.RESPONSE] * 3


@pytest.mark.req("B14")
def test_multicast_can_be_switched_off_per_broker() -> None:
    stage = Stage([Plan("b0", 5), Plan("b1", 5, (), ResponderConfig(multicast=NO_MULTICAST))])
    assert len(stage.stranger().send((GROUP, GROUP_PORT), messages.write(REQUEST).ljust(GROUP_BYTES, b"\0"))) == 1


@pytest.mark.req("B10")
def test_a_short_request_to_the_group_is_answered_by_nobody() -> None:
    stage = Stage(star(3))
    assert stage.stranger().send((GROUP, GROUP_PORT), messages.write(REQUEST)) == []
    assert stage.responder("b1")["counts"]["frame_too_short"] == 1


@pytest.mark.req("B8")
def test_a_silent_broker_passes_requests_on_and_does_not_answer() -> None:
    silent = replace(star(3)[0], responder=ResponderConfig(policy="silent"))
    stage = Stage([silent, *star(3)[1:]])
    assert sorted(response.broker for response in ask(stage.stranger(), REQUEST)) == ["b1", "b2"]
    assert stage.responder("b0")["counts"]["ask_denied"] == 1


def test_a_broker_that_drains_sends_nobody_to_itself() -> None:
    stage = Stage(star(2))
    host, client = stage.world.hosts["b0"], add(stage.world, "client-that-stays")
    dial(stage.world, client, *B0)
    write(stage.world, client, control(Kind.HELLO, 0, b'{"versions": [1], "secret": "%b"}' % (b"0" * 32)))
    stage.run(1.5)
    assert [response.usage.connections for response in ask(stage.stranger("client-a"), REQUEST)] == [1, 0]
    host.tell(host.seat(BROKER), Drain(grace_ms=60_000))
    stage.run(1.5)
    answers = ask(stage.stranger(), replace_attempt(2))
    assert [response.broker for response in answers] == ["b1"]


@pytest.mark.req("B10")
def test_a_spread_from_somebody_who_is_no_directory_of_ours_is_dropped() -> None:
    stage = Stage(star(2))
    victim = stage.stranger("client-victim")
    stranger = stage.stranger()
    spread = Spread(messages.write(REQUEST, pad=False), *victim.address, "bdn")
    cookie = stranger.cookie(B0, REQUEST)
    for shown in (NO_COOKIE, cookie):
        stranger.send(B0, messages.write(spread, shown))
    assert victim.send(B0, messages.write(Ping(1))) != []
    assert stage.responder("b0")["counts"]["sender_unproven"] == 2
    assert stage.responder("b0")["remembered"] == 0


def test_a_flood_from_one_source_is_not_looked_at() -> None:
    config = ResponderConfig(rate_per_s=10, burst=20)
    stage = Stage([Plan("b0", 5, (), config)])
    answers = stage.stranger().send(B0, *[messages.write(Ping(number)) for number in range(100)])
    assert 20 <= len(answers) <= 25
    assert stage.responder("b0")["counts"]["rate_over_limit"] >= 75


@pytest.mark.req("B10")
def test_brokers_honour_the_budget_of_a_request() -> None:
    stage = Stage([Plan(f"b{number}", 5, ("b0",) if number else ()) for number in range(30)], settle_s=6)
    stranger, counts = stage.stranger(), []
    for number in range(8):
        counts.append(len(ask(stranger, DiscoveryRequest(bytes([number]) * 16, 1, budget=5))))
    assert sum(counts) / len(counts) < 12
    assert len(ask(stranger, DiscoveryRequest(ID, 1, budget=50))) == 30


@pytest.mark.req("B7")
def test_only_the_configured_number_of_ids_is_remembered() -> None:
    stage = Stage([Plan("b0", 5, (), ResponderConfig(requests_remembered=3))])
    stranger = stage.stranger()
    for number in range(6):
        assert len(ask(stranger, DiscoveryRequest(bytes([number]) * 16, 1))) == 1
    assert stage.responder("b0")["remembered"] == 3


@pytest.mark.req("B2")
def test_a_broker_advertises_to_its_directories_with_a_cookie_until_they_have_it_and_renews() -> None:
    config = ResponderConfig(directories=("client-raw:999",), lifetime_s=6)
    stage = Stage([Plan("b0", 5, (), config)], settle_s=0)
    stranger = stage.stranger()
    heard = stranger.send(B0, wait_s=3)
    assert len(heard) >= 3  # nobody has pinged it
    stranger.send(B0, messages.write(Ping(1)))
    heard = stranger.send(B0, wait_s=8)
    assert 3 <= len(heard) <= 5
    bodies = [messages.decode(BrokerAdvertisement, message.body) for message in heard]
    assert [body.number for body in bodies] == sorted({body.number for body in bodies})
    assert all(any(message.cookie) for message in heard)


def a_responder() -> Responder:
    responder = Responder(ResponderConfig(), "b0", seed=1, incarnation=1)
    responder.clock(10**18, 0)
    responder.tell(SocketOpened(SOCKET, ("127.0.0.1", 4717)), 0)
    return responder


@given(st.lists(st.binary(max_size=1_300), max_size=5))
def test_noise_gets_no_answer(noise: list[bytes]) -> None:
    responder = a_responder()
    for data in noise:
        responder.receive_datagram(SOCKET, ("192.0.2.1", 5), data, 1)
    assert responder.take().datagrams == ()


@given(st.sampled_from(EXAMPLES), st.integers(0, 3), st.binary(max_size=200), st.booleans())
def test_no_message_of_any_kind_with_any_flags_makes_it_raise_or_say_more_than_it_heard(
    body: messages.MessageBody, flags: int, chain: bytes, right: bool
) -> None:
    responder, source = a_responder(), ("192.0.2.1", 5)
    responder.receive_datagram(SOCKET, source, messages.write(REQUEST), 1)
    ((_, _, challenge),) = responder.take().datagrams
    cookie = messages.unpack(challenge).cookie if right else NO_COOKIE
    data = messages.pack(Message(messages.KINDS[type(body)], flags, cookie, messages.encode(body), chain))
    responder.receive_datagram(SOCKET, source, data, 2)
    assert sum(len(answer) for _, _, answer in responder.take().datagrams) <= len(data)


@pytest.mark.req("B11")
def test_one_second_at_full_load_keeps_nobody_away_and_a_quarter_of_a_minute_does() -> None:
    status, limit = BrokerStatus(), DiscoveryConfig().cpu_permille_max
    status.sampled(UsageSample(100, GIB, 0), 0)
    for second in range(1, 61):
        status.sampled(UsageSample(1_000 if second % 10 == 0 else 100, GIB, 0), second * SECOND)
        assert status.usage.cpu_permille <= 400
    busy = 0
    while status.usage.cpu_permille <= limit:
        busy += 1
        status.sampled(UsageSample(1_000, GIB, 0), (60 + busy) * SECOND)
    assert 8 <= busy <= 15


@pytest.mark.req("B12")
def test_the_nearest_broker_is_chosen_though_one_sample_showed_it_at_full_load() -> None:
    stage = Stage(star(2))
    host = stage.world.hosts["b0"]
    host.tell(host.seat(DISCOVERY), UsageSample(100, 8 * GIB, 2 * GIB))
    stage.run(1)
    host.tell(host.seat(DISCOVERY), UsageSample(1_000, 8 * GIB, 2 * GIB))
    stage.run(0.1)
    assert stage.find(DiscoveryConfig()).broker == "b0"


def test_it_takes_only_the_commands_it_knows() -> None:
    responder = a_responder()
    responder.tell(UsageSample(2_000, -1, -1), 0)
    with pytest.raises(UsageError):
        responder.tell("hurry", 0)
    with pytest.raises(UsageError):
        responder.report("weather")


def test_a_finder_without_directories_finds_it_by_multicast_alone() -> None:
    assert Stage(star(1)).find(DiscoveryConfig()).broker == "b0"
