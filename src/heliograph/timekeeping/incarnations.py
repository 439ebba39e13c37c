"""Incarnations: which ones are believed, and how a broker outbids what others state about it.

In:    the wall clock; incarnations that neighbours state, of any broker; ages that they state of our own data.
Out:   whether an incarnation is believed; calls to ask a neighbour again, and to raise our own incarnation.
State: what was refused because it is ahead of our clock by a little too much, until it is not; when ours was raised.
Not here: what is numbered: records and interests (broker/routing/), resource advertisements (discovery/resources/).
Paper: N4, N18.

Of two statements about a broker, the one with the higher incarnation is believed, whoever passed it on. So the broker
itself must always be able to use a higher one than anybody stated. Incarnations begin as the time in milliseconds, and
none is believed that is more than ``AHEAD_MS_MAX`` ahead of the receiver's wall clock. This limit moves on by 1,000
incarnations in a second, and a broker uses up one in a second at most: whatever is believed about it, the next
incarnation is believed a millisecond later, where clocks agree. What a slower clock refuses is asked for again when
that clock allows it. Our own incarnation follows only what we believe: otherwise a lie that nobody else believes could
make us use an incarnation that nobody believes.

The margin is wide because clocks are wrong. A clock that shows a time before ``EARLIEST_MS`` is not set at all; it
counts on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from heliograph.machine import Instant, Timers
from heliograph.model.ages import Age

NS_PER_MS = 1_000_000
EARLIEST_MS = 1_735_689_600_000  # 2025-01-01: no clock that shows less is right
AHEAD_MS_MAX = 10 * 365 * 86_400_000  # so that brokers whose clocks differ by years still hear each other
WAIT_MS_MAX = 86_400_000  # what is ahead by more than this beyond the limit is not asked for again
WAITING_MAX = 1_024  # items to be asked for again, of one neighbour
RENEW_NS = 1_000_000_000  # between two incarnations of ours: each costs every broker a few updates
CONTESTED_NS = 60_000_000_000  # a broker that has to raise it again within this time shares its name with another
T = TypeVar("T")


class Incarnations(Generic[T]):
    """Judges incarnations that neighbours state, and has refused items asked for again once they can be believed."""

    __slots__ = ("_ahead_ns", "_ask", "_soonest", "_timers", "_waiting")

    def __init__(self, timers: Timers, ask: Callable[[int, list[T], Instant], None]) -> None:
        self._timers = timers
        self._ask = ask  # ask a neighbour for these items again, if it is still there
        self._ahead_ns = 0  # wall time minus our own
        self._waiting: dict[int, dict[T, int]] = {}  # neighbour -> items -> their incarnations
        self._soonest: int | None = None  # the lowest of these

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The time of our wall clock."""
        self._ahead_ns = wall_ns - now

    def highest(self, now: Instant) -> int:
        """The highest incarnation that is believed now."""
        wall_ms, uptime_ms = (now + self._ahead_ns) // NS_PER_MS, now // NS_PER_MS
        return AHEAD_MS_MAX + (wall_ms if wall_ms >= EARLIEST_MS else EARLIEST_MS + uptime_ms)

    def refuses(self, incarnation: int, neighbour: int, item: T, now: Instant) -> bool:
        """True if an item that a neighbour told or offered is not believed. If its incarnation soon can be, the
        neighbour is asked for it then."""
        beyond_ms = incarnation - self.highest(now)
        if beyond_ms <= 0:
            return False
        waiting = self._waiting.get(neighbour, {})
        if beyond_ms <= WAIT_MS_MAX and (item in waiting or len(waiting) < WAITING_MAX):
            self._waiting[neighbour] = waiting
            waiting[item] = incarnation
            if self._soonest is None or incarnation < self._soonest:
                self._wait(incarnation, now)
        return True

    def forget(self, neighbour: int) -> None:
        """A neighbour is gone: on a new link it offers what it has."""
        self._waiting.pop(neighbour, None)

    def _wait(self, soonest: int, now: Instant) -> None:
        self._soonest = soonest
        beyond_ms = max(1, soonest - self.highest(now))
        self._timers.set("ahead", now + beyond_ms * NS_PER_MS, self._ask_again)

    def _ask_again(self, now: Instant) -> None:
        highest, self._soonest = self.highest(now), None
        for neighbour, waiting in list(self._waiting.items()):
            due = [item for item, incarnation in waiting.items() if incarnation <= highest]
            for item in due:
                del waiting[item]
            if not waiting:
                del self._waiting[neighbour]
            if due:
                self._ask(neighbour, due, now)
        if self._waiting:
            left = [incarnation for waiting in self._waiting.values() for incarnation in waiting.values()]
            self._wait(min(left), now)


class Outbidding:
    """Raises our own incarnation above what others state about us, at most once a second."""

    __slots__ = ("_newest", "_raise", "_renewed_at", "_timers")

    def __init__(self, timers: Timers, renew: Callable[[int, bool, Instant], None]) -> None:
        self._timers = timers
        self._raise = renew  # called with the incarnation that others know, and whether we had to raise ours before
        self._newest = 0  # the newest incarnation of ours that others know
        self._renewed_at: Instant | None = None

    def hear(self, theirs: Age, ours: Age, now: Instant) -> None:
        """A neighbour stated this age of something of ours."""
        if theirs <= ours:
            return  # our own, returned to us
        self._newest = max(self._newest, theirs[0])
        if self._renewed_at is not None and now < self._renewed_at + RENEW_NS:
            self._timers.set("renew", self._renewed_at + RENEW_NS, self._renew)
        else:
            self._renew(now)

    def _renew(self, now: Instant) -> None:
        is_contested = self._renewed_at is not None and now < self._renewed_at + CONTESTED_NS
        self._renewed_at = now
        self._raise(self._newest, is_contested, now)
