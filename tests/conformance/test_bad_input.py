"""Bad input and faults, each by its name: the reason is on the wire, in a note and in a counter; nobody else is harmed.

In:    peers that break the rules, in bytes.
Out:   claims about GOODBYE, hangups, notes and ``report("overview")["refused"]``, and about a healthy pair of clients.
State: none.
Not here: random badness (tests/fuzz), real sockets (test_bad_input_live.py), certificates (tests/wire).
"""

from __future__ import annotations

import random

import pytest

from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.errors import Reason
from heliograph.notes import LinkDetached, PeerRefused, PublicationsDropped
from heliograph.wire.frames import Kind, control
from tests.broker.talk import Talk
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.conformance.steps import body

pytestmark = pytest.mark.req("O6")

BAD, PUBLISHER, SUBSCRIBER = 1, 2, 3
ORIGIN = Talk.origin(BAD)
EVENT = put_together(grammar.EVENT, 1, b"payload", b"some/topic", origin=ORIGIN)


def a_talk(**limits: int) -> Talk:
    talk = Talk(BrokerConfig(limits=LimitsConfig(**limits)))
    talk.join(PUBLISHER)
    talk.join(SUBSCRIBER)
    talk.subscribe(SUBSCRIBER, "healthy/#")
    return talk


def nobody_else_is_harmed(talk: Talk) -> None:
    """The healthy pair still has its links, and a publication goes from one to the other."""
    before = len(talk.heard[SUBSCRIBER].events)
    talk.publish(PUBLISHER, "healthy/topic", b"still here")
    assert talk.heard[SUBSCRIBER].payloads[before:] == [b"still here"]
    assert set(talk.hangups) <= {BAD}


def ended_for(talk: Talk, reason: Reason) -> None:
    """The bad peer's link ended for this reason, and everybody who should know does."""
    assert talk.hangups == {BAD: reason}
    assert talk.heard[BAD].goodbye == reason.word
    assert talk.broker.report("overview")["refused"][reason.word] == 1
    talk.leave(BAD, reason)
    assert LinkDetached(BAD, "anonymous", reason) in talk.notes
    nobody_else_is_harmed(talk)


def refused_for(talk: Talk, reason: Reason) -> None:
    """The same, for a broken rule: a note of its own says so to the operator."""
    refused = [note for note in talk.notes if isinstance(note, PeerRefused)]
    assert [(note.link, note.reason, note.level) for note in refused] == [(BAD, reason, "warning")]
    ended_for(talk, reason)


FIRST_FRAMES = {  # sent by a peer that has not been welcomed
    "a publication before HELLO": (EVENT, Reason.KIND_UNEXPECTED),
    "a subscription before HELLO": (put_together(grammar.SUBSCRIBE, 1, b"{}"), Reason.KIND_UNEXPECTED),
    "a ping before HELLO": (put_together(grammar.PING, 1), Reason.KIND_UNEXPECTED),
    "a kind nobody knows before HELLO": (put_together(200), Reason.KIND_UNEXPECTED),
    "a goodbye before HELLO": (
        put_together(grammar.GOODBYE, 0, body(reason="goodbye", code=400)),
        Reason.KIND_UNEXPECTED,
    ),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n", Reason.FRAME_OVER_LIMIT),
    "TLS on a plain listener": (bytes.fromhex("160301020001000001fc0303") + bytes(500), Reason.FRAME_OVER_LIMIT),
    "zeros": (bytes(100), Reason.FRAME_TOO_SHORT),
    "a HELLO that is no JSON": (put_together(grammar.HELLO, 0, b"hello"), Reason.BODY_MALFORMED),
    "a HELLO without a secret": (put_together(grammar.HELLO, 0, body(versions=[1])), Reason.BODY_MALFORMED),
    "a HELLO with a short secret": (
        put_together(grammar.HELLO, 0, body(versions=[1], secret="00" * 15)),
        Reason.BODY_MALFORMED,
    ),
    "a HELLO with a long secret": (
        put_together(grammar.HELLO, 0, body(versions=[1], secret="00" * 65)),
        Reason.BODY_MALFORMED,
    ),
    "a HELLO nested beyond reason": (put_together(grammar.HELLO, 0, b"[" * 16_000), Reason.BODY_MALFORMED),
    "a HELLO over the budget": (
        put_together(grammar.HELLO, 0, body(versions=[1], secret="00" * 16, name="n" * 16_384)),
        Reason.HANDSHAKE_OVER_BUDGET,
    ),
    "no version in common": (
        put_together(grammar.HELLO, 0, body(versions=[0, 2], secret="00" * 16)),
        Reason.VERSION_UNSUPPORTED,
    ),
    "a need that cannot be met": (
        put_together(grammar.HELLO, 0, body(versions=[1], secret="00" * 16, needs=["wings"])),
        Reason.FEATURE_UNSUPPORTED,
    ),
    "a token nobody issued": (
        put_together(grammar.HELLO, 0, body(versions=[1], secret="00" * 16, entity="root", token="guess")),
        Reason.CREDENTIAL_WRONG,
    ),
}


