"""A service with a session: what it says on a pipe and on a link, and what a broker lets it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.broker import Broker
from heliograph.broker.commands import Listening
from heliograph.broker.config import BrokerConfig
from heliograph.errors import Reason
from heliograph.machine import Outbox, Peer
from heliograph.model.origin import origin_of
from heliograph.services.broker_session import BrokerSession
from heliograph.wire.frames import Kind, control, delivery, event

TOPIC = b"Services/Anything"


class Pipe:
    """A broker, and sessions joined to it: bytes go to and fro until nobody has anything more to say."""

    def __init__(self) -> None:
        self.broker = Broker(BrokerConfig(), seed=1, incarnation=1)
        self.outboxes: dict[int, Outbox] = {}
        self.sessions: dict[int, BrokerSession] = {}
        self.hangups: list[tuple[int, Reason]] = []
        self.broker.clock(10**18, 0)

    def join(self, link: int, name: str, transport: str = "pipe") -> BrokerSession:
        listener = None if transport == "pipe" else "main"
        self.broker.attach(link, Peer(transport, name, listener), 0)
        outbox = self.outboxes[link] = Outbox()
        session = self.sessions[link] = BrokerSession(link, outbox, name.encode().ljust(16, b"."))
        return session

    def settle(self) -> None:
        for _ in range(10):
            for link, outbox in self.outboxes.items():
                for _, frames in outbox.empty(None).writes:
                    self.broker.receive(link, b"".join(frames), 1)
            effects = self.broker.take()
            self.hangups += effects.hangups
            for link, frames in effects.writes:
                self.sessions[link].receive(b"".join(frames), 1)


def test_a_service_publishes_and_subscribes_on_system_topics_over_its_pipe() -> None:
    pipe, heard = Pipe(), []
    one, other = pipe.join(1, "one"), pipe.join(2, "other")
    for session in (one, other):
        session.hello("service")
        session.subscribe(TOPIC, lambda one, now, link=session.link: heard.append((link, one.payload)))  # type: ignore[misc]
    pipe.settle()
    one.publish(TOPIC, b"first")
    one.publish(TOPIC, b"second")
    pipe.settle()

    assert heard == [(2, b"first"), (2, b"second")]
    assert one.welcomed
    assert pipe.hangups == []
    assert one.refused == other.refused == []


def test_a_subscriber_gets_topic_id_and_headers_with_the_payload() -> None:
    pipe, heard = Pipe(), []
    one = pipe.join(1, "one")
    one.hello("service")
    one.subscribe(b"plant/#", lambda publication, now: heard.append(publication))
    pipe.join(2, "other").hello("other")
    pipe.settle()
    pipe.broker.receive(2, event(b"plant/hall", b"warm", origin_of(b"other".ljust(16, b".")), 7, b'{"unit":"C"}'), 2)
    pipe.settle()

    (publication,) = heard
    assert (publication.topic, publication.payload) == ("plant/hall", b"warm")
    assert publication.id == (origin_of(b"other".ljust(16, b".")), 7)
    assert publication.headers == {"unit": "C"}


def test_an_anonymous_link_may_not_and_is_told() -> None:
    pipe = Pipe()
    stranger = pipe.join(1, "127.0.0.1:9", "tcp")
    stranger.hello("stranger")
    stranger.subscribe(TOPIC, lambda publication, now: None)
    pipe.settle()
    assert stranger.welcomed
    assert stranger.refused[0].startswith("subscribe_denied")


def test_a_service_asks_the_broker_how_busy_it_is() -> None:
    pipe, answers = Pipe(), []
    session = pipe.join(1, "discovery")
    session.hello("discovery")
    client = pipe.join(2, "127.0.0.1:9", "tcp")
    client.hello("client")
    pipe.broker.tell(Listening(("heliograph://127.0.0.1:4717",)), 0)
    pipe.settle()
    session.order({"do": "report", "question": "usage"}, lambda answer, now: answers.append(answer))
    session.order({"do": "report", "question": "nothing"}, lambda answer, now: answers.append(answer))
    pipe.settle()

    usage: dict[str, Any] = answers[0]
    assert usage["connections"] == 1  # services are not counted
    assert usage["links"] == 0
    assert usage["brokers"] == 1
    assert usage["addresses"] == ["heliograph://127.0.0.1:4717"]
    assert usage["draining"] is usage["full"] is False
    assert usage["island"]
    assert answers[1] is None


def test_before_its_hello_a_pipe_carries_services_frames_only() -> None:
    pipe = Pipe()
    pipe.join(1, "rash").subscribe(TOPIC, lambda publication, now: None)
    pipe.settle()
    assert pipe.hangups == [(1, Reason.KIND_UNEXPECTED)]


def test_a_second_hello_or_a_broker_handshake_on_a_pipe_ends_it() -> None:
    for kind in (Kind.HELLO, Kind.LINK, Kind.PARCEL, Kind.GOODBYE):
        pipe = Pipe()
        pipe.join(1, "odd").hello("odd")
        pipe.settle()
        pipe.broker.receive(1, control(kind, 0, b"{}"), 2)
        pipe.settle()
        assert pipe.hangups == [(1, Reason.KIND_UNEXPECTED)], kind


def test_a_quiet_service_is_not_taken_for_dead() -> None:
    pipe = Pipe()
    pipe.join(1, "quiet").hello("quiet")
    pipe.settle()
    pipe.broker.wake(10**12)
    assert not pipe.broker.take().hangups
    assert pipe.sessions[1].fault is None


def test_a_session_answers_pings_and_hears_a_goodbye() -> None:
    outbox = Outbox()
    session = BrokerSession(1, outbox, bytes(16))
    session.receive(control(Kind.PING, 7), 0)
    assert outbox.empty(None).writes == [(1, [control(Kind.PONG, 7)])]
    session.receive(control(Kind.GOODBYE, 0, b'{"reason": "draining", "code": 403, "grace_ms": 5}'), 0)
    assert session.fault is None
    session.receive(control(Kind.GOODBYE, 0, b'{"reason": "stopping", "code": 404}'), 0)
    assert session.fault is Reason.STOPPING


@pytest.mark.parametrize("inside", [b"x", event(b"t", b"", 1, 1)[:-1], control(Kind.PING)])
def test_a_delivery_that_is_not_whole_is_the_brokers_fault(inside: bytes) -> None:
    session = BrokerSession(1, Outbox(), bytes(16))
    session.receive(delivery(b"\1\0\0\0", len(inside), 0) + inside, 0)
    assert session.fault is Reason.FRAME_TOO_SHORT


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_a_session_survives_any_bytes(chunks: list[bytes]) -> None:
    session = BrokerSession(1, Outbox(), bytes(16))
    session.subscribe(b"#", lambda publication, now: None)
    for chunk in chunks:
        session.receive(chunk, 0)
