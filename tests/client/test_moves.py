"""A planned move, step by step: what a session says on both links, whom it trusts, and what it does when it fails."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Ask, Close, Drain, Flush, Inquire, Publish, Subscribe
from heliograph.client.config import Target, parse_target
from heliograph.client.deliveries import KEPT_BYTES_MAX
from heliograph.client.roaming import successors
from heliograph.errors import NotConnectedError, Reason
from heliograph.machine import Peer
from heliograph.notes import DialFailed, SessionRestored, SessionRoamed
from heliograph.wire.frames import Frame, Kind, control, service
from tests.client.script import HERE, THERE, Script, a_delivery, an_event, body_of

pytestmark = pytest.mark.req("N8")

OLD, NEW = 1, 2  # links
GRACE_MS = 8_000
OTHERS = (str(THERE), "heliograph://127.0.0.3:4717")


def a_subscriber(*filters: str, group: str = "", **settings: Any) -> Script:
    """Connected, with one subscription per filter in force, numbered from 1."""
    script = Script(**settings)
    script.connect()
    for pattern in filters:
        script.tell(Subscribe(script.number(), pattern, group=group))
    for frame in script.heard():
        script.confirm(frame)
    script.outcomes()
    return script


def warned(script: Script, others: tuple[str, ...] = OTHERS) -> Script:
    """The broker asks to leave, and the session dials the first of the others."""
    script.goodbye(Reason.DRAINING, GRACE_MS, others)
    return script


def welcomed(script: Script, **more: Any) -> Script:
    """The next broker takes the session."""
    script.attach()
    script.welcome(inbox=script.inbox(2), broker="next", **more)
    return script


def the_mark(script: Script, link: int) -> Frame:
    """The last that was asked on this link: a subscription of no use but its answer."""
    mark = script.heard_of(Kind.SUBSCRIBE, link)[-1]
    broker = 1 if link == OLD else 2
    assert body_of(mark)["filter"] == f"{script.inbox(broker)}/mark"
    assert body_of(mark)["wide"] is True
    return mark


def looked(script: Script) -> list[Frame]:
    """Up to the mark at the next broker; what it was asked for, the mark last."""
    script.confirm(the_mark(script, OLD), OLD)
    return script.heard_of(Kind.SUBSCRIBE, NEW)


def moving(script: Script) -> Frame:
    """Up to the last mark, at the present broker."""
    for frame in looked(welcomed(warned(script))):
        script.confirm(frame, NEW)
    return the_mark(script, OLD)


def payloads(script: Script, number: int = 1) -> list[bytes]:
    return [publication.payload for publication in script.session.inbox(number).take_all()]


def test_everything_is_asked_for_at_the_next_broker_and_nothing_changes_before_everybody_knows() -> None:
    script = warned(a_subscriber("a", "b"))
    assert script.dial().host == THERE.host
    (hello,) = script.attach()
    assert body_of(hello)["secret"] == body_of(hello)["secret"]
    script.welcome(inbox=script.inbox(2), broker="next")
    first, second, mark = looked(script)
    assert [body_of(frame)["filter"] for frame in (first, second)] == ["a", "b"]
    assert [body_of(frame)["number"] for frame in (first, second)] == [1, 2]
    assert script.overview()["roaming"] is True
    script.tell(Publish("x", b"still here"))
    assert [frame.payload for frame in script.heard_of(Kind.EVENT, OLD)] == [b"still here"]
    for frame in (first, second):
        script.confirm(frame, NEW)
    script.tell(Publish("x", b"and here"))
    assert [frame.payload for frame in script.heard_of(Kind.EVENT, OLD)] == [b"and here"]
    script.confirm(mark, NEW)
    assert script.overview()["broker"] == "broker"


def test_publications_wait_for_the_last_mark_and_then_go_to_the_next_broker() -> None:
    script = a_subscriber("a")
    script.tell(Publish("x", b"1"))
    for frame in looked(welcomed(warned(script))):
        script.confirm(frame, NEW)
    *_, ping, mark = script.heard(OLD)
    assert (ping.kind, ping.sequence) == (Kind.PING, 1)
    script.tell(Publish("x", b"2"))
    script.tell(Flush(9))
    script.pong(ping, OLD)
    assert script.heard(OLD) == []
    assert script.heard_of(Kind.EVENT, NEW) == []
    script.confirm(mark, OLD)
    event, flush = [frame for frame in script.heard(NEW) if frame.kind in (Kind.EVENT, Kind.PING)]
    assert (event.payload, flush.kind) == (b"2", Kind.PING)
    assert [frame.kind for frame in script.heard(OLD)] == [Kind.GOODBYE]
    assert script.hangups == [(OLD, Reason.GOODBYE)]
    script.pong(flush, NEW)
    assert script.outcome(9).error is None
    assert script.notes[-1] == SessionRoamed(str(HERE), str(THERE))
    overview = script.overview()
    assert (overview["broker"], overview["roaming"], overview["roamed"]) == ("next", False, 1)
    script.lose(Reason.GOODBYE, OLD)
    assert script.dials == []
    assert script.overview()["state"] == "connected"


def test_what_the_next_broker_delivers_early_is_read_behind_what_the_present_one_has() -> None:
    script = a_subscriber("a")
    welcomed(warned(script))
    asked = looked(script)
    script.say(a_delivery([1], [an_event(number, payload=b"%d" % number) for number in (3, 4)]), NEW)
    for frame in asked:
        script.confirm(frame, NEW)
    assert script.held == {NEW: True}
    script.say(a_delivery([1], [an_event(number, payload=b"%d" % number) for number in (1, 2, 3)]), OLD)
    assert payloads(script) == [b"1", b"2", b"3"]
    script.confirm(the_mark(script, OLD), OLD)
    assert script.held == {NEW: False}
    assert payloads(script) == [b"4"]
    script.say(a_delivery([1], [an_event(5, payload=b"5")]), NEW)
    assert payloads(script) == [b"5"]
    assert script.overview()["duplicates"] == 1


def test_groups_are_left_at_the_present_broker_before_the_last_mark() -> None:
    script = a_subscriber("jobs", group="workers")
    for frame in looked(welcomed(warned(script))):
        script.confirm(frame, NEW)
    kinds = [frame.kind for frame in script.heard(OLD)]
    assert kinds[-3:] == [Kind.UNSUBSCRIBE, Kind.PING, Kind.SUBSCRIBE]


def test_who_subscribes_to_nothing_moves_with_one_mark() -> None:
    script = warned(a_subscriber())
    welcomed(script)
    assert script.heard(NEW) == []
    script.confirm(the_mark(script, OLD), OLD)
    assert script.overview()["roamed"] == 1


def test_subscriptions_made_during_the_move_are_in_force_at_its_end() -> None:
    script = welcomed(warned(a_subscriber("a")))
    script.tell(Subscribe(7, "early"))
    asked = looked(script)
    assert [body_of(frame)["filter"] for frame in asked[:-1]] == ["a", "early"]
    script.tell(Subscribe(8, "late"))
    for frame in asked:
        script.confirm(frame, NEW)
    assert script.outcomes() == {}
    script.confirm(the_mark(script, OLD), OLD)
    assert script.outcome(7).value == 2
    late = script.heard_of(Kind.SUBSCRIBE, NEW)[-1]
    assert body_of(late)["filter"] == "late"
    script.confirm(late, NEW)
    assert script.outcome(8).value == 3


def test_after_the_move_the_old_link_brings_answers_only() -> None:
    """Else what it brings first, for the subscriptions it knows, would be lost for those made since."""
    script = a_subscriber("a", request_ms_max=60_000)
    script.tell(Inquire(7, "service", b"?"))
    script.confirm(moving(script), OLD)
    script.tell(Subscribe(8, "#"))
    script.say(a_delivery([1], [an_event(1)]), OLD)
    script.say(a_delivery([1, 2], [an_event(1)]), NEW)
    assert [len(script.session.inbox(number)) for number in (1, 2)] == [1, 1]


def test_a_subscription_that_nobody_had_confirmed_is_in_force_when_the_next_broker_has_it() -> None:
    script = a_subscriber("a")
    script.tell(Subscribe(7, "b", wide=True))
    script.heard()
    mark = moving(script)
    assert script.outcomes() == {}
    script.confirm(mark, OLD)
    assert script.outcome(7).value == 2


@pytest.mark.req("N19")
def test_the_old_link_stays_while_answers_are_due_there() -> None:
    script = a_subscriber("a")
    script.tell(Inquire(7, "service", b"?"))
    script.tell(Ask(8, "admin", {"do": "report"}))
    _, request, ask = script.heard()
    reply_to = json.loads(request.headers)["$r"]
    script.confirm(moving(script), OLD)
    assert script.overview()["roamed"] == 1
    assert script.hangups == []
    script.say(service(b"admin", b"{}", ask.sequence, flags=1), OLD)
    assert script.outcome(8).error is None
    assert script.hangups == []
    script.say(a_delivery([0], [an_event(1, reply_to, b"!")]), OLD)
    assert script.outcome(7).value.payload == b"!"
    assert script.hangups == [(OLD, Reason.GOODBYE)]


@pytest.mark.req("N19")
def test_answers_that_never_come_do_not_keep_the_old_link_beyond_its_time() -> None:
    script = a_subscriber("a", request_ms_max=60_000)
    script.tell(Inquire(7, "service", b"?"))
    script.confirm(moving(script), OLD)
    script.pass_ms(GRACE_MS)
    assert script.hangups == [(OLD, Reason.GOODBYE)]
    script.lose(Reason.GOODBYE, OLD)
    assert isinstance(script.outcome(7).error, NotConnectedError)


@pytest.mark.req("N19")
def test_a_request_made_between_the_brokers_is_answered_at_the_next_one() -> None:
    script = a_subscriber("a")
    mark = moving(script)
    script.tell(Inquire(7, "service", b"?"))
    assert script.heard(OLD) == []
    script.confirm(mark, OLD)
    frames = script.heard(NEW)
    assert [frame.kind for frame in frames[-2:]] == [Kind.SUBSCRIBE, Kind.EVENT]
    assert body_of(frames[-2])["filter"] == f"{script.inbox(2)}/#"
    assert script.inbox(2).encode() in frames[-1].headers


# -- when it does not go well -----------------------------------------------------------------------------------------


def fail_dial(script: Script) -> None:
    script.refuse_dial()


def fail_handshake(script: Script) -> None:
    script.attach()
    script.goodbye(Reason.CREDENTIAL_WRONG)
    script.lose(Reason.CLOSED)


def fail_by_silence(script: Script) -> None:
    script.attach()
    script.lose(Reason.RESET)


def fail_by_refusal(script: Script) -> None:
    welcomed(script)
    script.refuse(looked(script)[0], Reason.SUBSCRIBE_DENIED, NEW)
    script.lose(Reason.GOODBYE)


def fail_by_draining(script: Script) -> None:
    welcomed(script)
    script.goodbye(Reason.DRAINING, GRACE_MS)
    script.lose(Reason.GOODBYE)


def fail_by_bad_bytes(script: Script) -> None:
    welcomed(script)
    script.say(b"\0" * 28, NEW)
    script.lose(Reason.FRAME_TOO_SHORT)


def fail_by_too_much(script: Script) -> None:
    welcomed(script)
    looked(script)
    for number in range(KEPT_BYTES_MAX // (1 << 20) + 1):
        script.say(a_delivery([1], [an_event(number, payload=bytes(1 << 20))]), NEW)
    script.lose(Reason.GOODBYE)


def fail_while_moving(script: Script) -> None:
    for frame in looked(welcomed(script)):
        script.confirm(frame, NEW)
    script.lose(Reason.RESET, NEW)


FAILURES = [
    fail_dial,
    fail_handshake,
    fail_by_silence,
    fail_by_refusal,
    fail_by_draining,
    fail_by_bad_bytes,
    fail_by_too_much,
    fail_while_moving,
]


@pytest.mark.parametrize("fail", FAILURES)
def test_if_the_next_broker_fails_the_one_after_it_is_tried(fail: Any) -> None:
    script = warned(a_subscriber("a", group="g"))
    fail(script)
    assert script.dial().host == "127.0.0.3"
    assert [note.address for note in script.notes if isinstance(note, DialFailed)] == [str(THERE)]
    script.tell(Publish("x", b"goes on"))
    assert [frame.payload for frame in script.heard_of(Kind.EVENT, OLD)] == [b"goes on"]
    assert (script.overview()["state"], script.overview()["roaming"]) == ("connected", True)


def test_after_a_broker_was_lost_while_moving_the_groups_are_joined_again_at_the_present_one() -> None:
    script = warned(a_subscriber("jobs", group="workers"))
    fail_while_moving(script)
    left, joined = [frame for frame in script.heard(OLD) if body_of_or_none(frame).get("number") == 1]
    assert (left.kind, joined.kind) == (Kind.UNSUBSCRIBE, Kind.SUBSCRIBE)
    assert body_of(joined)["group"] == "workers"


def body_of_or_none(frame: Frame) -> dict[str, Any]:
    return body_of(frame) if frame.payload else {}


def test_if_none_of_them_works_the_session_leaves_and_reconnects_as_after_any_goodbye() -> None:
    script = warned(a_subscriber("a"))
    script.refuse_dial()
    script.refuse_dial()
    assert script.hangups == [(OLD, Reason.GOODBYE)]
    script.lose(Reason.GOODBYE)
    hosts = []
    for _ in range(3):
        hosts.append(script.dial().host)
        script.refuse_dial()
    assert sorted(hosts) == [HERE.host, THERE.host, "127.0.0.3"]
    assert [body_of(frame)["filter"] for frame in script.connect()] == ["a"]


def test_if_nobody_is_named_the_session_leaves_at_once() -> None:
    script = warned(a_subscriber("a"), others=())
    assert script.dials == []
    assert script.hangups == [(OLD, Reason.GOODBYE)]


def test_a_move_that_takes_too_long_is_given_up_in_time_to_leave_as_usual() -> None:
    script = welcomed(warned(a_subscriber("a")))
    script.pass_ms(GRACE_MS // 2)
    assert script.hangups[0] == (NEW, Reason.GOODBYE)
    assert script.overview()["roaming"] is False
    script.lose(Reason.GOODBYE, NEW)
    script.pass_ms(GRACE_MS // 2)
    assert (OLD, Reason.GOODBYE) in script.hangups


def test_if_the_present_broker_says_nothing_more_the_move_is_completed_in_time() -> None:
    script = a_subscriber("a")
    script.tell(Publish("x", b"1"))
    moving(script)
    script.heard(NEW)
    script.pass_ms(GRACE_MS)
    assert script.hangups[0] == (OLD, Reason.GOODBYE)
    assert script.overview()["roamed"] == 1
    assert [frame.payload for frame in script.heard_of(Kind.EVENT, NEW)] == [b"1"]  # nobody had confirmed it


def test_if_the_present_link_breaks_the_next_one_takes_over_at_once() -> None:
    script = a_subscriber("a", "b")
    script.tell(Publish("x", b"1"))
    welcomed(warned(script))
    first, second, _ = looked(script)
    script.confirm(first, NEW)
    script.say(a_delivery([1], [an_event(1, payload=b"early")]), NEW)
    script.lose(Reason.RESET, OLD)
    assert payloads(script) == [b"early"]
    assert [frame.payload for frame in script.heard_of(Kind.EVENT, NEW)] == [b"1"]
    assert not any(isinstance(note, SessionRestored | SessionRoamed) for note in script.notes)
    script.confirm(second, NEW)
    assert script.notes[-1] == SessionRestored(str(THERE), 2, 1)
    assert script.dials == []


def test_if_the_present_link_breaks_before_the_next_one_is_there_the_named_brokers_are_tried_too() -> None:
    script = warned(a_subscriber("a"))
    script.lose(Reason.RESET)
    late = script.dials.pop()[0]
    script.machine.attach(9, Peer("tcp", "127.0.0.2:4717", ticket=late), script.now)
    script.take()
    assert script.hangups == [(9, Reason.TIME_OUT)]
    assert script.dial().host == THERE.host
    assert [body_of(frame)["filter"] for frame in script.connect()] == ["a"]


def test_a_broker_that_was_only_named_cannot_end_the_session() -> None:
    script = warned(a_subscriber("a"))
    script.lose(Reason.RESET)
    script.dials.clear()
    script.attach()
    script.goodbye(Reason.CREDENTIAL_WRONG)
    script.lose(Reason.CLOSED)
    assert not script.stopped
    script.connect()


@pytest.mark.parametrize("end", [Close(9), Drain(9)])
def test_a_session_can_end_in_the_middle_of_a_move(end: Any) -> None:
    script = welcomed(warned(a_subscriber("a")))
    looked(script)
    script.tell(end)
    for link in (OLD, NEW):
        for frame in script.heard_of(Kind.UNSUBSCRIBE, link):
            script.confirm(frame, link)
    if isinstance(end, Drain):
        assert script.stopped
    assert sorted(script.hangups) == [(OLD, Reason.GOODBYE), (NEW, Reason.GOODBYE)]
    assert script.outcomes()[9].error is None
    assert script.wake_at is None


def test_a_session_that_drains_does_not_move() -> None:
    script = a_subscriber("a")
    script.tell(Publish("x", b"1"))
    script.tell(Drain(9))
    warned(script)
    assert script.dials == []


def test_a_second_goodbye_does_not_begin_a_second_move() -> None:
    script = welcomed(warned(a_subscriber("a")))
    script.say_json(
        Kind.GOODBYE, 0, {"reason": "draining", "code": 403, "grace_ms": 5_000, "others": list(OTHERS)}, OLD
    )
    assert script.dials == []
    assert script.hangups == []


# -- whom to trust ----------------------------------------------------------------------------------------------------

PLAIN, LOCAL, SECURE = "heliograph://10.0.0.1:4717", "heliograph://127.0.0.1:4717", "heliographs://10.0.0.1:4717"
NAMED = [
    "heliograph://10.0.0.2:4717",
    "heliograph://127.0.0.2:4717",
    "heliographs://10.0.0.2:4717",
    "heliographs://localhost:4717",
    "heliograph://0.0.0.0:4717",
    "http://10.0.0.2",
    "not an address",
]


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("present", "has_token", "taken"),
    [
        (PLAIN, False, [NAMED[0], NAMED[2]]),
        (LOCAL, False, [NAMED[1], NAMED[2], NAMED[3]]),
        (LOCAL, True, [NAMED[1], NAMED[2], NAMED[3]]),
        (SECURE, False, [NAMED[2]]),
        (SECURE, True, [NAMED[2]]),
        ("heliographs://localhost:4717", True, [NAMED[2]]),
    ],
)
def test_a_broker_cannot_talk_a_session_into_a_weaker_link(present: str, has_token: bool, taken: list[str]) -> None:
    found = successors(parse_target(present), NAMED, has_token)
    assert [str(target) for target in found] == [name for name in taken if name != present]


def test_the_name_that_is_expected_in_certificates_stays_the_same() -> None:
    present = Target(host="10.0.0.1", port=4717, secure=True, server_name="brokers.example")
    assert successors(present, [NAMED[2]], False)[0].server_name == "brokers.example"


@pytest.mark.req("O6")
def test_a_name_that_leads_elsewhere_does_not_get_the_token() -> None:
    script = a_subscriber("a", entity="me", token="hunter2")
    warned(script, ("heliograph://localhost:4717", str(THERE)))
    script.dial()
    ticket = script.dials.pop()[0]
    script.machine.attach(7, Peer("tcp", "192.0.2.1:4717", ticket=ticket), script.now)
    script.link = 7
    script.take()
    assert script.hangups == [(7, Reason.CREDENTIAL_MISSING)]
    assert script.heard(7) == []
    assert script.dial().host == THERE.host


# -- any bytes --------------------------------------------------------------------------------------------------------

events = st.lists(st.integers(1, 30), max_size=8)
steps = st.lists(st.tuples(st.sampled_from([OLD, NEW]), events), max_size=10)


@given(steps, st.integers(1, 200))
def test_any_cut_of_both_streams_gives_the_same_result(steps: list[tuple[int, list[int]]], piece: int) -> None:
    def result_of(size: int | None) -> Any:
        script = a_subscriber("a")
        welcomed(warned(script))
        streams = {OLD: b"", NEW: b""}
        asked = looked(script)
        streams[NEW] += b"".join(control(Kind.CONFIRMED, frame.sequence) for frame in asked[:-1])
        for link, numbers in steps:
            streams[link] += a_delivery([1], [an_event(number, payload=b"%d" % number) for number in numbers])
        streams[NEW] += control(Kind.CONFIRMED, asked[-1].sequence)
        for link in (OLD, NEW):
            data = streams[link]
            edges = [*range(0, len(data), size or len(data) or 1), len(data)]
            for start, end in pairwise(edges):
                script.machine.receive(link, data[start:end], script.now)
        script.take()
        script.confirm(the_mark(script, OLD), OLD)
        return payloads(script), script.hangups, script.overview()

    whole = result_of(None)
    assert result_of(piece) == whole
    assert len(set(whole[0])) == len(whole[0])


@pytest.mark.req("O6")
@given(st.binary(max_size=200), st.sampled_from(list(Kind)), st.binary(max_size=60), st.integers(0, 9), st.booleans())
def test_no_bytes_of_either_broker_raise(tail: bytes, kind: Kind, body: bytes, number: int, late: bool) -> None:
    script = a_subscriber("a")
    if late:
        moving(script)
    else:
        welcomed(warned(script))
    for link in (NEW, OLD):
        script.say(control(kind, number, body) + tail, link)
    for link, reason in list(script.hangups):
        script.lose(reason, link)
    script.pass_ms(GRACE_MS)


# Advice of a broker that is overloaded.


def advised(script: Script, others: tuple[str, ...] = OTHERS) -> Script:
    script.goodbye(Reason.OVERLOADED, GRACE_MS, others)
    return script


def test_a_session_says_that_it_can_move_and_at_the_next_broker_why_it_came() -> None:
    script = Script()
    (hello,) = script.attach()
    assert "move" in body_of(hello)["features"]
    assert not body_of(hello).get("moved")
    script.welcome()
    advised(script)
    (hello,) = script.attach()
    assert body_of(hello)["moved"] is True


def test_a_session_that_a_draining_broker_sends_away_does_not_say_so() -> None:
    script = warned(a_subscriber("a"))
    (hello,) = script.attach()
    assert not body_of(hello).get("moved"), "it has to go somewhere, however busy the next broker is"


def test_an_advised_session_moves_as_it_would_from_a_draining_broker() -> None:
    script = welcomed(advised(a_subscriber("a")))
    script.confirm(the_mark(script, OLD), OLD)
    for frame in script.heard_of(Kind.SUBSCRIBE, NEW):
        script.confirm(frame, NEW)
    script.confirm(the_mark(script, OLD), OLD)
    assert script.session.report("overview")["roamed"] == 1
    assert any(isinstance(note, SessionRoamed) for note in script.notes)


def test_if_no_other_broker_takes_it_an_advised_session_stays_and_is_none_the_worse() -> None:
    script = advised(a_subscriber("a"))
    for link in (2, 3):
        script.attach()
        script.goodbye(Reason.OVERLOADED)
        script.lose(Reason.CLOSED, link)
    assert script.dials == []
    report = script.session.report("overview")
    assert (report["state"], report["roaming"], report["roamed"]) == ("connected", False, 0)
    assert OLD not in [link for link, _ in script.hangups]
    script.tell(Publish("t", b"x"))
    assert [frame.payload for frame in script.heard(OLD) if frame.kind == Kind.EVENT] == [b"x"]


def test_a_broker_that_advises_without_end_does_not_keep_a_session_on_the_move() -> None:
    script = a_subscriber()
    welcomed(advised(script))
    script.confirm(the_mark(script, OLD), OLD)
    assert script.session.report("overview")["roamed"] == 1
    for _ in range(5):
        advised(script, (str(HERE),))
        script.pass_ms(10_000)
        for ping in script.heard_of(Kind.PING, NEW):
            script.pong(ping, NEW)
    assert script.dials == []
    assert script.session.report("overview")["roamed"] == 1


def test_advice_on_a_link_that_has_not_been_taken_into_use_changes_nothing() -> None:
    script = welcomed(advised(a_subscriber("a")))
    before = script.session.report("overview")
    advised(script)
    assert script.session.report("overview") == before
    assert script.dials == []


@pytest.mark.parametrize("others", [(), ("nonsense",), (str(HERE),), ("heliograph://192.0.2.1:4717",)])
def test_advice_that_names_nobody_to_whom_it_would_go_leaves_a_session_where_it_is(others: tuple[str, ...]) -> None:
    script = advised(a_subscriber("a"), others)
    assert script.dials == []
    assert not script.session.report("overview")["roaming"]


def test_a_session_that_moves_on_advice_leaves_for_good_when_its_broker_drains_meanwhile() -> None:
    script = advised(a_subscriber("a"))
    script.say_json(
        Kind.GOODBYE, 0, {"reason": "draining", "code": 403, "grace_ms": 5_000, "others": list(OTHERS)}, OLD
    )
    (hello,) = script.attach()
    assert not body_of(hello).get("moved")
