"""The view: what one broker knows of the network, shared by all parts of routing.

In:    records and interests that the parts learn; neighbours that peering makes and loses.
Out:   the map, the interests of others, the neighbours, and the paths in force.
State: all of these; no part keeps a copy.
Not here: telling others (teller.py), acting on changes (routing.py, settle), shortest paths (map.py).

The map may be newer than the paths in force: ``settle`` puts the paths of the newest map in force, so that all parts
change over together. Parts read the view freely. They change it only by its methods and by those of its members.
"""

from __future__ import annotations

from heliograph.broker.routing.interests import Interests
from heliograph.broker.routing.map import NetworkMap, Paths
from heliograph.broker.routing.ports import Neighbour
from heliograph.machine import Instant, Timers
from heliograph.wire.broker_bodies import Gateway, Member, Record


class View:
    """What this broker knows. _native.c reads: settled."""

    __slots__ = ("_paths", "_timers", "interests", "map", "me", "neighbours", "settled")

    def __init__(self, me: Member, timers: Timers) -> None:
        self.me = me.broker
        self.map = NetworkMap(me)
        self.interests = Interests()
        self.neighbours: dict[int, Neighbour] = {}  # linked brokers by id; peering.py puts them in and takes them out
        self.settled = -1  # the version of the map whose paths are in force
        self._paths: Paths | None = None
        self._timers = timers

    @property
    def is_settled(self) -> bool:
        """True if the map has not changed since its paths were put in force."""
        return self.settled == self.map.version

    @property
    def paths(self) -> Paths:
        """The paths in force."""
        if self._paths is None:
            self._paths = self.map.paths
        return self._paths

    @property
    def paths_so_far(self) -> Paths | None:
        """The same; None if none were computed yet."""
        return self._paths

    def settle(self) -> None:
        """Put the paths of the newest map in force."""
        self.settled = self.map.version
        self._paths = self.map.paths

    def look_again(self, at: Instant) -> None:
        """Settle at that time in any case: something waits to be told."""
        self._timers.set(("look again", at), at, self._look_again)

    def _look_again(self, _: Instant) -> None:
        self.map.touch()

    @property
    def epoch(self) -> int:
        """The current meaning of the slots: the highest epoch in our part of the cluster."""
        return self.paths.epoch

    def linked(self, inside: bool) -> dict[int, int]:
        """Our neighbours in our own cluster, or in others, and their costs."""
        cluster = self.map.me.cluster
        return {
            neighbour.broker: neighbour.told_cost
            for neighbour in self.neighbours.values()
            if not neighbour.suspected and (neighbour.cluster == cluster) is inside
        }

    def incarnations_of(self, linked: dict[int, int]) -> dict[int, int]:
        """The incarnations of these neighbours."""
        return {broker: self.neighbours[broker].incarnation for broker in linked}

    def gateways_here(self) -> dict[int, Gateway]:
        """The gateways of our part of the cluster, this broker included."""
        cluster, gateways = self.map.paths.cluster, self.map.gateways
        return {broker: gateways[broker] for broker in cluster if broker in gateways and gateways[broker].outside}

    def name_of(self, broker: int) -> str:
        """A broker's name, as far as it is known."""
        record: Record | None = self.map.members.get(broker) or self.map.gateways.get(broker)
        return f"{broker:016x}" if record is None else record.name

    def is_here(self, part: int) -> bool:
        """True if a parcel for this part of a cluster has arrived: the part is ours, or was when it was sent."""
        # A part is named after its leader. If that broker has left, parcels under that name may still be under way.
        return part in self.paths.cluster or (part in self.map.members and part not in self.paths.parts)
