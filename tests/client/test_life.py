"""The life of a session: dialling, being welcomed, losing links, finding a broker again, and ending."""

from __future__ import annotations

import pytest

from heliograph.client.commands import Ask, Close, Connect, Drain, Flush, Publish, Subscribe, Unsubscribe
from heliograph.client.config import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.errors import ClosedError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.machine import Peer
from heliograph.model.subscription import Policy
from heliograph.notes import DialFailed, SessionRestored
from heliograph.wire.frames import Frame, Kind, control, service
from tests.client.script import HERE, MS, SECRET, THERE, Script, a_delivery, an_event, body_of


def test_a_session_dials_at_once_and_says_hello() -> None:
    script = Script(name="thermometer", hold=True)
    assert script.dial().host == HERE.host
    (hello,) = script.attach()
    assert hello.kind == Kind.HELLO
    body = body_of(hello)
    assert (body["versions"], body["secret"], body["name"], body["hold"]) == ([1], SECRET.hex(), "thermometer", True)
    assert not body.get("token")


def test_who_asked_to_be_connected_hears_of_the_welcome() -> None:
    script = Script()
    script.tell(Connect(1))
    script.connect(entity="me", roles=["client", "admin"])
    assert script.outcome(1).value.entity == "me"
    script.tell(Connect(2))
    assert script.outcome(2).error is None


def test_who_asked_to_be_connected_hears_why_not_when_every_target_was_tried() -> None:
    script = Script(HERE, THERE)
    script.tell(Connect(1, ms_max=0))
    script.refuse_dial()
    assert script.outcomes() == {}
    script.refuse_dial()
    error = script.outcome(1).error
    assert isinstance(error, NotConnectedError)
    assert error.reason is Reason.DIAL_FAILED
    assert "127.0.0.2:4717" in error.detail


def test_within_the_time_that_was_asked_for_the_session_keeps_trying() -> None:
    script = Script()
    script.tell(Connect(1, ms_max=1_000))
    for _ in range(3):
        script.refuse_dial()
    assert script.outcomes() == {}
    script.connect()
    assert script.outcome(1).error is None


