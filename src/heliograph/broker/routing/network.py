"""The network room: what this broker tells its neighbours, what it believes of them, and where a topic goes from here.

In:    neighbours that come, change and go; MAP, INTEREST and SYNC frames; our clients' filters.
Out:   the same frames to neighbours; next hops of a topic; word to the route cache when the way of something changed.
State: the map, the interests, our own records, the numbers under which we spoke.
Not here: links (peering.py), shortest ways (map.py), covering (interests.py), parcels (parcels.py), waves (waves.py).
Paper: [grid] §1.1 and §1.2.

What is learned is passed on at once, as the bytes that came, to every neighbour but the one it came from: Member
records and brokers' interests within the cluster, Gateway records and clusters' interests everywhere. On a new link
both sides say what they have (SYNC), and each sends what is newer; that is also how a healed partition merges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec.structs import replace

from heliograph.broker.config import NetworkConfig
from heliograph.broker.links import Link, Links
from heliograph.broker.routing.interests import Difference, Interests, Owner, Voice, Wish, snapshot_of
from heliograph.broker.routing.map import NetworkMap, Paths
from heliograph.broker.routing.neighbours import HopSink, Neighbour, Targets
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.waves import Waves
from heliograph.errors import Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.model.subscription import Subscription, Wanted, filter_of
from heliograph.model.topics import INBOX_ROOT
from heliograph.notes import BrokersLost, BrokersReached, NeighbourLinked, SlotChanged
from heliograph.wire import network as wire
from heliograph.wire.frames import VERSION, Frame, Kind, control
from heliograph.wire.limits import CLUSTERS_MAX
from heliograph.wire.network import MEMBERS_MAX, Gateway, Interest, LinkUp, Member, Record, Sync

TTL = 64  # hops; a trace and the shortest way end a loop long before
PLANS_MAX = 16_384  # remembered splits of targets
FORGET_MS = 60_000  # what is out of reach for so long is forgotten


def broker_id(name: str) -> int:
    """A broker's id, from its name: names are unique in a network."""
    return int.from_bytes(sha256(b"heliograph broker " + name.encode()).digest()[:8], "little")


def group_id(wanted: Wanted, group: str) -> int:
    """The number under which a shared subscription travels in a parcel."""
    asked = b"" if isinstance(wanted, bytes) else f"\0{wanted.language}\0{wanted.where}".encode()
    return int.from_bytes(sha256(filter_of(wanted) + asked + b"\0" + group.encode()).digest()[:8], "little")


