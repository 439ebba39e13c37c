"""The table of advertisements: which resources there are, and which brokers host them.

In:    what hosting brokers tell, as numbered changes and snapshots.
Out:   what has changed; the static resources and the hosting brokers that a request overlaps.
State: per hosting broker its advertisements; a box index of static and one of dynamic ones; recent answers.
Not here: telling neighbours (spreading.py), which link leads to a host (places.py).
Paper: [resources] §3 and §4.1, the SRT. The last hop of an advertisement is the next hop toward its host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from heliograph.discovery.resources.conditions import ResourceCondition, fixed_values, read_condition
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsTold
from heliograph.discovery.resources.places import Place
from heliograph.errors import ConditionError
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.model.ages import Age, follows
from heliograph.model.predicates import Value

HOSTS_MAX = 16_384
REMEMBERED_MAX = 4_096  # queries whose answers are kept until the table changes


class HostingBroker(msgspec.Struct):
    """A broker that hosts resources."""

    broker: int
    name: str
    place: Place
    incarnation: int
    number: int = 0
    resources: dict[int, AdvertisedResource] = {}
    slots: dict[int, int] = {}  # resource -> its id in the index
    is_partial: bool = False  # a snapshot has begun and not ended
    parts: int = 0  # of the snapshot, that have come

    @property
    def age(self) -> Age:
        """How new our knowledge of it is."""
        return (self.incarnation, self.number)


class TableRow(msgspec.Struct, frozen=True, eq=False):
    """One advertisement, with the values that a static resource has. Resources share tuples of names."""

    host: HostingBroker
    advertised: AdvertisedResource
    names: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()

    @property
    def fixed(self) -> dict[str, Value]:
        """Its values by name."""
        return dict(zip(self.names, self.values, strict=True))

    @property
    def age(self) -> tuple[int, int]:
        """Of one resource at two brokers, the greater one is newer."""
        return (self.advertised.epoch, self.host.broker)


def newest_of(rows: Iterable[TableRow], newest: dict[int, TableRow]) -> None:
    """Add rows by resource; of one resource at two brokers the newest stays."""
    for row in rows:
        other = newest.get(row.advertised.id)
        if other is None or row.age > other.age:
            newest[row.advertised.id] = row


class TableDifference(msgspec.Struct):
    """What a change added and removed."""

    added: list[AdvertisedResource] = []
    removed: list[AdvertisedResource] = []
    is_reborn: bool = False  # its host restarted
    refused: int = 0  # advertisements that cannot be read, or exceed the limit


class AdvertisementTable:
    """Advertisements by hosting broker, and by what they offer."""

    def __init__(self, resources_max: int) -> None:
        self.hosts: dict[int, HostingBroker] = {}
        self.questions = 0  # on behalf of requests: the paper's matching operations
        self.checks = 0  # further queries, for our own records
        self._resources_max = resources_max
        self._indexes = (BoxIndex(), BoxIndex())  # dynamic, static
        self._rows: tuple[dict[int, TableRow], ...] = ({}, {})
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # names of static resources' values, each tuple once
        self._remembered: dict[str, list[HostingBroker]] = {}  # hosts of dynamic resources, by the text of a request

    def __len__(self) -> int:
        return len(self._rows[0]) + len(self._rows[1])

    def resize(self, resources_max: int) -> None:
        """Apply a new limit."""
        self._resources_max = resources_max

    # -- learning -----------------------------------------------------------------------------------------------

    def learn(self, told: AdvertisementsTold) -> TableDifference | None:
        """Add a change or a part of a snapshot. None: an earlier one is missing."""
        host = self.hosts.get(told.host)
        difference = TableDifference()
        if host is None:
            if len(self.hosts) >= HOSTS_MAX:
                difference.refused = len(told.add)
                return difference
            if not told.full or told.part:
                return None
        if not told.full:
            if host is None or host.is_partial or not follows(host.age, told.age):
                return None
        elif not told.part:
            host = self._begin(told, host, difference)
        elif host is None or not host.is_partial or host.age != told.age or host.parts != told.part:
            return None
        host.parts = told.part + 1
        host.name, host.place = told.name, (told.cluster, told.slot)
        host.number = told.number
        for resource in told.remove:
            self._remove(host, resource, difference)
        for advertised in told.add:
            self._add(host, advertised, difference)
        host.is_partial = told.full and told.more
        return difference

    def _begin(
        self, told: AdvertisementsTold, host: HostingBroker | None, difference: TableDifference
    ) -> HostingBroker:
        """A snapshot: its first part replaces everything known before."""
        if host is not None:
            difference.is_reborn = host.incarnation != told.incarnation
            for resource in list(host.resources):
                self._remove(host, resource, difference)
        place = (told.cluster, told.slot)
        host = self.hosts[told.host] = HostingBroker(told.host, told.name, place, told.incarnation, told.number)
        return host

    def forget(self, broker: int) -> TableDifference:
        """Forget a hosting broker."""
        difference = TableDifference()
        host = self.hosts.pop(broker, None)
        if host is not None:
            for resource in list(host.resources):
                self._remove(host, resource, difference)
        return difference

    def _add(self, host: HostingBroker, advertised: AdvertisedResource, difference: TableDifference) -> None:
        if advertised.id in host.resources:
            self._remove(host, advertised.id, difference)
        index, rows = self._indexes[advertised.is_static], self._rows[advertised.is_static]
        try:
            if len(self) >= self._resources_max:
                raise IndexFullError("resources_max", "no more resources are kept")
            condition = read_condition(advertised.where)
            slot = index.spare
            index.add(slot, condition.conjunction)
        except (ConditionError, IndexFullError):
            difference.refused += 1
            return
        rows[slot] = self._row(host, advertised, condition)
        self._remembered.clear()
        host.resources[advertised.id] = advertised
        host.slots[advertised.id] = slot
        difference.added.append(advertised)

    def _row(self, host: HostingBroker, advertised: AdvertisedResource, condition: ResourceCondition) -> TableRow:
        if not advertised.is_static:
            return TableRow(host, advertised)
        fixed = fixed_values(condition)
        names = tuple(fixed)
        if len(self._names) >= REMEMBERED_MAX:
            self._names.clear()
        return TableRow(host, advertised, self._names.setdefault(names, names), tuple(fixed.values()))

    def _remove(self, host: HostingBroker, resource: int, difference: TableDifference) -> None:
        advertised = host.resources.pop(resource, None)
        if advertised is None:
            return
        slot = host.slots.pop(resource)
        self._remembered.clear()
        self._indexes[advertised.is_static].remove(slot)
        del self._rows[advertised.is_static][slot]
        difference.removed.append(advertised)

    # -- queries ------------------------------------------------------------------------------------------------

    def overlapping_hosts(self, condition: ResourceCondition) -> list[HostingBroker]:
        """The brokers that host dynamic resources that may match a request, ordered by id."""
        self.questions += 1
        return self._hosts(condition)

    def still_overlapping(self, condition: ResourceCondition) -> list[HostingBroker]:
        """The same for a request that was handled before, to see what has changed or is missing."""
        self.checks += 1
        return self._hosts(condition)

    def _hosts(self, condition: ResourceCondition) -> list[HostingBroker]:
        hosts = self._remembered.get(condition.text)
        if hosts is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            hosts = self._remembered[condition.text] = self._find_hosts(condition)
        return list(hosts)

    def _find_hosts(self, condition: ResourceCondition) -> list[HostingBroker]:
        rows = self._rows[False]
        found: dict[int, HostingBroker] = {}
        for slot in self._indexes[False].intersecting(condition.conjunction, Stored.ADVERTISEMENTS):
            host = rows[slot].host
            found[host.broker] = host
            if len(found) == len(self.hosts):
                break  # no other hosts are known
        return [found[broker] for broker in sorted(found)]

    def overlapping_static(self, condition: ResourceCondition) -> list[TableRow]:
        """The static resources that may match; of one resource at two brokers the newest."""
        newest: dict[int, TableRow] = {}
        newest_of(self.overlapping_rows(condition), newest)
        return list(newest.values())

    def overlapping_rows(self, condition: ResourceCondition) -> list[TableRow]:
        """The advertisements of static resources that may match."""
        self.questions += 1
        rows = self._rows[True]
        return [rows[slot] for slot in self._indexes[True].intersecting(condition.conjunction, Stored.ADVERTISEMENTS)]

    def holders(self, resource: int) -> Iterator[tuple[HostingBroker, AdvertisedResource]]:
        """The brokers that host this resource."""
        for host in self.hosts.values():
            if resource in host.resources:
                yield host, host.resources[resource]
