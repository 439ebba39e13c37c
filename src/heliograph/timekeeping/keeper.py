"""The keeper: a broker's network time, and how brokers agree on the clock that defines it.

In:    the wall clock, what neighbours tell, samples of NTP servers.
Out:   network time with its error; the answer to peers that ask.
State: the current reference and its samples, since when it is silent, references that were lost.
Not here: samples (clock.py), when to exchange and in which frames (broker/timing.py).

The reference is UTC if any broker in reach hears an NTP server; otherwise it is the wall clock of the broker with the
lowest id in reach. There is no vote: every node prefers the lowest reference that it knows, and passes its time on. A
time travels with its age, which only grows on the way, so the loss of a reference is noticed: its time gets no younger,
though it may circulate for a while. Then each broker continues with the time it had, and the lowest id wins again. A
broker that has just started listens for a while first, so that it does not tell a time that will not last.
"""

from __future__ import annotations

from typing import Any

from heliograph.machine import Instant
from heliograph.timekeeping.clock import (
    DRIFT_PPM,
    ERROR_NS_MAX,
    PPM,
    SLEW_PPM,
    STRATUM_LOCAL,
    STRATUM_MAX,
    UTC,
    Clock,
    Reference,
    Sample,
    Told,
    sample_of,
)

SETTLE_BEATS = 4  # how long a new broker listens before its own clock may be the reference
LOST_BEATS = 8  # a reference of which nothing new was heard for this many beats is lost
LOST_MAX = 64  # remembered, so that their old times are ignored
STEP_NS = 128_000_000  # if a wall clock differs by more, it is followed at once, in a new era, as in NTP
CHASE_NS = 10_000_000_000  # a smaller difference is slewed away over this time, or as fast as is allowed
SERVER_NS_MAX = 900_000_000_000  # a broker that hears no NTP server for this long no longer offers UTC
LONG_AGO: Instant = -(1 << 62)


