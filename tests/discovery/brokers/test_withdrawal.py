"""Going: a broker that drains or stops is known to no directory any more; and only the broker itself can say so."""

from __future__ import annotations

import pytest

from heliograph.broker.commands import Drain
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.advertisement import DirectoriesFound, Withdraw
from heliograph.discovery.brokers.config import DirectoryConfig, DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.messages import DiscoveryRequest, MessageKind
from heliograph.node import BROKER, DISCOVERY
from heliograph.wire.frames import Kind, control
from tests.discovery.brokers.stage import NO_MULTICAST, Plan, Stage
from tests.discovery.brokers.test_directory import ID, Talk, advertisement, injected
from tests.discovery.brokers.test_responder import B0, ask
from tests.sim.machines import add, dial, write

pytestmark = pytest.mark.req("B2")

AT_BDN = ResponderConfig(directories=("bdn:4719",), multicast=NO_MULTICAST)


def names(talk: Talk) -> list[str]:
    return sorted(row["broker"] for row in talk.directory.report("brokers"))


def test_a_withdrawn_broker_gets_no_request() -> None:
    talk = Talk()
    address = talk.register("b0")
    talk.register("b1", island="other")
    gone = advertisement("b0", number=2, withdrawn=True)
    talk.hear(address, messages.write(gone, b"b0".ljust(16, b"!")))

    assert names(talk) == ["b1"]
    assert injected(talk.ask()) == ["b1"]
    assert talk.counts["withdrawals"] == 1


@pytest.mark.parametrize("cookie", [bytes(16), b"guessed".ljust(16, b"!")])
def test_nobody_withdraws_another(cookie: bytes) -> None:
    talk = Talk()
    address = talk.register("b0")
    talk.hear(address, messages.write(advertisement("b0", number=2, withdrawn=True), cookie))
    assert names(talk) == ["b0"]
    assert talk.counts["sender_unproven"] == 1


def test_a_late_withdrawal_does_not_end_a_broker_that_was_started_again() -> None:
    talk = Talk()
    address = talk.register("b0", incarnation=2)
    late = advertisement("b0", incarnation=1, number=9, withdrawn=True)
    talk.hear(address, messages.write(late, b"b0".ljust(16, b"!")))
    assert names(talk) == ["b0"]


def test_a_broker_that_is_told_to_withdraw_answers_nobody_and_its_directory_forgets_it() -> None:
    stage = Stage(
        [Plan("b0", 5, (), AT_BDN), Plan("b1", 5, ("b0",), AT_BDN)], directories=[DirectoryConfig(host="bdn")]
    )
    assert sorted(row["broker"] for row in stage.directory("bdn", "brokers")) == ["b0", "b1"]
    host = stage.world.hosts["b0"]
    host.tell(host.seat(DISCOVERY), Withdraw())
    stage.run(0.5)

    assert [row["broker"] for row in stage.directory("bdn", "brokers")] == ["b1"]
    assert [response.broker for response in ask(stage.stranger(), DiscoveryRequest(ID, 1))] == ["b1"]
    stage.run(60)
    assert [row["broker"] for row in stage.directory("bdn", "brokers")] == ["b1"]


def test_a_drain_withdraws_at_once_without_waiting_for_the_next_sample() -> None:
    stage = Stage([Plan("b0", 5, (), AT_BDN)], directories=[DirectoryConfig(host="bdn")])
    host, client = stage.world.hosts["b0"], add(stage.world, "client-that-stays")
    dial(stage.world, client, *B0)
    write(stage.world, client, control(Kind.HELLO, 0, b'{"versions": [1], "secret": "%b"}' % (b"0" * 32)))
    stage.run(1.5)
    host.tell(host.seat(BROKER), Drain(grace_ms=60_000))
    stage.run(0.1)
    assert stage.responder("b0")["willing"] is False
    assert stage.directory("bdn", "brokers") == []


def test_directories_that_were_looked_up_hear_of_the_broker() -> None:
    stage = Stage(
        [Plan("b0", 5, (), ResponderConfig(multicast=NO_MULTICAST))], directories=[DirectoryConfig(host="bdn")]
    )
    assert stage.directory("bdn", "brokers") == []
    host = stage.world.hosts["b0"]
    host.tell(host.seat(DISCOVERY), DirectoriesFound((("bdn", 4719),)))
    stage.run(1)
    assert [row["broker"] for row in stage.directory("bdn", "brokers")] == ["b0"]


@pytest.mark.req("B6")
def test_a_directory_that_injects_everywhere_asks_every_broker_that_answers_pings() -> None:
    talk = Talk(DirectoryConfig(injection="all"))
    for number in range(5):
        talk.register(f"b{number}", round_trip_ms=10 + number)
    assert injected(talk.ask()) == ["b0", "b1", "b2", "b3", "b4"]
    assert injected(talk.ask(DiscoveryRequest(bytes(16), 1, budget=2))) == ["b0", "b1"]


@pytest.mark.req("B18")
def test_a_broker_that_looks_for_whom_to_join_does_not_find_itself() -> None:
    stage = Stage(
        [Plan("b0", 5, (), AT_BDN), Plan("b1", 50, ("b0",), AT_BDN)], directories=[DirectoryConfig(host="bdn")]
    )
    config = DiscoveryConfig(directories=("bdn:4719",), multicast=NO_MULTICAST, name="b0", role="broker")
    result = stage.find(config)
    assert [finding.broker for finding in result.findings] == ["b1"]
    assert stage.responder("b0")["counts"]["name_taken"] == 1


def test_a_withdrawal_looks_like_an_advertisement_on_the_wire() -> None:
    body = advertisement("b0", withdrawn=True)
    message = messages.unpack(messages.write(body))
    assert message.kind is MessageKind.ADVERTISEMENT
    assert messages.decode(messages.BrokerAdvertisement, message.body) == body
