"""Slow consumers: each policy, bounds, and that nobody else is harmed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.broker.routing.seen import SLOW_MAX, Origins
from heliograph.broker.steps import STEPS_MAX
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.notes import PublicationsDropped
from heliograph.wire.bodies import goodbye
from heliograph.wire.frames import Kind, control, service
from tests.broker.talk import Talk
from tests.examples import examples

PUBLISHER, SLOW, QUICK, POLITE, SERVICE = 1, 2, 3, 4, 5
pytestmark = pytest.mark.req("N15")


def a_talk(policy: str = "drop_oldest", **limits: int) -> Talk:
    chosen = {"queue_frames_max": 10, "hold_bytes": 1 << 20, **limits}
    talk = Talk(BrokerConfig(limits=LimitsConfig(**chosen)))
    for link in (PUBLISHER, SLOW, QUICK):
        talk.join(link)
    talk.join(POLITE, hold=True)
    talk.subscribe(SLOW, "a", policy=policy)
    talk.subscribe(QUICK, "a", policy=policy)
    return talk


def test_a_pressed_link_gets_nothing_and_then_everything_in_order() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(5)))
    assert talk.heard[SLOW].payloads == []
    assert len(talk.heard[QUICK].payloads) == 5
    talk.press(SLOW, False)
    assert talk.heard[SLOW].payloads == [b"%d" % n for n in range(5)]


def test_drop_oldest_drops_the_oldest_frames_and_counts_them() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(7)))
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(7, 14)))
    talk.press(SLOW, False)
    assert talk.heard[SLOW].payloads == [b"%d" % n for n in range(4, 14)]
    assert talk.heard[SLOW].dropped == 4
    assert talk.broker.report("overview")["dropped"] == 4
    assert talk.heard[QUICK].dropped == 0


def test_each_links_dropped_bytes_are_its_own_and_each_note_tells_what_is_new() -> None:
    talk = a_talk()
    size = len(talk.an_event(PUBLISHER, "a"))
    for link in (SLOW, QUICK):
        talk.press(link, True)
    talk.publish(PUBLISHER, "a", *[b"x"] * 10)
    talk.unsubscribe(QUICK)
    talk.publish(PUBLISHER, "a", *[b"x"] * 3)  # SLOW loses 3
    talk.subscribe(QUICK, "a")
    talk.publish(PUBLISHER, "a", b"x")  # each loses 1 or 2: QUICK's answers wait in its queue, too
    talk.pass_time(1_100)
    talk.publish(PUBLISHER, "a", b"x")
    talk.pass_time(1_100)  # nothing more is dropped, and the last loss is noted nevertheless
    rows = {row["link"]: row for row in talk.broker.report("links")}
    assert rows[SLOW]["dropped"] == 5
    assert 0 < rows[QUICK]["dropped"] < 5
    for link in (SLOW, QUICK):
        notes = [note for note in talk.notes if isinstance(note, PublicationsDropped) and note.link == link]
        assert len(notes) == {SLOW: 3, QUICK: 2}[link]
        assert {note.why for note in notes} == {"queue_full"}
        assert rows[link]["dropped_bytes"] == size * rows[link]["dropped"] == sum(note.bytes for note in notes)
    both = rows[SLOW]["dropped_bytes"] + rows[QUICK]["dropped_bytes"]
    assert talk.broker.report("overview")["dropped_bytes"] == both


def drops(talk: Talk, link: int) -> list[tuple[int, str]]:
    notes = [note for note in talk.notes if isinstance(note, PublicationsDropped) and note.link == link]
    return [(note.frames, note.why) for note in notes]


def test_a_burst_of_losses_is_in_the_log_in_full_although_nothing_is_dropped_afterwards() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    for number in range(40):
        talk.publish(PUBLISHER, "a", b"%d" % number)
    assert drops(talk, SLOW) == [(1, "queue_full")]
    talk.pass_time(1_100)
    assert drops(talk, SLOW) == [(1, "queue_full"), (29, "queue_full")]
    talk.pass_time(5_000)
    assert len(drops(talk, SLOW)) == 2


def test_what_waited_for_a_link_that_ends_is_counted_with_the_reason() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    for number in range(14):
        talk.publish(PUBLISHER, "a", b"%d" % number)
    talk.leave(SLOW)
    assert drops(talk, SLOW) == [(1, "queue_full"), (3, "queue_full"), (10, "closed")]
    assert talk.broker.report("overview")["dropped"] == 14
    talk.pass_time(5_000)
    assert len(drops(talk, SLOW)) == 3


def test_what_waits_for_a_client_that_says_goodbye_is_no_loss() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(5)))
    talk.say(SLOW, control(Kind.GOODBYE, 0, goodbye(Reason.GOODBYE)))
    talk.leave(SLOW)
    assert drops(talk, SLOW) == []
    assert talk.broker.report("overview")["dropped"] == 0


def test_a_batch_larger_than_the_queue_keeps_its_newest_frames() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(25)))
    talk.press(SLOW, False)
    assert talk.heard[SLOW].payloads == [b"%d" % n for n in range(15, 25)]


def test_disconnect_ends_the_link_rather_than_losing_anything() -> None:
    talk = a_talk("disconnect")
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(11)))
    assert talk.hangups == {SLOW: Reason.SLOW_CONSUMER}
    assert talk.heard[SLOW].goodbye == "slow_consumer"
    assert len(talk.heard[QUICK].payloads) == 11


def welcomes(talk: Talk, link: int) -> list[bool]:
    """For each WELCOME that came to a link, whether it says that the session was too slow."""
    bodies = [json.loads(frame.payload) for frame in talk.heard[link].answers if frame.kind == Kind.WELCOME]
    return [body.get("slow", False) for body in bodies]


def come_again(talk: Talk, link: int) -> None:
    """The session of SLOW on another link."""
    talk.attach(link)
    talk.say(link, talk.hello(SLOW))


def test_a_slow_consumer_is_told_at_every_welcome_until_it_has_answered() -> None:
    """Its GOODBYE is behind what it does not read."""
    talk = a_talk("disconnect")
    assert welcomes(talk, SLOW) == [False]
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(11)))
    come_again(talk, 10)
    assert welcomes(talk, 10) == [True]
    assert talk.heard[10].order[-2:] == ["WELCOME", "PING"]
    talk.leave(10)  # without a sign that it has read that
    talk.leave(SLOW)
    come_again(talk, 11)
    assert welcomes(talk, 11) == [True]
    talk.say(11, control(Kind.PONG))
    talk.leave(11)
    come_again(talk, 12)
    assert welcomes(talk, 12) == [False]


def test_only_the_session_that_was_slow_is_told_however_long_it_stood_still() -> None:
    talk = a_talk("disconnect", origin_horizon_ms=1_000, origins_max=6)
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"%d" % n for n in range(11)))
    talk.leave(SLOW)
    talk.leave(QUICK)
    talk.join(QUICK)
    assert welcomes(talk, QUICK) == [False]
    talk.pass_time(1_100)
    talk.join(20)  # its origin is forgotten now
    talk.pass_time(3_600_000)
    come_again(talk, 10)
    assert welcomes(talk, 10) == [True]
    talk.say(10, control(Kind.PONG))
    talk.leave(10)
    talk.pass_time(1_100)
    talk.join(21)
    come_again(talk, 11)
    assert welcomes(talk, 11) == [False]


def test_no_more_sessions_than_a_limit_are_remembered_as_too_slow() -> None:
    origins = Origins(origins_max=1, horizon_ms=1, gaps_max=1)
    for origin in range(SLOW_MAX + 3):
        origins.use(origin, 0).end_slow()
        origins.rest(origin, 0)
    assert not origins.use(1, 0).slow
    origins.rest(1, 0)
    assert origins.use(3, 0).slow


def test_hold_stops_only_publishers_that_opted_in() -> None:
    talk = a_talk("hold")
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "a", *(b"p%d" % n for n in range(6)))
    assert talk.held == {}
    talk.publish(POLITE, "a", b"q0")
    assert talk.held == {POLITE: True}
    talk.publish(PUBLISHER, "a", *(b"p%d" % n for n in range(6, 12)))
    talk.press(SLOW, False)
    assert talk.held == {POLITE: False}
    assert talk.heard[SLOW].dropped == 3
    assert b"q0" in talk.heard[SLOW].payloads, "what a held publisher sent is never dropped"
    assert talk.heard[SLOW].payloads[-6:] == [b"p%d" % n for n in range(6, 12)]


def test_the_policy_is_carried_by_what_is_queued() -> None:
    talk = a_talk("drop_oldest")
    talk.subscribe(SLOW, "precious", 2, policy="disconnect")
    talk.press(SLOW, True)
    talk.publish(PUBLISHER, "precious", *(b"p%d" % n for n in range(8)))
    talk.publish(PUBLISHER, "a", *(b"a%d" % n for n in range(8)))
    assert talk.hangups == {}
    talk.press(SLOW, False)
    assert talk.heard[SLOW].payloads == [b"p%d" % n for n in range(8)] + [b"a6", b"a7"]


def test_a_held_publisher_is_released_when_the_slow_link_ends() -> None:
    talk = a_talk("hold")
    talk.press(SLOW, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    assert talk.held == {POLITE: True}
    talk.leave(SLOW)
    assert talk.held == {POLITE: False}


def test_a_consumer_that_holds_and_takes_nothing_loses_its_link() -> None:
    talk = a_talk("hold", hold_ms_max=1_000)
    talk.press(SLOW, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    talk.pass_time(1_100)
    assert talk.hangups == {SLOW: Reason.SLOW_CONSUMER}
    assert talk.held == {POLITE: False}
    assert drops(talk, SLOW) == [(6, "slow_consumer")]
    assert talk.broker.report("overview")["dropped"] == 6
    come_again(talk, 10)
    assert welcomes(talk, 10) == [True]


def test_a_consumer_whose_own_read_is_postponed_may_hold_no_longer_than_others() -> None:
    talk = a_talk("hold", hold_ms_max=1_000)
    talk.press(SLOW, True)
    talk.say(SLOW, control(Kind.PONG) * 4 * STEPS_MAX)
    assert talk.held == {SLOW: True}, "its read is postponed"
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    assert talk.held == {SLOW: True, POLITE: True}
    talk.pass_time(1_100)
    assert talk.hangups == {SLOW: Reason.SLOW_CONSUMER}
    assert not talk.held[POLITE]


def test_a_consumer_that_reads_again_does_not_end_the_pause_of_its_own_read() -> None:
    talk = a_talk("hold")
    talk.press(SLOW, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    talk.say(SLOW, control(Kind.PONG) * 4 * STEPS_MAX)
    assert talk.held == {SLOW: True, POLITE: True}
    talk.press(SLOW, False)
    assert talk.held == {SLOW: True, POLITE: False}
    talk.pass_time(0)
    assert talk.held == {SLOW: False, POLITE: False}


def a_talk_with_a_service(**limits: int) -> Talk:
    talk = a_talk("hold", **limits)
    talk.leave(SLOW)
    talk.attach(SERVICE, Peer("pipe", "store"))
    talk.say(SERVICE, talk.hello(SERVICE))
    talk.subscribe(SERVICE, "a", policy="hold")
    return talk


def test_a_service_that_reads_nothing_holds_publishers_and_then_keeps_its_pipe_without_what_waited() -> None:
    talk = a_talk_with_a_service(hold_ms_max=1_000)
    talk.press(SERVICE, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    assert talk.held == {POLITE: True}
    talk.pass_time(1_100)
    assert talk.held == {POLITE: False}
    assert talk.hangups == {}
    assert talk.broker.report("overview")["dropped"] == 6
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6, 12)))
    assert talk.held == {POLITE: False}, "nobody waits for a service that is stuck"
    talk.press(SERVICE, False)
    assert talk.heard[SERVICE].payloads == [b"%d" % n for n in range(6, 12)]
    talk.press(SERVICE, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    assert talk.held == {POLITE: True}, "it has read again"


def test_a_service_never_loses_its_pipe_because_more_waits_than_is_allowed() -> None:
    talk = a_talk_with_a_service(hold_ms_max=1_000_000)
    talk.press(SERVICE, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(20)))
    assert talk.hangups == {}
    assert talk.held == {POLITE: False}
    talk.press(SERVICE, False)
    talk.publish(POLITE, "a", b"new")
    assert talk.heard[SERVICE].payloads == [b"new"]


@pytest.mark.req("O6")
def test_a_service_that_read_nothing_for_long_still_gets_the_answers_to_its_orders() -> None:
    """It waits for each of them: an answer that is dropped would keep its place for ever."""
    talk = a_talk_with_a_service(hold_ms_max=1_000)
    talk.press(SERVICE, True)
    talk.say(SERVICE, service(b"broker", b'{"do":"report","question":"usage"}', 7))
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    talk.pass_time(1_100)
    assert talk.broker.report("overview")["dropped"] == 6
    talk.press(SERVICE, False)
    assert [(frame.kind, frame.sequence) for frame in talk.heard[SERVICE].answers[-1:]] == [(Kind.SERVICE, 7)]
    assert talk.heard[SERVICE].payloads == []


def test_a_held_publisher_does_not_count_as_silent() -> None:
    talk = a_talk("hold", hold_ms_max=1_000_000)
    talk.press(SLOW, True)
    talk.publish(POLITE, "a", *(b"%d" % n for n in range(6)))
    for _ in range(10):
        talk.pass_time(10_000)
        for link in (PUBLISHER, SLOW, QUICK):
            talk.say(link, control(Kind.PONG))
    assert talk.hangups == {}
    assert "PING" in talk.heard[POLITE].order


def test_a_peer_that_asks_and_never_reads_the_answers_loses_its_link() -> None:
    talk = a_talk()
    talk.press(SLOW, True)
    talk.say(SLOW, control(Kind.PING) * 11)
    assert talk.hangups == {SLOW: Reason.SLOW_CONSUMER}


def test_a_long_backlog_is_handed_over_in_portions() -> None:
    talk = a_talk(queue_frames_max=1_000)
    talk.press(SLOW, True)
    for n in range(40):
        talk.publish(PUBLISHER, "a", b"%02d" % n * 25_000)
    talk.press(SLOW, False)
    first = len(talk.heard[SLOW].events)
    assert 0 < first < 40
    talk.publish(PUBLISHER, "a", b"last")
    talk.pass_time(1)
    assert [payload[:2] for payload in talk.heard[SLOW].payloads] == [b"%02d" % n for n in range(40)] + [b"la"]


@examples(100)
@given(st.data())
def test_under_any_press_nothing_is_lost_uncounted_and_order_holds(data: st.DataObject) -> None:
    talk = a_talk(data.draw(st.sampled_from(["drop_oldest", "hold"])), queue_frames_max=data.draw(st.integers(3, 20)))
    sent = 0
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["publish", "press", "release", "wait"]))
        if action == "publish":
            count = data.draw(st.integers(1, 8))
            talk.publish(PUBLISHER, "a", *(b"%d" % (sent + n) for n in range(count)))
            sent += count
        elif action == "wait":
            talk.pass_time(1)
        else:
            talk.press(SLOW, action == "press")
    talk.press(SLOW, False)
    talk.pass_time(1)
    talk.publish(PUBLISHER, "a", b"%d" % sent)
    got = [int(payload) for payload in talk.heard[SLOW].payloads]
    assert got == sorted(got)
    assert len(got) + talk.broker.report("overview")["dropped"] == sent + 1
    assert [int(payload) for payload in talk.heard[QUICK].payloads] == list(range(sent + 1))