def test_pauses_between_dials_grow_with_jitter_up_to_the_maximum() -> None:
    script = Script(retry_ms=100, retry_ms_max=800)
    pauses = []
    for _ in range(6):
        script.refuse_dial()
        before = script.now
        script.dial()
        pauses.append((script.now - before) // MS)
    for pause, longest in zip(pauses, (100, 200, 400, 800, 800, 800), strict=True):
        assert longest // 2 <= pause <= longest
    assert len(set(pauses)) > 3
    assert [note.retry_ms for note in script.notes if isinstance(note, DialFailed)] == pauses


def test_targets_are_tried_in_turn() -> None:
    script = Script(HERE, THERE)
    hosts = []
    for _ in range(4):
        hosts.append(script.dial().host)
        script.refuse_dial()
    assert hosts == [HERE.host, THERE.host, HERE.host, THERE.host]


def test_a_dial_that_takes_too_long_is_given_up_and_its_link_is_not_wanted_later() -> None:
    script = Script(HERE, THERE, dial_ms_max=1_000)
    script.dial()
    late = script.dials.pop()[0]
    assert script.dial().host == THERE.host
    script.machine.attach(9, Peer("tcp", "127.0.0.1:4717", ticket=late), script.now)
    script.take()
    assert script.hangups == [(9, Reason.TIME_OUT)]
    script.machine.detach(9, Reason.TIME_OUT, script.now)
    script.connect()
    assert script.overview()["state"] == "connected"


def test_a_broker_that_does_not_welcome_in_time_is_left() -> None:
    script = Script(dial_ms_max=1_000)
    script.attach()
    script.pass_ms(1_000)
    assert script.hangups == [(1, Reason.TIME_OUT)]
    script.lose(Reason.TIME_OUT)
    script.connect()


def test_a_session_gives_up_when_it_was_told_to() -> None:
    script = Script(give_up_ms=500, retry_ms=1, retry_ms_max=1)
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.lose()
    script.refuse_dial()
    script.pass_ms(400)
    assert not script.stopped
    script.pass_ms(100)
    assert script.stopped
    assert isinstance(script.outcome(1).error, NotConnectedError)


def test_what_was_asked_before_there_was_a_link_is_asked_when_there_is_one() -> None:
    script = Script()
    script.tell(Subscribe(1, "a/#"))
    script.tell(Publish("a/b", b"early"))
    script.tell(Ask(2, "admin", {"do": "report"}))
    kinds = [frame.kind for frame in script.connect()]
    assert sorted(kinds) == [Kind.EVENT, Kind.SERVICE, Kind.SUBSCRIBE]
    assert kinds.index(Kind.SUBSCRIBE) < kinds.index(Kind.EVENT)


@pytest.mark.req("N8")
def test_after_a_lost_link_everything_is_subscribed_again_under_the_same_numbers() -> None:
    script = Script()
    script.connect()
    for request, pattern in enumerate(("a/#", "b/+"), start=1):
        script.tell(Subscribe(request, pattern, echo=False))
    for frame in script.heard_of(Kind.SUBSCRIBE):
        script.confirm(frame)
    assert [outcome.value for outcome in script.outcomes().values()] == [1, 2]
    script.lose()
    again = script.connect()
    assert [body_of(frame) for frame in again] == [
        {"number": 1, "filter": "a/#", "echo": False},
        {"number": 2, "filter": "b/+", "echo": False},
    ]
    assert not any(isinstance(note, SessionRestored) for note in script.notes)
    for frame in again:
        script.confirm(frame)
    assert SessionRestored(str(HERE), 2, 0) in script.notes
    assert script.overview()["links"] == 2


def test_a_subscription_that_is_refused_after_a_reconnect_ends_with_that_error() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.confirm(script.heard()[0])
    inbox = script.session.inbox(1)
    script.lose()
    (again,) = script.connect()
    script.say_json(Kind.REFUSED, again.sequence, {"reason": "subscribe_denied", "code": 206, "text": "rules changed"})
    assert inbox.ended
    assert isinstance(inbox.error, RefusedError)
    assert script.overview()["subscriptions"] == 0


def test_a_refused_subscription_is_told_to_who_asked() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "System/#"))
    (frame,) = script.heard()
    script.say_json(Kind.REFUSED, frame.sequence, {"reason": "subscribe_denied", "code": 206, "text": "no"})
    error = script.outcome(1).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.SUBSCRIBE_DENIED


def test_a_request_without_an_answer_ends_in_time() -> None:
    script = Script(request_ms_max=3_000)
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.tell(Ask(2, "admin", {}))
    script.tell(Publish("a", b"x"))
    script.tell(Flush(3))
    script.heard()
    script.pass_ms(3_000)
    outcomes = script.outcomes()
    assert [outcomes[request].error.reason for request in (1, 2, 3)] == [Reason.TIME_OUT] * 3  # type: ignore[union-attr]
    assert [frame.kind for frame in script.heard()] == [Kind.UNSUBSCRIBE]  # nobody will read it


def test_an_answer_that_comes_after_its_time_does_no_harm() -> None:
    script = Script(request_ms_max=3_000)
    script.connect()
    script.tell(Subscribe(1, "a"))
    (asked,) = script.heard()
    script.pass_ms(3_000)
    (unasked,) = script.heard()
    script.confirm(asked)
    script.confirm(unasked)
    assert script.hangups == []
    assert script.overview()["subscriptions"] == 0


def test_unsubscribing_is_confirmed_and_what_came_before_can_be_read() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.confirm(script.heard()[0])
    inbox = script.session.inbox(1)
    script.tell(Unsubscribe(2, 1))
    (frame,) = script.heard()
    assert body_of(frame) == {"number": 1}
    script.say(a_delivery([1], [an_event(1)]))
    script.confirm(frame)
    assert script.outcomes()[2].error is None
    assert inbox.ended
    assert len(inbox.take_all()) == 1
    script.say(a_delivery([1], [an_event(2)]))  # the number means nothing any more
    assert len(inbox) == 0
    script.tell(Unsubscribe(3, 1))
    assert isinstance(script.outcome(3).error, RefusedError)


