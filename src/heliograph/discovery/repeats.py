"""Repeats: remembers the last request ids, so that a repeated request costs nothing.

In:    request ids with their attempts.
Out:   whether an attempt is new, and the value kept with an id.
State: a bounded number of ids; the oldest is forgotten first.
Not here: duplicates of publications (broker/routing/seen.py), replays of what was signed (trust/freshness.py).
Paper: [brokers] §4: the last 1000 requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Repeats(Generic[T]):
    """Ids with their highest attempt and a value that the owner chose."""

    __slots__ = ("_ids", "_ids_max")

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._ids: OrderedDict[bytes, tuple[int, T]] = OrderedDict()

    def is_new(self, id: bytes, attempt: int) -> bool:
        """True if this attempt of this id was not seen before."""
        known = self._ids.get(id)
        return known is None or attempt > known[0]

    def add(self, id: bytes, attempt: int, value: T) -> None:
        """Remember an attempt."""
        self._ids.pop(id, None)
        self._ids[id] = (attempt, value)
        if len(self._ids) > self._ids_max:
            self._ids.popitem(last=False)

    def get(self, id: bytes) -> T | None:
        """The value kept with an id."""
        known = self._ids.get(id)
        return None if known is None else known[1]

    def limit(self, ids_max: int) -> None:
        """Change how many ids are remembered."""
        self._ids_max = ids_max
        while len(self._ids) > ids_max:
            self._ids.popitem(last=False)

    def __len__(self) -> int:
        return len(self._ids)
