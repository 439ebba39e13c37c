"""Wall clocks of simulated nodes: wrong from the start, drifting, and stepped by faults.

In:    the virtual instant.
Out:   the Unix time according to this node.
State: offset and drift of one node.
Not here: telling machines about it (world.py), deciding when a clock steps (faults.py).
"""

from __future__ import annotations

EPOCH_NS = 1_735_689_600 * 1_000_000_000  # 2025-01-01, so that simulated data never looks like 1970
_PARTS_PER_MILLION = 1_000_000


class WallClock:
    """Wall time = true time + offset + drift. Only integers, so that no platform can round differently."""

    __slots__ = ("drift_ppm", "offset_ns")

    def __init__(self, offset_ns: int = 0, drift_ppm: int = 0) -> None:
        self.offset_ns = offset_ns
        self.drift_ppm = drift_ppm

    def wall_ns(self, instant: int) -> int:
        """The time that the clock shows at this virtual instant."""
        return EPOCH_NS + instant + self.offset_ns + instant * self.drift_ppm // _PARTS_PER_MILLION

    def step(self, by_ns: int) -> None:
        """A person or a time daemon sets the clock forward or back."""
        self.offset_ns += by_ns
