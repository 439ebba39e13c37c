"""Memory: tunes the garbage collector and the allocator for a process that relays.

In:    nothing; called once, when a node starts.
Out:   fewer collections, none of which scans imported modules; freed buffers that are reused.
State: the process's own.
Not here: limits (broker/config.py).

A read is up to 256 KiB, and glibc returns blocks of that size to the system at once: each read would then cost page
faults, half the cost of a relayed batch. Machines make no cycles per publication, so a collection every 700 objects is
useless.
"""

from __future__ import annotations

import ctypes
import gc

THRESHOLDS = (50_000, 20, 50)
MAPPED_BYTES = 4 << 20  # smaller blocks are not mapped separately
KEPT_BYTES = 16 << 20  # free memory above this goes back to the system
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def tune() -> None:
    """Collect rarely and never among imported objects, which stay; keep freed memory for reuse."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # another allocator, which has other settings
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
