"""Outlook: what the summaries of topics say about the log ahead of one reading.

In:    pages of summaries; runs that were read where no summary covers them.
Out:   where the next publication may be that the reading wants; summaries of those runs.
State: a page of summaries, and the block of runs that is being summarised.
Not here: what a summary is (summary.py), where they are kept (summaries.py), reading (channels.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from heliograph.stores.references import reference_of
from heliograph.stores.summaries import BLOCK_BYTES, end_of
from heliograph.stores.summary import Block, FilterProbe, TopicSummary, summary_of
from heliograph.vault import Damage, Position, Run


class Outlook:
    """The summaries ahead of a reading."""

    def __init__(self, pattern: bytes) -> None:
        self._probe = FilterProbe(pattern)
        self._pairs: deque[tuple[str, bytes]] = deque()  # summaries that were not looked at
        self._since = self._until = 0  # those of blocks that end between these are known
        self._here: TopicSummary | None = None  # the last that was looked at
        self._is_wanted = False  # what it says
        self._gap_end: Position | None = None  # no summary covers where ``wanted_from`` ended, but from here on
        self._block = Block()
        self.has_skipped = False  # anything, by this page

    def knows(self, position: Position) -> bool:
        """True if the summaries of this position are here, as far as there are any."""
        return self._since <= position < self._until

    def load(self, since: Position, until: Position, pairs: Sequence[tuple[str, bytes | None]]) -> None:
        """The summaries of blocks that end after ``since``, as far as ``until``."""
        self._since, self._until = since, until
        self._pairs = deque((key, value) for key, value in pairs if value is not None)  # damaged: as if there were none
        self._here = None
        self.has_skipped = False

    def wanted_from(self, position: Position, steps_max: int) -> tuple[Position, int]:
        """The first position from this one on that may be wanted, as far as so many steps get, and steps that it took.

        It may also be one of which nothing is known."""
        steps = 0
        self._gap_end = None
        while self.knows(position) and steps < steps_max:
            here = self._here
            if here is None or here.next <= position:
                if not self._pairs:
                    self._gap_end = self._until
                    break
                steps += 1
                key, value = self._pairs.popleft()
                self._here = here = summary_of(value, end_of(key))
                self._is_wanted = here is not None and here.may_hold(self._probe)
            elif here.first > position:
                self._gap_end = here.first
                break
            elif self._is_wanted:
                break
            else:
                position = here.next
                self.has_skipped = True
        return position, steps

    def learn(self, runs: Sequence[Run | Damage]) -> list[TopicSummary]:
        """These runs were read where ``wanted_from`` ended. Returns new summaries of those that have none."""
        found: list[TopicSummary] = []
        end = self._gap_end
        if end is None:
            return found
        if self._block.bytes and (not runs or runs[0].position != self._block.next):
            self._block.clear()
        for run in runs:
            is_known = (
                isinstance(run, Run) and reference_of(run) is None and run.position < end and self._block.add(run)
            )
            if self._block.bytes and (not is_known or self._block.bytes >= BLOCK_BYTES or run.next >= end):
                found.append(self._block.take())  # however small: it leaves no gap
            if run.next >= end:
                break
        return found
