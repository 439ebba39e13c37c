"""Known stores: which store serves what, according to their advertisements.

In:    advertisements, time.
Out:   the stores that serve a topic, best first; those that overlap a filter; one by its id.
State: a bounded table of advertisements, each with its expiry time.
Not here: passing requests on (desk.py), publishing advertisements (store.py).
"""

from __future__ import annotations

from heliograph.machine import Instant
from heliograph.model.topics import filter_fault, is_wild, matches, overlaps
from heliograph.wire.stores import StoreAdvertisement

STORES_MAX = 1_024
NS_PER_MS = 1_000_000


class KnownStores:
    """Soft state: advertisements of stores."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[StoreAdvertisement, Instant]] = {}

    def hear(self, advertisement: StoreAdvertisement, now: Instant) -> bool:
        """Keep an advertisement. Returns False if there is no room, or if its patterns are invalid."""
        if any(filter_fault(pattern.encode()) is not None for pattern in advertisement.patterns):
            return False
        if not advertisement.ttl_ms:
            self._known.pop(advertisement.store, None)
            return True
        self._expire(now)
        if advertisement.store not in self._known and len(self._known) >= STORES_MAX:
            return False
        self._known[advertisement.store] = (advertisement, now + advertisement.ttl_ms * NS_PER_MS)
        return True

    def get(self, store: str, now: Instant) -> StoreAdvertisement | None:
        """The store with this id."""
        self._expire(now)
        found = self._known.get(store)
        return None if found is None else found[0]

    def serving(self, topic: str, now: Instant) -> list[StoreAdvertisement]:
        """The stores that serve a topic: the one with the longest pattern first, then by name."""
        self._expire(now)
        ranked = []
        for advertisement, _ in self._known.values():
            depth = fit(advertisement.patterns, topic)
            if depth is not None:
                ranked.append((-depth, advertisement.name, advertisement.store, advertisement))
        return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]

    def overlapping(self, pattern: str, now: Instant) -> list[StoreAdvertisement]:
        """The stores that serve some topic of a filter, by name."""
        self._expire(now)
        found = [
            advertisement
            for advertisement, _ in self._known.values()
            if any(overlaps(served.encode(), pattern.encode()) for served in advertisement.patterns)
        ]
        return sorted(found, key=lambda advertisement: (advertisement.name, advertisement.store))

    def all(self, now: Instant) -> list[StoreAdvertisement]:
        """All of them, by name."""
        self._expire(now)
        found = [advertisement for advertisement, _ in self._known.values()]
        return sorted(found, key=lambda advertisement: (advertisement.name, advertisement.store))

    def _expire(self, now: Instant) -> None:
        for store in [store for store, (_, until) in self._known.items() if until <= now]:
            del self._known[store]

    def __len__(self) -> int:
        return len(self._known)


def fit(patterns: list[str], topic: str) -> int | None:
    """How exactly some patterns match a topic, in levels without wildcards; None if none of them matches."""
    depths = [
        sum(not is_wild(level) for level in pattern.encode().split(b"/"))
        for pattern in patterns
        if matches(pattern.encode(), topic.encode())
    ]
    return max(depths, default=None)