def test_a_service_answers_or_refuses() -> None:
    script = Script()
    script.connect()
    script.tell(Ask(1, "admin", {"do": "report"}))
    script.tell(Ask(2, "nobody", {}))
    first, second = script.heard()
    assert (first.topic, body_of(first)) == (b"admin", {"do": "report"})
    script.say(service(b"admin", b'{"links": 3}', first.sequence, flags=1))
    script.say(service(b"nobody", b'{"reason": "service_unknown", "code": 500}', second.sequence, flags=3))
    outcomes = script.outcomes()
    assert outcomes[1].value == {"links": 3}
    assert outcomes[2].error.reason is Reason.SERVICE_UNKNOWN  # type: ignore[union-attr]


def test_a_request_to_a_service_is_not_repeated_on_another_link() -> None:
    script = Script()
    script.connect()
    script.tell(Ask(1, "admin", {"do": "drain"}))
    script.heard()
    script.lose()
    assert isinstance(script.outcome(1).error, NotConnectedError)
    assert script.connect() == []


def test_a_ping_is_answered_with_its_number() -> None:
    script = Script()
    script.connect()
    script.say(control(Kind.PING, 41))
    (pong,) = script.heard()
    assert (pong.kind, pong.sequence) == (Kind.PONG, 41)


def test_a_quiet_broker_is_asked_and_a_silent_one_is_left() -> None:
    script = Script()
    script.connect(keep_alive_ms=1_000)
    script.pass_ms(1_000)
    (ping,) = script.heard()
    assert ping.kind == Kind.PING
    script.pong(ping)
    script.pass_ms(2_999)
    assert script.hangups == []
    script.pass_ms(1)
    assert script.hangups == [(1, Reason.SILENT)]
    assert body_of(script.heard()[-1])["reason"] == "silent"


@pytest.mark.parametrize(
    "reason",
    [
        Reason.CREDENTIAL_WRONG,
        Reason.CREDENTIAL_MISSING,
        Reason.ROLE_MISSING,
        Reason.VERSION_UNSUPPORTED,
        Reason.CERTIFICATE_EXPIRED,
        Reason.FRAME_OVER_LIMIT,
        Reason.TAKEN_OVER,
    ],
)
def test_a_refusal_that_would_repeat_itself_ends_the_session(reason: Reason) -> None:
    script = Script(HERE, THERE)
    script.tell(Connect(1))
    script.tell(Subscribe(2, "a"))
    inbox = script.session.inbox(1)
    script.attach()
    script.goodbye(reason)
    outcomes = script.outcomes()
    for request in (1, 2):
        error = outcomes[request].error
        assert isinstance(error, RefusedError)
        assert error.reason is reason
        assert error.detail == "because"
    assert inbox.error is error
    assert script.stopped
    script.lose(Reason.CLOSED)
    assert script.wake_at is None
    assert script.dials == []


@pytest.mark.parametrize("reason", [Reason.STOPPING, Reason.DRAINING, Reason.SLOW_CONSUMER, Reason.LINKS_OVER_LIMIT])
def test_after_any_other_goodbye_the_session_looks_for_a_broker_again(reason: Reason) -> None:
    script = Script(HERE, THERE)
    script.connect()
    script.goodbye(reason)
    script.lose(reason)
    assert script.dial().host == THERE.host
    script.connect()


STRICT = pytest.mark.parametrize("policy", [Policy.DISCONNECT, Policy.HOLD])


@STRICT
def test_who_asked_not_to_lose_anything_hears_that_it_was_too_slow(policy: Policy) -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "strict", policy))
    script.tell(Subscribe(2, "easy"))
    strict, easy = script.session.inbox(1), script.session.inbox(2)
    script.heard()
    script.goodbye(Reason.SLOW_CONSUMER)
    script.lose()
    assert strict.ended
    assert isinstance(strict.error, RefusedError)
    assert not easy.ended
    assert [body_of(frame)["filter"] for frame in script.connect()] == ["easy"]


def a_strict_session(*targets: Target, policy: Policy = Policy.DISCONNECT) -> Script:
    """With a subscription that must not lose anything and one that may, both in force."""
    script = Script(*targets)
    script.connect()
    script.tell(Subscribe(1, "strict", policy))
    script.tell(Subscribe(2, "easy"))
    confirm_all(script, script.heard())
    return script


def confirm_all(script: Script, frames: list[Frame]) -> None:
    for frame in frames:
        script.confirm(frame)


