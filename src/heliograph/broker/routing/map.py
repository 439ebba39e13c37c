"""The network map: which brokers there are, how they are linked, and which path is shortest.

In:    records of brokers, our own among them, as links come up and neighbours pass them on.
Out:   Paths: for each member of our cluster, and for each other cluster, the neighbour to go through and the cost.
State: the newest record of every broker; paths, computed on demand after a change.
Not here: telling records to neighbours (teller.py), measuring costs (peering.py), interests (interests.py).
Paper: [grid] §1.1, the broker network map.

Inside its cluster a broker knows every broker and link (Member records, told within the cluster). Of other clusters it
knows only the gateways, the links between clusters and the cost between gateways of one cluster (Gateway records, told
everywhere). A link counts only if both ends report it, each for the present incarnation of the other. The connected
part of a cluster is named after its leader, the member with the lowest slot in it: a cluster that fell apart is two
parts with two names, and each is reached through its own gateways. Nothing that can still be reached expires, so an
idle network sends no records.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from heliograph.wire.broker_bodies import Gateway, Member, Record, What

BrokerId = int
Cost = int
Edges = dict[BrokerId, dict[BrokerId, Cost]]

RECORDS_MAX = 16_384  # of members, and of gateways: the largest network that is supported
LINKS_MAX = 1 << 18  # named in all records: 16 of each broker
FORMER_MAX = 256  # names that parts of clusters had before …
FORMER_GATEWAYS_MAX = 64  # … and gateways that each of them had


class Paths:
    """Where to go from here. Valid until the map changes."""

    __slots__ = (
        "cluster",
        "costs",
        "epoch",
        "former",
        "leader",
        "leaders",
        "links",
        "members",
        "parts",
        "siblings",
        "steps",
    )

    def __init__(self) -> None:
        self.cluster: dict[BrokerId, Member] = {}  # the members that can be reached inside the cluster, us included
        self.leader: BrokerId = 0
        self.epoch = 0  # the highest in our part of the cluster
        self.links = 0  # how many links were examined
        self.costs: dict[BrokerId, Cost] = {}  # to every broker that can be reached
        self.steps: dict[BrokerId, BrokerId] = {}  # broker -> the neighbour through which it is reached
        self.members: dict[int, BrokerId] = {}  # slot -> broker, of the others in our part of the cluster
        self.parts: dict[BrokerId, BrokerId] = {}  # leader of another part -> the gateway at which it is entered
        self.leaders: dict[BrokerId, BrokerId] = {}  # gateway of another part -> its leader
        self.siblings: tuple[BrokerId, ...] = ()  # other parts of our own cluster, if it fell apart
        self.former: dict[BrokerId, tuple[BrokerId, ...]] = {}  # part -> its gateways, now and before

    def parts_named(self, name: BrokerId) -> list[BrokerId]:
        """The present names of a part that may have had another name, or may have fallen apart a short while ago; the
        same name if nothing else is known."""
        found = dict.fromkeys([name] if name in self.parts else ())
        found.update((self.leaders[each], None) for each in self.former.get(name, ()) if each in self.leaders)
        return list(found) or [name]

    def part_named(self, name: BrokerId) -> BrokerId:
        """The first of these."""
        return name if name in self.parts else self.parts_named(name)[0]

    def next_to_part(self, name: BrokerId) -> BrokerId | None:
        """The neighbour through which that part of a cluster is reached."""
        gateway = self.parts.get(self.part_named(name))
        return None if gateway is None else self.steps.get(gateway)


class NetworkMap:
    """What one broker knows of the network."""

    def __init__(self, me: Member) -> None:
        self.me = me
        self.members: dict[BrokerId, Member] = {me.broker: me}
        self.gateways: dict[BrokerId, Gateway] = {}
        self.version = 0  # raised by every change
        self.losses = 0  # raised when a link is gone, here or elsewhere
        self._paths: Paths | None = None
        self._links = 0  # named in all records
        self._former: dict[BrokerId, tuple[BrokerId, ...]] = {}  # part -> gateways, the newest first
        self._own_names: dict[BrokerId, None] = {}  # of our own part, now and a short while ago

    def learn(self, record: Record) -> bool:
        """Keep a record if it is newer than the known one; False if it is not."""
        known: dict[BrokerId, Any] = self.members if isinstance(record, Member) else self.gateways
        older = known.get(record.broker)
        if older is not None and older.age >= record.age:
            return False
        if not self.has_room(record):
            return False
        self._links += links_in(record) - links_in(older)
        self.losses += older is not None and _is_less(record, older)
        known[record.broker] = record
        if record.broker == self.me.broker and isinstance(record, Member):
            self.me = record
        self._changed()
        return True

    def has_room(self, record: Record) -> bool:
        """True if the limits allow replacing the known record by this one. Our own is always kept."""
        known: dict[BrokerId, Any] = self.members if isinstance(record, Member) else self.gateways
        older = known.get(record.broker)
        if record.broker == self.me.broker:
            return True
        if older is None and len(known) >= RECORDS_MAX:
            return False
        more = links_in(record) - links_in(older)
        return more <= 0 or self._links + more <= LINKS_MAX

    def forget(self, what: What, broker: BrokerId) -> None:
        """Drop the record of a broker that has long been out of reach."""
        known: dict[BrokerId, Any] = self.members if what == "member" else self.gateways
        self._links -= links_in(known.pop(broker, None))
        self._former.pop(broker, None)
        self._changed()

    def names(self, broker: BrokerId, other: BrokerId, incarnation: int) -> bool:
        """True if a broker, in this incarnation or a later one, reports a link to the other."""
        member, gateway = self.members.get(broker), self.gateways.get(broker)
        return (member is not None and other in member.links and member.incarnation >= incarnation) or (
            gateway is not None and other in gateway.outside and gateway.incarnation >= incarnation
        )

    def was_ours(self, part: BrokerId) -> bool:
        """True if our part of the cluster has this name, or had it before it fell apart a short while ago."""
        return part in self._own_names

    def touch(self) -> None:
        """No path changed, but something else that routing has to act on when it settles."""
        self.version += 1

    def _changed(self) -> None:
        self.version += 1
        self._paths = None

    @property
    def paths(self) -> Paths:
        """The shortest paths from here, in the present view."""
        if self._paths is None:
            self._paths = self._work_out()
        return self._paths

    def out_of_reach(self) -> list[BrokerId]:
        """Brokers of which something is known but to which there is no path, in order of their ids."""
        costs = self.paths.costs
        gateways = [broker for broker, gateway in self.gateways.items() if gateway.outside]  # the others withdrew
        return sorted({broker for broker in [*self.members, *gateways] if broker not in costs})

    def _work_out(self) -> Paths:
        paths = Paths()
        me = self.me.broker
        inner = self._inner_edges()
        inner_costs, inner_steps = shortest(me, inner)
        paths.cluster = {broker: self.members[broker] for broker in inner_costs}
        paths.leader = min(paths.cluster.values(), key=lambda member: (member.slot, member.broker)).broker
        paths.epoch = max(member.epoch for member in paths.cluster.values()) & 0xFFFF
        edges = self._outer_edges(paths.cluster)
        for broker, neighbours in inner.items():
            if broker in paths.cluster:
                edges.setdefault(broker, {}).update(neighbours)
        paths.links = sum(map(len, edges.values()))
        paths.costs, paths.steps, before = shortest_tree(me, edges)
        # Parcels for members stay inside the cluster, even if a path through another is shorter: brokers there do not
        # know what the slots mean.
        paths.costs.update(inner_costs)
        paths.steps.update(inner_steps)
        for broker, member in sorted(paths.cluster.items()):
            if broker != me:
                paths.members.setdefault(member.slot, broker)
        self._enter_parts(paths, before)
        own = [part for part, at in paths.parts.items() if self.gateways[at].cluster == self.me.cluster]
        paths.siblings = tuple(own)
        self._own_names[paths.leader] = None
        paths.former = self._former = self._remember(paths)
        return paths

    def _remember(self, paths: Paths) -> dict[BrokerId, tuple[BrokerId, ...]]:
        """Which gateways each part has and had: parcels may be under way under a name that has lost its meaning."""
        gateways: dict[BrokerId, dict[BrokerId, None]] = {part: {at: None} for part, at in paths.parts.items()}
        for gateway, part in paths.leaders.items():
            gateways[part][gateway] = None
        former = dict(self._former)
        for part, present in gateways.items():
            present.update(dict.fromkeys(former.pop(part, ())))
            former[part] = tuple(present)[:FORMER_GATEWAYS_MAX]
        return dict(list(former.items())[-FORMER_MAX:])

    def forget_breaks(self) -> None:
        """What was under way when a part fell apart has arrived: a part's name means only what is left of it."""
        paths = self.paths
        self._own_names = {paths.leader: None}
        for part in paths.parts:
            if part in self._former:
                self._former[part] = tuple(each for each in self._former[part] if paths.leaders.get(each) == part)

    def _enter_parts(self, paths: Paths, before: dict[BrokerId, BrokerId]) -> None:
        """Choose the gateway at which each other part is entered.

        If we reach other parts through it, this is the nearest of the gateways on those paths, so that a publication
        for its members and for parts beyond enters it once. Otherwise it is the nearest of all its gateways.
        """
        costs, leaders, parts = paths.costs, paths.leaders, paths.parts
        for broker, gateway in sorted(self.gateways.items()):
            if broker in costs and broker not in paths.cluster and gateway.outside:
                leaders[broker] = gateway.leader
                nearest = parts.get(gateway.leader)
                if nearest is None or costs[broker] < costs[nearest]:
                    parts[gateway.leader] = broker
        passed: dict[BrokerId, BrokerId] = {}
        for part, at in parts.items():
            while (into := leaders.get(at)) is not None:
                last = before[at]
                if into not in (part, leaders.get(last)) and (into not in passed or costs[at] < costs[passed[into]]):
                    passed[into] = at
                at = last
        parts.update(passed)

    def _inner_edges(self) -> Edges:
        """Links between members of our cluster that both ends report."""
        members = self.members
        return {
            broker: {
                other: cost
                for other, cost in member.links.items()
                if other in members and broker in members[other].links and _agree(member, members[other])
            }
            for broker, member in members.items()
        }

    def _outer_edges(self, cluster: dict[BrokerId, Member]) -> Edges:
        """Links between clusters that both ends report, and the paths between gateways of other parts."""
        edges: Edges = {}
        gateways = self.gateways
        for broker, gateway in gateways.items():
            neighbours = edges[broker] = {}
            for other, cost in gateway.outside.items():
                there = gateways.get(other)
                if there is not None and broker in there.outside and _agree(gateway, there):
                    neighbours[other] = cost
            if broker in cluster:
                continue  # for our own part we have the members' records
            for other, cost in gateway.inside.items():
                there = gateways.get(other)
                if there is None or there.cluster != gateway.cluster or cost > neighbours.get(other, cost):
                    continue
                if there.leader == gateway.leader or broker in there.inside:  # or one has not named the new leader yet
                    neighbours[other] = cost
        return edges


