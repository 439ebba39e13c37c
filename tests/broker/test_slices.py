"""Long reads are worked off in slices: order holds, nothing is lost, and others are served in between."""

from __future__ import annotations

import json

import pytest

from heliograph.broker.steps import STEPS_MAX
from heliograph.broker.subscriptions import MATCHES_PER_STEP
from heliograph.notes import PublicationsDropped
from heliograph.wire.frames import Flag, Kind, control
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


def heavy(talk: Talk, link: int, count: int) -> None:
    """Give a link so many subscriptions that a topic which matches them takes more than one read may."""
    for number in range(count):
        talk.subscribe(link, "t/#", 10 + number)
        talk.pass_time(0)


def test_a_topic_that_many_subscriptions_match_takes_as_much_of_a_read_as_many_topics() -> None:
    talk = a_talk()
    heavy(talk, OTHER, 2 * MATCHES_PER_STEP * STEPS_MAX)
    talk.say(PUBLISHER, many_new_topics(talk))
    assert len(talk.heard[SUBSCRIBER].payloads) == 1
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS


def test_a_long_condition_takes_as_much_of_a_read_as_many_short_ones() -> None:
    talk = a_talk()
    where = " or ".join(f"x + {number} = 7" for number in range(60))
    bodies = [{"number": 10 + each, "filter": "c", "language": "sql", "where": where} for each in range(5)]
    talk.say(OTHER, b"".join(control(Kind.SUBSCRIBE, 1, json.dumps(body).encode()) for body in bodies))
    assert len([frame for frame in talk.heard[OTHER].answers if frame.kind == Kind.CONFIRMED]) == 1
    talk.pass_time(0)
    assert len([frame for frame in talk.heard[OTHER].answers if frame.kind == Kind.CONFIRMED]) == 5