@pytest.mark.req("N15")
@STRICT
def test_who_was_too_slow_hears_of_it_at_the_next_welcome_of_the_same_broker(policy: Policy) -> None:
    """The GOODBYE was lost, behind what the client had not read."""
    script = a_strict_session(HERE, THERE, policy=policy)
    strict, easy = script.session.inbox(1), script.session.inbox(2)
    script.lose(Reason.RESET)
    assert script.dial().host == HERE.host, "only this broker knows why the link ended"
    asked = script.connect(slow=True)
    assert isinstance(strict.error, RefusedError)
    assert strict.error.reason is Reason.SLOW_CONSUMER
    assert not easy.ended
    assert [body_of(frame)["filter"] for frame in asked] == ["easy"]


@pytest.mark.req("N15")
def test_a_subscription_made_after_the_loss_does_not_end_with_those_that_were_too_slow() -> None:
    script = a_strict_session()
    script.goodbye(Reason.SLOW_CONSUMER)
    script.lose(Reason.RESET)
    script.tell(Subscribe(3, "again", Policy.DISCONNECT))
    again = script.session.inbox(3)
    asked = script.connect(slow=True)
    assert not again.ended
    assert [body_of(frame)["filter"] for frame in asked] == ["easy", "again"]


@pytest.mark.req("N15")
def test_after_another_failure_a_strict_subscription_goes_on() -> None:
    """At the same broker, or at the next one if that broker is gone."""
    script = a_strict_session(HERE, THERE)
    strict = script.session.inbox(1)
    script.lose(Reason.RESET)
    confirm_all(script, script.connect())
    assert not strict.ended
    script.lose(Reason.RESET)
    script.refuse_dial(Reason.DIAL_FAILED)
    assert script.dial().host == THERE.host
    script.connect(broker="there", slow=True)  # of another link, long ago
    assert not strict.ended


@pytest.mark.req("N15")
def test_without_a_strict_subscription_or_after_a_goodbye_the_next_broker_is_dialled() -> None:
    script = Script(HERE, THERE)
    script.connect()
    script.tell(Subscribe(1, "easy"))
    confirm_all(script, script.heard())
    script.lose(Reason.RESET)
    assert script.dial().host == THERE.host
    script = a_strict_session(HERE, THERE)
    script.goodbye(Reason.STOPPING)
    script.lose()
    assert script.dial().host == THERE.host


@pytest.mark.parametrize("reason", [Reason.CERTIFICATE_UNTRUSTED, Reason.CERTIFICATE_EXPIRED, Reason.TLS_FAILED])
def test_a_bad_certificate_ends_the_session_once_every_target_was_tried(reason: Reason) -> None:
    script = Script(HERE, THERE)
    script.tell(Connect(1))
    script.refuse_dial(reason)
    assert not script.stopped
    script.refuse_dial(reason)
    assert script.stopped
    assert script.outcome(1).error.reason is reason  # type: ignore[union-attr]


def test_a_broker_that_drains_is_left_when_it_has_confirmed_what_it_has() -> None:
    script = Script(HERE, THERE)
    script.connect()
    script.tell(Publish("a", b"1"))
    script.heard()
    script.goodbye(Reason.DRAINING, grace_ms=10_000)
    script.tell(Publish("a", b"2"))  # for the next broker
    (ping,) = script.heard()
    assert ping.kind == Kind.PING
    assert script.hangups == []
    script.pong(ping)
    assert script.hangups == [(1, Reason.GOODBYE)]
    assert script.heard_of(Kind.GOODBYE) != []
    script.lose(Reason.GOODBYE)
    assert script.dial().host == THERE.host
    assert [frame.payload for frame in script.connect()] == [b"2"]


def test_a_broker_that_drains_is_left_in_time_even_if_it_confirms_nothing() -> None:
    script = Script(HERE, THERE)
    script.connect()
    script.tell(Publish("a", b"1"))
    script.goodbye(Reason.DRAINING, grace_ms=4_000)
    script.pass_ms(2_000)
    assert script.hangups == [(1, Reason.GOODBYE)]


def test_closing_says_goodbye_and_fails_what_waits() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.tell(Flush(2))
    script.session.publisher.publish("a", b"last words", script.now)
    script.tell(Close(3))
    heard = script.heard()
    assert [frame.kind for frame in heard[-2:]] == [Kind.EVENT, Kind.GOODBYE]
    outcomes = script.outcomes()
    assert isinstance(outcomes[1].error, ClosedError)
    assert outcomes[3].error is None
    assert script.hangups == [(1, Reason.GOODBYE)]
    assert script.stopped
    assert script.wake_at is None


