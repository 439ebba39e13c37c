"""Places: which link leads to the broker that hosts a resource.

In:    the ways that the broker tells its services.
Out:   next hops and costs by place (cluster and slot); neighbours that came and went.
State: the latest ways.
Not here: how ways are found (broker/routing/map.py).
"""

from __future__ import annotations

import msgspec

from heliograph.machine import LinkId
from heliograph.wire.ways import WaysHere

COST_FAR = 1 << 40  # of an unreachable place

Place = tuple[str, int]
"""Where a broker is: its cluster, and its slot there. An address may replace it later."""


class WaysChanged(msgspec.Struct, frozen=True):
    """What has changed in the ways."""

    came: tuple[LinkId, ...]
    went: tuple[LinkId, ...]


class Places:
    """The network as seen from here."""

    def __init__(self) -> None:
        self.ways: WaysHere | None = None
        self.here: Place = ("", 0)  # our own place
        self.links: dict[LinkId, str] = {}  # neighbours: link -> name
        self._members: dict[int, tuple[LinkId, int]] = {}
        self._clusters: dict[str, tuple[LinkId, int]] = {}

    def hear(self, ways: WaysHere) -> WaysChanged:
        """Take new ways."""
        before = self.links
        self.ways = ways
        self.here = (ways.cluster, ways.slot)
        self.links = {each.link: each.name for each in ways.neighbours}
        self._members = {slot: (link, cost) for slot, _, link, cost in ways.members}
        self._clusters = {name: (link, cost) for name, link, cost in ways.clusters}
        came = tuple(link for link in self.links if link not in before)
        return WaysChanged(came, tuple(link for link in before if link not in self.links))

    def hop(self, place: Place) -> LinkId | None:
        """The link toward a place; None if it is unreachable."""
        return self._way(place)[0]

    def cost(self, place: Place) -> int:
        """Its distance; ours is 0."""
        return 0 if place == self.here else self._way(place)[1]

    def _way(self, place: Place) -> tuple[LinkId | None, int]:
        cluster, slot = place
        found = self._members.get(slot) if cluster == self.here[0] else self._clusters.get(cluster)
        return found if found is not None and found[0] in self.links else (None, COST_FAR)
