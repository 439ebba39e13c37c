"""Summaries of topics in the vault: made as the log grows, and for older runs as they are read.

In:    runs as they become durable, or are read where no summary covers them; how far retention has come.
Out:   keys of the vault, ordered by where their blocks end; pages of them.
State: the newest block, and summaries that wait to be written, bounded in number.
Not here: what a summary is (summary.py), how a reading uses them (outlook.py).

A summary is written after its runs are durable, and says something about positions that are never used again: so it is
always true, and it does no harm if one is lost, written twice, overlaps another or is written after its runs were
forgotten. Runs without one are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.references import reference_of
from heliograph.stores.summary import Block, TopicSummary
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import Rescue, VaultCalls
from heliograph.vault import Change, Delete, KeysRead, Position, Put, ReadKeys, Run

PREFIX = "topics/"
BLOCK_BYTES = 1 << 18  # of runs, at least, for one summary
PAGE_BYTES = 1 << 18
WAITING_MAX = 1_024  # summaries that are not written yet: at most 8 MiB
WRITTEN_AT_ONCE = 64
SOON_NS = 1_000_000_000
SELDOM_NS = 60 * SOON_NS


def key_of(next: Position) -> str:
    """The key of the summary of a block that ends there."""
    return f"{PREFIX}{next:020d}"


def end_of(key: str) -> Position:
    """Where the block of a summary ends; 0 if the key is damaged."""
    digits = key.removeprefix(PREFIX)
    return int(digits) if digits.isdecimal() else 0


class Summaries:
    """All summaries of a store."""

    def __init__(self, vault: VaultCalls, timers: Timers, tail: Tail) -> None:
        self._vault = vault
        self._timers = timers
        self._tail = tail
        self._block = Block()
        self._waiting: dict[str, Put] = {}
        self._is_writing = False
        self._quiet_until: Instant = 0  # after a failure nothing is written for a while: the disk may be full
        self._forgotten = -1  # summaries of what is before this position are removed

    def start(self, now: Instant) -> None:
        """The vault is open."""
        self._block.clear()
        self._waiting.clear()
        self._is_writing = False
        self._forgotten = -1
        self._timers.set(PREFIX, now + SELDOM_NS, self._tend)

    def read(
        self,
        position: Position,
        answered: Callable[[KeysRead, Instant], None],
        unanswered: Callable[[Reason, Instant], None],
        rescue: Rescue,
    ) -> None:
        """A page of the summaries of blocks that end after this position, in their order."""
        self._vault.read(ReadKeys(PREFIX, key_of(position), PAGE_BYTES), answered, unanswered, rescue)

    def grow(self, runs: Sequence[Run], now: Instant) -> None:
        """These runs were added to the log."""
        for run in runs:
            if self._block.bytes and self._block.next != run.position:
                self._block.clear()
            if reference_of(run) is not None:  # its publications are not here: they are summarised as they are read
                if self._block.bytes:
                    self.write([self._block.take()], now)
            elif self._block.add(run) and self._block.bytes >= BLOCK_BYTES:
                self.write([self._block.take()], now)

    def write(self, summaries: Sequence[TopicSummary], now: Instant) -> None:
        """Write these, soon."""
        if now < self._quiet_until or not summaries:
            return
        if not self._waiting:
            self._timers.set(PREFIX, now + SOON_NS, self._tend)
        for summary in summaries[: WAITING_MAX - len(self._waiting)]:
            key = key_of(summary.next)
            self._waiting[key] = Put(key, summary.value())
        if len(self._waiting) >= WRITTEN_AT_ONCE:
            self._write(now)

    def _tend(self, now: Instant) -> None:
        self._timers.set(PREFIX, now + SELDOM_NS, self._tend)
        self._write(now)
        if self._tail.log.first > self._forgotten:
            self._forget(self._tail.log.first)

    def _write(self, now: Instant) -> None:
        if self._is_writing or not self._waiting:
            return
        changes: list[Change] = [*self._waiting.values()]
        self._waiting.clear()
        self._is_writing = True
        self._vault.commit(changes, self._written, self._unwritten)

    def _written(self, _: object, now: Instant) -> None:
        self._is_writing = False
        if self._waiting:
            self._timers.set(PREFIX, now + SOON_NS, self._tend)

    def _unwritten(self, reason: Reason, now: Instant) -> None:
        self._is_writing = False
        self._waiting.clear()
        self._quiet_until = now + SELDOM_NS

    def _forget(self, before: Position) -> None:
        """Remove the summaries of blocks that retention has removed, a page at a time."""

        def answered(found: KeysRead, now: Instant) -> None:
            old: list[Change] = [Delete(key) for key, _ in found.pairs if end_of(key) <= before]
            if old:
                self._vault.commit(old, lambda _, now: None, lambda reason, now: None)
            if found.more and len(old) == len(found.pairs):
                self._timers.set(PREFIX, now + SOON_NS, self._tend)
            else:
                self._forgotten = before

        self._vault.read(ReadKeys(PREFIX, None, PAGE_BYTES), answered, lambda reason, now: None)
