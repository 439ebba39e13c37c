"""A link ends with the certificate that proved it, whatever its role; its client is asked in time to come again."""

from __future__ import annotations

import json

import pytest

from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.model.identity import Identity, Role
from heliograph.wire.frames import Kind, service
from tests.broker.talk import Talk

WALL_MS = 1_800_000_000_000
PIPE = 50


def a_talk() -> Talk:
    """A broker that knows the time, with the pipe of its service admin."""
    talk = Talk(BrokerConfig(listeners=(ListenerConfig(secure=True, auth="certificate"),)))
    talk.broker.clock(WALL_MS * 1_000_000, talk.now)
    talk.attach(PIPE, Peer("pipe", "admin"))
    return talk


def come(talk: Talk, link: int, ends_ms: int, role: Role = Role.CLIENT) -> None:
    identity = Identity(f"e{link}", (role,), "certificate")
    talk.attach(link, Peer("tls", f"10.0.0.1:{link}", "main", identity, None, f"{link:X}", WALL_MS + ends_ms))
    if link not in talk.hangups:
        talk.say(link, talk.hello(link, keep_alive_ms=600_000))


def warnings(talk: Talk, link: int) -> list[tuple[str, int]]:
    said = [json.loads(frame.payload) for frame in talk.heard[link].answers if frame.kind == Kind.GOODBYE]
    return [(body["reason"], body["grace_ms"]) for body in said if body.get("grace_ms")]


@pytest.mark.req("O6")
def test_an_expired_admin_gets_nothing_more() -> None:
    talk = a_talk()
    come(talk, 1, 100_000, Role.ADMIN)
    talk.say(1, service(b"admin", b"{}", 1))
    assert [frame.kind for frame in talk.heard[PIPE].answers] == [Kind.SERVICE]
    talk.pass_time(99_000)
    assert 1 not in talk.hangups
    assert [reason for reason, _ in warnings(talk, 1)] == ["certificate_expired"]
    talk.pass_time(2_000)
    assert talk.hangups[1] is Reason.CERTIFICATE_EXPIRED
    talk.say(1, service(b"admin", b"{}", 2))
    assert len(talk.heard[PIPE].answers) == 1


@pytest.mark.req("O6")
def test_clients_are_asked_to_come_again_one_after_the_other_in_the_last_minute() -> None:
    talk = a_talk()
    for link in range(1, 31):
        come(talk, link, 120_000)
    warned = []
    for second in range(120):
        warned += [second] * (sum(bool(warnings(talk, link)) for link in range(1, 31)) - len(warned))
        talk.pass_time(1_000)
    assert len(warned) == 30
    assert 59 <= warned[0] < 75 < 85 < warned[-1] <= 101
    assert max(warned.count(second) for second in warned) <= 5
    assert all(len(warnings(talk, link)) == 1 for link in range(1, 31)), "once is enough"


@pytest.mark.req("O6")
def test_a_client_that_comes_with_little_time_left_is_not_sent_away_again() -> None:
    talk = a_talk()
    come(talk, 1, 15_000)
    come(talk, 2, -1)
    assert talk.hangups == {2: Reason.CERTIFICATE_EXPIRED}, "TLS may still have let it in"
    talk.pass_time(14_000)
    assert warnings(talk, 1) == []
    assert 1 not in talk.hangups
    talk.pass_time(2_000)
    assert talk.hangups[1] is Reason.CERTIFICATE_EXPIRED


@pytest.mark.req("O6")
def test_a_clock_that_is_set_moves_the_ends_of_links() -> None:
    talk = a_talk()
    come(talk, 1, 100_000)
    come(talk, 2, 200_000)
    talk.broker.clock((WALL_MS + 150_000) * 1_000_000, talk.now)
    talk.take()
    assert talk.hangups == {1: Reason.CERTIFICATE_EXPIRED}
    talk.broker.clock(WALL_MS * 1_000_000, talk.now)
    talk.pass_time(100_000)
    assert 2 not in talk.hangups
    talk.pass_time(101_000)
    assert talk.hangups[2] is Reason.CERTIFICATE_EXPIRED
