"""Repeats: the last request ids, so that a repeat costs nothing.

In:    request ids with their attempts.
Out:   whether this is new, and what was kept with an id.
State: at most so many ids; the oldest is forgotten first.
Not here: duplicates of publications (broker/routing/seen.py), replays of what was signed (trust/freshness.py).
Paper: [brokers] §4: the last 1000 requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Repeats(Generic[T]):
    """Ids with their highest attempt and a value of the owner's."""

    __slots__ = ("_ids", "_ids_max")

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: OrderedDict[bytes, tuple[int, T]] = OrderedDict()

    def is_new(self, id: bytes, attempt: int) -> bool:
        """True if this attempt at this id was not met yet."""
        known = self._ids.get(id)
        return known is None or attempt > known[0]

    def add(self, id: bytes, attempt: int, value: T) -> None:
        """Remember an attempt."""
        self._ids.pop(id, None)
        self._ids[id] = (attempt, value)
        if len(self._ids) > self._ids_max:
            self._ids.popitem(last=False)

    def get(self, id: bytes) -> T | None:
        """What was kept with an id."""
        known = self._ids.get(id)
        return None if known is None else known[1]

    def limit(self, ids_max: int) -> None:
        """Remember so many from now on."""
        self._ids_max = ids_max
        while len(self._ids) > ids_max:
            self._ids.popitem(last=False)

    def __len__(self) -> int:
        return len(self._ids)