def links_in(record: Record | None) -> int:
    """How many links a record names."""
    if record is None:
        return 0
    return len(record.links) if isinstance(record, Member) else len(record.outside) + len(record.inside)


def _is_less(record: Record, older: Record) -> bool:
    """True if a broker has lost a link, or has a new incarnation, since it told the older record."""
    links, before = (each.links if isinstance(each, Member) else each.outside for each in (record, older))
    return record.incarnation != older.incarnation or not before.keys() <= links.keys()


def _agree(one: Record, other: Record) -> bool:
    """True if each broker's incarnation is at least the one that the other is linked to."""
    return other.incarnation >= one.incarnations.get(other.broker, 0) and one.incarnation >= other.incarnations.get(
        one.broker, 0
    )


def shortest(start: BrokerId, edges: Edges) -> tuple[dict[BrokerId, Cost], dict[BrokerId, BrokerId]]:
    """Costs from ``start``, and for each broker the neighbour of ``start`` on the path."""
    costs, steps, _ = shortest_tree(start, edges)
    return costs, steps


def shortest_tree(
    start: BrokerId, edges: Edges
) -> tuple[dict[BrokerId, Cost], dict[BrokerId, BrokerId], dict[BrokerId, BrokerId]]:
    """Dijkstra: costs from ``start``; for each broker the neighbour of ``start`` on the path, and the broker before it.

    Of equally short paths the one through the lower neighbour id is taken, so that the choice is stable.
    """
    costs: dict[BrokerId, Cost] = {}
    steps: dict[BrokerId, BrokerId] = {}
    before: dict[BrokerId, BrokerId] = {}
    heap: list[tuple[Cost, BrokerId, BrokerId]] = [(0, start, start)]
    best: dict[BrokerId, tuple[Cost, BrokerId]] = {}  # the best entry for each broker: worse ones are not pushed
    while heap:
        cost, step, broker = heappop(heap)
        if broker in costs:
            continue
        costs[broker] = cost
        steps[broker] = step
        for other, more in edges[broker].items() if broker in edges else ():
            if other not in costs:
                way = (cost + (more if more > 1 else 1), other if broker == start else step)
                if other not in best or way < best[other]:
                    best[other] = way
                    before[other] = broker
                    heappush(heap, (*way, other))
    del steps[start]
    return costs, steps, before
