"""The wall clock as a machine knows it: the driver's last reading, carried on by monotonic time.

In:    readings of the wall clock.
Out:   wall time at any instant.
State: the difference of the two clocks.
Not here: network time (timekeeping/), reading the clock (the driver).
"""

from __future__ import annotations

from heliograph.machine import Instant


class WallTime:
    """Wall time for certificates and signed messages. It may be wrong, as long as it runs evenly."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def read(self, wall_ns: int, now: Instant) -> None:
        """The driver read the wall clock."""
        self._offset_ns = wall_ns - now

    def at(self, now: Instant) -> int | None:
        """Wall time in nanoseconds; None before the first reading."""
        return None if self._offset_ns is None else now + self._offset_ns