class Network:
    """This broker as one of many."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        config: NetworkConfig,
        seed: int,
        links: Links,
        outbox: Outbox,
        timers: Timers,
        forget: Callable[[bytes], None],
        forget_all: Callable[[], None],
    ) -> None:
        me = broker_id(name)
        self.me = me
        self._name = name
        self._config = config
        self._links = links
        self._outbox = outbox
        self._timers = timers
        self._forget = forget
        self._forget_all = forget_all
        slot = config.slot if config.slot is not None else me % MEMBERS_MAX
        self.map = NetworkMap(Member(me, name, config.cluster, slot, 0, incarnation, 1, {}))
        self.interests = Interests()
        self.inbox = b"%b/%016x" % (INBOX_ROOT, me)
        self.voice = Voice(me, False, incarnation, config.interests_max)
        self.voice.change([self.inbox + b"/#"])  # one interest for the inboxes of all our sessions
        self.wide: Voice | None = None  # our cluster's voice, while we are its speaker
        self._wide_number = 0
        self._included: dict[int, None] = {}  # members whose interests are in the cluster's voice
        self._gateway_number = 0
        self.peering = Peering(config, self._myself, seed, links, outbox, timers)
        self._paths: Paths | None = None
        self.settled = -1  # the version of the map whose consequences are drawn
        self._ways: tuple[object, ...] = ()
        self._plans: dict[object, list[tuple[Neighbour, Targets]]] = {}  # until the ways change
        self._lost: dict[int, Instant] = {}
        self.waves = Waves(self, timers)
        self.updates_heard = 0
        self.updates_told = 0

    def start(self, now: Instant) -> None:
        """Dial whom we are to be linked to."""
        for target in self._config.links:
            self.peering.aim(target, now)

    def _myself(self) -> LinkUp:
        me = self.map.me
        return LinkUp([VERSION], me.broker, me.name, me.cluster, me.incarnation, "")

    @property
    def neighbours(self) -> dict[int, Neighbour]:
        """Linked brokers, by id."""
        return self.peering.neighbours

    @property
    def paths(self) -> Paths:
        """The ways in force."""
        if self._paths is None:
            self._paths = self.map.paths
        return self._paths

    @property
    def epoch(self) -> int:
        """The slots' present meaning: the highest epoch of anybody in our part of the cluster."""
        return self.paths.epoch

    # -- neighbours -----------------------------------------------------------------------------------------------

    def neighbour_up(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour is there: exchange what each side has, and tell the others."""
        if self._is_full(neighbour):
            self._links.hang_up(neighbour.link, Reason.CLUSTER_FULL, f"a cluster has at most {MEMBERS_MAX} brokers")
            return
        self._outbox.note(NeighbourLinked(neighbour.link.id, neighbour.name, neighbour.cluster))
        self.put(neighbour, Kind.SYNC, wire.encode(self._inventory(neighbour)))
        self._announce(now)

    def _is_full(self, neighbour: Neighbour) -> bool:
        cluster = self.paths.cluster
        return (
            neighbour.cluster == self.map.me.cluster and neighbour.broker not in cluster and len(cluster) >= MEMBERS_MAX
        )

    def neighbour_changed(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour costs more or less than was told, is suspected, or no longer."""
        neighbour.told_cost = neighbour.cost
        self._announce(now)

    def neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour is gone: tell the others, and no wave waits for it."""
        self._announce(now)
        self.waves.look_again(neighbour, now)

    def _announce(self, now: Instant) -> None:
        """Tell our own links as they are now."""
        me = self.map.me
        inside = self._linked(inside=True)
        record = replace(me, number=me.number + 1, links=inside)
        self._tell(record, None)
        self.map.learn(record)  # links to other clusters are told by ``settle``, behind what a new speaker has to say

    def listen(self, address: str, now: Instant) -> None:
        """Clients can dial us there."""
        me = self.map.me
        self.map.learn(replace(me, address=address, number=me.number + 1))
        self._announce(now)

    def addresses(self, count: int) -> list[str]:
        """Where clients could go instead: other brokers' addresses, nearest first, our own cluster before others."""
        paths = self.paths
        near = sorted((paths.costs[broker], member.address) for broker, member in paths.cluster.items())
        far = sorted(
            (paths.costs[broker], gateway.address)
            for broker, gateway in self.map.gateways.items()
            if broker in paths.costs and broker not in paths.cluster
        )
        own = self.map.me.address
        found = dict.fromkeys(address for _, address in [*near, *far] if address and address != own)
        return list(found)[:count]

    def _linked(self, inside: bool) -> dict[int, int]:
        cluster = self.map.me.cluster
        return {
            neighbour.broker: neighbour.told_cost
            for neighbour in self.neighbours.values()
            if not neighbour.suspected and (neighbour.cluster == cluster) is inside
        }

    def _announce_gateway(self, renew: bool = False) -> None:
        """Tell our links to other clusters, if there are any or were, and if anything about them is new."""
        known = None if renew else self.map.gateways.get(self.me)
        outside = self._linked(inside=False)
        if known is None and not outside and not renew:
            return
        paths = self.map.paths
        gateways = [broker for broker in paths.cluster if broker != self.me and broker in self.map.gateways]
        inside = {broker: coarse(cost) for broker, cost in self.map.costs_inside(gateways).items()}
        speaker = paths.speaker
        address = self.map.me.address
        if known is not None and _says(known) == (speaker, outside, inside, address):
            return
        self._gateway_number += 1
        me = self.map.me
        record = Gateway(
            me.broker, me.name, me.cluster, speaker, me.incarnation, self._gateway_number, outside, inside, address
        )
        self._tell(record, None)
        self.map.learn(record)

    # -- records --------------------------------------------------------------------------------------------------

    def receive_map(self, link: Link, frame: Frame, now: Instant) -> None:
        """A record of somebody's links."""
        record = wire.decode_record(frame.payload)
        self.updates_heard += 1
        if record.broker == self.me:
            self._outlive(record.incarnation, record.number, now)
            if isinstance(record, Gateway) and self.me not in self.map.gateways:
                self._announce_gateway(renew=True)  # we were one in an earlier life, and others still believe it
            return
        if isinstance(record, Member) and record.cluster != self.map.me.cluster:
            return
        if self.map.learn(record):
            self._tell(record, link, frame.payload)
            if isinstance(record, Member):
                self._settle_clash(record, now)

    def _outlive(self, incarnation: int, number: int, now: Instant) -> None:
        """Somebody has a record of an earlier life of ours that looks newer than this one: become newer still."""
        me = self.map.me
        if (incarnation, number) < (me.incarnation, me.number) or incarnation < me.incarnation:
            return
        if incarnation == me.incarnation:
            return  # our own words, come back
        self.map.learn(replace(me, incarnation=incarnation + 1, number=1))
        self._gateway_number = 0
        self.voice.age = (incarnation + 1, self.voice.age[1])
        if self.wide is not None:
            self.wide.age = (incarnation + 1, self.wide.age[1])
            self._tell_interests(self.wide.snapshot(), None)
        self._tell_interests(self.voice.snapshot(), None)
        self._announce(now)
        if self.me in self.map.gateways:
            self._announce_gateway(renew=True)

    def _settle_clash(self, other: Member, now: Instant) -> None:
        """The same slot claimed twice: the older incarnation keeps it."""
        me = self.map.me
        if other.slot != me.slot or other.broker not in self.map.paths.cluster:
            return
        if (me.incarnation, me.broker) < (other.incarnation, other.broker):
            return
        taken = {member.slot for member in self.map.paths.cluster.values()}
        free = next((slot for slot in range(MEMBERS_MAX) if slot not in taken), None)
        if free is None:
            for neighbour in list(self.neighbours.values()):
                if neighbour.cluster == me.cluster:
                    self._links.hang_up(neighbour.link, Reason.CLUSTER_FULL, "no slot is free")
            return
        epoch = (self.epoch + 1) & 0xFFFF
        self._outbox.note(SlotChanged(me.slot, free))
        self.map.learn(replace(me, slot=free, epoch=epoch, number=me.number + 1))
        self._announce(now)

    def _tell(self, record: Record, source: Link | None, raw: bytes = b"") -> None:
        raw = raw or wire.encode(record)
        inner = isinstance(record, Member)
        for neighbour in self.neighbours.values():
            if neighbour.link is not source and (not inner or neighbour.cluster == self.map.me.cluster):
                self.updates_told += 1
                self.put(neighbour, Kind.MAP, raw)

    @property
    def wide_age(self) -> tuple[int, int] | None:
        """How far we have spoken for our cluster, while we do."""
        return None if self.wide is None else self.wide.age

    def put(self, neighbour: Neighbour, kind: Kind, body: bytes) -> None:
        """Tell a neighbour something."""
        self._links.put(neighbour.link, control(kind, 0, body))

    # -- interests ------------------------------------------------------------------------------------------------

    def local_change(self, came: list[Subscription], went: list[Subscription]) -> None:
        """Our own clients' subscriptions changed."""
        change = self.voice.change(
            [one.wanted for one in came if not one.group],
            [one.wanted for one in went if not one.group],
            [(one.wanted, one.group) for one in came if one.group],
            [(one.wanted, one.group) for one in went if one.group],
        )
        if change is None:
            return
        self._tell_interests(self.voice.bodies(change), None)
        if self.wide is not None:
            self._widen(change)

    def receive_interest(self, link: Link, frame: Frame, now: Instant) -> None:
        """What somebody wants."""
        interest = wire.decode_interest(frame.payload)
        self.updates_heard += 1
        if interest.owner == self.me:
            self._outlive(interest.incarnation, interest.number, now)
            return
        owner = self.interests.owners.get((interest.owner, interest.wide))
        if owner is not None and interest.age <= owner.age:
            return
        difference = self.interests.learn(interest)
        if difference is None:
            neighbour = link.neighbour
            assert neighbour is not None
            self.put(neighbour, Kind.SYNC, wire.encode(Sync(wants=[(interest.owner, interest.wide)])))
            return
        for pattern in difference.patterns:
            self._forget(pattern)
        self._pass_on(interest.wide, frame.payload, link)
        if interest.wide:
            self.waves.look_again(None, now)
        if not interest.wide and interest.owner in self._included:
            self._widen(difference)

    def _widen(self, difference: Difference) -> None:
        """Something changed in the cluster for which we speak."""
        assert self.wide is not None
        change = self.wide.change(difference.came, difference.went, difference.groups_came, difference.groups_went)
        if change is not None:
            self._tell_interests(self.wide.bodies(change), None)

    def _tell_interests(self, bodies: list[Interest], only: Neighbour | None) -> None:
        for body in bodies:
            raw = wire.encode(body)
            if only is not None:
                self.updates_told += 1
                self.put(only, Kind.INTEREST, raw)
            else:
                self._pass_on(body.wide, raw, None)

    def _pass_on(self, wide: bool, raw: bytes, source: Link | None) -> None:
        cluster = self.map.me.cluster
        for neighbour in self.neighbours.values():
            if neighbour.link is not source and (wide or neighbour.cluster == cluster):
                self.updates_told += 1
                self.put(neighbour, Kind.INTEREST, raw)

    # -- a new link -----------------------------------------------------------------------------------------------

    def _inventory(self, neighbour: Neighbour) -> Sync:
        """What we have that concerns this neighbour."""
        near = neighbour.cluster == self.map.me.cluster
        narrow = [(self.me, *self.voice.age)]
        wide = [] if self.wide is None else [(self.me, *self.wide.age)]
        for owner in self.interests.owners.values():
            (wide if owner.wide else narrow).append((owner.broker, *owner.age))
        return Sync(
            members=[(member.broker, *member.age) for member in self.map.members.values()] if near else [],
            gateways=[(gateway.broker, *gateway.age) for gateway in self.map.gateways.values()],
            narrow=narrow if near else [],
            wide=wide,
        )

    def receive_sync(self, link: Link, frame: Frame, now: Instant) -> None:
        """What a neighbour has, or wants: send it what is newer here."""
        neighbour = link.neighbour
        assert neighbour is not None
        sync = wire.decode_sync(frame.payload)
        if sync.wants:
            for owner, is_wide in sync.wants[:1_000]:
                self._send_interests(neighbour, owner, is_wide)
            return
        near = neighbour.cluster == self.map.me.cluster
        members = {broker: (incarnation, number) for broker, incarnation, number in sync.members}
        gateways = {broker: (incarnation, number) for broker, incarnation, number in sync.gateways}
        records: list[Record] = list(self.map.members.values()) if near else []
        records += list(self.map.gateways.values())
        for record in records:
            theirs = members if isinstance(record, Member) else gateways
            if record.age > theirs.get(record.broker, (-1, -1)):
                self.updates_told += 1
                self.put(neighbour, Kind.MAP, wire.encode(record))
        self._send_newer(neighbour, sync, near)

    def _send_newer(self, neighbour: Neighbour, sync: Sync, near: bool) -> None:
        narrow = {broker: (incarnation, number) for broker, incarnation, number in sync.narrow}
        wide = {broker: (incarnation, number) for broker, incarnation, number in sync.wide}
        owners = [(self.me, False, self.voice.age)]
        if self.wide is not None:
            owners.append((self.me, True, self.wide.age))
        owners += [(owner.broker, owner.wide, owner.age) for owner in self.interests.owners.values()]
        for broker, is_wide, age in owners:
            if (is_wide or near) and age > (wide if is_wide else narrow).get(broker, (-1, -1)):
                self._send_interests(neighbour, broker, is_wide)

    def _send_interests(self, neighbour: Neighbour, broker: int, wide: bool) -> None:
        if broker == self.me:
            voice = self.wide if wide else self.voice
            if voice is not None:
                self._tell_interests(voice.snapshot(), neighbour)
            return
        owner = self.interests.owners.get((broker, wide))
        if owner is not None and owner.age > (0, 0):
            bodies = snapshot_of(broker, wide, owner.age, list(owner.filters), list(owner.groups))
            self._tell_interests(bodies, neighbour)

    # -- after a change of the map --------------------------------------------------------------------------------

    def settle(self, now: Instant) -> None:
        """Draw the consequences of what changed in the map since the last time."""
        while self.settled != self.map.version:
            self.settled = self.map.version
            self._paths = self.map.paths
            self._speak(now)
            self._announce_gateway()
        paths = self.paths
        self._note_losses(paths, now)
        ways = (paths.steps, paths.members, paths.parts, self.epoch, tuple(self.neighbours))
        if ways != self._ways:
            self._ways = ways
            self._plans.clear()
            for neighbour in self.neighbours.values():
                neighbour.sinks.clear()
            self._forget_all()

    def _speak(self, now: Instant) -> None:
        """Speak for our part of the cluster, if that is ours to do."""
        paths = self.paths
        if paths.speaker != self.me:
            if self.wide is not None:
                self._wide_number = self.wide.age[1]
            self.wide = None
            self._included = {}
            return
        included = {broker: None for broker in paths.cluster if broker != self.me}
        if self.wide is not None:
            self._include(included)
            return
        wide = self.wide = Voice(self.me, True, self.map.me.incarnation, self._config.interests_max)
        wide.age = (self.map.me.incarnation, self._wide_number)
        self._included = {}
        wide.change(list(self.voice.filters), [], self.voice.groups, [])
        for broker in included:
            owner = self.interests.owners.get((broker, False))
            if owner is not None:
                wide.change(list(owner.filters), [], list(owner.groups), [])
        wide.age = (wide.age[0], max(wide.age[1], self._wide_number + 1))
        self._included = included
        self._tell_interests(wide.snapshot(), None)

    def _include(self, included: dict[int, None]) -> None:
        for broker in [*self._included, *included]:
            came, went = broker in included, broker in self._included
            if came is went:
                continue
            owner = self.interests.owners.get((broker, False)) or Owner(broker, False)
            difference = Difference()
            if came:
                difference.came, difference.groups_came = list(owner.filters), list(owner.groups)
            else:
                difference.went, difference.groups_went = list(owner.filters), list(owner.groups)
            self._widen(difference)
        self._included = included

    def _note_losses(self, paths: Paths, now: Instant) -> None:
        lost = dict.fromkeys(self.map.out_of_reach())
        came = [broker for broker in self._lost if broker in paths.costs]
        went = [broker for broker in lost if broker not in self._lost]
        for broker in came:
            del self._lost[broker]
        for broker in went:
            self._lost[broker] = now
        if went:
            self._outbox.note(BrokersLost([self.name_of(broker) for broker in went]))
            at = min(self._lost.values()) + FORGET_MS * NS_PER_MS  # a new loss does not put off older ones
            self._timers.set("forget brokers", at, self._forget_lost)
        if came:
            self._outbox.note(BrokersReached([self.name_of(broker) for broker in came]))

    def _forget_lost(self, now: Instant) -> None:
        """What has long been out of reach need not be kept: if it comes back, it says who it is."""
        for broker, since in list(self._lost.items()):
            if now - since >= FORGET_MS * NS_PER_MS:
                del self._lost[broker]
                self.map.forget(broker)
                for wide in (False, True):
                    for pattern in self.interests.forget((broker, wide)).patterns:
                        self._forget(pattern)
        if self._lost:
            at = min(self._lost.values()) + FORGET_MS * NS_PER_MS
            self._timers.set("forget brokers", max(at, now + NS_PER_MS), self._forget_lost)

    def name_of(self, broker: int) -> str:
        """A broker's name, as far as it is known."""
        record: Record | None = self.map.members.get(broker) or self.map.gateways.get(broker)
        return f"{broker:016x}" if record is None else record.name

    # -- the way of a topic ---------------------------------------------------------------------------------------

    def elsewhere(self, topic: bytes, inside: bool, wishes: Sequence[Wish] = ()) -> Elsewhere:
        """Where a topic goes besides our own clients, together with those who want it for its content."""
        if not self.interests:
            return Elsewhere()
        targets, groups = self.targets_of(topic, inside, wishes)
        shares = {share: [self._share(share, owner) for owner in owners] for share, owners in groups.items()}
        return Elsewhere(tuple(self._hops(targets)), shares)

    def _share(self, share: int, owner: Owner) -> Targets:
        if owner.wide:
            return Targets(0, (owner.broker,), (share,))
        return Targets(1 << self.paths.cluster[owner.broker].slot, (), (share,))

    def _cost_of(self, owner: Owner) -> int:
        paths = self.paths
        return paths.costs[paths.parts[owner.broker] if owner.wide else owner.broker]

    def targets_of(
        self, topic: bytes, inside: bool, wishes: Sequence[Wish] = ()
    ) -> tuple[Targets, dict[int, list[Owner]]]:
        """Whom a topic concerns besides our own clients, and who has members of which groups that share it.

        ``inside``: it came from another cluster, whose broker has seen to all clusters; ours is left.
        """
        members = 0
        parts: dict[int, None] = {}
        groups: dict[int, list[Owner]] = {}
        paths = self.paths
        for wish in [*self.interests.match(topic), *wishes]:
            owner = wish.owner
            if owner.wide and (inside or owner.broker not in paths.parts):
                continue
            if not owner.wide and (owner.broker not in paths.cluster or owner.broker == self.me):
                continue
            if wish.group is not None:
                owners = groups.setdefault(group_id(wish.wanted, wish.group), [])
                if owner not in owners:
                    owners.append(owner)
            elif owner.wide:
                parts[owner.broker] = None
            else:
                members |= 1 << paths.cluster[owner.broker].slot
        for owners in groups.values():
            owners.sort(key=lambda owner: (self._cost_of(owner), owner.broker))
        return Targets(members, tuple(sorted(parts))), groups

    def _hops(self, targets: Targets) -> list[HopSink]:
        epoch = self.epoch
        return [neighbour.sink(part, TTL, epoch, (self.me,)) for neighbour, part in self.split(targets)]

    def split(self, targets: Targets) -> list[tuple[Neighbour, Targets]]:
        """Targets by the neighbour that leads to them. Those that nobody leads to are left out."""
        plan = self._plans.get(targets.key)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[targets.key] = self._split(targets)
        return plan

    def _split(self, targets: Targets) -> list[tuple[Neighbour, Targets]]:
        paths = self.paths
        members: dict[int, int] = {}
        parts: dict[int, list[int]] = {}
        mask = targets.members
        while mask:
            bit = mask & -mask
            mask ^= bit
            broker = paths.members.get(bit.bit_length() - 1)
            step = paths.steps.get(broker) if broker is not None else None
            if step is not None:
                members[step] = members.get(step, 0) | bit
        for part in targets.parts:
            step = paths.next_to_part(part)
            if step is not None:
                parts.setdefault(step, []).append(part)
        found: list[tuple[Neighbour, Targets]] = []
        for step in sorted({**members, **parts}):
            neighbour = self.neighbours.get(step)
            if neighbour is None:
                continue
            wanted = parts.get(step, [])
            for start in range(0, max(1, len(wanted)), CLUSTERS_MAX):
                some = tuple(wanted[start : start + CLUSTERS_MAX])
                mask = members.get(step, 0) if start == 0 else 0
                found.append((neighbour, Targets(mask, some, targets.groups)))
        return found

    def is_here(self, part: int) -> bool:
        """True if a parcel for this part of a cluster has arrived: it is ours, or was when it was sent."""
        # A part is named after its speaker. If that one has left, parcels are still on their way under its name.
        return part in self.paths.cluster or (part in self.map.members and part not in self.paths.parts)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a topic goes besides a broker's own clients."""

    hops: tuple[HopSink, ...] = ()
    shares: dict[int, list[Targets]] = field(default_factory=dict)  # group -> who has members, nearest first


def _says(gateway: Gateway) -> tuple[object, ...]:
    return (gateway.speaker, gateway.outside, gateway.inside, gateway.address)


def coarse(cost: int) -> int:
    """A cost in steps of about an eighth, so that small changes stay where they happen."""
    shift = max(0, cost.bit_length() - 4)
    return cost >> shift << shift
