"""Readers of stores, in bytes: what a session makes of a store's answers, whatever comes in one read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from heliograph.client.commands import Acknowledge, EndReading, PublishReliably, ReadStores, TakenStored
from heliograph.client.stored.pending import GAPS_MAX
from heliograph.errors import Reason, RefusedError
from heliograph.notes import AcknowledgementsLost
from heliograph.wire import bodies, stores
from heliograph.wire.bodies import refusal
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.client.script import Script, an_event, body_of

pytestmark = pytest.mark.req("N10")

STORE = 0xC0FFEE
NAME = f"{STORE:016x}"
OTHER = f"{STORE + 1:016x}"
REFUSED = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
ADVERTISED = {"store": NAME, "name": "s", "patterns": ["#"], "inbox": "", "ttl_ms": 10_000}


def an_answer(asked: Frame, body: dict[str, Any]) -> bytes:
    return service(stores.STORES, json.dumps(body).encode(), asked.sequence, flags=ServiceFlag.ANSWER)


def a_refusal(asked: Frame, reason: Reason) -> bytes:
    flags = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
    return service(stores.STORES, bodies.refusal(reason), asked.sequence, flags=flags)


def a_refusal_of(reason: Reason) -> Callable[[Frame], bytes]:
    return lambda asked: a_refusal(asked, reason)


def asked_of(script: Script, do: str) -> Frame:
    (asked,) = [frame for frame in script.heard_of(Kind.SERVICE) if body_of(frame)["do"] == do]
    return asked


@pytest.mark.parametrize("early", [False, True])
def test_a_replay_that_opens_and_ends_in_one_read_is_there_with_what_it_brought(early: bool) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", ends={NAME: 1}))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    channel, inbox = body_of(opening)["channel"], script.inbox().encode()
    opened = an_answer(opening, {"channel": channel, "position": 0, "first": 0, "next": 1})
    run = stores.stored(inbox, STORE, 0, an_event(1), stores.span(channel, 0, 1, [0]))
    end = stores.stored(inbox, STORE, 0, stores.encode(stores.Notice(channel, 1)), flags=stores.StoredFlag.NOTICE)
    script.say(run + opened + end if early else opened + run + end)
    number = script.outcome(1).value
    taken = script.session.inbox(number)
    assert len(taken) == 1
    assert taken.ended


def in_store(script: Script, do: str, store: str) -> Frame:
    heard = [frame for frame in script.heard_of(Kind.SERVICE) if "store" in body_of(frame)]
    (asked,) = [frame for frame in heard if (body_of(frame)["do"], body_of(frame)["store"]) == (do, store)]
    return asked


def a_listing(next: int) -> dict[str, Any]:
    return {"logs": [{"log": "main", "first": 0, "next": next, "bytes": 0}]}


def test_a_replay_opens_no_store_before_it_knows_where_to_end() -> None:
    """No store is known at first; one answers late where its log ends; the end stays when it is opened again."""
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a"))
    script.say(an_answer(asked_of(script, "find"), {"stores": []}))
    script.pass_ms(300)
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    listing = in_store(script, "logs", NAME)
    script.say(service(stores.STORES, refusal(Reason.TIME_OUT), listing.sequence, flags=REFUSED))
    script.pass_ms(300)
    script.say(an_answer(in_store(script, "logs", NAME), a_listing(7)))
    opening = in_store(script, "open", NAME)
    assert body_of(opening)["end"] == 7
    script.say(service(stores.STORES, refusal(Reason.TIME_OUT), opening.sequence, flags=REFUSED))
    script.pass_ms(300)
    assert body_of(in_store(script, "open", NAME))["end"] == 7


def test_a_replay_with_an_end_for_one_store_ends_in_another_too() -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", ends={NAME: 3}))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED, {**ADVERTISED, "store": OTHER}]}))
    heard = [body_of(frame) for frame in script.heard_of(Kind.SERVICE)]
    assert [(one["do"], one["store"], one.get("end")) for one in heard] == [("open", NAME, 3), ("logs", OTHER, None)]


@pytest.mark.parametrize("how", [{"follow": True}, {"until_us": 5}, {"name": "n", "secret": b"s" * 32}])
def test_what_follows_or_ends_at_a_time_is_opened_at_once(how: dict[str, Any]) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", **how))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    assert "end" not in body_of(asked_of(script, "open"))


def test_a_publisher_is_told_that_its_store_has_less_than_it_acknowledged() -> None:
    script = Script()
    script.connect()
    script.tell(PublishReliably("a", [b"x", b"y"], request=1))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    script.say(an_answer(asked_of(script, "attach"), {"have": 0}))
    script.heard()
    script.say(stores.stored(script.inbox().encode(), STORE, 2, b"", flags=stores.StoredFlag.ACK))
    assert script.outcome(1).value == (STORE, 1, 2)
    for have, told in ((2, []), (1, [Reason.STORE_RESET])):
        script.lose()
        services = [frame for frame in script.connect() if frame.kind == Kind.SERVICE]
        (asked,) = [frame for frame in services if body_of(frame)["do"] == "attach"]
        script.say(an_answer(asked, {"have": have}))
        assert [refused.reason for refused in script.session.collect_refusals()] == told


@pytest.mark.parametrize("early", [False, True])
def test_runs_tell_when_their_publications_were_stored(early: bool) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", positions={NAME: 0}, since_us=5, ends={NAME: 2}, raw=True, times=True))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    asked = body_of(opening)
    assert (asked["times"], asked["position"], asked["since_us"]) == (True, 0, 5)
    channel, inbox = asked["channel"], script.inbox().encode()
    opened = an_answer(opening, {"channel": channel, "position": 0, "first": 0, "next": 2})
    times = stores.encode(stores.Notice(channel, 1, taken=[(0, 7)]))
    told = stores.stored(inbox, STORE, 0, times, flags=stores.StoredFlag.NOTICE)
    first = stores.stored(inbox, STORE, 0, an_event(1), stores.span(channel, 0, 1, [0]))
    second = stores.stored(inbox, STORE, 0, an_event(2), stores.span(channel, 1, 2, [0]))
    script.say(told + first + second + opened if early else opened + told + first + second)
    runs = script.session.inbox(script.outcome(1).value).take_all()
    assert [([*run.positions], [*run.taken]) for run in runs] == [([0], [(0, 7)]), ([1], [])]


LATE = {
    "no answer": a_refusal_of(Reason.TIME_OUT),
    "unknown": a_refusal_of(Reason.STORE_UNKNOWN),
    "opened": lambda asked: an_answer(
        asked, {"channel": body_of(asked)["channel"], "position": 0, "first": 0, "next": 0}
    ),
}


def asked_for(script: Script) -> list[tuple[str, int | None]]:
    """What the session asked of stores since the last time: what to do, and with which channel."""
    heard = [body_of(frame) for frame in script.heard_of(Kind.SERVICE)]
    return [(body["do"], body.get("channel")) for body in heard]


@pytest.mark.parametrize("late", LATE)
def test_a_subscription_that_failed_goes_on_nowhere_whatever_comes_late(late: str) -> None:
    """The program was told that it failed, so the name is free for others: the store closes what it opens yet."""
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", name="n", secret=bytes(32)))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    channel = body_of(opening)["channel"]
    script.pass_ms(10_000)
    assert script.outcome(1).error.reason is Reason.TIME_OUT
    assert ("close", channel) in asked_for(script)
    script.say(LATE[late](opening))
    script.pass_ms(12_000)
    assert asked_for(script) == ([("close", channel)] if late == "opened" else [])
    assert script.session.report("stores")["readers"] == []


def test_an_opening_that_was_not_answered_in_time_is_closed_when_the_subscription_fails() -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", name="n", secret=bytes(32)))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    script.say(a_refusal(opening, Reason.TIME_OUT))
    script.tell(EndReading(2, -2))
    assert asked_for(script) == [("close", body_of(opening)["channel"])]


@pytest.mark.parametrize("durable", [{}, {"name": "n", "secret": bytes(32)}])
def test_a_reader_that_has_ended_closes_its_channel_and_asks_for_nothing_more(durable: dict[str, Any]) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", **(durable or {"follow": True})))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    channel = body_of(opening)["channel"]
    script.say(an_answer(opening, {"channel": channel, "position": 0, "first": 0, "next": 0}))
    script.tell(EndReading(2, script.outcome(1).value))
    assert asked_for(script) == [("close", channel)]
    script.pass_ms(12_000)
    assert asked_for(script) == []


class ByHand:
    """A durable subscription that acknowledges by hand, and its store, which the test plays."""

    def __init__(self, window: int = 4_096) -> None:
        self.script = Script()
        self.script.connect()
        self.script.tell(ReadStores(1, "a", name="n", start="first", window=window, manual=True, secret=bytes(32)))
        self.script.say(an_answer(asked_of(self.script, "find"), {"stores": [ADVERTISED]}))
        opening = asked_of(self.script, "open")
        self.channel = body_of(opening)["channel"]
        self.script.say(an_answer(opening, {"channel": self.channel, "position": 0, "first": 0, "next": 0}))
        self.number = self.script.outcome(1).value
        self.acks: list[Frame] = []
        self.windows: list[int] = []

    def deliver(self, before: int, after: int, offsets: list[int]) -> None:
        """A frame with publications at these offsets; the filter passed over the others. The program takes them."""
        events = b"".join(an_event(before + offset + 1) for offset in offsets)
        covered = stores.span(self.channel, before, after, offsets)
        self.script.say(stores.stored(self.script.inbox().encode(), STORE, 0, events, covered))
        if offsets:
            self.script.session.inbox(self.number).take_all()
            self.script.tell(TakenStored(self.number))

    def acknowledge(self, *positions: int) -> None:
        for position in positions:
            self.script.tell(Acknowledge(self.number, NAME, position))

    def listen(self) -> None:
        """Sort what the client asked since the last time."""
        for frame in self.script.heard_of(Kind.SERVICE):
            body = body_of(frame)
            if body["do"] == "ack":
                self.acks.append(frame)
            elif body["do"] == "credit":
                self.windows.append(body["window"])

    def settle(self) -> tuple[int, list[list[int]]]:
        """Answer acknowledgements until no more come; what the last one said."""
        self.listen()
        said = (0, [])
        while self.acks:
            ack = self.acks.pop(0)
            said = body_of(ack)["before"], body_of(ack).get("also", [])
            self.script.say(an_answer(ack, {"before": said[0]}))
            self.listen()
        return said


def test_what_the_filter_passed_over_is_done_when_all_around_it_is_acknowledged() -> None:
    reader = ByHand()
    reader.deliver(0, 8, [1, 3, 6])
    reader.deliver(8, 20, [])
    reader.acknowledge(6, 3)
    assert reader.settle() == (1, [[2, 7]])
    reader.acknowledge(1)
    assert reader.settle() == (20, [])


def test_what_comes_where_nothing_matches_is_done_without_being_acknowledged() -> None:
    reader = ByHand()
    reader.deliver(0, 50, [])
    reader.script.pass_ms(1_500)
    assert reader.settle() == (50, [])


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_acknowledged_one_by_one_among_others_leaves_nothing_behind(order: int) -> None:
    """As many as a store keeps spans, and more."""
    reader, count = ByHand(), 5 * stores.SELECTED_MAX
    for before in range(0, count, 4):
        reader.deliver(before, before + 4, [2])
    reader.acknowledge(*range(2, count, 4)[::order])
    assert reader.settle() == (count, [])
    reader.script.tell(EndReading(2, reader.number))
    assert reader.script.outcome(2).error is None


def test_with_too_many_gaps_no_more_is_asked_for_until_some_are_closed() -> None:
    reader, at = ByHand(), 0
    reader.listen()
    while reader.windows[-1:] != [2] and at < 2 * stores.SELECTED_MAX:
        reader.deliver(at, at + 2, [0, 1])
        reader.acknowledge(at + 1)
        at += 2
        reader.listen()
    assert at == 2 * GAPS_MAX
    (told,) = reader.script.machine.report("stores")["readers"]
    assert told["stores"][NAME]["gaps"] == GAPS_MAX
    assert reader.windows[:2] == [2 * GAPS_MAX, 2 * GAPS_MAX - 2]
    reader.windows.clear()
    reader.deliver(at, at + 1, [0])
    reader.acknowledge(at)
    reader.script.pass_ms(5_000)
    reader.listen()
    assert reader.windows == []
    assert len(reader.settle()[1]) == GAPS_MAX
    reader.acknowledge(*range(0, 200, 2))
    reader.listen()
    assert reader.windows == [2, 4, 8, 16, 32, 64, 128]  # not one for each
    before, spans = reader.settle()
    assert (before, len(spans)) == (200, GAPS_MAX - 100)


def test_a_program_that_took_too_much_and_ends_with_too_many_gaps_is_told_what_will_come_again() -> None:
    reader, count = ByHand(), 4 * stores.SELECTED_MAX
    reader.deliver(0, count, [*range(count)])
    reader.acknowledge(*range(1, count, 2))
    before, spans = reader.settle()
    assert (before, len(spans)) == (0, stores.SELECTED_MAX)
    reader.script.tell(EndReading(2, reader.number))
    error = reader.script.outcome(2).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.SPANS_OVER_LIMIT
    assert f"{stores.SELECTED_MAX} acknowledged publications will be delivered again" in str(error)
    assert AcknowledgementsLost(NAME, "n", stores.SELECTED_MAX) in reader.script.notes


def test_a_store_that_keeps_spans_of_an_earlier_program_is_told_at_least_what_has_no_gap_before_it() -> None:
    reader = ByHand()
    reader.deliver(0, 6, [*range(6)])
    reader.acknowledge(0, 3)
    reader.listen()
    (first,) = reader.acks
    reader.acks.clear()
    assert body_of(first)["before"] == 1
    reader.script.say(an_answer(first, {"before": 1}))
    reader.listen()
    (second,) = reader.acks
    reader.acks.clear()
    assert body_of(second)["also"] == [[3, 4]]
    reader.script.say(a_refusal(second, Reason.SPANS_OVER_LIMIT))
    assert reader.settle() == (1, [])
    reader.acknowledge(5)
    assert reader.settle() == (1, [[3, 4], [5, 6]])
    reader.acknowledge(1, 2, 4)
    assert reader.settle() == (6, [])


@pytest.mark.parametrize("refused_first", [False, True])
def test_a_name_that_one_store_has_for_another_filter_is_not_left_behind_at_the_others(refused_first: bool) -> None:
    """It would stand in the way when the program comes with the first filter again."""
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", name="n", secret=b"s" * 32))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED, {**ADVERTISED, "store": OTHER}]}))
    asked = {body_of(frame)["store"]: frame for frame in script.heard_of(Kind.SERVICE)}
    channel = body_of(asked[OTHER])["channel"]
    said = [
        a_refusal(asked[NAME], Reason.NAME_DIFFERS),
        an_answer(asked[OTHER], {"channel": channel, "position": 4, "first": 0, "next": 4, "created": True}),
    ]
    for answer in said if refused_first else said[::-1]:
        script.say(answer)
    error = script.outcome(1).error
    assert isinstance(error, RefusedError)
    assert error.reason is Reason.NAME_DIFFERS
    heard = [body_of(frame) for frame in script.heard_of(Kind.SERVICE)]
    assert [(one["store"], one["name"]) for one in heard if one["do"] == "drop"] == [(OTHER, "n")]
