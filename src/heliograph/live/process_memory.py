"""Memory: sets the garbage collector and the allocator up for a process that relays.

In:    nothing; called once, when a node starts.
Out:   fewer collections, none of which walks what was imported; freed buffers that are used again.
State: the process's own.
Not here: limits (broker/config.py).

A read is up to 256 KiB, and glibc returns memory of that size to the system at once: each read would then be paid for
page by page, which is half of what a relayed batch costs. Machines make no cycles per publication, so looking for them
every 700 objects is useless.
"""

from __future__ import annotations

import ctypes
import gc

THRESHOLDS = (50_000, 20, 50)
MAPPED_BYTES = 4 << 20  # smaller blocks are not mapped each time
KEPT_BYTES = 16 << 20  # free memory above this goes back to the system
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def tune() -> None:
    """Look for cycles rarely and never among what was imported, for it stays; keep freed memory at hand."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # another allocator, with other settings
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
