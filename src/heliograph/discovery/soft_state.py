"""Soft state: a bounded table of entries that expire unless they are renewed.

In:    entries with a key and an expiry time; time.
Out:   the entries; those that expired.
State: the entries, and a heap of expiry times.
Not here: what an entry is, and whether a newer one may replace it (brokers/known.py).

An advertisement may be lost and a directory may restart, so nothing kept this way has to be complete.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from heliograph.machine import Instant

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")


class SoftState(Generic[K, V]):
    """Entries by key. Of entries that expire at the same instant, the one with the smallest key goes first."""

    __slots__ = ("_entries", "_entries_max", "_expiries", "_until")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: dict[K, V] = {}
        self._until: dict[K, Instant] = {}
        self._expiries: list[tuple[Instant, K]] = []  # a heap; entries that were renewed or forgotten are stale

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    @property
    def is_full(self) -> bool:
        """True if there is no room for another key."""
        return len(self._entries) >= self._entries_max

    def get(self, key: K) -> V | None:
        """The entry with this key."""
        return self._entries.get(key)

    def values(self) -> list[V]:
        """All entries, in the order in which they were first kept."""
        return list(self._entries.values())

    def keep(self, key: K, entry: V, until: Instant) -> None:
        """Keep a new entry, or renew one, until this time. The caller checks ``is_full`` before it adds a key."""
        self._entries[key] = entry
        self._until[key] = until
        heappush(self._expiries, (until, key))
        if len(self._expiries) > 4 * len(self._entries) + 64:
            self._expiries = sorted((until, key) for key, until in self._until.items())

    def forget(self, key: K) -> None:
        """Remove an entry before its time."""
        del self._entries[key], self._until[key]

    def expire(self, now: Instant) -> list[V]:
        """Remove the entries that were not renewed in time, and return them."""
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            _, key = heappop(self._expiries)
            if key in self._entries and self._until[key] <= now:
                expired.append(self._entries[key])
                self.forget(key)
        return expired

    def limit(self, entries_max: int) -> None:
        """Change how many entries are kept. Entries beyond the new limit stay until they expire."""
        self._entries_max = entries_max
