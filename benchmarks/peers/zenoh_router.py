"""A zenoh router as a process: ``python -P zenoh_router.py SETTINGS``, ended by SIGTERM.

In:    a settings file of zenoh's.
Out:   a router on the port that it names.
State: the session.
Not here: which settings (zenoh.py). Nothing else of the benchmarks is imported.
"""

from __future__ import annotations

import signal
import sys

import zenoh  # type: ignore[import-untyped, import-not-found, unused-ignore]

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before zenoh starts its threads
    with zenoh.open(zenoh.Config.from_file(sys.argv[1])):
        signal.sigwait({signal.SIGTERM})
