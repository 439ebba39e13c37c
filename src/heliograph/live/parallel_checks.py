"""Many signatures verified at once, on all cores: OpenSSL lets other threads run while it computes.

In:    checks (trust/signatures.py).
Out:   for each, whether it holds.
State: a few threads, started with the first checks; they wait for work and end with the process.
Not here: which signatures are verified (trust/keyring.py), other jobs of a driver (jobs.py).

The caller's thread takes part and waits for the others, so nothing is answered before it is verified.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from heliograph.trust.signatures import Check, check_in_turn

HELPERS = min(3, (os.cpu_count() or 1) - 1)  # beside the caller's thread: one page has at most 100 signatures
FEW = 3  # so few checks take no longer than waking a thread

_threads = ThreadPoolExecutor(max(1, HELPERS), "heliograph-checks")  # starts none before there is work


def check_all(checks: Sequence[Check]) -> list[bool]:
    """Make all checks, each on the thread that is free next."""
    if len(checks) <= FEW or not HELPERS:
        return check_in_turn(checks)
    results = [False] * len(checks)
    left = iter(range(len(checks)))  # shared: a thread takes the next number in one step

    def work() -> None:
        for number in left:
            results[number] = checks[number].holds()

    helping = [_threads.submit(work) for _ in range(HELPERS)]
    work()
    for one in helping:
        if not one.cancel():  # one that has not begun has nothing left to do
            one.result()
    return results
