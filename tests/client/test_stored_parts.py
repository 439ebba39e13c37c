"""Chains and readings of a session, against stores that are too simple to be wrong."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.client.stored import pending
from heliograph.client.stored.chain import ChainRun, OutgoingChain, position_behind
from heliograph.client.stored.inbox import ReaderInbox
from heliograph.client.stored.pending import PendingPublications, sorted_out, tellable
from heliograph.client.stored.reading import Came, FrameReader, LogReading
from heliograph.client.writer import QualityLink, Writer
from heliograph.errors import ProtocolError
from heliograph.model.publication import StoredPublication
from heliograph.wire.frames import Flag, Frame, event
from heliograph.wire.stores import SELECTED_MAX, StoreAdvertisement, span, span_of, stored

pytestmark = pytest.mark.req("N10", "N11")

STORE = "00000000000000aa"
INBOX = b"Inbox/00000000000000aa/1122334455667788"


class SimpleStore:
    """Takes what follows what it has; brokers let only flagged frames pass twice."""

    def __init__(self) -> None:
        self.have = 0
        self.kept: list[int] = []
        self._passed: set[int] = set()

    def offer(self, data: bytes) -> None:
        while data:
            end = position_behind(data, Frame(data).sequence)
            frame, data = Frame(data[:end]), data[end:]
            if frame.sequence in self._passed and not frame.flags & Flag.REPEAT:
                continue
            self._passed.add(frame.sequence)
            previous = msgspec.json.decode(frame.headers)["$q"][1]
            if frame.sequence > self.have and previous in (0, self.have):
                self.have = frame.sequence
                self.kept.append(frame.sequence)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["lost", "passed", "answered"]), st.booleans()), max_size=12)
)
def test_everything_is_stored_once_and_in_order_whatever_is_lost(steps: list[tuple[int, str, bool]]) -> None:
    chain, store, writer, assigned, mine = OutgoingChain(), SimpleStore(), Writer(7), 0, []
    for count, fate, plain_between in steps:
        assigned += plain_between  # a publication that is not reliable has the number
        first = assigned + 1
        payloads = [b"x"] * count
        data = writer.linked_frames(b"a", b"", payloads, first, chain.last, QualityLink(STORE), 0)
        assigned += count
        mine += range(first, assigned + 1)
        chain.add(ChainRun(frozenset("a"), first, assigned, data))
        if fate != "lost":
            store.offer(data)
        if fate == "answered":
            chain.follow(store.have)
            for repeat in chain.repeats(assigned, 1 << 20):
                store.offer(repeat)
            chain.acknowledge(store.have)
            assert chain.frames == 0
    chain.follow(store.have)
    for repeat in chain.repeats(assigned, 1 << 20):
        store.offer(repeat)
    chain.acknowledge(store.have)
    assert store.kept == mine
    assert (chain.frames, chain.bytes, chain.oldest) == (0, 0, None)


@pytest.mark.parametrize("have", range(6))
def test_a_store_that_has_less_than_it_acknowledged_gets_what_is_left_linked_to_what_it_has(have: int) -> None:
    """It was restored from a copy."""
    chain, writer = OutgoingChain(), Writer(7)
    for first in (1, 4, 7):
        data = writer.linked_frames(b"a", b"", [b"x"] * 3, first, chain.last, QualityLink(STORE), 0)
        chain.add(ChainRun(frozenset("a"), first, first + 2, data))
    chain.acknowledge(6)
    chain.follow(have)
    store = SimpleStore()
    store.have = have
    for repeat in chain.repeats(9, 1 << 20):
        store.offer(repeat)
    assert store.kept == [7, 8, 9]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), min_size=1, max_size=8), st.integers(0, 20))
def test_a_denied_topic_leaves_a_chain_that_the_store_takes(runs: list[tuple[str, int]], have: int) -> None:
    chain, store, writer, assigned, kept = OutgoingChain(), SimpleStore(), Writer(7), 0, []
    for topic, count in runs:
        payloads = [b"x"] * count
        data = writer.linked_frames(topic.encode(), b"", payloads, assigned + 1, chain.last, QualityLink(STORE), 0)
        chain.add(ChainRun(frozenset([topic]), assigned + 1, assigned + count, data))
        if topic == "b":
            kept += range(assigned + 1, assigned + count + 1)
        assigned += count
    dropped = chain.drop("a")
    assert sum(run.count for run in dropped) == assigned - len(kept)
    for repeat in chain.repeats(assigned, 1 << 20):
        store.offer(repeat)
    assert store.kept == kept
    assert chain.frames == len(kept)


def test_a_new_life_of_a_publisher_links_to_what_the_store_has() -> None:
    chain, writer = OutgoingChain(), Writer(7)
    chain.follow(41)
    data = writer.linked_frames(b"a", b"", [b"x", b"y"], 100, chain.last, QualityLink(STORE), 0)
    chain.add(ChainRun(frozenset("a"), 100, 101, data))
    assert msgspec.json.decode(Frame(data).headers)["$q"] == [STORE, 41]
    chain.follow(43)  # something of the old life came late
    (repeat,) = chain.repeats(101, 1 << 20)
    assert msgspec.json.decode(Frame(repeat).headers)["$q"] == [STORE, 43]
    chain.restart()
    (repeat,) = chain.repeats(100, 1 << 20)
    assert msgspec.json.decode(Frame(repeat).headers)["$q"] == [STORE, 0]
    assert chain.acknowledge(100)
    assert (chain.oldest, chain.frames) == (101, 1)


def a_frame(before: int, after: int, wanted: set[int]) -> Frame:
    positions = [position for position in range(before, after) if position in wanted]
    data = b"".join(event(b"a", b"%d" % position, 1, position) for position in positions)
    headers = span(3, before, after, [position - before for position in positions])
    return Frame(stored(INBOX, int(STORE, 16), 0, data, headers))


@given(
    st.sets(st.integers(0, 39)),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 12)), max_size=30),
    st.booleans(),
)
@example({0, 1}, [(0, 1)], False)
@example({0, 1}, [(0, 1)], True)
def test_a_reading_takes_each_position_once_and_in_order_whatever_happens_to_frames(
    wanted: set[int], frames: list[tuple[int, int]], raw: bool
) -> None:
    reading = LogReading(StoreAdvertisement(STORE, "s", ["#"], INBOX.decode(), 1_000), 3)
    reading.opened(0, INBOX.decode(), True, 0)
    reader, taken = FrameReader(), []
    for before, count in [*frames, (0, 40)]:
        frame = a_frame(before, min(40, before + count), wanted)
        expected = reading.expected
        assert expected is not None
        _, first, after, _ = span_of(frame)
        came = reading.advance(first, after)
        assert (came is Came.TOO_FAR) == (first > expected)
        if came is Came.NEW:
            if raw:
                run = reader.run(frame, STORE, expected)
                taken += run.positions
            else:
                taken += [one.position for one in reader.publications(frame, STORE, expected)]
    assert taken == sorted(wanted)


@given(st.binary(max_size=80), st.lists(st.integers(0, 5), max_size=4))
def test_a_frame_of_any_bytes_is_read_or_refused(data: bytes, offsets: list[int]) -> None:
    frame = Frame(stored(INBOX, 1, 0, data, span(3, 0, 10, offsets)))
    for read in (FrameReader().publications, FrameReader().run):
        try:
            read(frame, STORE, 0)
        except ProtocolError:
            pass


POSITIONS = [2, 3, 4, 7, 8, 11, 12, 13, 14, 20, 21, 25]  # the filter passes over the others
RARELY = st.sampled_from([False, False, False, True])


@pytest.mark.parametrize("compact_at", [1, 4_096])
@given(st.lists(st.one_of(st.none(), st.tuples(st.sampled_from([1, 26, *POSITIONS]), RARELY)), max_size=40))
def test_what_is_acknowledged_by_hand_becomes_one_number_and_spans(
    compact_at: int, steps: list[tuple[int, bool] | None]
) -> None:
    reading = LogReading(StoreAdvertisement(STORE, "s", ["#"], INBOX.decode(), 1_000), 3)
    reading.opened(0, INBOX.decode(), True, 0)
    coming, open_, done = list(POSITIONS), [], set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "COMPACT_AT", compact_at)
        for step in steps:
            if step is None and coming:
                assert reading.expected is not None
                reading.advance(reading.expected, coming[0] + 1)
                reading.pending.deliver([coming[0]])
                open_.append(coming.pop(0))
            elif step is not None:
                position, cumulative = step
                reading.pending.acknowledge(position, cumulative)
                done |= {one for one in open_ if one == position or (cumulative and one < position)}
            open_ = [one for one in open_ if one not in done]
            spans = reading.pending.spans()
            told = set(range(reading.done)).union(*(range(first, end) for first, end in spans))
            assert told.isdisjoint(open_)
            assert told >= done
            assert reading.done == (open_[0] if open_ else reading.expected)
            assert all(any(first <= one < end for one in done) for first, end in spans)
            assert all(any(early[1] <= one < late[0] for one in open_) for early, late in pairwise(spans))
            assert reading.pending.gaps == len(spans)


@pytest.mark.parametrize("order", ["rising", "falling", "any", "every second"])
def test_many_are_acknowledged_in_any_order(order: str) -> None:
    found = PendingPublications()
    positions = list(range(0, 60_000, 3))
    found.deliver(positions)
    if order == "any":
        Random(1).shuffle(positions)
    elif order == "falling":
        positions.reverse()
    elif order == "every second":
        positions = positions[1::2] + positions[::2]
    for position in positions:
        found.acknowledge(position, cumulative=False)
    assert (len(found), found.first, found.gaps, found.spans()) == (0, None, 0, [])


def test_a_store_that_keeps_too_few_spans_is_told_the_lowest_and_what_it_knows_remains_within() -> None:
    found = PendingPublications()
    found.deliver(range(8 * SELECTED_MAX))
    for position in range(4 * SELECTED_MAX + 1, 6 * SELECTED_MAX, 2):
        found.acknowledge(position, cumulative=False)
    first = tellable(found.spans(), [])
    assert first == found.spans()
    for position in range(1, 2 * SELECTED_MAX, 2):
        found.acknowledge(position, cumulative=False)
    assert tellable(found.spans(), first) == first
    for position in range(4 * SELECTED_MAX + 2, 5 * SELECTED_MAX, 2):
        found.acknowledge(position, cumulative=False)
    joined = tellable(found.spans(), first)
    assert len(joined) == SELECTED_MAX
    assert {position for span in first for position in range(*span)} < {at for span in joined for at in range(*span)}
    assert joined == sorted(joined)
    _, left = sorted_out(found.spans(), joined)
    assert found.count(left) == found.gaps - SELECTED_MAX


def a_publication(position: int) -> StoredPublication:
    return StoredPublication("a", b"", 1, position, b"", 0, STORE, position)


def test_what_was_taken_is_done_when_the_program_comes_for_the_next() -> None:
    inbox = ReaderInbox(-2, 100, 1 << 20)
    inbox.begin(STORE, 5)
    inbox.arrive(STORE, [a_publication(position) for position in (5, 6, 9)], 3)
    assert inbox.take().position == 5
    assert (inbox.taken[STORE], inbox.done[STORE]) == (6, 5)
    assert [one.position for one in inbox.take_some(None)] == [6, 9]
    assert (inbox.taken[STORE], inbox.done[STORE]) == (10, 6)
    inbox.pass_over(STORE, 12)
    assert (inbox.taken[STORE], inbox.done[STORE]) == (12, 6)
    assert inbox.take() is None
    assert inbox.done[STORE] == 12
