"""Pending: the publications of one store that were delivered and that the program has yet to acknowledge by hand.

In:    positions as they are delivered, in order; acknowledgements in any order.
Out:   the first position that is pending; the spans behind it that are done; which of them one request can tell.
State: positions from the first pending one on, each with whether it is acknowledged. Bounded by PENDING_MAX, and what
       was under way when that was reached.
Not here: positions that the filter passed over (reading.py): they are done without being acknowledged.

A span reaches from one pending publication to the next and contains at least one that was acknowledged: what the filter
passed over between them is done, and needs no span of its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from heliograph.wire.stores import SELECTED_MAX

Span = tuple[int, int]
PENDING_MAX = 1 << 20  # publications of a store; with so many, no more are asked for
GAPS_MAX = 1_000  # a store keeps SELECTED_MAX; each opening of a reading brings at least one publication more
COMPACT_AT = 4_096  # publications that are done and still in memory
DONE = 1


class PendingPublications:
    """What a program with ``acknowledge="manual"`` has, or will have, to acknowledge."""

    __slots__ = ("_done", "_head", "_positions", "changes", "gaps")

    def __init__(self) -> None:
        self._positions = array("Q")
        self._done = bytearray()  # for each position whether it is acknowledged
        self._head = 0  # the index of the first that is pending
        self.gaps = 0  # spans that are acknowledged behind the first that is pending
        self.changes = 0  # acknowledgements so far

    def __len__(self) -> int:
        return len(self._positions) - self._head

    @property
    def first(self) -> int | None:
        """The first position that is pending."""
        return self._positions[self._head] if len(self) else None

    @property
    def room(self) -> int:
        """How many may be under way, so that there are too few gaps even if every second of them is acknowledged."""
        return 0 if len(self) >= PENDING_MAX else max(0, 2 * (GAPS_MAX - self.gaps))

    def deliver(self, positions: Iterable[int]) -> None:
        """The program gets these, which are higher than all before."""
        before = len(self._positions)
        self._positions.extend(positions)
        self._done.extend(bytes(len(self._positions) - before))

    def acknowledge(self, position: int, cumulative: bool) -> None:
        """The program is done with a publication, or with everything up to it. What is not pending changes nothing."""
        if cumulative:
            end = bisect_right(self._positions, position, self._head)
            if end == self._head:
                return
            self.gaps += 1 - self._begun(end)
            self._done[self._head : end] = bytes([DONE]) * (end - self._head)
        else:
            index = bisect_left(self._positions, position, self._head)
            if self._positions[index : index + 1] != array("Q", [position]) or self._done[index]:
                return
            before = index > self._head and self._done[index - 1]
            self.gaps += 1 - before - sum(self._done[index + 1 : index + 2])
            self._done[index] = DONE
        self.changes += 1
        self._advance()

    def _begun(self, end: int) -> int:
        """How many spans begin at this index or before it."""
        count, at = 0, self._head
        while at >= 0 and (at := self._done.find(DONE, at, end + 1)) >= 0:
            count += 1
            at = self._done.find(not DONE, at)
        return count

    def _advance(self) -> None:
        """The first span is no gap if nothing before it is pending."""
        if self._done[self._head]:
            end = self._done.find(not DONE, self._head)
            self._head = len(self._done) if end < 0 else end
            self.gaps -= 1
        if self._head >= COMPACT_AT and 2 * self._head >= len(self._done):
            del self._positions[: self._head], self._done[: self._head]
            self._head = 0

    def spans(self) -> list[Span]:
        """What is done behind the first that is pending."""
        spans: list[Span] = []
        positions, done, at = self._positions, self._done, self._head
        while at >= 0 and (first := done.find(DONE, at)) >= 0:
            at = done.find(not DONE, first)
            spans.append((positions[first - 1] + 1, positions[-1] + 1 if at < 0 else positions[at]))
        return spans

    def count(self, spans: Iterable[Span]) -> int:
        """How many publications these spans contain."""
        return sum(bisect_left(self._positions, end) - bisect_left(self._positions, first) for first, end in spans)


def sorted_out(spans: list[Span], told: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Those that contain a span of which the store was told, and the others."""
    known: list[Span] = []
    others: list[Span] = []
    for first, end in spans:
        place = bisect_left(told, (first, 0))
        contains = place < len(told) and told[place][0] < end
        (known if contains else others).append((first, end))
    return known, others


def tellable(spans: list[Span], told: Sequence[Span]) -> list[Span]:
    """As many as a store keeps: those that contain what it was told before, and the lowest of the others."""
    if len(spans) <= SELECTED_MAX:
        return spans
    known, others = sorted_out(spans, told)
    return sorted(known + others[: SELECTED_MAX - len(known)])


assert GAPS_MAX < SELECTED_MAX