def test_what_a_departed_link_had_said_is_heard_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a peer that says much and leaves would keep the broker from everybody."""
    monkeypatch.setattr("heliograph.broker.reading.LEAVING_STEPS_MAX", 10)
    talk = a_talk()
    talk.say(PUBLISHER, many_new_topics(talk))
    talk.leave(PUBLISHER)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS[: STEPS_MAX + 10]
    (dropped,) = [note for note in talk.notes if isinstance(note, PublicationsDropped)]
    assert dropped.frames == MANY - STEPS_MAX - 10
    talk.pass_time(10)
    talk.publish(OTHER, "t/0", b"afterwards")
    assert talk.heard[SUBSCRIBER].payloads[-1] == b"afterwards"


def test_what_was_dropped_behind_a_departed_session_is_new_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.broker.reading.LEAVING_STEPS_MAX", 10)
    talk = a_talk()
    talk.subscribe(OTHER, "c", 1, language="sql", where="x + 1 = 2 OR x + 2 = 3")
    events = [talk.an_event(PUBLISHER, "c", payload, headers=b'{"x":1}') for payload in PAYLOADS]
    talk.say(PUBLISHER, b"".join(events))
    talk.leave(PUBLISHER)
    heard = len(talk.heard[OTHER].payloads)
    assert heard < MANY

    talk.attach(7)
    talk.say(7, talk.hello(PUBLISHER))
    (welcome,) = [frame for frame in talk.heard[7].answers if frame.kind == Kind.WELCOME]
    assert int(json.loads(welcome.payload)["seen"], 16) == heard
    talk.say(7, b"".join(events))
    talk.pass_time(0)
    assert talk.heard[OTHER].payloads == PAYLOADS


def test_a_departed_link_subscribes_to_nothing_any_more() -> None:
    talk = a_talk()
    body = json.dumps({"number": 9, "filter": "late"}).encode()
    talk.say(PUBLISHER, many_new_topics(talk) + control(Kind.SUBSCRIBE, 9, body))
    talk.leave(PUBLISHER)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS
    assert talk.broker.report("overview")["subscriptions"] == 1
    assert not talk.heard[PUBLISHER].refusals


def test_groups_that_come_and_go_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.broker.subscriptions.TURNS_MAX", 20)
    talk = a_talk()
    for number in range(100):
        talk.subscribe(OTHER, "jobs", 1, group=f"group-{number}")
        talk.publish(PUBLISHER, "jobs")
        talk.unsubscribe(OTHER, 1)
    assert len(talk.heard[OTHER].payloads) == 100
    assert len(talk.broker._subscriptions._turns) <= 21


def test_many_publications_on_topics_that_are_none_are_refused_in_slices() -> None:
    talk = a_talk()
    talk.say(OTHER, b"".join(talk.an_event(OTHER, "a//b") for _ in range(MANY)))
    assert len(talk.heard[OTHER].refusals) == STEPS_MAX
    talk.pass_time(0)
    assert talk.heard[OTHER].refusals == ["topic_invalid"] * MANY


def test_filters_that_may_cover_many_others_take_as_much_of_a_read_as_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.broker.subscriptions.COVERED_PER_STEP", 1)
    talk = a_talk()
    for number in range(STEPS_MAX):
        talk.subscribe(SUBSCRIBER, f"w/{number}", 10 + number)
    body = json.dumps({"number": 9, "filter": "w/#"}).encode()
    toggle = control(Kind.SUBSCRIBE, 9, body) + control(Kind.UNSUBSCRIBE, 9, json.dumps({"number": 9}).encode())
    talk.say(OTHER, 3 * toggle)
    assert talk.heard[OTHER].order.count("CONFIRMED") == 1
    talk.pass_time(0)
    assert talk.heard[OTHER].order.count("CONFIRMED") == 6


def test_publications_with_flags_are_matched_in_slices_too() -> None:
    talk = a_talk()
    for number in range(40):
        talk.subscribe(OTHER, "c", 10 + number, language="sql", where=f"x + {number} = 2 OR x = 1")
    headers = b'{"x":1,"$x":9000000000000000}'
    events = [talk.an_event(PUBLISHER, "c", each, headers=headers, flags=Flag.EXPIRES) for each in PAYLOADS]
    talk.say(PUBLISHER, b"".join(events))
    assert 0 < len(talk.heard[OTHER].payloads) < STEPS_MAX
    talk.pass_time(0)
    assert talk.heard[OTHER].payloads == PAYLOADS


def test_a_topic_that_many_groups_share_is_worked_off_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.broker.reading.SHARES_PER_STEP", 1)
    talk = a_talk()
    for number in range(STEPS_MAX):
        talk.subscribe(OTHER, "jobs", 10 + number, group=f"group-{number}")
    talk.say(PUBLISHER, b"".join(talk.an_event(PUBLISHER, "jobs", payload) for payload in PAYLOADS[:5]))
    assert talk.heard[OTHER].payloads == PAYLOADS[:1] * STEPS_MAX
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS[:1]
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == PAYLOADS[:5]
    assert len(talk.heard[OTHER].payloads) == 5 * STEPS_MAX


def test_topics_that_alternate_are_matched_in_slices_too() -> None:
    talk = a_talk()
    talk.subscribe(SUBSCRIBER, "plain/#", 2)
    for number in range(40):
        talk.subscribe(OTHER, "c/#", 10 + number, language="sql", where=f"x + {number} = 2 OR x = 1")
    topics = [("c/1", "c/2", "plain/3")[number % 3].ljust(7, "0") for number in range(MANY)]
    payloads = [b"%04d" % number for number in range(MANY)]
    for topic in dict.fromkeys(topics):
        talk.publish(PUBLISHER, topic, b"0000", headers=b'{"x":1}')
    events = [
        talk.an_event(PUBLISHER, topic, each, headers=b'{"x":1}') for topic, each in zip(topics, payloads, strict=True)
    ]
    talk.heard[SUBSCRIBER].events.clear()
    talk.say(PUBLISHER, b"".join(events))
    assert 0 < len(talk.heard[SUBSCRIBER].payloads) < STEPS_MAX
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == payloads


@pytest.mark.parametrize("before", range(STEPS_MAX - 2, STEPS_MAX + 2))
def test_a_publication_with_flags_on_a_new_topic_is_routed_also_at_the_last_step_of_a_read(before: int) -> None:
    talk = a_talk()
    pings = b"".join(control(Kind.PING, number) for number in range(1, before + 1))
    talk.say(PUBLISHER, pings + talk.an_event(PUBLISHER, "new", b"flagged", headers=b'{"$x":1}', flags=16))
    talk.pass_time(0)
    assert talk.heard[SUBSCRIBER].payloads == [b"flagged"]
