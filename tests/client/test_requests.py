"""Requests that others answer, publications for named sessions, shared and network-wide subscriptions, in bytes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Ask, Close, Flush, Inquire, Publish, Subscribe
from heliograph.errors import ClosedError, NoRespondersError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.wire.frames import Flag, Frame, Kind, control
from tests.client.script import STRANGER, Script, a_delivery, an_event, body_of

pytestmark = pytest.mark.req("N19")


def connected(**settings: Any) -> Script:
    script = Script(**settings)
    script.connect()
    return script


def reply_topic(frame: Frame) -> str:
    return json.loads(frame.headers)["$r"]


def an_answer(topic: str, payload: bytes = b"42", sequence: int = 1) -> bytes:
    return a_delivery([0], [an_event(sequence, topic, payload)])


def asked(script: Script, request: int = 1, payload: bytes = b"?", **more: Any) -> Frame:
    """Make a request; the publication that carries it."""
    script.tell(Inquire(request, "service", payload, **more))
    return script.heard_of(Kind.EVENT)[-1]


# -- requests -------------------------------------------------------------------------------------------------------


def test_the_first_request_subscribes_to_the_sessions_inbox_and_names_a_topic_below_it() -> None:
    script = connected()
    script.tell(Inquire(1, "service", b"?", {"k": 1}, "text/plain"))
    subscribe, request = script.heard()
    assert body_of(subscribe) == {"number": 0, "filter": f"{script.inbox()}/#"}
    headers = json.loads(request.headers)
    assert (request.topic, request.payload, request.flags) == (b"service", b"?", Flag.REQUEST)
    assert (headers["k"], headers["$y"]) == (1, "text/plain")
    assert headers["$r"].startswith(f"{script.inbox()}/")
    script.tell(Inquire(2, "service", b"?"))
    (second,) = script.heard()
    assert reply_topic(second) != headers["$r"]


def test_the_answer_is_the_outcome_and_it_comes_once() -> None:
    script = connected()
    topic = reply_topic(asked(script))
    script.say(an_answer(topic, b"first"))
    script.say(an_answer(topic, b"second", 2))
    publication = script.outcome(1).value
    assert (publication.topic, publication.payload) == (topic, b"first")
    overview = script.overview()
    assert (overview["inquiries"], overview["requests"], overview["subscriptions"]) == (0, 0, 0)


def test_answers_find_their_requests_in_any_order() -> None:
    script = connected()
    topics = [reply_topic(asked(script, request)) for request in (1, 2, 3)]
    events = [an_event(number, topics[request - 1], b"%d" % request) for number, request in enumerate((3, 1, 2))]
    script.say(a_delivery([0], events))
    assert {request: outcome.value.payload for request, outcome in script.outcomes().items()} == {
        1: b"1",
        2: b"2",
        3: b"3",
    }


def test_nobody_there_to_answer_is_told_at_once_and_only_to_who_asked() -> None:
    script = connected()
    first, second = (asked(script, request) for request in (1, 2))
    script.refuse(None, Reason.RESPONDERS_MISSING, subject=reply_topic(first))
    error = script.outcome(1).error
    assert isinstance(error, NoRespondersError)
    assert isinstance(error, RefusedError)
    script.tell(Flush(3))
    (ping,) = script.heard()
    script.pong(ping)
    assert script.outcome(3).error is None
    script.say(an_answer(reply_topic(second)))
    assert script.outcome(2).error is None


def test_a_request_that_the_rules_deny_fails_at_once() -> None:
    script = connected()
    asked(script)
    script.refuse(None, Reason.PUBLISH_DENIED, subject="service")
    error = script.outcome(1).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.PUBLISH_DENIED


@pytest.mark.parametrize(("given", "waited"), [(None, 3_000), (50, 50)])
def test_no_answer_in_time_is_an_error_and_a_late_one_does_no_harm(given: int | None, waited: int) -> None:
    script = connected(request_ms_max=3_000)
    topic = reply_topic(asked(script, ms_max=given))
    script.pass_ms(waited - 1)
    assert script.outcomes() == {}
    script.pass_ms(1)
    error = script.outcome(1).error
    assert isinstance(error, NotConnectedError)
    assert (error.reason, error.detail) == (Reason.TIME_OUT, f"no answer within {waited} ms")
    script.say(an_answer(topic))
    assert script.hangups == []
    assert script.overview()["inquiries"] == 0


def test_a_request_without_a_broker_waits_for_one() -> None:
    script = Script()
    script.tell(Inquire(1, "service", b"?"))
    subscribe, request = script.connect()
    assert (subscribe.kind, request.kind) == (Kind.SUBSCRIBE, Kind.EVENT)
    script.say(an_answer(reply_topic(request)))
    assert script.outcome(1).value.payload == b"42"


def test_a_request_under_way_fails_with_its_link_and_is_not_repeated() -> None:
    script = connected()
    script.tell(Publish("a", b"kept"))
    asked(script)
    script.tell(Publish("a", b"kept too"))
    script.lose()
    error = script.outcome(1).error
    assert isinstance(error, NotConnectedError)
    assert "whether it was done is not known" in error.detail
    again = script.connect()
    assert [frame.payload for frame in again if frame.kind == Kind.EVENT] == [b"kept", b"kept too"]


def test_a_flush_behind_a_request_that_was_withdrawn_still_ends() -> None:
    script = connected()
    asked(script)
    script.lose()
    script.tell(Flush(2))
    ping = script.connect()[-1]
    assert (ping.kind, ping.sequence) == (Kind.PING, 1)
    script.pong(ping)
    assert script.outcomes()[2].error is None
    assert script.overview()["outgoing_bytes"] == 0


def test_after_a_reconnect_the_new_inbox_is_the_one_that_counts() -> None:
    script = connected()
    asked(script)
    script.lose()
    script.outcomes()
    (subscribe,) = script.connect(inbox=script.inbox(2))
    assert body_of(subscribe)["filter"] == f"{script.inbox(2)}/#"
    request = asked(script, 2)
    assert reply_topic(request).startswith(f"{script.inbox(2)}/")
    script.say(an_answer(reply_topic(request)))
    assert script.outcome(2).error is None


def test_a_broker_that_denies_us_our_inbox_fails_the_requests_and_the_next_one_tries_again() -> None:
    script = connected()
    script.tell(Inquire(1, "service", b"?"))
    subscribe, _ = script.heard()
    script.refuse(subscribe, Reason.SUBSCRIBE_DENIED)
    assert script.outcome(1).error.reason is Reason.SUBSCRIBE_DENIED  # type: ignore[union-attr]
    script.tell(Inquire(2, "service", b"?"))
    assert [frame.kind for frame in script.heard()] == [Kind.SUBSCRIBE, Kind.EVENT]


def test_a_broker_without_inboxes_cannot_carry_answers() -> None:
    script = Script()
    script.tell(Inquire(1, "service", b"?"))
    assert script.connect(inbox="") == []
    assert script.outcome(1).error.reason is Reason.FEATURE_UNSUPPORTED  # type: ignore[union-attr]


@pytest.mark.req("O6")
@pytest.mark.parametrize("inbox", ["#", "Inbox/+/1", "Services/x", "Inbox/0/1", 5])
def test_an_impossible_inbox_is_not_believed(inbox: Any) -> None:
    script = Script()
    script.attach()
    script.welcome(inbox=inbox)
    assert len(script.hangups) == 1


@pytest.mark.parametrize(
    "command",
    [
        Inquire(1, "a/+", b""),
        Inquire(1, "a", bytes(2 << 20)),
        Inquire(1, "a", b"", {"$r": "x"}),
        Inquire(1, "a", b"", {"k": object()}),
    ],
)
def test_a_request_that_no_broker_would_take_is_refused_at_once(command: Inquire) -> None:
    for script in (Script(), connected()):
        with pytest.raises(UsageError):
            script.tell(command)
        assert script.overview()["requests"] == 0


def test_requests_end_with_the_session() -> None:
    script = connected()
    asked(script)
    script.tell(Close(2))
    assert isinstance(script.outcomes()[1].error, ClosedError)


@pytest.mark.req("O6")
def test_reply_topics_cannot_be_guessed_from_what_others_see() -> None:
    script = connected()
    levels = [reply_topic(asked(script, request)).rpartition("/")[2] for request in range(1, 20)]
    assert len(set(levels)) == len(levels)
    assert all(len(bytes.fromhex(level)) == 16 for level in levels)
    distances = {int(second, 16) - int(first, 16) for first, second in pairwise(levels)}
    assert len(distances) == len(levels) - 1


said = st.lists(
    st.one_of(
        st.integers(1, 4).map(lambda request: ("answer", request)),
        st.integers(1, 4).map(lambda request: ("missing", request)),
        st.just(("forged", 0)),
        st.just(("directed", 0)),
    ),
    max_size=10,
)


@given(said, st.lists(st.integers(0, 100_000), max_size=20))
def test_any_cut_of_the_stream_gives_the_same_outcomes(said: list[tuple[str, int]], places: list[int]) -> None:
    def outcome_of(cuts: list[int]) -> Any:
        script = connected()
        topics = {request: reply_topic(asked(script, request)) for request in range(1, 5)}
        script.outcomes()
        data = b""
        for sequence, (what, request) in enumerate(said, start=1):
            if what == "missing":
                body = {"reason": "responders_missing", "code": 509, "subject": topics[request]}
                data += control(Kind.REFUSED, 0, json.dumps(body).encode())
            elif what == "directed":
                data += a_delivery([], [an_event(sequence, "note", b"%d" % sequence)])
            else:
                topic = topics[request] if what == "answer" else f"{script.inbox()}/{'0' * 16}"
                data += a_delivery([0], [an_event(sequence, topic, b"%d" % sequence)])
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(edges):
            script.machine.receive(script.link, data[start:end], script.now)
        script.take()
        outcomes = {
            request: (type(one.error), None if one.value is None else one.value.payload)
            for request, one in script.outcomes().items()
        }
        directed = [publication.payload for publication in script.session.directed.take_all()]
        return outcomes, directed, script.hangups, script.overview()

    whole = outcome_of([])
    assert outcome_of(places) == whole
    assert whole[2] == []
    first: dict[int, str] = {}
    for what, request in said:
        if request:
            first.setdefault(request, what)
    assert {request: error is NoRespondersError for request, (error, _) in whole[0].items()} == {
        request: what == "missing" for request, what in first.items()
    }


# -- publications for named sessions ----------------------------------------------------------------------------------


@pytest.mark.req("N5")
def test_a_directed_publication_names_its_destinations() -> None:
    script = connected()
    inboxes = [script.inbox(number) for number in (1, 2)]
    script.tell(Publish("note", b"for you", {"k": 1}, to=inboxes))
    (frame,) = script.heard()
    assert frame.flags == Flag.DIRECTED
    assert json.loads(frame.headers)["$d"] == inboxes
    script.tell(Publish("note", b"soon over", expires_in_ms=5, to=inboxes))
    assert script.heard()[0].flags == Flag.DIRECTED | Flag.EXPIRES


@pytest.mark.parametrize("to", [[], ["a"], ["Inbox/1/2"], [7], "Inbox/x", [f"Inbox/{'0' * 16}/{'0' * 16}"] * 65])
def test_destinations_that_are_no_inboxes_are_refused_at_once(to: Any) -> None:
    script = connected()
    with pytest.raises(UsageError):
        script.tell(Publish("note", b"", to=to))


def test_what_names_this_session_is_kept_apart_and_comes_once() -> None:
    script = connected()
    script.tell(Subscribe(1, "#"))
    script.confirm(script.heard()[0])
    script.say(a_delivery([], [an_event(1, "note", b"1"), an_event(2, "note", b"2")]))
    script.say(a_delivery([], [an_event(2, "note", b"2")]))
    directed = script.session.directed
    assert directed in script.session.collect_news()
    assert [publication.payload for publication in directed.take_all()] == [b"1", b"2"]
    assert len(script.session.inbox(1)) == 0
    assert script.overview()["directed"] == {"received": 2, "waiting": 0, "lost": 0}


def test_unread_directed_publications_are_bounded_dropped_oldest_and_counted() -> None:
    script = connected()
    for first in range(0, 5_000, 100):
        script.say(a_delivery([], [an_event(number, "note", b"%d" % number) for number in range(first, first + 100)]))
    directed = script.session.directed
    assert len(directed) == 4_096
    assert directed.lost == script.overview()["directed"]["lost"] == script.overview()["lost"]["inbox"] == 904
    assert directed.take_all()[0].payload == b"904"
    assert script.held == {}


def test_directed_publications_end_with_the_session() -> None:
    script = connected()
    script.tell(Close(1))
    assert script.session.directed.ended


# -- shared and wide subscriptions ------------------------------------------------------------------------------------


def test_a_group_and_the_wish_for_the_whole_network_go_with_a_subscription() -> None:
    script = connected()
    script.tell(Subscribe(1, "jobs", group="workers", wide=True))
    (frame,) = script.heard()
    assert body_of(frame) == {"number": 1, "filter": "jobs", "group": "workers", "wide": True}
    script.confirm(frame)
    assert script.outcome(1).value == 1
    assert script.machine.report("subscriptions")[0]["group"] == "workers"


def test_after_a_reconnect_the_group_is_joined_again_and_nobody_waits_for_the_whole_network() -> None:
    script = connected()
    script.tell(Subscribe(1, "jobs", group="workers", wide=True))
    script.tell(Subscribe(2, "later", wide=True))
    script.confirm(script.heard()[0])
    script.lose()
    first, second = script.connect()
    assert body_of(first) == {"number": 1, "filter": "jobs", "group": "workers"}
    assert body_of(second) == {"number": 2, "filter": "later", "wide": True}  # somebody still awaits this one


def test_a_wide_subscription_that_is_not_confirmed_in_time_is_an_error() -> None:
    script = connected(request_ms_max=1_000)
    script.tell(Subscribe(1, "x", wide=True))
    script.pass_ms(1_000)
    assert script.outcome(1).error.reason is Reason.TIME_OUT  # type: ignore[union-attr]


def test_a_publication_for_a_plain_and_a_shared_subscription_reaches_both() -> None:
    script = connected()
    for request, group in enumerate(("", "one", "two"), start=1):
        script.tell(Subscribe(request, "jobs", group=group))
    job = an_event(1, "jobs", b"do it")
    for number in (1, 2, 3):  # one delivery for all plain subscriptions, and one for each group that chose us
        script.say(a_delivery([number], [job]))
        script.say(a_delivery([number], [job]))
    assert [len(script.session.inbox(number)) for number in (1, 2, 3)] == [1, 1, 1]
    assert script.overview()["duplicates"] == 3


def test_a_subscription_without_echo_gets_nothing_of_its_own_whoever_delivers_it() -> None:
    script = connected()
    script.tell(Subscribe(1, "a", echo=False))
    script.tell(Subscribe(2, "#"))
    own = an_event(1, "a", b"own", origin=script.session.origin)
    script.say(a_delivery([1, 2], [own, an_event(1, "a", b"other", origin=STRANGER)]))
    assert [publication.payload for publication in script.session.inbox(1).take_all()] == [b"other"]
    assert [publication.payload for publication in script.session.inbox(2).take_all()] == [b"own", b"other"]


@pytest.mark.req("R13")
def test_a_service_that_may_take_longer_is_given_more_than_the_usual_time() -> None:
    script = connected(request_ms_max=3_000)
    script.tell(Ask(1, "resources", {}, more_ms=15_000))
    script.pass_ms(17_999)
    assert script.outcomes() == {}
    script.pass_ms(1)
    error = script.outcome(1).error
    assert isinstance(error, NotConnectedError)
    assert error.detail == "no answer within 18000 ms"
