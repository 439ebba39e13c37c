"""Places: which publishers a store has in memory, shared among those for whom they count.

In:    publishers that come, attach and are forgotten; their chains.
Out:   whose place a newcomer gets.
State: the publishers by holder: an entity, for clients without credentials an address, or nobody known.
Not here: chains (chain.py), forgetting them (intake.py).

A publisher that is forgotten loses nothing durable: its state is in the vault, and it repeats what waited. So when all
places are taken, one of the holder that has most is given away, else one of the newcomer's own, else any that is idle.
Few are looked at for each newcomer, however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from heliograph.stores.chain import Chain
from heliograph.stores.names import Holder
from heliograph.stores.waiting import Sizes

LOOKS_MAX = 16  # at publishers of one holder, for one newcomer


class PublisherPlaces:
    """The publishers that have a place."""

    def __init__(self, chains: Mapping[int, Chain]) -> None:
        self._chains = chains
        self._counts: Sizes[Holder] = Sizes()
        self._of: dict[Holder, OrderedDict[int, None]] = {}
        self._all: OrderedDict[int, None] = OrderedDict()
        self._holder_of: dict[int, Holder] = {}
        self.looked_at = 0

    def put(self, origin: int, holder: Holder) -> None:
        """This publisher has a place, which counts for this holder."""
        if self._holder_of.get(origin) == holder:
            return
        self.remove(origin)
        own = self._of.setdefault(holder, OrderedDict())
        own[origin] = None
        self._all[origin] = None
        self._holder_of[origin] = holder
        self._counts.set(holder, len(own))

    def remove(self, origin: int) -> None:
        """It has none any more."""
        holder = self._holder_of.pop(origin, None)
        if holder is None:
            return
        own = self._of[holder]
        del own[origin], self._all[origin]
        self._counts.set(holder, len(own))
        if not own:
            del self._of[holder]

    def who_leaves(self, holder: Holder) -> int | None:
        """Whose place a newcomer of this holder gets; None if it gets none."""
        most = self._counts.larger_than(self._counts.get(holder) + 1)
        for whose in (most, holder):
            own = None if whose is None else self._of.get(whose)
            leaves = None if own is None else self._oldest(own, must_be_idle=False)
            if leaves is not None:
                return leaves
        return self._oldest(self._all, must_be_idle=True)

    def _oldest(self, origins: OrderedDict[int, None], *, must_be_idle: bool) -> int | None:
        """One that is idle, or else one of which nothing is being committed. Those looked at have their turn later."""
        found = None
        for _ in range(min(LOOKS_MAX, len(origins))):
            origin = next(iter(origins))
            origins.move_to_end(origin)
            self.looked_at += 1
            chain = self._chains[origin]
            if chain.is_idle:
                return origin
            if found is None and not must_be_idle and chain.taken == chain.have:
                found = origin
        return found

    def __len__(self) -> int:
        return len(self._all)
