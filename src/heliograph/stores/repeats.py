"""Repeats: what readings throw away and read again, in bytes per time, for each reading and for all of one reader.

In:    how much a reading threw away: it went back, or was closed before its end.
Out:   when a reading may go on.
State: by reading and by reader, when all that was thrown away will be paid for.
Not here: when a reading goes back (channel.py).

A reader may have lost what was sent to it, so it may ask again; but a request of a hundred bytes brings megabytes. So
much is free at once, and then so much per second; meanwhile a reading waits. What a reader has received costs nothing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from heliograph.machine import Instant
from heliograph.stores.names import Holder

NS_PER_S = 1_000_000_000
READING_PER_S = 4 << 20
READING_FREE = 16 << 20
HOLDER_PER_S = 32 << 20
HOLDER_FREE = 128 << 20
WAIT_NS_MAX = 10 * NS_PER_S  # no reading waits longer

ReadingKey = tuple[bytes, int]  # a session's inbox, and the number of its channel

THROWN_MIN = 1 << 16  # bytes that going back counts as, at least …
THROWN_MAX = 8 << 20  # … and at most, however long what was read has nothing for the reader

K = TypeVar("K")


class Thrown:
    """What one reading throws away."""

    __slots__ = ("_bytes", "_bytes_per_work", "_worked")

    def __init__(self, bytes_per_work: int) -> None:
        self._bytes_per_work = bytes_per_work
        self._worked = 0  # the work for what the reader has got, or that counts already
        self._bytes = 0

    def got(self, worked: int) -> None:
        """The reader has got something."""
        self._worked = worked

    def throw(self, under_way: int, worked: int) -> None:
        """What is under way, and the work for it, was for nothing."""
        spent = (worked - self._worked) * self._bytes_per_work
        self._bytes += min(THROWN_MAX, max(THROWN_MIN, under_way, spent))
        self._worked = worked

    def take(self) -> int:
        """The bytes since the last call."""
        taken, self._bytes = self._bytes, 0
        return taken


class Debts(Generic[K]):
    """What each owes."""

    def __init__(self, per_s: int, free: int) -> None:
        self._per_s = per_s
        self._free_ns = free * NS_PER_S // per_s
        self._paid_at: dict[K, Instant] = {}

    def add(self, key: K, size: int, now: Instant) -> None:
        """So much more."""
        paid_at = max(now, self._paid_at.get(key, now)) + size * NS_PER_S // self._per_s
        self._paid_at[key] = min(paid_at, now + self._free_ns + WAIT_NS_MAX)

    def until(self, key: K) -> Instant:
        """When it owes no more than is free."""
        paid_at = self._paid_at.get(key)
        return 0 if paid_at is None else paid_at - self._free_ns

    def sweep(self, now: Instant) -> None:
        """Forget what is paid."""
        for key in [key for key, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[key]

    def __len__(self) -> int:
        return len(self._paid_at)


class ThrownAway:
    """What all readings of a store threw away."""

    def __init__(self) -> None:
        self._readings: Debts[ReadingKey] = Debts(READING_PER_S, READING_FREE)
        self._holders: Debts[Holder] = Debts(HOLDER_PER_S, HOLDER_FREE)
        self.bytes = 0  # thrown away in all

    def add(self, reading: ReadingKey, holder: Holder, size: int, now: Instant) -> None:
        """A reading threw so much away."""
        self._readings.add(reading, size, now)
        self._holders.add(holder, size, now)
        self.bytes += size

    def until(self, reading: ReadingKey, holder: Holder) -> Instant:
        """When this reading may go on."""
        return max(self._readings.until(reading), self._holders.until(holder))

    def sweep(self, now: Instant) -> None:
        """Forget what is paid."""
        self._readings.sweep(now)
        self._holders.sweep(now)

    def __len__(self) -> int:
        return len(self._readings) + len(self._holders)
