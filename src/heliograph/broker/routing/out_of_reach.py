"""Memory: keeps items that are out of reach for a while: brokers without a path, and leaders that no longer lead.

In:    the catalogue, after each change of the map.
Out:   what came back into reach; what is forgotten.
State: since when each item is out of reach.
Not here: telling neighbours what came back (exchange.py).
Paper: N4; O9, named limits: names that come and go must not fill a map.

An item that is out of reach here is not offered to other brokers, so records of dead brokers do not circulate: every
broker forgets them ``forget_ms`` after it lost the path. Items that come back into reach are offered again by the
brokers that have them.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.catalogue import Catalogue, Item
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.machine import Instant, Timers
from heliograph.notes import BrokersLost, BrokersReached
from heliograph.wire.broker_bodies import What


class Memory:
    """Knows what is out of reach, and since when."""

    def __init__(
        self,
        view: View,
        catalogue: Catalogue,
        teller: Teller,
        timers: Timers,
        forget_ms: int,
        settle: Callable[[Instant], None],
        forget: Callable[[What, int], None],
    ) -> None:
        self._view = view
        self._catalogue = catalogue
        self._teller = teller
        self._timers = timers
        self._settle = settle  # settle the map with everything learned so far
        self._forget_item = forget  # drop a record or an interest for good
        self.keep_for(forget_ms)
        self._lost: dict[Item, Instant] = {}
        self._brokers_lost: dict[int, str] = {}

    def keep_for(self, forget_ms: int) -> None:
        """Keep items out of reach for this long from now on."""
        self._forget_ns = forget_ms * NS_PER_MS

    @property
    def lost(self) -> list[Item]:
        """Everything that will be forgotten, unless it comes back."""
        return list(self._lost)

    def look(self, now: Instant) -> list[Item]:
        """Find out which items went out of reach and which came back. Returns the latter."""
        known = self._catalogue.known()
        lost = {item: self._lost.get(item, now) for item in known if not self._catalogue.in_reach(*item)}
        came = [item for item in self._lost if item not in lost and item in known]
        if lost and lost.keys() != self._lost.keys():
            self._timers.set("forget", min(lost.values()) + self._forget_ns, self._forget)
        self._lost = lost
        self._note()
        return came

    def _note(self) -> None:
        """Note which brokers were lost and reached again: partitions, as this broker sees them."""
        view = self._view
        lost = {broker: view.name_of(broker) for broker in view.map.out_of_reach()}
        went = [name for broker, name in lost.items() if broker not in self._brokers_lost]
        came = [name for broker, name in self._brokers_lost.items() if broker in view.paths.costs]
        self._brokers_lost = lost
        if went:
            self._teller.note(BrokersLost(went))
        if came:
            self._teller.note(BrokersReached(came))

    def _forget(self, now: Instant) -> None:
        """Forget items that have long been out of reach. If one comes back, another broker offers it."""
        self._settle(now)  # what was just learned may have brought an item back
        old = [item for item, since in self._lost.items() if now - since >= self._forget_ns]
        for item in old:
            del self._lost[item]
            self._forget_item(*item)
        if self._lost:
            at = min(self._lost.values()) + self._forget_ns
            self._timers.set("forget", max(at, now + NS_PER_MS), self._forget)
