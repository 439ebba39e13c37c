"""Deliveries: publications reach the right inboxes, once each, whatever a broker sends and however it is cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Close, Subscribe
from heliograph.errors import Reason
from heliograph.notes import PeerRefused, PublicationsLost
from heliograph.wire.frames import HEAD, Kind, control, delivery, event, service
from tests.client.script import STRANGER, Script, a_delivery, an_event, body_of, packed


def a_subscriber(*filters: str) -> Script:
    """Connected, with one subscription per filter in force, numbered from 1."""
    script = Script()
    script.connect()
    for pattern in filters or ("a",):
        script.tell(Subscribe(script.number(), pattern))
    for frame in script.heard():
        script.confirm(frame)
    script.outcomes()
    return script


def read(script: Script, number: int = 1) -> list[bytes]:
    return [publication.payload for publication in script.session.inbox(number).take_all()]


def test_a_publication_arrives_as_it_was_published() -> None:
    script = a_subscriber()
    headers = json.dumps({"$t": 5, "$u": True, "$x": 9, "$y": "text/plain", "disk": 200}).encode()
    script.say(a_delivery([1], [event("a/é".encode(), b"payload", STRANGER, 3, headers, flags=4)]))
    publication = script.session.inbox(1).take()
    assert publication is not None
    assert (publication.topic, publication.payload, publication.id) == ("a/é", b"payload", (STRANGER, 3))
    assert publication.headers == {"disk": 200}
    assert (publication.timestamp_us, publication.synchronised, publication.expiry_us) == (5, False, 9)
    assert publication.content_type == "text/plain"
    assert publication.flags == 4


def test_a_publication_goes_to_every_subscription_that_is_named() -> None:
    script = a_subscriber("a", "#", "b")
    script.say(a_delivery([1, 2], [an_event(1, payload=b"1")]))
    script.say(a_delivery([2], [an_event(2, payload=b"2")]))
    script.say(a_delivery([2, 9], [an_event(3, payload=b"3")]))  # 9 has ended meanwhile
    assert read(script, 1) == [b"1"]
    assert read(script, 2) == [b"1", b"2", b"3"]
    assert read(script, 3) == []
    assert [inbox.number for inbox in script.session.collect_news()] == [1, 2]
    assert script.session.collect_news() == []


@pytest.mark.req("N6")
def test_what_was_delivered_before_a_reconnect_is_not_delivered_again() -> None:
    script = a_subscriber()
    script.say(a_delivery([1], [an_event(number, payload=b"%d" % number) for number in (1, 2, 5)]))
    script.lose()
    script.connect()
    script.say(a_delivery([1], [an_event(number, payload=b"%d" % number) for number in (2, 3, 5, 6)]))
    assert read(script) == [b"1", b"2", b"5", b"3", b"6"]
    assert script.overview()["duplicates"] == 2


def test_publishers_have_numbers_of_their_own() -> None:
    script = a_subscriber()
    script.say(a_delivery([1], [an_event(1, origin=1), an_event(1, origin=2), an_event(2, origin=1)]))
    assert len(script.session.inbox(1)) == 3


def test_a_bad_publication_in_a_good_delivery_is_discarded_and_counted() -> None:
    script = a_subscriber()
    too_long_topic = bytearray(an_event(1))
    too_long_topic[6:8] = (60_000).to_bytes(2, "little")
    too_long_headers = bytearray(an_event(2))
    too_long_headers[24:28] = (60_000).to_bytes(4, "little")
    not_text = event(b"\xff", b"x", STRANGER, 3)
    no_topic = event(b"", b"x", STRANGER, 4)
    bad_headers = event(b"a", b"fine", STRANGER, 5, b"[" * 9_000)
    script.say(a_delivery([1], [bytes(too_long_topic), bytes(too_long_headers), not_text, no_topic, bad_headers]))
    publication = script.session.inbox(1).take()
    assert publication is not None
    assert publication.payload == b"fine"
    assert publication.headers == {}
    assert script.overview()["discarded"] == 4
    assert script.hangups == []


def test_what_a_link_lost_at_the_broker_is_added_up() -> None:
    script = a_subscriber()
    script.say(a_delivery([1], [an_event(1)], lost=5))
    script.say(a_delivery([1], [an_event(2)], lost=7))
    script.lose()
    script.connect()
    script.say(a_delivery([1], [an_event(3)], lost=2))
    assert script.overview()["lost"]["broker"] == 9


@pytest.mark.req("N15")
def test_what_a_link_lost_at_the_broker_is_noted_in_full_also_when_the_session_ends() -> None:
    script = a_subscriber()
    for lost in (5, 7, 8):
        script.say(a_delivery([1], [an_event(lost)], lost=lost))
        script.pass_ms(0)
    assert told(script) == [5]
    script.pass_ms(1_000)
    assert told(script) == [5, 3]
    script.say(a_delivery([1], [an_event(9)], lost=12))
    script.tell(Close(2))
    assert told(script) == [5, 3, 4]


def told(script: Script) -> list[int]:
    return [each.frames for each in script.notes if isinstance(each, PublicationsLost) and each.where == "broker"]


EVENT = an_event(1)
BAD_BROKERS = {
    "numbers that are not whole": delivery(b"\1\0\0", len(EVENT), 0) + EVENT,
    "numbers over the frame": HEAD.pack(24 + 4, Kind.DELIVERY, 0, 0, 0, 0, 400) + packed(1),
    "a delivery with a topic": HEAD.pack(24 + 8, Kind.DELIVERY, 0, 4, 0, 0, 4) + packed(1, 1),
    "half an event": delivery(packed(1), 10, 0) + EVENT[:10],
    "an event over its delivery": delivery(packed(1), len(EVENT) - 1, 0) + EVENT[:-1],
    "something else than an event": delivery(packed(1), 28, 0) + control(Kind.PONG, 1),
    "a second welcome": control(Kind.WELCOME, 0, b"{}"),
    "a pong without a ping": control(Kind.PONG, 1),
    "an answer without a request": control(Kind.CONFIRMED, 99),
    "a refusal without a request": control(Kind.REFUSED, 99, b'{"reason": "x", "code": 1}'),
    "a refusal that is not JSON": control(Kind.REFUSED, 0, b"no"),
    "a goodbye that is not JSON": control(Kind.GOODBYE, 0, b"\xff"),
    "a service nobody asked": service(b"admin", b"{}", 99, flags=1),
    "a hello": control(Kind.HELLO, 0, b"{}"),
    "an unknown kind": HEAD.pack(24, 200, 0, 0, 0, 0, 0),
    "a frame without end": HEAD.pack(0xFFFFFFFF, Kind.DELIVERY, 0, 0, 0, 0, 0),
    "a web server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.req("O6")
@pytest.mark.parametrize("data", BAD_BROKERS.values(), ids=BAD_BROKERS)
def test_a_broker_that_breaks_the_rules_loses_the_link_and_is_told_why(data: bytes) -> None:
    script = a_subscriber()
    script.say(data)
    ((link, reason),) = script.hangups
    assert body_of(script.heard()[-1])["reason"] == reason.word
    assert [note.link for note in script.notes if isinstance(note, PeerRefused)] == [link]
    script.lose(reason)
    script.connect()
    assert script.overview()["state"] == "connected"


@pytest.mark.parametrize(
    "welcome",
    [
        {"version": 2},
        {"origin": "0" * 16},
        {"origin": 5},
        {"keep_alive_ms": 0},
        {"keep_alive_ms": -1},
        {"keep_alive_ms": 10**12},
        {"seen": "nonsense"},
        {"limits": {"payload_bytes_max": 0}},
        {"limits": 5},
        {"roles": "admin"},
    ],
)
def test_an_impossible_welcome_is_not_believed(welcome: dict) -> None:
    script = Script()
    script.attach()
    script.welcome(**welcome)
    assert len(script.hangups) == 1
    assert script.overview()["state"] == "connecting"


def test_before_the_welcome_nothing_else_is_heard() -> None:
    script = Script()
    script.attach()
    script.say(control(Kind.PING, 1))
    assert script.hangups == [(1, Reason.KIND_UNEXPECTED)]


def test_what_arrives_after_our_hangup_or_on_another_link_is_not_heard() -> None:
    script = a_subscriber()
    script.machine.receive(99, a_delivery([1], [an_event(1)]), script.now)
    script.say(b"\0" * 28)
    script.machine.receive(1, a_delivery([1], [an_event(1)]), script.now)
    assert read(script) == []


# -- any bytes ----------------------------------------------------------------------------------------------------

deliveries = st.builds(
    a_delivery,
    st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True).map(sorted),
    st.lists(
        st.builds(
            an_event,
            st.integers(0, 40),
            st.sampled_from(["a", "a/b"]),
            st.binary(max_size=30),
            st.sampled_from([STRANGER, 78]),
        ),
        max_size=5,
    ),
)
said = st.lists(
    st.one_of(
        deliveries,
        st.integers(0, 3).map(lambda number: control(Kind.PING, number)),
        st.just(control(Kind.REFUSED, 0, b'{"reason": "publish_denied", "code": 205}')),
    ),
    max_size=8,
)


def result_of(data: bytes, places: list[int]) -> tuple[object, ...]:
    script = a_subscriber("a", "b", "c")
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    for start, end in pairwise(edges):
        script.machine.receive(script.link, data[start:end], script.now)
    script.take()
    inboxes = [[(p.id, p.topic, p.payload) for p in script.session.inbox(number).take_all()] for number in (1, 2, 3)]
    return inboxes, [frame.raw for frame in script.heard()], script.hangups, script.overview()


@given(said, st.lists(st.integers(0, 100_000), max_size=20))
def test_any_cut_of_the_stream_gives_the_same_result(said: list[bytes], places: list[int]) -> None:
    data = b"".join(said)
    assert result_of(data, places) == result_of(data, [])


@pytest.mark.req("O6")
@given(said, st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6))
def test_no_bytes_of_a_broker_raise(said: list[bytes], tail: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(said) + tail)
    for place, value in flips:
        if data:
            data[place % len(data)] = value
    script = a_subscriber()
    script.say(bytes(data))
    assert len(script.hangups) <= 1


@pytest.mark.req("O6")
@given(st.binary(max_size=300), st.sampled_from(list(Kind)), st.binary(max_size=80), st.integers(0, 3))
def test_no_bytes_before_the_welcome_raise(head: bytes, kind: Kind, body: bytes, number: int) -> None:
    script = Script()
    script.attach()
    script.say(control(kind, number, body))
    if not script.hangups:
        script.say(head)
    assert len(script.hangups) <= 1, "a bad broker is hung up on once"
