"""Publishing: what stands in a frame, what is confirmed, what is repeated, what is refused, and what has no room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Drain, Flush, Publish, PublishBatch
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.notes import PublicationsLost, SessionRestored
from heliograph.wire.frames import Flag, Frame, Kind
from heliograph.wire.limits import PAYLOAD_BYTES_MAX
from tests.client.script import WALL_NS, Script, frames_in

REFUSAL = {"reason": "publish_denied", "code": 205, "subject": "secret/a", "text": "you may not"}


def payloads(frames: list[Frame]) -> list[bytes]:
    return [frame.payload for frame in frames if frame.kind == Kind.EVENT]


@pytest.mark.req("N1")
def test_a_publication_carries_its_id_and_when_it_was_made() -> None:
    script = Script()
    script.connect()
    script.pass_ms(3)
    script.tell(Publish("a/b", b"21.5"))
    (frame,) = script.heard()
    assert (frame.kind, frame.flags, frame.topic, frame.payload) == (Kind.EVENT, 0, b"a/b", b"21.5")
    assert (frame.origin, frame.sequence) == (script.session.origin, 1)
    assert json.loads(frame.headers) == {"$t": (WALL_NS + script.now - 1) // 1_000, "$u": True}


@pytest.mark.req("N1")
def test_headers_expiry_and_content_type_go_with_it() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("a", b"", {"disk": 200, "où": "là"}, expires_in_ms=1_500, content_type="text/plain"))
    (frame,) = script.heard()
    headers = json.loads(frame.headers)
    assert headers["disk"] == 200
    assert headers["où"] == "là"
    assert headers["$x"] - headers["$t"] == 1_500_000
    assert headers["$y"] == "text/plain"
    assert frame.flags == Flag.EXPIRES


def test_a_session_that_was_not_told_the_time_does_not_invent_one() -> None:
    script = Script(clock=False)
    script.connect()
    script.tell(Publish("a", b""))
    script.tell(Publish("a", b"", {"k": 1}))
    assert [frame.headers for frame in script.heard()] == [b"", b'{"k":1}']
    with pytest.raises(UsageError, match="what time"):
        script.tell(Publish("a", b"", expires_in_ms=1))


def test_a_batch_stays_together_in_one_write() -> None:
    script = Script()
    script.connect()
    script.tell(PublishBatch("a", [b"1", b"2", b"3"], {"k": 1}))
    frames = script.heard()
    assert payloads(frames) == [b"1", b"2", b"3"]
    assert [frame.sequence for frame in frames] == [1, 2, 3]
    assert {frame.headers for frame in frames} == {frames[0].headers}


def test_publications_of_one_turn_leave_in_one_write() -> None:
    script = Script()
    script.connect()
    for number in range(5):
        script.session.publisher.publish("a", b"%d" % number, script.now)
    ((_, chunks),) = script.session.take().writes
    assert payloads(frames_in(b"".join(chunks))) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("topic", "payload", "headers"),
    [
        ("", b"", None),
        ("a//b", b"", None),
        ("a/+", b"", None),
        ("a/#", b"", None),
        ("\ud800", b"", None),
        ("x" * 1_025, b"", None),
        (b"bytes", b"", None),
        ("a", bytes(PAYLOAD_BYTES_MAX + 1), None),
        ("a", b"", {"$t": 1}),
        ("a", b"", {1: 1}),
        ("a", b"", {"k": object()}),
        ("a", b"", {"k": "x" * 65_536}),
    ],
)
def test_what_no_broker_would_take_is_refused_at_once_and_uses_no_number(
    topic: Any, payload: bytes, headers: Any
) -> None:
    script = Script()
    script.connect()
    with pytest.raises(UsageError):
        script.tell(Publish(topic, payload, headers))
    with pytest.raises(UsageError):
        script.tell(PublishBatch(topic, [b"fine", payload], headers))
    script.tell(Publish("a", b"ok"))
    (frame,) = script.heard()
    assert frame.sequence == 1


def test_the_largest_headers_and_payload_fit_a_frame_together() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("t" * 1_024, bytes(PAYLOAD_BYTES_MAX), {"k": "x" * 64_400}))
    (frame, _) = script.heard()
    assert len(frame.raw) <= PAYLOAD_BYTES_MAX + 65_536


def test_a_broker_may_take_smaller_payloads_only() -> None:
    script = Script()
    script.connect(limits={"payload_bytes_max": 10})
    with pytest.raises(UsageError, match="at most 10"):
        script.tell(Publish("a", bytes(11)))


# -- confirmation -------------------------------------------------------------------------------------------------


def test_a_flush_ends_when_everything_before_it_is_confirmed() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("a", b"1"))
    script.tell(Flush(1))
    event, ping = script.heard()
    assert (event.kind, ping.kind) == (Kind.EVENT, Kind.PING)
    script.tell(Publish("a", b"2"))
    assert script.outcomes() == {}
    script.pong(ping)
    assert script.outcome(1).error is None
    script.tell(Flush(2))
    assert script.outcomes() == {}


def test_a_flush_with_nothing_to_wait_for_ends_at_once() -> None:
    script = Script()
    script.tell(Flush(1))
    assert script.outcome(1).error is None


def test_confirmations_are_asked_for_along_the_way() -> None:
    script = Script()
    script.connect()
    for _ in range(64):
        script.tell(Publish("a", bytes(16_384)))
    pings = script.heard_of(Kind.PING)
    assert len(pings) == 4
    before = script.overview()["outgoing_bytes"]
    script.pong(pings[1])
    assert script.overview()["outgoing_bytes"] < before * 0.6
    assert script.overview()["confirmed"] == pings[1].sequence


def test_confirmations_are_asked_for_a_moment_after_a_publication_and_no_more_than_needed() -> None:
    """What is not confirmed is repeated if the broker dies, and may then reach a second member of a group."""
    script = Script()
    script.connect()
    script.pass_ms(1_000)
    assert script.heard() == []
    script.tell(Publish("a", b"1"))
    script.pass_ms(100)
    script.tell(Publish("a", b"2"))
    script.pass_ms(200)
    (ping,) = script.heard_of(Kind.PING)
    assert ping.sequence == 2
    script.pass_ms(5_000)
    assert script.heard() == []  # it was asked; the answer takes as long as it takes
    script.pong(ping)
    script.tell(Publish("a", b"3"))
    script.pass_ms(300)
    assert [frame.sequence for frame in script.heard_of(Kind.PING)] == [3]


@pytest.mark.req("N15")
def test_what_nobody_confirms_is_bounded_and_told() -> None:
    script = Script(outgoing_bytes_max=10_000)
    script.connect()
    while script.session.publisher.has_room:
        script.tell(Publish("a", bytes(1_000)))
    assert script.overview()["outgoing_bytes"] < 12_000
    script.tell(Publish("a", b"x", request=7))
    script.tell(PublishBatch("a", [b"x", b"y"], request=8))
    outcomes = script.outcomes()
    assert isinstance(outcomes[7].error, RefusedError)
    assert isinstance(outcomes[8].error, RefusedError)
    script.pass_ms(0)
    assert PublicationsLost(3, "outgoing") in script.notes
    assert script.overview()["lost"]["outgoing"] == 3
    script.pong(script.heard_of(Kind.PING)[-1])
    assert script.session.publisher.has_room


def test_losses_are_noted_at_most_once_a_second() -> None:
    script = Script(outgoing_bytes_max=100)
    script.tell(Publish("a", bytes(100)))
    for _ in range(20):
        script.tell(Publish("a", b"x"))
        script.pass_ms(100)
    notes = [note.frames for note in script.notes if isinstance(note, PublicationsLost)]
    assert len(notes) <= 3
    script.pass_ms(1_000)
    assert sum(note.frames for note in script.notes if isinstance(note, PublicationsLost)) == 20


def test_a_pressed_driver_gets_no_more_publications_but_still_gets_requests() -> None:
    script = Script()
    script.connect()
    script.machine.press(1, True, script.now)
    script.tell(Publish("a", b"1"))
    script.tell(Flush(1))
    assert script.heard() == []
    script.machine.press(1, False, script.now)
    script.take()
    assert [frame.kind for frame in script.heard()] == [Kind.EVENT, Kind.PING]


# -- refusal ------------------------------------------------------------------------------------------------------


@pytest.mark.req("T11")
def test_a_refused_publication_does_not_vanish() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("secret/a", b"1"))
    script.tell(Flush(1))
    ping = script.heard()[-1]
    script.say_json(Kind.REFUSED, 0, REFUSAL)
    script.pong(ping)
    error = script.outcome(1).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.PUBLISH_DENIED
    assert "secret/a" in error.detail
    (refused,) = script.session.collect_refusals()
    assert (refused.topic, refused.reason, refused.text) == ("secret/a", Reason.PUBLISH_DENIED, "you may not")
    assert script.session.collect_refusals() == []
    assert script.overview()["refused"] == 1
    assert script.overview()["last_refused"]["topic"] == "secret/a"


def test_the_next_flush_starts_afresh() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("secret/a", b"1"))
    script.tell(Flush(1))
    ping = script.heard()[-1]
    script.say_json(Kind.REFUSED, 0, REFUSAL)
    script.pong(ping)
    script.tell(Publish("a", b"1"))
    script.tell(Flush(2))
    script.pong(script.heard()[-1])
    assert script.outcomes()[2].error is None


def test_draining_tells_of_a_refusal_too() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("secret/a", b"1"))
    script.tell(Drain(1))
    ping = script.heard()[-1]
    script.say_json(Kind.REFUSED, 0, REFUSAL)
    script.pong(ping)
    assert isinstance(script.outcome(1).error, RefusedError)
    assert script.stopped


def test_a_program_that_never_asks_does_not_fill_the_memory_with_refusals() -> None:
    script = Script()
    script.connect()
    for _ in range(1_500):
        script.say_json(Kind.REFUSED, 0, REFUSAL)
    assert len(script.session.collect_refusals()) == 1_024
    assert script.overview()["refused"] == 1_500


# -- repetition ---------------------------------------------------------------------------------------------------


@pytest.mark.req("N6")
def test_after_a_reconnect_only_what_the_broker_has_not_seen_is_repeated() -> None:
    script = Script()
    script.connect()
    script.tell(PublishBatch("a", [b"1", b"2", b"3"]))
    script.tell(Publish("a", b"4"))
    script.heard()
    script.lose()
    script.tell(Publish("a", b"5"))
    again = script.connect(seen=2)
    assert payloads(again) == [b"3", b"4", b"5"]
    assert [frame.sequence for frame in again] == [3, 4, 5]
    assert SessionRestored("heliograph://127.0.0.1:4717", 0, 2) in script.notes


def test_a_flush_is_over_when_the_new_link_shows_that_the_broker_has_everything() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("a", b"1"))
    script.tell(Flush(1))
    script.heard()
    script.lose()
    script.connect(seen=1)
    assert script.outcome(1).error is None


def test_a_broker_that_forgot_the_session_gets_everything_that_was_not_confirmed() -> None:
    script = Script()
    script.connect()
    script.tell(Publish("a", b"1"))
    script.tell(Flush(1))
    script.pong(script.heard()[-1])
    script.tell(Publish("a", b"2"))
    script.heard()
    script.lose()
    assert payloads(script.connect(seen=None)) == [b"2"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("batch"), st.integers(1, 5)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("pong"), st.just(0)),
        st.tuples(st.just("press"), st.integers(0, 1)),
        st.tuples(st.just("lose"), st.integers(0, 100)),
    ),
    max_size=25,
)


class Memory:
    """The publications that a broker got, and what it knows about sequences: the least a broker must do."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.seen = 0
        self.pings: list[Frame] = []
        self.pending: list[Frame] = []  # written to the link, not yet read

    def read(self, count: int) -> None:
        for frame in self.pending[:count]:
            if frame.kind == Kind.PING:
                self.pings.append(frame)
            elif frame.kind == Kind.EVENT and frame.sequence > self.seen:
                assert frame.sequence == self.seen + 1
                self.seen = frame.sequence
                self.got.append(frame.payload)
        del self.pending[:count]