@pytest.mark.parametrize("name", FIRST_FRAMES)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "byte by byte"])
def test_a_bad_first_frame(name: str, at_once: bool) -> None:
    bad, reason = FIRST_FRAMES[name]
    talk = a_talk()
    talk.attach(BAD)
    for piece in [bad] if at_once else [bad[at : at + 1] for at in range(len(bad))]:
        talk.say(BAD, piece)
    refused_for(talk, reason)


LATER_FRAMES = {  # sent by a peer that was welcomed
    "a foreign origin": (
        put_together(grammar.EVENT, 1, b"", b"healthy/topic", origin=Talk.origin(PUBLISHER)),
        Reason.ORIGIN_FOREIGN,
    ),
    "an origin of nobody": (put_together(grammar.EVENT, 1, b"", b"healthy/topic"), Reason.ORIGIN_FOREIGN),
    "a foreign origin in a frame that expires": (
        put_together(grammar.EVENT, 1, b"", b"a", b'{"$x":1}', Talk.origin(PUBLISHER), grammar.EXPIRES),
        Reason.ORIGIN_FOREIGN,
    ),
    "a second HELLO": (Talk().hello(BAD), Reason.KIND_UNEXPECTED),
    "a kind nobody knows": (put_together(200), Reason.KIND_UNKNOWN),
    "a WELCOME": (put_together(grammar.WELCOME, 0, b"{}"), Reason.KIND_UNEXPECTED),
    "a CONFIRMED": (put_together(grammar.CONFIRMED, 1), Reason.KIND_UNEXPECTED),
    "a REFUSED": (put_together(grammar.REFUSED, 1, b"{}"), Reason.KIND_UNEXPECTED),
    "a DELIVERY": (put_together(grammar.DELIVERY, 0, EVENT, headers=bytes(4)), Reason.KIND_UNEXPECTED),
    "a PARCEL": (put_together(grammar.PARCEL, 1, EVENT, headers=bytes(8)), Reason.KIND_UNEXPECTED),
    "packed events": (put_together(grammar.EVENT, 1, b"", b"a", origin=ORIGIN, flags=1), Reason.FLAGS_UNKNOWN),
    "a foreign id": (put_together(grammar.EVENT, 1, b"", b"a", origin=ORIGIN, flags=2), Reason.FLAGS_UNKNOWN),
    "a flag without a name": (
        put_together(grammar.EVENT, 1, b"", b"a", origin=ORIGIN, flags=128),
        Reason.FLAGS_UNKNOWN,
    ),
    "every flag": (put_together(grammar.EVENT, 1, b"", b"a", origin=ORIGIN, flags=255), Reason.FLAGS_UNKNOWN),
    "a PING with flags": (put_together(grammar.PING, 1, flags=1), Reason.FLAGS_UNKNOWN),
    "an answer to nobody's question": (
        put_together(grammar.SERVICE, 1, b"{}", b"admin", flags=1),
        Reason.FLAGS_UNKNOWN,
    ),
    "a length of zero": (bytes(4) + EVENT[4:], Reason.FRAME_TOO_SHORT),
    "a length one short of a head": ((23).to_bytes(4, "little") + EVENT[4:], Reason.FRAME_TOO_SHORT),
    "the largest length": (b"\xff\xff\xff\xff" + EVENT[4:], Reason.FRAME_OVER_LIMIT),
    "a publication one byte too long": ((1_114_109).to_bytes(4, "little") + EVENT[4:], Reason.FRAME_OVER_LIMIT),
    "a PING with a body of megabytes": (
        (1_000_000).to_bytes(4, "little") + control(Kind.PING)[4:],
        Reason.FRAME_OVER_LIMIT,
    ),
    "a SUBSCRIBE one byte too long": (put_together(grammar.SUBSCRIBE, 1, b" " * 65_537), Reason.FRAME_OVER_LIMIT),
    "a topic one byte longer than its frame": (
        put_together(grammar.EVENT, 1, b"", b"", origin=ORIGIN)[:6] + b"\x01\x00" + bytes(20),
        Reason.TOPIC_OVER_FRAME,
    ),
    "the longest topic in a short frame": (EVENT[:6] + b"\xff\xff" + EVENT[8:], Reason.TOPIC_OVER_FRAME),
    "headers one byte longer than their frame": (
        EVENT[:24] + (8).to_bytes(4, "little") + EVENT[28:],
        Reason.HEADERS_OVER_FRAME,
    ),
    "the longest headers in a short frame": (EVENT[:24] + b"\xff\xff\xff\xff" + EVENT[28:], Reason.HEADERS_OVER_FRAME),
    "a topic that does not fit a control frame": (
        control(Kind.PING)[:6] + b"\x01\x00" + control(Kind.PING)[8:],
        Reason.TOPIC_OVER_FRAME,
    ),
    "a SUBSCRIBE that is no JSON": (put_together(grammar.SUBSCRIBE, 1, b"{'number': 1}"), Reason.BODY_MALFORMED),
    "a SUBSCRIBE of the wrong type": (
        put_together(grammar.SUBSCRIBE, 1, b'{"number":"1","filter":"a"}'),
        Reason.BODY_MALFORMED,
    ),
    "a SUBSCRIBE that is not UTF-8": (
        put_together(grammar.SUBSCRIBE, 1, b'{"number":1,"filter":"\xff"}'),
        Reason.BODY_MALFORMED,
    ),
    "an UNSUBSCRIBE of nothing": (put_together(grammar.UNSUBSCRIBE, 1), Reason.BODY_MALFORMED),
    "a GOODBYE without a reason": (put_together(grammar.GOODBYE, 0, b"{}"), Reason.BODY_MALFORMED),
}


