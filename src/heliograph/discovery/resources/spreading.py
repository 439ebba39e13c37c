"""Spreading advertisements: every broker is told what every broker hosts, once per change.

In:    what we host; what neighbours tell, offer and want; links that come up and end.
Out:   messages to neighbours; what was new in the table.
State: the number of what we told others about ourselves; changes that wait for ``flush``.
Not here: the table (table.py), our own resources (hosting.py) and which of them are told (own_advertisements.py),
       sending snapshots in portions (snapshots.py).
Paper: [resources] §3: advertisements flood. Design: numbered as interests are (broker/routing/interests.py).

A dynamic advertisement that another of ours covers is not told until that one is removed: requests come here anyway.
One that its owner attached again is told nevertheless, so that the broker where it was before removes it. A broker that
finds a gap asks the sender for a snapshot. On a new link each side offers what it has. Changes of our own resources
that arrive together are told in one message: they wait until ``flush``, at the latest until the next wake. What a
removed one covered is told in slices, one for each ``flush`` or wake.

A change, and a snapshot that fits in one message, is passed on at once. A longer snapshot comes in parts, from one
neighbour, and is offered to the others once it is whole; what others tell of that broker meanwhile is ignored, because
the neighbour tells it too, behind the snapshot; unless they begin a newer snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from heliograph.discovery.resources.messages import (
    ADVERTISEMENTS_PER_BODY_MAX,
    IDS_PER_BODY_MAX,
    AdvertisedResource,
    AdvertisementsOffered,
    AdvertisementsTold,
    Message,
    in_parts,
)
from heliograph.discovery.resources.own_advertisements import OwnAdvertisements
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.snapshots import Head, Snapshots
from heliograph.discovery.resources.table import AdvertisementTable, HostingBroker, TableDifference
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId
from heliograph.model.ages import Age, lacks
from heliograph.timekeeping.incarnations import Incarnations, Outbidding

Send = Callable[[LinkId, Message], None]


class Spreading:
    """Exchanges advertisements with neighbours."""

    def __init__(
        self,
        table: AdvertisementTable,
        places: Places,
        incarnations: Incarnations[int],
        outbidding: Outbidding,
        send: Send,
        count: Callable[[Reason], None],
        learned: Callable[[HostingBroker, TableDifference], None],
        later: Callable[[], None],
    ) -> None:
        self._table = table
        self._places = places
        self._incarnations = incarnations
        self._outbidding = outbidding
        self._send = send
        self._count = count
        self._learned = learned
        self._later = later  # asks for a call of ``flush`` soon
        self._own = OwnAdvertisements()
        self._came: dict[int, AdvertisedResource] = {}  # changes that wait
        self._went: dict[int, None] = {}
        self._number = 0
        self._told_as: tuple[str, int, int] | None = None  # our place and incarnation
        self._is_contested = False  # others know, or knew, something newer about us than we told
        self.frames_told = 0
        self._snapshots = Snapshots(send)
        self._arriving: dict[int, LinkId] = {}  # brokers whose snapshot is arriving, and from which neighbour
        self._awaited: dict[LinkId, dict[int, None] | None] = {}  # neighbours that owe us an offer (None) or snapshots

    @property
    def is_settled(self) -> bool:
        """False while data that neighbours have and we lack is on its way."""
        return not self._awaited

    def link_down(self, link: LinkId) -> None:
        """A neighbour is gone, does not have the service, or begins anew. Others may have what it was sending."""
        self._awaited.pop(link, None)
        self._incarnations.forget(link)
        self._snapshots.drop(link)
        lost = [host for host, source in self._arriving.items() if source == link]
        for host in lost:
            del self._arriving[host]
        for start in range(0, len(lost), IDS_PER_BODY_MAX):
            for other in self._places.links:
                if other != link:
                    self._send(other, AdvertisementsOffered(wants=lost[start : start + IDS_PER_BODY_MAX]))

    def stalled(self, now: Instant) -> list[LinkId]:
        """Neighbours that have taken no part of a snapshot for long."""
        return self._snapshots.stalled(now)

    # -- ours ---------------------------------------------------------------------------------------------------

    def change(self, came: Iterable[AdvertisedResource], went: Iterable[int]) -> None:
        """Our resources changed. First ``went``, then ``came``."""
        if not self._came and not self._went:
            self._later()
        for resource in went:
            self._came.pop(resource, None)
            self._went[resource] = None
        self._came.update((advertised.id, advertised) for advertised in came)

    def flush(self) -> None:
        """Tell the changes that wait, in as few messages as possible."""
        if not self._came and not self._went and not self._own.is_unfinished:
            return
        came, went, self._came, self._went = self._came, self._went, {}, {}
        add, remove = self._own.change(came.values(), went)
        if self._own.is_unfinished:
            self._later()
        if (add or remove) and not self._is_known:
            self._tell_all()
            return
        adds = in_parts(add, ADVERTISEMENTS_PER_BODY_MAX) if add else []
        while adds or remove:
            some = adds.pop(0) if adds else []
            gone, remove = remove[:IDS_PER_BODY_MAX], remove[IDS_PER_BODY_MAX:]
            self._number += 1
            if (head := self._head) is not None:
                told = AdvertisementsTold(*head, add=some, remove=gone)
                self._learn(told)
                self._tell(told, None)

    @property
    def _is_known(self) -> bool:
        """True if our own table contains us, as the tables of others do."""
        return self._places.ways is not None and self._places.ways.broker in self._table.hosts

    def _tell_all(self) -> None:
        """Tell everything that we host again."""
        self._number += 1
        resources = list(self._own.told.values())
        head = self._head
        if head is None:
            return
        parts = self._parts(head, resources)
        for part in parts:
            self._learn(part)
        if len(parts) == 1:
            self._tell(parts[0], None)
            return
        for link in self._places.links:
            self.frames_told += len(parts)
            self._snapshots.begin(link, head, resources)

    @property
    def _head(self) -> Head | None:
        """How our messages begin."""
        ways = self._places.ways
        return None if ways is None else (ways.broker, ways.name, *self._places.here, ways.incarnation, self._number)

    def _learn(self, told: AdvertisementsTold) -> bool:
        difference = self._table.learn(told)
        if difference is None:
            return False
        for _ in range(difference.refused):
            self._count(Reason.RESOURCES_OVER_LIMIT)
        if told.host in self._table.hosts:
            self._learned(self._table.hosts[told.host], difference)
        return True

    @staticmethod
    def _parts(head: Head, resources: list[AdvertisedResource]) -> list[AdvertisementsTold]:
        some = in_parts(resources, ADVERTISEMENTS_PER_BODY_MAX)
        return [
            AdvertisementsTold(*head, full=True, more=number + 1 < len(some), add=each, part=number)
            for number, each in enumerate(some)
        ]

    # -- links --------------------------------------------------------------------------------------------------

    def place_changed(self) -> None:
        """Our place or incarnation may have changed: tell all brokers everything again, under the new one."""
        if self._places.ways is None or self._told_as == (*self._places.here, self._places.ways.incarnation):
            return
        self._told_as = (*self._places.here, self._places.ways.incarnation)
        if self._own.told or self._is_contested:
            self._tell_all()

    def greet(self, link: LinkId, fresh: bool = False) -> None:
        """A new neighbour: offer what we have."""
        self._awaited[link] = None
        has = [
            (host.broker, host.incarnation, host.number) for host in self._table.hosts.values() if not host.is_partial
        ]
        for start in range(0, max(1, len(has)), IDS_PER_BODY_MAX):
            more = start + IDS_PER_BODY_MAX < len(has)
            some = has[start : start + IDS_PER_BODY_MAX]
            self._send(link, AdvertisementsOffered(some, fresh=fresh and not start, more=more))

    def hear_offer(self, link: LinkId, offer: AdvertisementsOffered, now: Instant) -> None:
        """What a neighbour has, what it wants, and what it has taken."""
        if offer.taken:
            self._snapshots.taken(link, offer.taken)
            return
        me = self._places.ways.broker if self._places.ways is not None else 0
        wants = []
        for broker, incarnation, number in offer.has:
            if self._is_ahead(link, broker, incarnation, now):
                continue
            if broker == me:
                self._hear_of_us((incarnation, number), now)
            elif self._lacks(broker, (incarnation, number)):
                wants.append(broker)
        if wants:
            self._send(link, AdvertisementsOffered(wants=wants))
            self._awaited[link] = {**(self._awaited.get(link) or {}), **dict.fromkeys(wants)}
        elif not offer.wants and not offer.more and not self._awaited.get(link, {0: None}):
            self._awaited.pop(link, None)
        for broker in offer.wants:
            host = self._table.hosts.get(broker)
            if host is not None and not host.is_partial:
                self._send_snapshot(link, host)

    def _lacks(self, broker: int, age: tuple[int, int]) -> bool:
        host = self._table.hosts.get(broker)
        if host is not None and host.is_partial:
            return broker not in self._arriving or age > host.age
        return lacks(None if host is None else host.age, age)

    def _send_snapshot(self, link: LinkId, host: HostingBroker) -> None:
        resources = list(host.resources.values())
        self.frames_told += -(-len(resources) // ADVERTISEMENTS_PER_BODY_MAX) or 1
        self._snapshots.begin(link, (host.broker, host.name, *host.place, *host.age), resources)

    def hear_told(self, link: LinkId, told: AdvertisementsTold, now: Instant) -> None:
        """What a broker hosts; passed on if it is new."""
        me = self._places.ways
        if told.paced:
            self._send(link, AdvertisementsOffered(taken=[(told.host, told.part)]))
        if me is None:
            return
        if told.full and not told.more:
            self._arrived(link, told.host)
        if self._is_ahead(link, told.host, told.incarnation, now):
            return
        if told.host == me.broker:
            self._hear_of_us(told.age, now)
            return
        host = self._table.hosts.get(told.host)
        if host is not None and self._comes_from_another(link, told, host):
            return
        if host is not None and told.age <= host.age and not (host.is_partial and told.age == host.age and told.full):
            return
        if not self._learn(told):
            self._arriving.pop(told.host, None)
            self._count(Reason.RESOURCE_TABLE_STALE)
            self._send(link, AdvertisementsOffered(wants=[told.host]))
        elif told.full and told.more:
            self._await_parts(told.host, link)
        elif self._arriving.pop(told.host, None) is None:
            self._tell(told, link)
        else:
            self._offer_whole(told, link)

    def _await_parts(self, host: int, link: LinkId) -> None:
        self._arriving[host] = link
        if len(self._arriving) > len(self._table.hosts):
            self._arriving = {host: link for host, link in self._arriving.items() if host in self._table.hosts}

    def _offer_whole(self, told: AdvertisementsTold, source: LinkId) -> None:
        """A snapshot in parts is whole now: offer it to the other neighbours."""
        for link in self._places.links:
            if link == source:
                continue
            if self._snapshots.is_sending(link, told.host):  # an older one, so the neighbour would not want this one
                self._send_snapshot(link, self._table.hosts[told.host])
            else:
                self._send(link, AdvertisementsOffered([(told.host, *told.age)]))

    def _comes_from_another(self, link: LinkId, told: AdvertisementsTold, host: HostingBroker) -> bool:
        """True if a snapshot is arriving from another neighbour, and this does not begin a newer one."""
        is_newer = told.full and not told.part and told.age > host.age
        return host.is_partial and not is_newer and self._arriving.get(told.host, link) != link

    def _arrived(self, link: LinkId, host: int) -> None:
        awaited = self._awaited.get(link)
        if awaited and host in awaited:
            del awaited[host]
            if not awaited:
                del self._awaited[link]

    def _is_ahead(self, link: LinkId, host: int, incarnation: int, now: Instant) -> bool:
        """True, and counted, if we do not believe this incarnation."""
        is_ahead = self._incarnations.refuses(incarnation, link, host, now)
        if is_ahead:
            self._count(Reason.INCARNATION_AHEAD)
        return is_ahead

    def ask_again(self, link: LinkId, hosts: list[int]) -> None:
        """Ask a neighbour for everything that these host."""
        for start in range(0, len(hosts), IDS_PER_BODY_MAX):
            self._send(link, AdvertisementsOffered(wants=hosts[start : start + IDS_PER_BODY_MAX]))

    def _hear_of_us(self, age: Age, now: Instant) -> None:
        """A broker remembers an earlier incarnation of ours, or lies: what we host now is newer."""
        me = self._places.ways
        assert me is not None
        ours = (me.incarnation, self._number)
        if age <= ours and not self._is_known:
            self._tell_all()
        self._is_contested = self._is_contested or age > ours
        self._outbidding.hear(age, ours, now)

    def _tell(self, told: AdvertisementsTold, source: LinkId | None) -> None:
        if told.paced:
            told = replace(told, paced=False)
        for link in self._places.links:
            if link != source:
                self.frames_told += 1
                if not self._snapshots.follow(link, told):
                    self._send(link, told)