@pytest.mark.req("N6", "N11")
@given(steps)
def test_every_publication_arrives_once_and_in_order_whatever_is_lost(steps: list[tuple[str, int]]) -> None:
    """A link loses a suffix of what was written; the broker remembers. Nothing is lost, nothing comes twice."""
    script, broker = Script(), Memory()
    broker.pending += script.connect()
    published: list[bytes] = []
    for step, amount in steps:
        if step == "publish":
            for _ in range(amount):
                published.append(b"%d" % len(published))
                script.tell(Publish("a", published[-1]))
        elif step == "batch":
            batch = [b"%d" % number for number in range(len(published), len(published) + amount)]
            published += batch
            script.tell(PublishBatch("a", batch))
        elif step == "flush":
            script.tell(Flush(script.number()))
        elif step == "press":
            script.machine.press(script.link, bool(amount), script.now)
            script.take()
        elif step == "pong":
            broker.read(len(broker.pending))
            if broker.pings:
                script.pong(broker.pings.pop(0))
        else:
            confirmed = script.overview()["confirmed"]
            broker.read(amount * len(broker.pending) // 100)
            broker.pending.clear()
            broker.pings.clear()
            script.lose()
            repeated = script.connect(seen=broker.seen or None)
            assert all(frame.sequence > max(broker.seen, confirmed) for frame in repeated if frame.kind == Kind.EVENT)
            broker.pending += repeated
        broker.pending += script.heard()
    script.machine.press(script.link, False, script.now)
    script.tell(Flush(script.number()))
    broker.pending += script.heard()
    broker.read(len(broker.pending))
    assert broker.got == published
    for ping in broker.pings:
        script.pong(ping)
    assert script.overview()["outgoing_bytes"] == 0
    assert script.hangups == []
