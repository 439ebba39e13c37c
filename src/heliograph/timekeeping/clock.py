"""A clock that follows a remote reference: what others told it, and how large the error may be by now.

In:    what a peer or server told about the reference's time, and how long the exchange took.
Out:   the reference's time at any instant, with a bound on the error.
State: the last few samples of one reference.
Not here: which reference to follow (keeper.py), asking NTP servers (sntp.py), frames (wire/bodies.py).

A sample is a statement: at this local instant the reference showed that time, within this error. It results from an
exchange: we asked at t1, the peer received the request at t2 and stamped its answer at t3, which arrived at t4; so the
stamp is between 0 and (t4 - t1) - (t3 - t2) old, however long each direction took. The middle of this range is the
estimate, half of the range the error, and the peer's own error is added. A statement stays true as it ages, if its
error grows as fast as two clocks can drift apart. So the best of several samples is the one with the smallest error
now, and a sample that travelled in a circle is never better than the one it came from.

In a broker t2 and t3 are the same instant: the time that a request waits for its turn counts as time on the network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from heliograph.machine import Instant

PPM = 1_000_000
DRIFT_PPM = 100  # how fast our clock and a reference drift apart at most: crystals (30 each) and the slewing below
SLEW_PPM = 40  # how fast a reference that is a broker may follow its wall clock
SAMPLES_MAX = 8
ERROR_NS_MAX = 1_000_000_000  # a clock with a larger error is not synchronised
STRATUM_MAX = 64  # clocks further from the true one are ignored; this also bounds how far a time travels
STRATUM_LOCAL = 10  # of a broker whose own clock is the reference: worse than any NTP server
TIME_NS_MAX = 1 << 62  # in the year 2116


class Reference(NamedTuple):
    """The clock that a time refers to. ``era`` changes when it steps or restarts; eras cannot be compared."""

    broker: int  # 0: UTC, as NTP servers tell it
    era: int


UTC = Reference(0, 0)


class Told(Struct, frozen=True):
    """What a node tells about network time, at the instant at which it tells it."""

    reference: Reference
    time_ns: int  # since 1970
    error_ns: int
    age_ns: int  # at most: since the reference itself gave the time from which this is derived
    stratum: int

    @property
    def is_sane(self) -> bool:
        """False if no correct peer would tell this."""
        return (
            0 <= self.reference.broker < 1 << 64
            and 0 <= self.reference.era < 1 << 62
            and 0 < self.time_ns < TIME_NS_MAX
            and 0 <= self.error_ns <= ERROR_NS_MAX
            and 0 <= self.age_ns < TIME_NS_MAX
            and 0 < self.stratum < STRATUM_MAX
        )


class Sample(NamedTuple):
    """At ``at`` the reference showed ``time_ns``, give or take ``error_ns``."""

    at: Instant
    time_ns: int
    error_ns: int
    stratum: int

    @property
    def badness(self) -> int:
        """The lowest is the best: all errors grow equally fast, so the order of samples does not change with time."""
        return self.error_ns * PPM - self.at * DRIFT_PPM


class Clock:
    """The time of one reference. Its samples are those of one era."""

    __slots__ = ("_best", "_samples", "reference", "slope_ppm")

    def __init__(self) -> None:
        self.reference: Reference | None = None
        self.slope_ppm = 0  # how much faster than our clock it runs; known only to a reference that slews itself
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._best: Sample | None = None

    def follow(self, told: Told, delay_ns: int, now: Instant) -> bool:
        """A peer answered after ``delay_ns``; True if that begins another era. Implausible answers are ignored."""
        if not told.is_sane or delay_ns < 0:
            return False
        turned = told.reference != self.reference
        if turned:
            self.turn_to(told.reference)
        self.add(sample_of(told, delay_ns, now))
        return turned

    def turn_to(self, reference: Reference) -> None:
        """Forget what was known of another reference."""
        self.reference = reference
        self.slope_ppm = 0
        self._samples.clear()
        self._best = None

    def add(self, sample: Sample) -> None:
        """Add a sample of the current reference."""
        self._samples.append(sample)
        self._best = min(self._samples, key=lambda sample: sample.badness)

    @property
    def stratum(self) -> int:
        """How far the time is from the true one, in clocks; 0: there is none."""
        return 0 if self._best is None else self._best.stratum

    def time_ns(self, now: Instant) -> int | None:
        """What the reference shows now, since 1970; None if there is none."""
        best = self._best
        if best is None:
            return None
        elapsed = now - best.at
        return best.time_ns + elapsed + elapsed * self.slope_ppm // PPM

    def error_ns(self, now: Instant) -> int:
        """How large the error may be."""
        best = self._best
        return 0 if best is None else best.error_ns + (now - best.at) * DRIFT_PPM // PPM

    def is_synchronised(self, now: Instant) -> bool:
        """True if there is a reference, and its time is known well enough to be used."""
        return self.reference is not None and self._best is not None and self.error_ns(now) <= ERROR_NS_MAX

    def report(self, now: Instant) -> dict[str, Any]:
        """What is known, in plain values; ``shown`` computes the time at another instant from it."""
        reference = self.reference
        time_ns = self.time_ns(now)
        return {
            "synchronised": self.is_synchronised(now),
            "reference": None if reference is None else "UTC" if reference == UTC else f"{reference.broker:016x}",
            "era": None if reference is None else reference.era,
            "stratum": None if reference is None else self.stratum,
            "time_ns": time_ns,
            "error_ns": self.error_ns(now),
            "error_growth_ppm": 0 if self.error_ns(now) == self.error_ns(now + PPM) else DRIFT_PPM,
            "slope_ppm": self.slope_ppm,
            "at_ns": now,
        }


def sample_of(told: Told, delay_ns: int, now: Instant) -> Sample:
    """The sample that follows from an answer, which was written some time within the last ``delay_ns``."""
    error_ns = told.error_ns + (delay_ns + 1) // 2 + delay_ns * DRIFT_PPM // PPM + 1
    return Sample(now, told.time_ns + delay_ns // 2, error_ns, told.stratum + 1)


def shown(report: Mapping[str, Any], now: Instant) -> tuple[int, int]:
    """The time and its error at another instant of the same node, from its report."""
    elapsed = now - report["at_ns"]
    time_ns = report["time_ns"] + elapsed + elapsed * report["slope_ppm"] // PPM
    return time_ns, report["error_ns"] + elapsed * report["error_growth_ppm"] // PPM
