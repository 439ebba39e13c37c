"""Known stores: which store serves what, according to their advertisements.

In:    advertisements, what a neighbour knows, time; that a store is gone for good.
Out:   the stores that serve a topic, best first; those that overlap a filter; one by its id; which of them are away.
State: a bounded table of advertisements, each with its expiry time; for an hour those that expired or stopped, and
       those that an administrator has forgotten.
Not here: passing requests on (desk.py), publishing advertisements (store.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.machine import Instant
from heliograph.model.topics import filter_fault, is_wild, matches, overlaps
from heliograph.wire.stores import StoreAdvertisement, ToldStore

STORES_MAX = 1_024
NS_PER_MS = 1_000_000
AWAY_NS = 3_600_000_000_000  # how long a store that is away is remembered: its publishers wait for it


class KnownStores:
    """Soft state: advertisements of stores."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[StoreAdvertisement, Instant]] = {}
        self._away: dict[str, tuple[StoreAdvertisement, Instant]] = {}
        self._forgotten: dict[str, Instant] = {}

    def hear(self, advertisement: StoreAdvertisement, now: Instant) -> bool:
        """Keep an advertisement. Returns False if there is no room, or if its patterns are invalid."""
        if any(filter_fault(pattern.encode()) is not None for pattern in advertisement.patterns):
            return False
        self._expire(now)
        store = advertisement.store
        if not advertisement.ttl_ms:
            self._known.pop(store, None)
            self._leave(advertisement, now + AWAY_NS)
            return True
        if store not in self._known and len(self._known) >= STORES_MAX:
            return False
        self._away.pop(store, None)
        self._forgotten.pop(store, None)
        self._known[store] = (advertisement, now + advertisement.ttl_ms * NS_PER_MS)
        return True

    def told(self, now: Instant) -> list[ToldStore]:
        """All of them, for the service of a new neighbour; those that are away first, as they do not advertise."""
        self._expire(now)
        return [
            ToldStore(advertisement, left_ms, away)
            for away, table in ((True, self._away), (False, self._known))
            for advertisement, until in table.values()
            if (left_ms := min((until - now) // NS_PER_MS, AWAY_NS // NS_PER_MS)) > 0
        ]

    def learn(self, told: ToldStore, now: Instant) -> bool:
        """Keep what a neighbour knows of a store that is not known here. Returns True if this is news."""
        self._expire(now)
        advertisement, table = told.store, self._away if told.away else self._known
        store = advertisement.store
        if store in self._known or store in self._away or store in self._forgotten or len(table) >= STORES_MAX:
            return False
        if any(filter_fault(pattern.encode()) is not None for pattern in advertisement.patterns):
            return False
        table[store] = (advertisement, now + told.left_ms * NS_PER_MS)
        return True

    def forget(self, store: str, now: Instant) -> bool:
        """A store that is away will not come back. Returns False if it is there."""
        self._expire(now)
        if store in self._known:
            return False
        self._away.pop(store, None)
        _make_room(self._forgotten)
        self._forgotten[store] = now + AWAY_NS
        return True

    def is_forgotten(self, store: str, now: Instant) -> bool:
        """True if an administrator said within the last hour that this store will not come back."""
        self._expire(now)
        return store in self._forgotten

    def get(self, store: str, now: Instant) -> StoreAdvertisement | None:
        """The store with this id."""
        self._expire(now)
        found = self._known.get(store)
        return None if found is None else found[0]

    def serving(self, topic: str, now: Instant, away: bool = False) -> list[StoreAdvertisement]:
        """The stores that serve a topic: the one with the longest pattern first, then by name."""
        return serving(self._listed(away, now), topic)

    def overlapping(self, pattern: str, now: Instant, away: bool = False) -> list[StoreAdvertisement]:
        """The stores that serve some topic of a filter, by name."""
        return [
            advertisement
            for advertisement in self.all(now, away)
            if any(overlaps(served.encode(), pattern.encode()) for served in advertisement.patterns)
        ]

    def all(self, now: Instant, away: bool = False) -> list[StoreAdvertisement]:
        """All of them, by name."""
        return sorted(self._listed(away, now), key=lambda advertisement: (advertisement.name, advertisement.store))

    def _listed(self, away: bool, now: Instant) -> list[StoreAdvertisement]:
        self._expire(now)
        return [advertisement for advertisement, _ in (self._away if away else self._known).values()]

    def _expire(self, now: Instant) -> None:
        for store in [store for store, (_, until) in self._known.items() if until <= now]:
            advertisement, until = self._known.pop(store)
            self._leave(advertisement, until + AWAY_NS)
        for store in [store for store, (_, until) in self._away.items() if until <= now]:
            del self._away[store]
        for store in [store for store, until in self._forgotten.items() if until <= now]:
            del self._forgotten[store]

    def _leave(self, advertisement: StoreAdvertisement, until: Instant) -> None:
        if advertisement.store not in self._forgotten:
            self._away.pop(advertisement.store, None)
            _make_room(self._away)
            self._away[advertisement.store] = (advertisement, until)

    @property
    def away(self) -> int:
        """How many were there within the last hour."""
        return len(self._away)

    def __len__(self) -> int:
        return len(self._known)


def _make_room(table: dict[str, Any]) -> None:
    """Forget the oldest entry of a full table."""
    if len(table) >= STORES_MAX:
        del table[next(iter(table))]


def serving(stores: Iterable[StoreAdvertisement], topic: str) -> list[StoreAdvertisement]:
    """Those that serve a topic: the one with the longest pattern first, then by name."""
    ranked = []
    for store in stores:
        depth = fit(store.patterns, topic)
        if depth is not None:
            ranked.append((-depth, store.name, store.store, store))
    return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def fit(patterns: list[str], topic: str) -> int | None:
    """How exactly some patterns match a topic, in levels without wildcards; None if none of them matches."""
    depths = [
        sum(not is_wild(level) for level in pattern.encode().split(b"/"))
        for pattern in patterns
        if matches(pattern.encode(), topic.encode())
    ]
    return max(depths, default=None)
