"""The tail: the newest runs of the log, in memory, for readers that keep up.

In:    runs as they become durable.
Out:   runs from a position on.
State: a bounded number of bytes of runs, and the beginning and end of the log.
Not here: older runs (the vault has them).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from heliograph.vault import Log, Run
from heliograph.wire.stores import MAIN

TAIL_BYTES_MAX = 8 << 20


class Tail:
    """The end of the log."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._size = 0
        self.log = Log(MAIN)

    def open(self, log: Log) -> None:
        """The vault's description of the log."""
        self.log = log
        self._runs.clear()
        self._size = 0

    def look(self, log: Log) -> None:
        """A newer position from the vault for the log's beginning."""
        if log.next >= self.log.next:
            self.log = log

    def trimmed(self, log: Log) -> None:
        """Old runs were forgotten."""
        self.log = Log(MAIN, log.first, max(log.next, self.log.next), log.runs, log.bytes, log.first_ns, log.last_ns)

    def grow(self, runs: Sequence[Run]) -> None:
        """These were added to the log."""
        log = self.log
        for run in runs:
            log = Log(
                MAIN,
                log.first if log.next > log.first else run.position,
                run.next,
                log.runs + 1,
                log.bytes + len(run.data),
                log.first_ns if log.next > log.first else run.first_ns,
                max(log.last_ns, run.last_ns),
            )
            self._runs.append(run)
            self._size += len(run.data)
        self.log = log
        dropped = 0
        while self._size > TAIL_BYTES_MAX and dropped < len(self._runs) - 1:
            self._size -= len(self._runs[dropped].data)
            dropped += 1
        del self._runs[:dropped]

    def read(self, start: int, bytes_max: int) -> list[Run] | None:
        """Runs starting with the one that contains ``start``; None if that is not in memory."""
        runs = self._runs
        if not runs or start < runs[0].position or start >= self.log.next:
            return None
        at = bisect_right(runs, start, key=lambda run: run.position) - 1
        found: list[Run] = []
        size = 0
        while at < len(runs) and (not found or size + len(runs[at].data) <= bytes_max):
            found.append(runs[at])
            size += len(runs[at].data)
            at += 1
        return found
