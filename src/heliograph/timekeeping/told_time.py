"""Network time as a service knows it: what its broker told it last, and until then the wall clock.

In:    the broker's reports of its time, the wall clock.
Out:   network time at an instant, with a bound on its error.
State: the last report, and by how much the wall clock is ahead of ours.
Not here: how a broker knows the time (keeper.py), when to ask it (the services).
"""

from __future__ import annotations

from typing import Any

from heliograph.machine import Instant
from heliograph.timekeeping.clock import DRIFT_PPM, PPM, shown

WALL_ERROR_NS = 10_000_000_000  # how far apart the clocks of brokers may be while they are not synchronised


class ToldTime:
    """Network time, from the reports of a broker of the same node."""

    def __init__(self) -> None:
        self._report: dict[str, Any] | None = None
        self._wall_ahead_ns = 0

    def hear(self, report: Any) -> None:
        """The broker's answer to the question ``time``."""
        if isinstance(report, dict) and isinstance(report.get("time_ns"), int):
            self._report = report

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock, used until the broker has told its time."""
        self._wall_ahead_ns = wall_ns - now

    def time_ns(self, now: Instant) -> int:
        """What network time shows, as far as we know."""
        return now + self._wall_ahead_ns if self._report is None else shown(self._report, now)[0]

    def error_ns(self, now: Instant) -> int:
        """How wrong it may be: at least as much as it may have drifted since the broker told it."""
        report = self._report
        if report is None or not report["synchronised"]:
            return WALL_ERROR_NS
        drift: int = (now - report["at_ns"]) * DRIFT_PPM // PPM
        return max(shown(report, now)[1], drift)
