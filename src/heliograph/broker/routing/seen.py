"""Seen: which sequence numbers of which origins have been received, so that nothing is delivered twice.

In:    (origin, sequence) of publications, as they arrive.
Out:   is it new; the highest known.
State: per origin the next expected number, a bounded list of gaps, and what else must be known of it as long; a bounded
       table of origins.
Not here: reading numbers from frames (wire/scan.py, on the fields of Seen), which session may use an origin
          (sessions.py).
Paper: [grid] §1.2, traces and event ids against echoes.

A number above the highest is new, and the numbers between become a gap. Below the first number received there is a gap
too: publications may take different paths and overtake each other. A lower number is new only if it lies in a
remembered gap. When the list of gaps is full, the oldest gap is closed: its numbers then count as seen. In doubt, a
publication is lost and counted, never delivered twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from heliograph.machine import Instant

NS_PER_MS = 1_000_000
SLOW_MAX = 4_096  # sessions ended as slow consumers that come back after their horizon and have to be told


class Seen:
    """What one origin has published. ``next`` is above every number received.

    _native.c reads or writes: origin, next, accepted; and calls admit.
    """

    __slots__ = (
        *("_firsts", "_lasts", "accepted", "duplicates", "gaps_closed", "gaps_max", "late", "next", "origin"),
        *("slow", "trace"),
    )

    def __init__(self, origin: int, gaps_max: int) -> None:
        self.origin = origin
        self.next = 0
        # Missing numbers, ascending. A publisher of several topics leaves a gap for each publication that is not
        # wanted here, so this is packed: 16 bytes each.
        self._firsts = array("Q")
        self._lasts = array("Q")
        self.gaps_max = gaps_max
        self.accepted = 0
        self.duplicates = 0
        self.late = 0  # admitted after a higher number
        self.gaps_closed = 0
        self.slow = False  # its last link here was ended as a slow consumer's, and its client may not know that
        self.trace: tuple[int, ...] = ()  # of the brokers by which it last came from another cluster, us last

    def end_slow(self) -> None:
        """Its link here was ended as a slow consumer's."""
        self.slow = True

    def tell_slow(self) -> None:
        """Its client knows that now."""
        self.slow = False

    def come_by(self, trace: tuple[int, ...]) -> None:
        """Its publications come from another cluster, by these brokers."""
        self.trace = trace

    def admit(self, sequence: int) -> bool:
        """True if this number is new; remember it, and count it in ``accepted`` or ``duplicates``."""
        if sequence >= self.next:
            if sequence > self.next:
                self._open_gap(self.next, sequence)
            self.next = sequence + 1
        elif not self._fill(sequence):
            self.duplicates += 1
            return False
        else:
            self.late += 1
        self.accepted += 1
        return True

    def take_back(self, count: int) -> None:
        """The last numbers were not processed: they are new if they come again."""
        self.next -= count

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Missing numbers [first, end), ascending."""
        return [(first, last + 1) for first, last in zip(self._firsts, self._lasts, strict=True)]

    def close_gaps(self, keep: int) -> None:
        """Keep only this many gaps, the newest."""
        closed = max(0, len(self._firsts) - keep)
        self.gaps_closed += closed
        del self._firsts[:closed], self._lasts[:closed]

    def _open_gap(self, first: int, end: int) -> None:
        self.close_gaps(self.gaps_max - 1)
        self._firsts.append(first)
        self._lasts.append(end - 1)

    def _fill(self, sequence: int) -> bool:
        """Remove a late number from the gap it lies in; False if it is in none."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, sequence) - 1
        if at < 0 or sequence > lasts[at]:
            return False
        if firsts[at] == lasts[at]:
            del firsts[at], lasts[at]
        elif sequence == firsts[at]:
            firsts[at] += 1
        elif sequence == lasts[at]:
            lasts[at] -= 1
        elif at == 0 and len(firsts) >= self.gaps_max:  # no room for both halves: the older one is dropped
            self.gaps_closed += 1
            firsts[0] = sequence + 1
        else:
            lasts.insert(at, sequence - 1)
            firsts.insert(at + 1, sequence + 1)
            self.close_gaps(self.gaps_max)
        return True


class Counts(NamedTuple):
    """What became of publications."""

    accepted: int
    duplicates: int
    late: int

    def with_those_of(self, seen: Seen) -> Counts:
        """The sum."""
        return Counts(self.accepted + seen.accepted, self.duplicates + seen.duplicates, self.late + seen.late)


class Origins:
    """The origins that a broker remembers: those with a link, and others for some time (the horizon) afterwards.

    Of those that were ended as slow and do not know it, that is remembered longer: a program may stand still for hours.
    """

    __slots__ = ("_gaps_max", "_horizon_ns", "_idle", "_known", "_max", "_past", "_slow", "forgotten")

    def __init__(self, origins_max: int, horizon_ms: int, gaps_max: int) -> None:
        self._max = origins_max
        self._horizon_ns = horizon_ms * NS_PER_MS
        self._gaps_max = gaps_max
        self._known: dict[int, Seen] = {}
        self._idle: dict[int, Instant] = {}  # origin -> since when, oldest first
        self._slow: dict[int, None] = {}  # forgotten, but they still have to be told that they were too slow
        self._past = Counts(0, 0, 0)  # of those that are forgotten
        self.forgotten = 0  # forgotten before their horizon, because the table was full

    def use(self, origin: int, now: Instant) -> Seen:
        """The record of an origin that has a link from now on."""
        self._idle.pop(origin, None)
        seen = self._known.get(origin)
        if seen is None:
            self._make_room(now)
            seen = self._known[origin] = Seen(origin, self._gaps_max)
            if origin in self._slow:
                del self._slow[origin]
                seen.end_slow()
        return seen

    def visit(self, origin: int, now: Instant) -> Seen:
        """The record of an origin whose publications come through another broker."""
        seen = self.known(origin, now)
        if seen is None:
            seen = self.use(origin, now)
            self._idle[origin] = now
        return seen

    def known(self, origin: int, now: Instant) -> Seen | None:
        """The same, if there is one."""
        seen = self._known.get(origin)
        if origin in self._idle:
            del self._idle[origin]
            self._idle[origin] = now
        return seen

    def rest(self, origin: int, now: Instant) -> None:
        """The origin's link is gone: remember it for the horizon."""
        if origin in self._known:
            self._idle.pop(origin, None)
            self._idle[origin] = now

    def _make_room(self, now: Instant) -> None:
        """Forget what is past its horizon, a few at a time, and the oldest idle one if the table is still full."""
        for origin in self._oldest(8):
            if now - self._idle[origin] < self._horizon_ns:
                break
            self._forget(origin)
        if len(self._known) >= self._max:
            for origin in self._oldest(1):
                self._forget(origin)
                self.forgotten += 1

    def _oldest(self, count: int) -> list[int]:
        return [origin for origin, _ in zip(self._idle, range(count), strict=False)]

    def _forget(self, origin: int) -> None:
        del self._idle[origin]
        seen = self._known.pop(origin)
        self._past = self._past.with_those_of(seen)
        if seen.slow:
            self._slow[origin] = None
            if len(self._slow) > SLOW_MAX:
                del self._slow[next(iter(self._slow))]

    def counts(self) -> Counts:
        """Of all origins since the start, those that are forgotten included: they never become less."""
        counts = self._past
        for seen in self:
            counts = counts.with_those_of(seen)
        return counts

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._known.values())
