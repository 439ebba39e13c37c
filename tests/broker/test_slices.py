"""Long reads are worked off in slices: order holds, nothing is lost, and others are served in between."""

from __future__ import annotations

import pytest

from heliograph.broker.subscriptions import STEPS_MAX
from heliograph.wire.frames import Kind, control
from tests.broker.talk import Talk

PUBLISHER, SUBSCRIBER, OTHER = 1, 2, 3
MANY = 5 * STEPS_MAX + 7
PAYLOADS = [b"%d" % number for number in range(MANY)]
pytestmark = pytest.mark.req("N15")


def a_talk() -> Talk:
    talk = Talk()
    for link in (PUBLISHER, SUBSCRIBER, OTHER):
        talk.join(link)
    talk.subscribe(SUBSCRIBER, "#")
    return talk


def many_new_topics(talk: Talk) -> bytes:
    return b"".join(talk.an_event(PUBLISHER, f"t/{n}", PAYLOADS[n]) for n in range(MANY))


def test_a_read_with_many_new_topics_pauses_its_link_until_it_is_worked_off() -> None:
    talk = a_talk()
    talk.say(PUBLISHER, many_new_topics(talk))
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS[:STEPS_MAX]
    assert talk.held[PUBLISHER]
    assert talk.wake_at == talk.now
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS
    assert not talk.held[PUBLISHER]


def test_what_comes_behind_a_paused_read_waits_and_nobody_else_does() -> None:
    talk = a_talk()
    talk.say(PUBLISHER, many_new_topics(talk))
    talk.say(PUBLISHER, talk.an_event(PUBLISHER, "t/0", b"behind") + control(Kind.PING, 5))
    talk.publish(OTHER, "t/0", b"another's")
    assert talk.heard[SUBSCRIBER].payloads == [*PAYLOADS[:STEPS_MAX], b"another's"]
    talk.pass_time(0)
    assert [payload for payload in talk.heard[SUBSCRIBER].payloads if payload != b"another's"] == [*PAYLOADS, b"behind"]
    assert talk.heard[PUBLISHER].order[-1] == "PONG"


def test_what_was_said_before_leaving_is_heard() -> None:
    talk = a_talk()
    talk.say(PUBLISHER, many_new_topics(talk))
    talk.leave(PUBLISHER)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS
    talk.pass_time(10)
    assert len(talk.heard[SUBSCRIBER].payloads) == MANY


def test_many_control_frames_in_one_read_are_answered_in_slices_and_in_order() -> None:
    talk = a_talk()
    talk.say(OTHER, b"".join(control(Kind.PING, number) for number in range(1, MANY)))
    answered = [frame.sequence for frame in talk.heard[OTHER].answers if frame.kind == Kind.PONG]
    assert answered == list(range(1, STEPS_MAX + 1))
    talk.pass_time(0)
    answered = [frame.sequence for frame in talk.heard[OTHER].answers if frame.kind == Kind.PONG]
    assert answered == list(range(1, MANY))


@pytest.mark.parametrize("before", range(STEPS_MAX - 2, STEPS_MAX + 2))
def test_a_publication_with_flags_on_a_new_topic_is_routed_also_at_the_last_step_of_a_read(before: int) -> None:
    talk = a_talk()
    pings = b"".join(control(Kind.PING, number) for number in range(1, before + 1))
    talk.say(PUBLISHER, pings + talk.an_event(PUBLISHER, "new", b"flagged", headers=b'{"$x":1}', flags=16))
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == [b"flagged"]
