"""The live clock: monotonic time for machines, wall time for stamps.

In:    the operating system's clocks.
Out:   nanoseconds.
State: none.
Not here: network time (a machine's offset), alarms (loop.py).
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

CLOCK_S = 10.0
"""How often a machine is told the wall time: it may step, and the two clocks drift apart."""


def now_ns() -> int:
    """Nanoseconds that never go back."""
    return monotonic_ns()


def wall_ns() -> int:
    """Nanoseconds since 1970, as far as this computer knows."""
    return time_ns()