@pytest.mark.parametrize("name", LATER_FRAMES)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in two pieces"])
def test_a_bad_frame_from_a_welcomed_peer(name: str, at_once: bool) -> None:
    bad, reason = LATER_FRAMES[name]
    talk = a_talk()
    talk.join(BAD)
    talk.say(BAD, bad if at_once else bad[:20])
    if not at_once:
        talk.say(BAD, bad[20:])
    refused_for(talk, reason)


def test_what_follows_a_bad_frame_is_not_read() -> None:
    talk = a_talk()
    talk.join(BAD)
    good = put_together(grammar.EVENT, 2, b"", b"healthy/topic", origin=ORIGIN)
    talk.say(BAD, put_together(200) + good)
    talk.say(BAD, good)
    assert talk.heard[SUBSCRIBER].events == []
    refused_for(talk, Reason.KIND_UNKNOWN)


def test_what_came_before_a_bad_frame_is_delivered() -> None:
    talk = a_talk()
    talk.join(BAD)
    good = put_together(grammar.EVENT, 1, b"before", b"healthy/topic", origin=ORIGIN)
    talk.say(BAD, good + put_together(200))
    assert talk.heard[SUBSCRIBER].payloads == [b"before"]
    refused_for(talk, Reason.KIND_UNKNOWN)


def test_a_peer_that_connects_and_says_nothing() -> None:
    talk = a_talk()
    talk.attach(BAD)
    talk.pass_time(1_999)
    assert talk.hangups == {}
    talk.pass_time(1)
    ended_for(talk, Reason.HANDSHAKE_TOO_SLOW)


def test_a_peer_that_says_its_hello_too_slowly() -> None:
    talk = a_talk()
    talk.attach(BAD)
    for piece in (talk.hello(BAD)[at : at + 1] for at in range(40)):
        talk.say(BAD, piece)
        talk.pass_time(51)
    ended_for(talk, Reason.HANDSHAKE_TOO_SLOW)


def test_a_peer_that_falls_silent_after_its_welcome() -> None:
    talk = a_talk(keep_alive_ms_min=100)
    talk.join(BAD, keep_alive_ms=100)
    talk.pass_time(299)
    assert talk.heard[BAD].order == ["WELCOME", "PING", "PING"]
    assert talk.hangups == {}
    talk.pass_time(1)
    ended_for(talk, Reason.SILENT)


@pytest.mark.parametrize("cut", range(1, len(EVENT)))
def test_a_frame_that_is_cut_off_by_the_end_of_the_link(cut: int) -> None:
    talk = a_talk()
    talk.join(BAD)
    talk.say(BAD, EVENT[:cut])
    assert talk.hangups == {}
    talk.leave(BAD, Reason.CLOSED)
    assert LinkDetached(BAD, "anonymous", Reason.CLOSED) in talk.notes
    nobody_else_is_harmed(talk)


