"""The inbox of a reader: what stores delivered and the program has not taken, and the program's progress.

In:    publications or runs of stores, in the order of each store's log.
Out:   the same, oldest first; per store what the program has taken, and what it has finished.
State: the queue (client/inbox.py); positions per store.
Not here: asking stores for more (readings.py).

What was taken counts as done when the program takes more or ends the reader: until then it may still be working on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.client.inbox import Inbox
from heliograph.model.publication import StoredRun
from heliograph.model.subscription import Policy

TOLD_BYTES = 1 << 19  # of runs that the program has taken: then stores, which send 2 MiB ahead, are told


class ReaderInbox(Inbox):
    """An inbox with positions. While it is ``pressing``, the session needs to know what the program took."""

    __slots__ = ("_told_every", "done", "queued", "taken", "taken_count", "untold", "untold_bytes")

    def __init__(self, number: int, window: int, bytes_max: int) -> None:
        super().__init__(number, Policy.HOLD, 1 << 62, 1 << 62)  # credit bounds what is under way
        self._told_every = max(1, window // 8)
        self.taken: dict[str, int] = {}  # by store: the program has taken everything before this position …
        self.done: dict[str, int] = {}  # … and has finished everything before this one
        self.queued: dict[str, int] = {}  # by store: publications that were not taken yet
        self.taken_count = 0
        self.untold = 0
        self.untold_bytes = 0  # of runs

    def begin(self, store: str, position: int) -> None:
        """Reading of this store begins here."""
        if store not in self.taken:
            self.taken[store] = self.done[store] = position

    def arrive(self, store: str, items: list[Any], count: int) -> None:
        """Publications, or one run, of a store have come."""
        self.put(items)
        self.queued[store] = self.queued.get(store, 0) + count

    def pass_over(self, store: str, position: int) -> None:
        """Nothing before that position of this store is still to come; if nothing waits, all of it is done."""
        if not self.queued.get(store) and position > self.taken[store]:
            if self.done[store] == self.taken[store]:
                self.done[store] = position
            self.taken[store] = position

    def finish(self) -> None:
        """The program has finished everything that it has taken."""
        if self.done != self.taken:
            self.done.update(self.taken)
            self.pressing = True

    def take(self) -> Any:
        """The oldest, or None. What was taken before counts as done."""
        self.finish()
        item = super().take()
        if item is not None:
            self._hand_out((item,))
        return item

    def take_all(self) -> list[Any]:
        """Everything that waits. What was taken before counts as done."""
        self.finish()
        items = super().take_all()
        self._hand_out(items)
        return items

    def take_some(self, most: int | None) -> list[Any]:
        """The oldest ``most``; None: everything. What was taken before counts as done."""
        if most is None or len(self) <= most:
            return self.take_all()
        self.finish()
        items = super().take_some(most)
        self._hand_out(items)
        return items

    def _hand_out(self, items: Iterable[Any]) -> None:
        is_due = not self
        for item in items:
            is_run = isinstance(item, StoredRun)
            store, count = item.store, len(item.positions) if is_run else 1
            self.queued[store] -= count
            self.taken[store] = item.after if is_run else item.position + 1
            self.taken_count += count
            self.untold += count
            if is_run:
                self.untold_bytes += item.size
                is_due = self.untold_bytes >= TOLD_BYTES  # they come so fast that everything is often taken
        if is_due or self.untold >= self._told_every:
            self.untold = self.untold_bytes = 0
            self.pressing = True
