"""A bounded cache of results: when it is full, the least recently used entry is dropped.

In:    keys and values.
Out:   the value, or None if it was never kept or has been forgotten.
State: the entries and three counters.
Not here: when an entry is no longer valid (keyring.py drops it).
"""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """At most ``entries_max`` entries; hits, misses and evictions are counted."""

    __slots__ = ("_entries", "entries_max", "evictions", "hits", "misses")

    def __init__(self, entries_max: int) -> None:
        assert entries_max >= 1
        self.entries_max = entries_max
        self.hits = self.misses = self.evictions = 0
        self._entries: dict[Key, Value] = {}  # a dict keeps order: the first entry is the least recently used

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        """The value under this key, or None."""
        value = self._entries.pop(key, None)
        if value is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries[key] = value
        return value

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value until it is dropped or evicted."""
        self._entries.pop(key, None)
        if len(self._entries) >= self.entries_max:
            del self._entries[next(iter(self._entries))]
            self.evictions += 1
        self._entries[key] = value

    def drop(self, key: Key) -> None:
        """Forget one entry, if it is there."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget all entries; the counters continue."""
        self._entries.clear()

    def report(self) -> dict[str, int]:
        """Counters and size, for reports."""
        return {
            "entries": len(self._entries),
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        }
