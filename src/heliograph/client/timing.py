"""Session time: the network time that a client's publications are stamped with.

In:    the wall clock; PONGs that carry the broker's time.
Out:   timed PINGs; stamps, and whether they are synchronised.
State: a clock (timekeeping/clock.py) that follows the brokers, and its lead over ours.
Not here: the headers with the stamps (client/writer.py), keep-alive (client/lines.py).

Nothing waits for it: until a broker has told the time, stamps come from the wall clock and are marked so.
"""

from __future__ import annotations

from typing import Any

from heliograph.client.line import Line
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Timers
from heliograph.timekeeping.clock import Clock
from heliograph.wire.frames import Frame
from heliograph.wire.times import FEATURE, told_in

BURST = 4  # exchanges at first: the fastest one counts
BURST_NS = 250_000_000
PERIOD_NS = 16_000_000_000  # afterwards; the error grows by 1.6 ms in between
RESTLESS_NS = 1_000_000_000  # while the broker itself is not synchronised


class SessionTime:
    """The time of one session."""

    __slots__ = (
        "_clock",
        "_now",
        "_timers",
        "_wall_ahead_ns",
        "ahead_ns",
        "is_synchronised",
        "measured",
        "round_trip_ns",
    )

    def __init__(self, timers: Timers) -> None:
        self.ahead_ns: int | None = None  # stamps are our own time plus this; None: no time known yet
        self.is_synchronised = False
        self.round_trip_ns: int | None = None  # of the last exchange with the present broker
        self.measured = 0
        self._timers = timers
        self._clock = Clock()
        self._wall_ahead_ns: int | None = None
        self._now: Instant = 0

    def wall(self, wall_ns: int, now: Instant) -> None:
        """The wall clock's time."""
        self._wall_ahead_ns = wall_ns - now
        self._update(now)

    def begin(self, line: Line, now: Instant) -> None:
        """A broker welcomed us: if it tells the time, ask for it now and then."""
        self.round_trip_ns = None
        if line.welcome is not None and FEATURE in line.welcome.features:
            self._ask(line, BURST, now)

    def _ask(self, line: Line, burst: int, now: Instant) -> None:
        if not line.is_ready:
            return
        line.out.append(line.pings.ping(0, now))
        wait_ns = BURST_NS if burst > 1 else PERIOD_NS if self.is_synchronised else RESTLESS_NS
        self._timers.set(("time", line.id), now + wait_ns, lambda now: self._ask(line, max(0, burst - 1), now))

    def forget(self, line: Line) -> None:
        """The line is gone."""
        self._timers.cancel(("time", line.id))

    def heard(self, frame: Frame, asked_at: Instant | None, now: Instant) -> None:
        """A PONG came. Its time is used only if its PING was timed."""
        told = told_in(frame)
        if told is None or asked_at is None:
            return
        if not told.is_sane:
            raise ProtocolError(Reason.BODY_MALFORMED, "a PONG with an impossible time")
        self.round_trip_ns = now - asked_at
        self.measured += 1
        self._clock.follow(told, now - asked_at, now)
        self._update(now)

    def _update(self, now: Instant) -> None:
        self._now = now
        self.is_synchronised = self._clock.is_synchronised(now)
        time_ns = self._clock.time_ns(now)
        self.ahead_ns = self._wall_ahead_ns if time_ns is None or not self.is_synchronised else time_ns - now

    def stamp_us(self, now: Instant) -> int | None:
        """The stamp of a publication made now, in microseconds since 1970."""
        return None if self.ahead_ns is None else (now + self.ahead_ns) // 1_000

    def report(self) -> dict[str, Any]:
        """The network time as this session knows it."""
        return self._clock.report(self._now)