def test_after_the_end_requests_are_refused_and_closing_again_is_no_mistake() -> None:
    script = Script()
    script.connect()
    script.tell(Close(1))
    script.tell(Close(2))
    script.tell(Flush(3))
    script.tell(Subscribe(4, "a"))
    outcomes = script.outcomes()
    assert outcomes[2].error is None
    assert isinstance(outcomes[3].error, ClosedError)
    assert isinstance(outcomes[4].error, ClosedError)
    with pytest.raises(UsageError):
        script.tell(Publish("a", b""))


def test_draining_reads_what_is_on_its_way_flushes_and_closes() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.confirm(script.heard()[0])
    inbox = script.session.inbox(1)
    script.tell(Publish("b", b"x"))
    script.tell(Drain(2))
    event, unsubscribe, ping = script.heard()
    assert (event.kind, unsubscribe.kind, ping.kind) == (Kind.EVENT, Kind.UNSUBSCRIBE, Kind.PING)
    with pytest.raises(UsageError):
        script.tell(Publish("b", b"too late"))
    script.say(a_delivery([1], [an_event(1)]))
    script.confirm(unsubscribe)
    assert not script.stopped
    script.pong(ping)
    assert script.outcomes()[2].error is None
    assert script.stopped
    assert len(inbox) == 1


def test_draining_survives_a_lost_link() -> None:
    script = Script()
    script.connect()
    script.tell(Subscribe(1, "a"))
    script.tell(Publish("b", b"x"))
    script.tell(Drain(2))
    script.lose()
    again = script.connect()
    assert [frame.kind for frame in again] == [Kind.EVENT, Kind.PING]
    script.pong(again[1])
    assert script.outcomes()[2].error is None
    assert script.stopped


def test_draining_ends_in_time_and_says_that_something_is_missing() -> None:
    script = Script(request_ms_max=1_000)
    script.connect()
    script.tell(Publish("b", b"x"))
    script.tell(Drain(1))
    script.pass_ms(1_000)
    assert script.outcome(1).error.reason is Reason.TIME_OUT  # type: ignore[union-attr]
    assert script.stopped


@pytest.mark.req("O6")
def test_a_name_that_leads_elsewhere_does_not_get_the_token() -> None:
    target = Target(host="localhost", port=4717)
    session = Session(ClientConfig(targets=(target,), entity="me", token="hunter2"), secret=SECRET, seed=0)
    session.wake(1)
    ((ticket, _),) = session.take().dials
    session.attach(1, Peer("tcp", "192.0.2.1:4717", ticket=ticket), 2)
    effects = session.take()
    assert list(effects.writes) == []
    assert effects.hangups == [(1, Reason.CREDENTIAL_MISSING)]
    assert effects.stop


def test_an_unknown_command_or_question_is_the_callers_mistake() -> None:
    script = Script()
    with pytest.raises(UsageError):
        script.tell(object())
    with pytest.raises(UsageError):
        script.machine.report("weather")
    assert script.machine.report("subscriptions") == []


def test_requests_are_bounded() -> None:
    script = Script(requests_max=2)
    script.connect()
    script.tell(Publish("a", b"x"))
    script.tell(Flush(1))
    script.tell(Flush(2))
    with pytest.raises(UsageError, match="more than 2 requests"):
        script.tell(Flush(3))


def test_many_subscriptions_are_asked_for_in_slices() -> None:
    script = Script()
    script.connect()
    for request in range(1, 2_502):
        script.machine.tell(Subscribe(request, f"t/{request}"), script.now)
    script.take()
    script.heard()
    script.lose()
    first = script.connect()
    assert len(first) == 1_000
    script.pass_ms(0)
    assert len(first) + len(script.heard()) == 2_501


def test_a_session_secret_that_was_used_elsewhere_ends_the_session_before_anything_is_lost() -> None:
    script = Script()
    script.tell(Publish("a", b"1"))
    script.attach()
    script.welcome(seen=5)
    assert script.stopped
    assert isinstance(script.session.error, RefusedError)
