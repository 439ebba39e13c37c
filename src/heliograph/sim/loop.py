"""The loop of the simulated world: what happens next, in virtual time.

In:    calls, with the instants at which they are due.
Out:   the calls, in order of their instants; equal instants in the order in which they were asked for.
State: the heap, the present virtual instant and step.
Not here: what the calls do (network.py, world.py, faults.py, workloads.py).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

NEVER = 1 << 62
"""Later than any instant of a run: about 146 years."""
SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000

Call = Callable[[Any, int], None]
"""A call that is due, with its subject and the virtual instant."""


class Loop:
    """A heap of (instant, number, call, subject). Numbers are unique, so calls are never compared.

    Where ``at`` is too slow, callers push to the heap directly, with ``next_number``.
    """

    __slots__ = ("heap", "next_number", "now", "step")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Call, Any]] = []
        self.next_number: Callable[[], int] = count(1).__next__
        self.now = 0
        self.step = 0  # inputs that machines have had so far

    def at(self, instant: int, call: Call, subject: Any) -> None:
        """Call ``call(subject, instant)`` when that instant has come."""
        heappush(self.heap, (instant, self.next_number(), call, subject))

    def count_input(self) -> None:
        """A machine gets another input."""
        self.step += 1

    def run(self, until: int) -> None:
        """Run the world up to and including this instant."""
        heap = self.heap
        pop = heappop
        stop: Call = _stop
        heappush(heap, (until, NEVER, stop, None))  # after everything else that is due at that instant
        try:
            while True:
                instant, _, call, subject = pop(heap)
                self.now = instant
                call(subject, instant)
        except _RunOverError:
            return


class _RunOverError(Exception):
    """The instant at which to stop has come."""


def _stop(_subject: Any, _instant: int) -> None:
    raise _RunOverError
