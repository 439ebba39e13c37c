"""Waiting: room in memory for publications that wait for an earlier one, shared among those who publish.

In:    how many bytes wait in each chain, and its holder: an entity, or for clients without credentials an address.
Out:   whether more may wait in a chain; the chains that give way to it. The same for other things that are shared.
State: the bytes by holder and chain.
Not here: what waits (chain.py), how its publisher is asked again (intake.py), staged batches (staging.py).

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


class HolderShares(Generic[K]):
    """How much each has, and for whom it counts."""

    def __init__(self) -> None:
        self._holders: Sizes[Holder] = Sizes()
        self._of: dict[Holder, Sizes[K]] = {}
        self._holder_of: dict[K, Holder] = {}

    @property
    def total(self) -> int:
        """All of it."""
        return self._holders.total

    def of(self, holder: Holder) -> int:
        """What counts for one holder."""
        return self._holders.get(holder)

    def clear(self) -> None:
        """Nothing is left."""
        self._holders = Sizes()
        self._of.clear()
        self._holder_of.clear()

    def holder_of(self, key: K) -> Holder:
        """Whom this one counts for; it must have something."""
        return self._holder_of[key]

    def set(self, key: K, holder: Holder, size: int) -> None:
        """This one has so much, and counts for this holder."""
        before = self._holder_of.get(key)
        if before is not None and before != holder:
            self._put(key, before, 0)
        if size or before is not None:
            self._put(key, holder, size)

    def _put(self, key: K, holder: Holder, size: int) -> None:
        own = self._of.setdefault(holder, Sizes())
        own.set(key, size)
        self._holders.set(holder, own.total)
        if size:
            self._holder_of[key] = holder
        else:
            self._holder_of.pop(key, None)
        if not own.total:
            del self._of[holder]

    def who_gives_way(self, key: K, holder: Holder, size: int) -> K | None:
        """The one that gives way to so much more of this one; None if this one has its share."""
        other = self._holders.larger_than(self._holders.get(holder) + size)
        if other is not None:
            return self._of[other].larger_than(0)
        own = self._of.get(holder)
        return None if own is None else own.larger_than(own.get(key) + size)


class EarlyShares(HolderShares[int]):
    """What waits in all chains of a store."""

    def __init__(self, bytes_max: int, chains: Mapping[int, Chain], owe: Callable[[int], None]) -> None:
        super().__init__()
        self._bytes_max = bytes_max
        self._known = chains
        self._owe = owe
        self.gave_way = 0  # chains

    @property
    def bytes(self) -> int:
        """All that waits."""
        return self.total

    def count(self, origin: int, chain: Chain) -> None:
        """What waits in this chain, or its holder, may have changed."""
        self.set(origin, chain.holder, chain.early_bytes)

    def make_room(self, origin: int, chain: Chain, size: int) -> bool:
        """True if so many bytes more may wait in this chain; chains that have more give way to it."""
        for _ in range(GIVE_WAY_MAX):
            if not size or not self.is_full(size):
                return True
            other = self.who_gives_way(origin, chain.holder, size)
            if other is None:
                return False
            self._known[other].give_way()
            self.set(other, self.holder_of(other), 0)
            self._owe(other)
            self.gave_way += 1
        return False

    def is_full(self, size: int) -> bool:
        """True if something must give way before so much more may wait."""
        return self.bytes + size > self._bytes_max