class Keeper(Clock):
    """The clock of a broker, which may be the reference itself."""

    __slots__ = ("_alive_at", "_beat_ns", "_birth", "_era", "_lost", "_me", "_served_until", "_started", "_wall_ahead")

    def __init__(self, broker: int, era: int, beat_ns: int) -> None:
        super().__init__()
        self._me = broker
        self._era = era  # differs from those of earlier incarnations of this broker
        self._beat_ns = beat_ns
        self._started: Instant | None = None
        self._wall_ahead = 0  # wall time minus our own
        self._birth = LONG_AGO  # when the reference gave the newest time that we have of it; never too late
        self._alive_at = LONG_AGO  # when we learned that
        self._served_until = LONG_AGO  # after hearing an NTP server, we offer UTC until then
        self._lost: dict[int, Instant] = {}  # reference -> its times from this instant or earlier are ignored

    @property
    def is_reference(self) -> bool:
        """True if network time is our own wall clock."""
        return self.reference is not None and self.reference.broker == self._me

    def wall(self, wall_ns: int, now: Instant) -> None:
        """The time of our wall clock."""
        self._wall_ahead = wall_ns - now
        if self._started is None:
            self._started = now
        if self.is_reference:
            self._chase(now)

    def time_ns(self, now: Instant) -> int | None:
        """Network time; while there is none, the wall clock's time."""
        shown = super().time_ns(now)
        return now + self._wall_ahead if shown is None and self._started is not None else shown

    def error_ns(self, now: Instant) -> int:
        """How large the error may be; a reference has none by definition."""
        return 0 if self.is_reference else super().error_ns(now)

    # -- hearing ------------------------------------------------------------------------------------------------

    def hear(self, told: Told, delay_ns: int, now: Instant) -> bool:
        """A neighbour answered after ``delay_ns``; True if another reference is followed from now on."""
        reference = told.reference
        if self._started is None or not told.is_sane or delay_ns < 0 or reference.broker == self._me:
            return False
        age_ns = told.age_ns + delay_ns
        birth = now - age_ns - age_ns * DRIFT_PPM // PPM - 1  # never too young, whichever node measured it
        if birth <= self._lost.get(reference.broker, LONG_AGO):
            return False
        turned = reference != self.reference
        if turned:
            if not self._prefers(reference, birth):
                return False
            self.turn_to(reference)
            self._birth = LONG_AGO
        self.add(sample_of(told, delay_ns, now))
        if birth > self._birth:
            self._birth, self._alive_at = birth, now
        return turned

    def _prefers(self, reference: Reference, birth: Instant) -> bool:
        present = self.reference
        if present is None:
            return True
        if reference.broker == present.broker:
            return birth > self._birth  # another era of it: the later time is used
        return reference.broker < present.broker

    def hear_server(self, sample: Sample, now: Instant) -> bool:
        """An NTP server answered; True if UTC is followed from now on, and was not before."""
        if not 0 < sample.stratum < STRATUM_MAX or not 0 <= sample.error_ns <= ERROR_NS_MAX:
            return False
        turned = self.reference != UTC
        if turned:
            self.turn_to(UTC)
        self.add(sample)
        self._served_until = now + SERVER_NS_MAX
        self._birth = self._alive_at = now
        return turned

    # -- choosing -----------------------------------------------------------------------------------------------

    def review(self, now: Instant) -> Instant | None:
        """Check whether the reference is silent, or our clock should become it. Returns when to check again."""
        started, reference = self._started, self.reference
        if started is None or self.is_reference:
            return None
        settled_at = started + SETTLE_BEATS * self._beat_ns
        if reference == UTC and now < self._served_until:
            self._birth = self._alive_at = now
        lost_at = self._alive_at + LOST_BEATS * self._beat_ns
        if reference is not None and now >= lost_at:
            self._lose(reference)
            reference = None
        if now >= settled_at and (reference is None or reference.broker > self._me):
            self._claim(now)
            return None
        return settled_at if now < settled_at else lost_at

    def _lose(self, reference: Reference) -> None:
        """The reference gives no new time: whatever is still told about it is old."""
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[reference.broker] = self._birth
        self.reference = None  # its time is kept: the next reference continues from there

    def _claim(self, now: Instant) -> None:
        """Our clock becomes the reference. It continues where the last one ended, and then follows our wall clock."""
        time_ns = self.time_ns(now)
        assert time_ns is not None
        self._begin_era(time_ns, now)
        self._chase(now)

    def _begin_era(self, time_ns: int, now: Instant) -> None:
        self._era += 1
        self.turn_to(Reference(self._me, self._era))
        self.add(Sample(now, time_ns, 0, STRATUM_LOCAL))

    def _chase(self, now: Instant) -> None:
        """Follow the wall clock: a step begins an era; a small difference is slewed away, so that error bounds hold."""
        shown = self.time_ns(now)
        assert shown is not None
        behind = now + self._wall_ahead - shown
        if abs(behind) > STEP_NS:
            self._begin_era(now + self._wall_ahead, now)
            return
        slope_ppm = max(-SLEW_PPM, min(SLEW_PPM, behind * PPM // CHASE_NS))
        reference = self.reference
        assert reference is not None
        self.turn_to(reference)
        self.slope_ppm = slope_ppm
        self.add(Sample(now, shown, 0, STRATUM_LOCAL))

    def report(self, now: Instant) -> dict[str, Any]:
        """What is known, and the error of our own wall clock."""
        time_ns = self.time_ns(now)
        return super().report(now) | {
            "ahead_of_wall_ns": None if time_ns is None else time_ns - now - self._wall_ahead,
        }

    # -- telling ------------------------------------------------------------------------------------------------

    def tell(self, now: Instant) -> Told | None:
        """The answer to a peer that asks now; None while our time may not last."""
        time_ns = Clock.time_ns(self, now)
        if self.reference is None or time_ns is None or not self.is_synchronised(now):
            return None
        is_source = self.is_reference or (self.reference == UTC and now < self._served_until)
        age_ns = 0 if is_source else now - self._birth
        return Told(self.reference, time_ns, self.error_ns(now), age_ns, self.stratum)
