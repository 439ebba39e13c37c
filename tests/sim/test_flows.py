"""Flows: a publication is recorded when its machine writes it, and again when the far machine has all of its frame."""

from __future__ import annotations

from typing import Any

from heliograph.sim.flows import MARK, Flow
from heliograph.sim.journal import Journal
from heliograph.sim.loop import Loop
from heliograph.wire.frames import Kind, control, delivery, event, parcel

BOTH = frozenset(("carried", "reached"))


class Stream:
    """A journal and the flow of one stream, from broker a to b."""

    def __init__(self, tells: frozenset[str] = BOTH, *, is_between_brokers: bool = True) -> None:
        self.journal = Journal(Loop())
        path = ("a", "b", 3, 7)
        self.flow = Flow(self.journal, ("p", "q"), path, is_between_brokers=is_between_brokers, tells=tells)

    def told(self) -> list[tuple[Any, ...]]:
        entries = [(kind, who, *details) for _, _, kind, who, details in self.journal.entries]
        self.journal.entries.clear()
        return entries


def publication(client: int, number: int) -> bytes:
    return event(b"x", MARK.pack(client, 2, number) + b"more", 9, number)


def in_parcel(*frames: bytes) -> bytes:
    data = b"".join(frames)
    return parcel(len(data), 64, 1, 1, 1) + data


def test_publications_reach_the_far_machine_with_the_last_byte_of_their_frame() -> None:
    stream = Stream()
    data = control(Kind.PING) + in_parcel(publication(0, 1), publication(1, 1)) + in_parcel(publication(0, 2))
    last = len(in_parcel(publication(0, 2)))

    stream.flow.write(data)
    assert stream.told() == [
        ("carried", "a", "b", "p", 1),
        ("carried", "a", "b", "q", 1),
        ("carried", "a", "b", "p", 2),
    ]
    stream.flow.hand_over(len(data) - last - 1)
    assert stream.told() == []
    stream.flow.hand_over(1)
    assert stream.told() == [("reached", "b", "a", 3, 7, "p", 2, 1), ("reached", "b", "a", 3, 7, "q", 2, 1)]
    stream.flow.hand_over(last)
    assert stream.told() == [("reached", "b", "a", 3, 7, "p", 2, 2)]


def test_a_delivery_is_not_carried_between_brokers() -> None:
    stream = Stream(is_between_brokers=False)
    frame = publication(0, 1)
    data = delivery(b"\1\0\0\0", len(frame), 0) + frame
    stream.flow.write(data)
    stream.flow.hand_over(len(data))
    assert stream.told() == [("reached", "b", "a", 3, 7, "p", 2, 1)]


def test_what_a_client_publishes_reaches_its_broker() -> None:
    stream = Stream(is_between_brokers=False)
    data = publication(1, 1)
    stream.flow.write(data)
    stream.flow.hand_over(len(data))
    assert stream.told() == [("reached", "b", "a", 3, 7, "q", 2, 1)]


def test_what_no_program_published_is_not_recorded() -> None:
    stream = Stream()
    stream.flow.write(in_parcel(event(b"x", b"short", 9, 1), event(b"x", MARK.pack(2, 1, 1), 9, 2)))
    stream.flow.hand_over(1_000)
    assert stream.told() == []


def test_only_what_is_asked_for_is_told() -> None:
    stream = Stream(frozenset(("reached",)))
    data = in_parcel(publication(0, 1))
    stream.flow.write(data)
    stream.flow.hand_over(len(data))
    assert [entry[0] for entry in stream.told()] == ["reached"]
