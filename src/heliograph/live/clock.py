"""The live clock: monotonic time for machines, wall time for stamps.

In:    the operating system's clocks.
Out:   nanoseconds.
State: none.
Not here: network time (a machine's offset), alarms (loop.py).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

now_ns = time.monotonic_ns
"""Nanoseconds that never go back; ``now`` of every input. Not wrapped: it runs once per read."""
wall_ns = time.time_ns
"""Nanoseconds since 1970, as far as this computer knows."""

CLOCK_S = 10.0
"""How often a machine is told the wall time: it may step, and the two clocks drift apart."""


def process_age_ms() -> int | None:
    """How long ago this process was started, to 10 ms; None if the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # the 22nd field, counted after the name
        return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1_000)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
