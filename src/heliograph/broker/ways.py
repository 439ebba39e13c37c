"""Ways for services: tells the services that attend about neighbours, next hops and costs, and about changes.

In:    services that attend; a settled map; neighbours that come and go.
Out:   frames on their pipes: the ways, whenever they differ from those sent last.
State: which services attend, and what was sent last.
Not here: how ways are found (routing/map.py), frames between services (service_hops.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from heliograph.broker.links import Link, Links
from heliograph.broker.routing.map import Paths
from heliograph.broker.routing.view import View
from heliograph.wire.frames import service
from heliograph.wire.ways import LinkedBroker, WaysHere, Word, encode

BROKER_NAME = b"broker"
# All of it fits a frame, whatever other brokers say: beyond these bytes the farthest clusters and the newest neighbours
# are not told. That is more than 2,500 clusters, or 1,000 neighbours, with the longest names.
CLUSTERS_BYTES = 512 << 10
NEIGHBOURS_BYTES = 448 << 10
ENTRY_BYTES = 64  # of an entry in JSON besides its names, at most

T = TypeVar("T")


class ServiceWays:
    """Tells services about neighbours and ways."""

    def __init__(self, view: View, links: Links) -> None:
        self._view = view
        self._links = links
        self._attending: dict[Link, None] = {}
        self._told: WaysHere | None = None

    def attend(self, pipe: Link) -> None:
        """Tell a service about neighbours and ways from now on, beginning with the current ones."""
        self._attending[pipe] = None
        self._told = self._now()
        self._tell(pipe, Word(ways=self._told))

    def attends(self, pipe: Link) -> bool:
        """True if this service takes frames of neighbours."""
        return pipe in self._attending

    def leave(self, pipe: Link) -> None:
        """A service is gone."""
        self._attending.pop(pipe, None)

    def look(self) -> None:
        """Something may have changed: tell the services if so."""
        if not self._attending:
            return
        ways = self._now()
        if ways == self._told:
            return
        self._told = ways
        for pipe in self._attending:
            self._tell(pipe, Word(ways=ways))

    def ended(self, pipe: Link, asker: int) -> None:
        """The link of a client that sent requests to this service has ended."""
        if pipe in self._attending:
            self._tell(pipe, Word(ended=asker))

    def _tell(self, pipe: Link, word: Word) -> None:
        self._links.put(pipe, service(BROKER_NAME, encode(word), 0))

    def _now(self) -> WaysHere:
        me, paths = self._view.map.me, self._view.paths
        linked = (
            LinkedBroker(each.link.id, each.broker, each.name, each.cluster, each.incarnation, each.told_cost)
            for each in self._view.neighbours.values()
        )
        neighbours = as_many(
            linked, NEIGHBOURS_BYTES, lambda each: len((each.name + each.cluster).encode()) + 2 * ENTRY_BYTES
        )
        return WaysHere(
            me.broker,
            me.name,
            me.cluster,
            me.slot,
            me.incarnation,
            neighbours,
            self._members(paths),
            self._clusters(paths),
        )

    def _link(self, step: int | None) -> int | None:
        """The link to a neighbour; None if it is gone but ways still lead through it."""
        neighbour = self._view.neighbours.get(step) if step is not None else None
        return None if neighbour is None else neighbour.link.id

    def _members(self, paths: Paths) -> list[tuple[int, int, int, int]]:
        found = []
        for slot, broker in sorted(paths.members.items()):
            link = self._link(paths.steps.get(broker))
            if link is not None:
                found.append((slot, broker, link, paths.costs[broker]))
        return found

    def _clusters(self, paths: Paths) -> list[tuple[str, int, int]]:
        """The nearest part of each other cluster."""
        nearest: dict[str, tuple[int, int]] = {}
        for gateway in paths.parts.values():
            link = self._link(paths.steps.get(gateway))
            record = self._view.map.gateways.get(gateway)
            if link is not None and record is not None and record.cluster != self._view.map.me.cluster:
                cost = paths.costs[gateway]
                if record.cluster not in nearest or cost < nearest[record.cluster][0]:
                    nearest[record.cluster] = (cost, link)
        by_cost = sorted(nearest, key=lambda cluster: (nearest[cluster], cluster))
        told = as_many(by_cost, CLUSTERS_BYTES, lambda cluster: len(cluster.encode()) + ENTRY_BYTES)
        return [(cluster, nearest[cluster][1], nearest[cluster][0]) for cluster in sorted(told)]


def as_many(entries: Iterable[T], bytes_max: int, size: Callable[[T], int]) -> list[T]:
    """The first entries, as far as this many bytes hold them."""
    found = []
    for entry in entries:
        bytes_max -= size(entry)
        if bytes_max < 0:
            break
        found.append(entry)
    return found
