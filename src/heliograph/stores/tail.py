"""The tail: the newest runs of the log, in memory, for readers that keep up.

In:    runs as they become durable; how many bytes of batches are added and forgotten.
Out:   runs from a position on; the bytes of the log with those of batches.
State: a bounded number of bytes of runs, and the beginning and end of the log.
Not here: older runs (the vault has them).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct

from heliograph.vault import Log, Put, Run
from heliograph.wire.stores import MAIN

TAIL_BYTES_MAX = 8 << 20
REFERRED_KEY = "referred"
REFERRED = Struct("<QQ")  # bytes of all batches that were committed, and of those that were forgotten


class Tail:
    """The end of the log."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._size = 0
        self.log = Log(MAIN)
        self._referred = 0
        self.forgotten = 0  # the sum of the bytes of batches up to which they are forgotten

    def load_referred(self, value: bytes | None) -> None:
        """What the vault keeps of the bytes of batches."""
        self._referred, self.forgotten = REFERRED.unpack(value) if value else (0, 0)

    def refer(self, size: int) -> int:
        """So many bytes of a batch are added, or fewer if it could not be committed; returns the sum so far."""
        self._referred += size
        return self._referred

    def forget(self, until: int) -> None:
        """Batches are forgotten up to this sum."""
        self.forgotten = max(self.forgotten, until)

    def referred_put(self) -> Put:
        """The change that keeps the bytes of batches."""
        return Put(REFERRED_KEY, REFERRED.pack(self._referred, self.forgotten))

    @property
    def referred_bytes(self) -> int:
        """The bytes of all batches to which the log refers."""
        return self._referred - self.forgotten

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