def test_a_link_that_ends_in_the_middle_of_its_handshake_leaves_nothing_behind() -> None:
    talk = a_talk()
    before = talk.broker.report("overview")
    for cut in (0, 1, 27, 28, 60):
        talk.attach(BAD)
        talk.say(BAD, talk.hello(BAD)[:cut])
        talk.leave(BAD, Reason.RESET)
    assert talk.broker.report("overview") == before
    nobody_else_is_harmed(talk)


def test_frames_in_the_wrong_order() -> None:
    """A shuffled session ends, or is served; it never harms others."""
    frames = [
        control(Kind.SUBSCRIBE, 1, body(number=1, filter="a")),
        control(Kind.UNSUBSCRIBE, 2, body(number=1)),
        *(put_together(grammar.EVENT, n, b"", b"a", origin=ORIGIN) for n in (1, 2, 3)),
        control(Kind.PING, 3),
    ]
    dice = random.Random(1)
    for _ in range(50):
        dice.shuffle(frames)
        talk = a_talk()
        talk.join(BAD)
        talk.say(BAD, b"".join(frames))
        assert talk.hangups == {}
        assert talk.heard[BAD].order[0] == "WELCOME"
        assert talk.heard[BAD].order.count("PONG") == 1
        nobody_else_is_harmed(talk)


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes(seed: int) -> None:
    dice = random.Random(seed)
    talk = a_talk()
    talk.join(BAD)
    for _ in range(20):
        talk.say(BAD, dice.randbytes(dice.randint(1, 200)))
    assert talk.hangups[BAD] in {Reason.FRAME_OVER_LIMIT, Reason.FRAME_TOO_SHORT, Reason.KIND_UNKNOWN}
    refused_for(talk, talk.hangups[BAD])


@pytest.mark.req("N15")
def test_a_subscriber_that_never_reads_and_drops() -> None:
    talk = a_talk(queue_frames_max=100)
    talk.join(BAD)
    talk.subscribe(BAD, "healthy/#")
    talk.press(BAD, True)
    for _ in range(50):
        talk.publish(PUBLISHER, "healthy/topic", *[b"x"] * 10)
    assert talk.broker.report("overview")["dropped"] == 400
    assert sum(note.frames for note in talk.notes if isinstance(note, PublicationsDropped)) > 0
    assert talk.hangups == {}
    assert len(talk.heard[SUBSCRIBER].events) == 500
    nobody_else_is_harmed(talk)


@pytest.mark.req("N15")
def test_a_subscriber_that_never_reads_and_must_not_lose_anything() -> None:
    talk = a_talk(queue_frames_max=100)
    talk.join(BAD)
    talk.subscribe(BAD, "healthy/#", policy="disconnect")
    talk.press(BAD, True)
    talk.publish(PUBLISHER, "healthy/topic", *[b"x"] * 101)
    assert len(talk.heard[SUBSCRIBER].events) == 101
    ended_for(talk, Reason.SLOW_CONSUMER)


def test_every_link_beyond_the_limit() -> None:
    talk = a_talk(links_max=2)
    talk.attach(BAD)
    ended_for(talk, Reason.LINKS_OVER_LIMIT)


def test_a_flood_of_links_that_say_nothing_does_not_keep_others_out_for_long() -> None:
    talk = a_talk(links_unproven_max=10)
    for link in range(100, 110):
        talk.attach(link)
    talk.attach(BAD)
    assert talk.hangups == {BAD: Reason.SOURCE_OVER_SHARE}
    talk.leave(BAD, Reason.SOURCE_OVER_SHARE)
    talk.pass_time(2_001)
    assert {talk.hangups[link] for link in range(100, 110)} == {Reason.HANDSHAKE_TOO_SLOW}
    for link in range(100, 110):
        talk.leave(link, Reason.HANDSHAKE_TOO_SLOW)
    talk.join(BAD + 200)
    assert talk.heard[BAD + 200].order == ["WELCOME"]


def test_an_origin_cannot_be_taken_without_its_secret_even_by_a_peer_that_knows_it() -> None:
    talk = a_talk()
    talk.join(BAD)
    next_sequence = put_together(grammar.EVENT, 1, b"forged", b"healthy/x", origin=Talk.origin(PUBLISHER))
    talk.say(BAD, next_sequence)
    assert talk.heard[SUBSCRIBER].events == []
    refused_for(talk, Reason.ORIGIN_FOREIGN)
