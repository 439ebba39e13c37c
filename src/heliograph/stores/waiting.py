"""Waiting: room in memory for publications that wait for an earlier one, shared among those who publish.

In:    how many bytes wait in each chain, and its holder: an entity, or for clients without credentials an address.
Out:   whether more may wait in a chain; the chains that give way to it.
State: the bytes by holder and chain.
Not here: what waits (chain.py), how its publisher is asked again (intake.py).

Somebody may use all the room that no other needs. When it is full, the chain of the holder that has most gives way,
and among the chains of one holder the one that has most, provided that the newcomer has clearly less, with what it
brings. So whoever has little finds room. Sizes are compared by their powers of two: every operation takes constant
time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from heliograph.stores.chain import Chain
from heliograph.stores.names import Holder

GIVE_WAY_MAX = 64  # chains that give way to one publication

K = TypeVar("K")


class Sizes(Generic[K]):
    """How much each has, by the power of two that this is below."""

    __slots__ = ("_classes", "_sizes", "total")

    def __init__(self) -> None:
        self._sizes: dict[K, int] = {}
        self._classes: dict[int, dict[K, None]] = {}
        self.total = 0

    def get(self, key: K) -> int:
        """The size of one; 0 if it is not there."""
        return self._sizes.get(key, 0)

    def set(self, key: K, size: int) -> None:
        """Change the size of one; with 0 it is not there any more."""
        before = self._sizes.pop(key, 0)
        self.total += size - before
        if before.bit_length() != size.bit_length():
            if before:
                peers = self._classes[before.bit_length()]
                del peers[key]
                if not peers:
                    del self._classes[before.bit_length()]
            if size:
                self._classes.setdefault(size.bit_length(), {})[key] = None
        if size:
            self._sizes[key] = size

    def larger_than(self, size: int) -> K | None:
        """One of the largest, if it is clearly larger than this."""
        most = max(self._classes, default=0)  # of at most as many as a number has bits
        return next(iter(self._classes[most])) if most > size.bit_length() else None


class EarlyShares:
    """What waits in all chains of a store."""

    def __init__(self, bytes_max: int, chains: Mapping[int, Chain], owe: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._known = chains
        self._owe = owe
        self.gave_way = 0  # chains
        self._holders: Sizes[Holder] = Sizes()
        self._chains: dict[Holder, Sizes[int]] = {}
        self._holder_of: dict[int, Holder] = {}

    @property
    def bytes(self) -> int:
        """All that waits."""
        return self._holders.total

    def clear(self) -> None:
        """Nothing waits any more."""
        self._holders = Sizes()
        self._chains.clear()
        self._holder_of.clear()

    def count(self, origin: int, chain: Chain) -> None:
        """What waits in this chain, or its holder, may have changed."""
        self.set(origin, chain.holder, chain.early_bytes)

    def set(self, origin: int, holder: Holder, size: int) -> None:
        """So much waits in this chain, which counts for this holder."""
        before = self._holder_of.get(origin)
        if before is not None and before != holder:
            self._put(origin, before, 0)
        if size or before is not None:
            self._put(origin, holder, size)

    def _put(self, origin: int, holder: Holder, size: int) -> None:
        chains = self._chains.setdefault(holder, Sizes())
        chains.set(origin, size)
        self._holders.set(holder, chains.total)
        if size:
            self._holder_of[origin] = holder
        else:
            self._holder_of.pop(origin, None)
        if not chains.total:
            del self._chains[holder]

    def make_room(self, origin: int, chain: Chain, size: int) -> bool:
        """True if so many bytes more may wait in this chain; chains that have more give way to it."""
        for _ in range(GIVE_WAY_MAX):
            if not size or not self.is_full(size):
                return True
            other = self.who_gives_way(origin, chain.holder, size)
            if other is None:
                return False
            self._known[other].give_way()
            self.set(other, self._holder_of[other], 0)
            self._owe(other)
            self.gave_way += 1
        return False

    def is_full(self, size: int) -> bool:
        """True if something must give way before so much more may wait."""
        return self.bytes + size > self._bytes_max

    def who_gives_way(self, origin: int, holder: Holder, size: int) -> int | None:
        """The chain that gives way to so many more bytes of this one; None if this one has its share."""
        other = self._holders.larger_than(self._holders.get(holder) + size)
        if other is not None:
            return self._chains[other].larger_than(0)
        own = self._chains.get(holder)
        return None if own is None else own.larger_than(own.get(origin) + size)
