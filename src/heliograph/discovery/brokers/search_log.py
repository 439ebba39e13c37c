"""The log of a search: when its steps were reached, and how many messages were sent, taken and dropped.

In:    steps and counts.
Out:   times in milliseconds since the start; counts by name.
State: both.
Not here: the result that carries them (result.py).
"""

from __future__ import annotations

from collections import Counter

from heliograph.errors import ProtocolError
from heliograph.machine import Instant


class SearchLog:
    """What one search records of itself."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.start: Instant = 0
        self._marks: dict[str, Instant] = {}

    def begin(self, now: Instant) -> None:
        """The search begins."""
        self.start = now

    def mark(self, step: str, now: Instant) -> None:
        """A step was reached; the first time counts."""
        self._marks.setdefault(step, now)

    def count(self, error: ProtocolError) -> None:
        """A message was dropped for this reason."""
        self.counts[error.reason.word] += 1

    @property
    def times_ms(self) -> dict[str, float]:
        """When each step was reached, in milliseconds after the start."""
        return {step: (at - self.start) / 1e6 for step, at in self._marks.items()}
