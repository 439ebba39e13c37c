"""Gathering: publications that wait for the next commit, and how long commits take.

In:    publications, each with the log that it goes to and the publisher whose chain it advances.
Out:   the content of a commit; figures for reports.
State: what waits; the durations of the last commits.
Not here: which publications are accepted, and committing (intake.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from heliograph.machine import Instant
from heliograph.vault import CHANGES_MAX
from heliograph.wire.stores import MAIN

RUN_BYTES = 1 << 20
RUNS_MAX = 1_000  # of a commit
MARKS_OF_RUN = 4_096  # publishers whose chains one run advances …
MARKS_MAX = 8_192  # … and one commit
TIMES_KEPT = 1_024


class CommitTimes:
    """How long commits took to become durable, waiting for the disk included. For reports."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=TIMES_KEPT)
        self._count = self._sum = self._most = 0

    def add(self, lasted_ns: int) -> None:
        """A commit became durable."""
        self._last.append(lasted_ns)
        self._count += 1
        self._sum += lasted_ns
        self._most = max(self._most, lasted_ns)

    def report(self) -> dict[str, int]:
        """Microseconds: of the last commit; median and 99 % of the last TIMES_KEPT; longest, sum and number of all."""
        ordered = sorted(self._last) or [0]
        return {
            "commit_us": (self._last[-1] if self._last else 0) // 1_000,
            "commit_us_p50": ordered[len(ordered) // 2] // 1_000,
            "commit_us_p99": ordered[len(ordered) * 99 // 100] // 1_000,
            "commit_us_max": self._most // 1_000,
            "commit_us_sum": self._sum // 1_000,
            "commits_durable": self._count,
        }


class CommitGroup:
    """The content of one commit."""

    __slots__ = ("at", "marks", "runs", "size", "wall")

    def __init__(self, runs: list[tuple[str, bytes, int]], marks: dict[int, int], at: Instant, wall: int) -> None:
        self.runs = runs  # log, data, count
        self.marks = marks  # origin -> the number up to which its chain is included
        self.size = sum(len(data) for _, data, _ in runs)
        self.at = at
        self.wall = wall  # the time of storing, in the vault and for readers

    def leave_out(self, is_gone: Callable[[str], bool]) -> None:
        """Do not write what is for a log that is gone."""
        self.runs = [run for run in self.runs if run[0] == MAIN or not is_gone(run[0])]


class Gathering:
    """Publications that wait for the next commit, as runs; each run with the chains that it advances."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._count = self._size = 0
        self._marks: dict[int, int] = {}
        self._log = MAIN
        self._runs: list[tuple[str, bytes, int, dict[int, int]]] = []
        self.bytes = 0

    def add(self, raw: bytes, log: str = MAIN, count: int = 1) -> None:
        """Add one publication, or several consecutive ones."""
        if self._frames and (self._size + len(raw) > RUN_BYTES or log != self._log):
            self._close()
        self._log = log
        self._frames.append(raw)
        self._count += count
        self._size += len(raw)
        self.bytes += len(raw)

    def mark(self, origin: int, sequence: int) -> None:
        """With what was added so far, everything of this publisher up to this number is handled.

        Each publication of a chain is marked right after it was added, so a run may end here."""
        self._marks[origin] = sequence
        if len(self._marks) >= MARKS_OF_RUN:
            self._close()

    def _close(self) -> None:
        self._runs.append((self._log, b"".join(self._frames), self._count, self._marks))
        self._frames, self._count, self._size, self._marks = [], 0, 0, {}

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        return not (self._runs or self._frames or self._marks)

    def take(self, bytes_max: int, now: Instant, wall: int) -> CommitGroup:
        """Take the oldest runs, to be stored at this time."""
        if self._frames or self._marks:
            self._close()
        runs: list[tuple[str, bytes, int]] = []
        marks: dict[int, int] = {}
        size = taken = 0
        for log, data, count, more in self._runs:
            is_full = taken >= RUNS_MAX or size + len(data) > bytes_max or len(marks) + len(more) > MARKS_MAX
            if taken and is_full:
                break
            taken += 1
            size += len(data)
            marks.update(more)
            if count:
                runs.append((log, data, count))
        del self._runs[:taken]
        self.bytes -= size
        return CommitGroup(runs, marks, now, wall)

    def clear(self) -> None:
        """Forget everything."""
        self._frames, self._marks, self._runs = [], {}, []
        self._count = self._size = self.bytes = 0


assert RUNS_MAX + MARKS_MAX <= CHANGES_MAX, "a commit is never refused for its length"
