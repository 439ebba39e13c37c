"""Shares: places that peers take before they have proven anything, shared fairly among source addresses.

In:    items (links, TLS handshakes), each with the source address it came from.
Out:   the item that gives its place to a newcomer when all are taken.
State: items by source, oldest first; sources by how many items they have.
Not here: how many places there are, and what happens to an item that loses its place (sessions.py, live/secure.py).

A source may use every place that no other source needs, so many clients behind one address are not limited. When all
places are taken, a newcomer gets the place of the oldest item of the source that has most, provided that this source
then still has as many as the newcomer's source. Every operation takes constant time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Generic, TypeVar

SUBSCRIBER_BITS = 64  # of an IPv6 address: one subscriber has all addresses with the same first bits

T = TypeVar("T")


@lru_cache(1_024)  # asked for with each request of a link
def source_of(address: str) -> str:
    """The source that ``host:port`` or ``[host]:port`` counts for: an IPv4 address, or the /64 of an IPv6 one.

    Never empty.
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip: IPv4Address | IPv6Address = ip_address(host.partition("%")[0])
    except ValueError:
        return host or "unknown"  # simulated hosts have names; a peer that was reset at once has no address left
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None:
            return f"{IPv6Address(int(ip) >> SUBSCRIBER_BITS << SUBSCRIBER_BITS)}/{SUBSCRIBER_BITS}"
        ip = ip.ipv4_mapped
    return str(ip)


class Shares(Generic[T]):
    """Items by source."""

    __slots__ = ("_by_count", "_items", "_most", "_sources")

    def __init__(self) -> None:
        self._sources: dict[T, str] = {}
        self._items: dict[str, dict[T, None]] = {}
        self._by_count: dict[int, dict[str, None]] = {}  # number of items -> the sources that have this many
        self._most = 0  # items of the source that has most

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, item: T) -> bool:
        return item in self._sources

    def count(self, source: str) -> int:
        """How many items a source has."""
        return len(self._items.get(source, ()))

    def add(self, source: str, item: T) -> None:
        """Give an item a place."""
        assert item not in self._sources
        self._sources[item] = source
        items = self._items.setdefault(source, {})
        items[item] = None
        self._move(source, len(items) - 1, len(items))
        self._most = max(self._most, len(items))

    def remove(self, item: T) -> None:
        """Free the place of an item, if it has one."""
        source = self._sources.pop(item, None)
        if source is None:
            return
        items = self._items[source]
        del items[item]
        self._move(source, len(items) + 1, len(items))
        if not items:
            del self._items[source]
        if self._most not in self._by_count:
            self._most -= 1

    def __iter__(self) -> Iterator[T]:
        """All items, oldest first."""
        return iter(self._sources)

    def oldest(self, source: str) -> T | None:
        """The oldest item of a source."""
        return next(iter(self._items.get(source, ())), None)

    def victim(self, source: str) -> T | None:
        """The item whose place a newcomer from this source may have; None if no other source has clearly more than
        it."""
        if self._most < self.count(source) + 2:
            return None
        return self.oldest(next(iter(self._by_count[self._most])))

    def _move(self, source: str, before: int, after: int) -> None:
        if before:
            peers = self._by_count[before]
            del peers[source]
            if not peers:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[source] = None
