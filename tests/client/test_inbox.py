"""Inboxes: bounded, and what happens when nobody reads is what was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Flush, Publish, Subscribe, Taken, Unsubscribe
from heliograph.client.inbox import OBJECT_BYTES, Inbox
from heliograph.errors import Reason, UsageError
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.notes import PublicationsLost
from heliograph.wire.frames import Kind
from tests.client.script import Script, a_delivery, an_event, body_of


def a_publication(number: int, size: int = 1) -> Publication:
    return Publication("a", bytes(size), 1, number, b"")


def a_reader(policy: Policy, frames_max: int = 4) -> Script:
    script = Script()
    script.connect(keep_alive_ms=1_000)
    script.tell(Subscribe(script.number(), "a", policy, inbox_frames_max=frames_max))
    script.confirm(script.heard()[0])
    script.outcomes()
    return script


def deliver(script: Script, first: int, count: int) -> None:
    script.say(a_delivery([1], [an_event(number) for number in range(first, first + count)]))


@given(
    st.lists(st.one_of(st.integers(1, 9), st.just("take"), st.just("some"), st.just("all")), max_size=40),
    st.integers(1, 6),
    st.integers(300, 3_000),
)
def test_an_inbox_that_drops_keeps_the_newest_within_its_bounds(steps: list, frames_max: int, bytes_max: int) -> None:
    inbox = Inbox(1, Policy.DROP_OLDEST, frames_max, bytes_max)
    put, taken, number = [], [], 0
    for step in steps:
        if step == "take":
            publication = inbox.take()
            taken += [] if publication is None else [publication]
        elif step == "some":
            taken += inbox.take_some(2)
        elif step == "all":
            taken += inbox.take_all()
        else:
            number += 1
            put.append(a_publication(number, step * 10))
            inbox.put(put[-1:])
        assert len(inbox) <= frames_max
        assert inbox.bytes <= bytes_max
        assert (inbox.bytes > 0) == (len(inbox) > 0)
        assert not inbox.pressing
    rest = inbox.take_all()
    assert inbox.bytes == 0
    numbers = [publication.sequence for publication in taken + rest]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + inbox.lost == inbox.received == len(put)
    if rest:
        assert rest[-1] is put[-1]


@pytest.mark.req("N15")
def test_an_unread_subscription_drops_its_oldest_and_says_so() -> None:
    script = a_reader(Policy.DROP_OLDEST)
    deliver(script, 1, 6)
    script.pass_ms(0)
    assert [publication.sequence for publication in script.session.inbox(1).take_all()] == [3, 4, 5, 6]
    assert script.held == {}
    assert PublicationsLost(2, "inbox") in script.notes
    assert script.overview()["lost"]["inbox"] == 2
    assert script.machine.report("subscriptions")[0]["lost"] == 2


@pytest.mark.req("N15")
@pytest.mark.parametrize("policy", [Policy.HOLD, Policy.DISCONNECT])
def test_an_unread_subscription_that_must_lose_nothing_holds_its_link(policy: Policy) -> None:
    script = a_reader(policy)
    deliver(script, 1, 6)
    assert script.held == {1: True}
    inbox = script.session.inbox(1)
    for _ in range(3):
        inbox.take()
        script.tell(Taken(1))
    assert script.held == {1: True}
    inbox.take()
    script.tell(Taken(1))
    assert script.held == {1: False}
    assert [publication.sequence for publication in inbox.take_all()] == [5, 6]
    assert script.overview()["lost"]["inbox"] == 0


def test_a_held_link_is_not_silent_and_keeps_telling_that_we_live() -> None:
    script = a_reader(Policy.HOLD)
    deliver(script, 1, 6)
    script.pass_ms(10_000)
    assert script.hangups == []
    assert len(script.heard_of(Kind.PING)) >= 9
    script.session.inbox(1).take_all()
    script.tell(Taken(1))
    assert script.held == {1: False}
    script.pass_ms(3_000)
    assert script.hangups == [(1, Reason.SILENT)]


def test_an_answer_behind_deliveries_is_still_reached_while_an_inbox_is_full() -> None:
    """Else a program that reads, publishes and flushes in one loop would wait for itself."""
    script = a_reader(Policy.HOLD)
    deliver(script, 1, 6)
    assert script.held == {1: True}
    script.tell(Publish("b", b"x"))
    script.tell(Flush(9))
    assert script.held == {1: False}
    deliver(script, 7, 2)
    assert script.held == {1: False}
    script.pong(script.heard_of(Kind.PING)[-1])
    assert script.outcome(9).error is None
    assert script.held == {1: True}


def test_even_then_an_inbox_is_bounded() -> None:
    script = a_reader(Policy.HOLD)
    script.tell(Publish("b", b"x"))
    script.tell(Flush(9))
    deliver(script, 1, 8)
    assert not script.held.get(1)
    deliver(script, 9, 1)
    assert script.held == {1: True}


def test_a_full_inbox_holds_the_next_link_too() -> None:
    script = a_reader(Policy.HOLD)
    deliver(script, 1, 6)
    script.lose()
    (again,) = script.connect()
    script.confirm(again)
    assert script.held == {1: True, 2: True}


def test_a_subscription_that_ends_lets_go_of_its_link() -> None:
    script = a_reader(Policy.HOLD)
    deliver(script, 1, 6)
    script.tell(Unsubscribe(5, 1))
    assert script.held == {1: False}
    (frame,) = script.heard()
    assert body_of(frame) == {"number": 1}
    deliver(script, 7, 5)
    assert script.held == {1: False}


@pytest.mark.parametrize(
    "command",
    [
        Subscribe(1, ""),
        Subscribe(1, "a//b"),
        Subscribe(1, "a/#/b"),
        Subscribe(1, "\ud800"),
        Subscribe(1, b"a"),  # type: ignore[arg-type]
        Subscribe(1, "a", "hold "),  # type: ignore[arg-type]
        Subscribe(1, "a", inbox_frames_max=0),
        Subscribe(1, "a", inbox_bytes_max=0),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused_at_once(command: Subscribe) -> None:
    script = Script()
    with pytest.raises(UsageError):
        script.tell(command)
    assert script.overview()["subscriptions"] == 0
    with pytest.raises(UsageError):
        script.session.inbox(1)


@pytest.mark.req("N15")
def test_what_was_read_in_portions_leaves_room_for_more() -> None:
    inbox, size = Inbox(1, Policy.HOLD, 100, 10_000), a_publication(0, 100).size
    for first in range(0, 400, 20):
        inbox.put([a_publication(number, 100) for number in range(first, first + 20)])
        assert [one.sequence for one in inbox.take_some(15)] == list(range(first, first + 15))
        assert inbox.bytes == 5 * (OBJECT_BYTES + size)
        assert [one.sequence for one in inbox.take_some(15)] == list(range(first + 15, first + 20))
    assert (inbox.bytes, inbox.pressing) == (0, False)
