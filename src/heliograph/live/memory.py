"""Memory: tells the allocator and the collector that this process relays.

In:    nothing; called once, when a node starts.
Out:   fewer page faults and fewer collections.
State: the process's own.
Not here: limits (broker/config.py).

A relay takes and frees a 64 KiB ``bytes`` per read. Left alone, glibc gives that memory back to the kernel and faults
it in again, page by page.
"""

from __future__ import annotations

import gc
import sys

KEEP_BYTES = 16 << 20  # free memory at the end of the heap that stays with the process
STEP_BYTES = 1 << 20  # grow by this much at once
LARGE_BYTES = 4 << 20  # below this, memory comes from the heap rather than from mmap

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def tune() -> None:
    """Keep freed memory, and look for cycles rarely: machines make none per publication."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()  # what was imported stays for good
    gc.set_threshold(50_000, 20, 50)


def keep_freed_memory() -> bool:
    """True if this is glibc and it listened."""
    if sys.platform != "linux":
        return False
    import ctypes  # only nodes need it

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # another C library: nothing to tell it
    wanted = ((_TRIM_THRESHOLD, KEEP_BYTES), (_TOP_PAD, STEP_BYTES), (_MMAP_THRESHOLD, LARGE_BYTES))
    return all(mallopt(name, value) == 1 for name, value in wanted)
