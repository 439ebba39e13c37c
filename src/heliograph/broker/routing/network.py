"""The network room: what this broker tells its neighbours, what it believes of them, and where a topic goes from here.

In:    neighbours that come, change and go; MAP, INTEREST and SYNC frames; our clients' filters.
Out:   the same frames to neighbours; next hops of a topic; word to the route cache when the way of something changed.
State: the map, the interests, our own record and voice, what is remembered of ways.
Not here: links (peering.py), shortest ways (map.py), covering (interests.py), what is said for a cluster (speaker.py),
          what a new link brings (exchange.py), what is forgotten (memory.py), words about ourselves (life.py),
          parcels (parcels.py), waves (waves.py).
Paper: [grid] §1.1 and §1.2.

What is learned is passed on at once, as the bytes that came, to every neighbour but the one it came from: Member
records and brokers' interests within the cluster, Gateway records and clusters' interests everywhere. When a link
begins to count, both sides offer what they have; that is also how a healed partition merges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec.structs import replace

from heliograph.broker.routing.changeover import Changeover
from heliograph.broker.routing.eddies import Eddies
from heliograph.broker.routing.exchange import INNER, Exchange
from heliograph.broker.routing.interests import Difference, Interests, Owner, Voice, Wish
from heliograph.broker.routing.life import Life
from heliograph.broker.routing.map import NetworkMap, Paths
from heliograph.broker.routing.memory import Item, Memory
from heliograph.broker.routing.pace import Pace
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import HopSink, LinkWriter, Neighbour, Port
from heliograph.broker.routing.settings import NetworkConfig
from heliograph.broker.routing.slots import Slots
from heliograph.broker.routing.speaker import Speaker, inbox_of
from heliograph.broker.routing.targets import Targets
from heliograph.broker.routing.waves import Waves
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.model.subscription import Subscription, Wanted, filter_of
from heliograph.notes import NeighbourLinked, Note
from heliograph.wire import network as wire
from heliograph.wire.frames import VERSION, Frame, Kind, control
from heliograph.wire.network import MEMBERS_MAX, Gateway, Interest, LinkUp, Member, Record, What, broker_id

SETTLE_NS = 2_000_000  # changes that come so soon after others wait, so that consequences are drawn once for all …
SETTLE_EACH_NS = 10_000  # … or, where more is known, so soon for each link: nobody thinks more than it works
TROUBLED_NS = 2_000_000_000  # after a loss; by then everybody knows, and what was on its way has arrived
COSTS_NS = 50_000_000  # … and where only costs changed, so soon: no way is closed, and none is new


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
        links: LinkWriter,
        outbox: Outbox,
        timers: Timers,
        forget: Callable[[bytes], None],
        forget_all: Callable[[], None],
    ) -> None:
        me = broker_id(name)
        self.me = me
        self._name = name
        self.network_name = config.name  # another one needs a restart
        self._config = config
        self._links = links
        self._outbox = outbox
        self._timers = timers
        self._forget = forget
        self._forget_all = forget_all
        slot = config.slot if config.slot is not None else me % MEMBERS_MAX
        self.map = NetworkMap(Member(me, name, config.cluster, slot, 0, incarnation, 1, {}))
        self.interests = Interests()
        self.inbox = inbox_of(me)
        self.voice = Voice(me, False, incarnation, config.interests_max)
        self.voice.change([self.inbox + b"/#"])  # one interest for the inboxes of all our sessions
        self.speaker = Speaker(self, config.interests_max)
        self.memory = Memory(self, timers, config.forget_ms)
        self.exchange = Exchange(self, timers)
        self.slots = Slots(self, timers)
        self.life = Life(self, timers)
        self.peering = Peering(config, self._myself, seed, links, outbox, timers)
        self.peering.is_full = self.slots.is_full
        self._paths: Paths | None = None
        self.settled = -1  # the version of the map whose consequences are drawn
        self._settle_at: Instant = 0  # not before, unless it is urgent
        self._settle_timer: Instant | None = None
        self._costs_version = -1  # of the map, if nothing but costs changed since it was settled …
        self._costs_at: Instant = 0  # … and when that is to be settled
        self._pace = Pace()
        self._is_unsaid = False  # our links are not as we told them
        self._ways: tuple[object, ...] = ()
        self._losses = 0  # of the map, when the ways were worked out
        self.is_troubled = False  # a link was lost a short while ago
        self.plans = Plans(self)
        self.changeover = Changeover(self, links, timers)
        self.eddies = Eddies(self, links, timers)
        self.waves = Waves(self, timers)
        self.updates_heard = 0
        self.updates_told = 0
        self.times_settled = 0
        self.cut_off: Callable[[Neighbour, Instant], None]  # told of a neighbour that no longer hears us

    def start(self, now: Instant) -> None:
        """Dial whom we are to be linked to."""
        for target in self._config.links:
            self.peering.aim(target, now)

    def reload(self, config: NetworkConfig, now: Instant) -> None:
        """Links of new settings are dialled, those that are no longer in them are ended; key and times change too."""
        before, self._config = self._config, config
        self.memory.keep_for(config.forget_ms)
        self.peering.reload(config)
        for target in before.links:
            if target not in config.links:
                self.peering.drop(target)
        for target in config.links:
            if target not in before.links:
                self.peering.aim(target, now)

    def _myself(self) -> LinkUp:
        me = self.map.me
        return LinkUp([VERSION], me.broker, me.name, me.cluster, me.incarnation, "", network=self.network_name)

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
        """A neighbour is there: tell everybody, soon."""
        self._outbox.note(NeighbourLinked(neighbour.link.id, neighbour.name, neighbour.cluster))
        self._announce_soon()

    def neighbour_changed(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour costs more or less than was told, is suspected, or no longer."""
        neighbour.told_cost = neighbour.cost
        if neighbour.suspected:
            self.announce(now)
        else:
            self._announce_soon()

    def neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour is gone: tell the others, and no wave waits for it."""
        self.announce(now)
        self.waves.look_again(neighbour, now)

    def _announce_soon(self) -> None:
        """Our links are better than was told: that can wait for more of its kind."""
        self._is_unsaid = True
        self.map.version += 1

    def announce(self, now: Instant, anew: bool = False) -> None:
        """Tell what is new about ourselves; ``anew``: or what others have to hear once more."""
        self._is_unsaid = False
        me = self.map.me
        links = self.linked(inside=True)
        record = replace(me, links=links, lives=self.lives(links))
        if record == me and not anew:
            self.map.version += 1  # links to other clusters may have changed
            return
        record = replace(record, number=me.number + 1)
        self._pace.told(now)
        self.tell_record(record, None)
        self.map.learn(record)  # links to other clusters are told by ``settle``, behind what a new speaker has to say

    def listen(self, address: str, now: Instant) -> None:
        """Clients can dial us there."""
        me = self.map.me
        self.map.learn(replace(me, address=address, number=me.number + 1))
        self.announce(now, anew=True)

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

    def linked(self, inside: bool) -> dict[int, int]:
        """Our neighbours of our own cluster, or of others, and what they cost."""
        cluster = self.map.me.cluster
        return {
            neighbour.broker: neighbour.told_cost
            for neighbour in self.neighbours.values()
            if not neighbour.suspected and (neighbour.cluster == cluster) is inside
        }

    def lives(self, linked: dict[int, int]) -> dict[int, int]:
        """In which lives these neighbours are."""
        return {broker: self.neighbours[broker].incarnation for broker in linked}

    def gateways_here(self) -> dict[int, Gateway]:
        """The gateways of our part of the cluster, this broker included."""
        cluster, gateways = self.map.paths.cluster, self.map.gateways
        return {broker: gateways[broker] for broker in cluster if broker in gateways and gateways[broker].outside}

    # -- records --------------------------------------------------------------------------------------------------

    def receive_map(self, link: Port, frame: Frame, now: Instant) -> None:
        """A record of somebody's links."""
        record = wire.decode_record(frame.payload)
        self.updates_heard += 1
        if record.broker != broker_id(record.name):
            raise ProtocolError(Reason.BODY_MALFORMED, "a broker's id follows from its name")
        if isinstance(record, Member):
            self._check_inside(link)
            if record.cluster != self.map.me.cluster:
                raise ProtocolError(Reason.BODY_MALFORMED, "a member of another cluster")
        if record.broker == self.me:
            self.life.hear_record(record, link, now)
            return
        if not self.map.has_room(record):
            self.refuse(Reason.BROKERS_OVER_LIMIT)
            return
        is_cost = self._is_cost(record)
        if self.map.learn(record):
            if is_cost:
                self._costs_version = self.map.version
            self.tell_record(record, link, frame.payload)

    def _check_inside(self, link: Port) -> None:
        """What a cluster says among itself is heard from its own brokers only."""
        if link.neighbour is None or link.neighbour.cluster != self.map.me.cluster:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "this is for members of the cluster to say")

    def _is_cost(self, record: Record) -> bool:
        """True if nothing but costs would be new, by this record and since the map was settled."""
        if self.map.version not in (self.settled, self._costs_version):
            return False
        if isinstance(record, Member):
            member = self.map.members.get(record.broker)
            return member is not None and _shape(member, member.links) == _shape(record, record.links)
        gateway = self.map.gateways.get(record.broker)
        return (
            gateway is not None
            and gateway.inside.keys() == record.inside.keys()
            and _shape(gateway, gateway.outside) == _shape(record, record.outside)
        )

    def tell_record(self, record: Record, source: Port | None, raw: bytes = b"") -> None:
        """Tell everybody whom it concerns, but not the one it came from."""
        raw = raw or wire.encode(record)
        inner = isinstance(record, Member)
        for neighbour in self.neighbours.values():
            if neighbour.link is not source and (not inner or neighbour.cluster == self.map.me.cluster):
                self.updates_told += 1
                self.put(neighbour, Kind.MAP, raw)

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
        self._tell_change(change)

    def _tell_change(self, change: Difference | None) -> None:
        if change is not None:
            self.tell_interests(self.voice.bodies(change), None)
            self.speaker.hear(self.me, change)
        self.look_whether_settled()

    def look_whether_settled(self) -> None:
        """If what we want, or what our cluster wants, is not told to its end, the rest waits for the next wake."""
        if not (self.voice.is_settled and self.speaker.is_settled):
            self._timers.set("interests", 0, self._tell_more)

    def _tell_more(self, now: Instant) -> None:
        if self.voice.is_settled:
            self.speaker.tell_more()
        else:
            self._tell_change(self.voice.change())

    def receive_interest(self, link: Port, frame: Frame, now: Instant) -> None:
        """What somebody wants."""
        interest = wire.decode_interest(frame.payload)
        self.updates_heard += 1
        if not interest.wide:
            self._check_inside(link)
        if interest.owner == self.me:
            self.life.hear_interest(interest, now)
            return
        before = self.interests.age(interest.owner, interest.wide)
        if before is not None and interest.age <= before:
            return
        difference = self.interests.learn(interest)
        if difference is None:
            neighbour = link.neighbour
            assert neighbour is not None
            self.exchange.ask(neighbour, [("wide" if interest.wide else "narrow", interest.owner)])
            return
        if difference.is_cut:
            self.refuse(Reason.SUBSCRIPTIONS_OVER_LIMIT)
        for pattern in difference.patterns:
            self._forget(pattern)
        self._pass_on(interest.wide, frame.payload, link)
        if interest.wide:
            self.waves.look_again(None, now)
        else:
            self.speaker.hear(interest.owner, difference)
        if before is None or (interest.wide and self.speaker.broker != self.paths.speaker):
            self.map.version += 1  # no way changed, but somebody may be ready to speak, or has to be forgotten one day

    def tell_interests(self, bodies: list[Interest], only: Neighbour | None) -> None:
        """Tell one neighbour, or everybody whom it concerns."""
        for body in bodies:
            raw = wire.encode(body)
            if only is not None:
                self.updates_told += 1
                self.put(only, Kind.INTEREST, raw)
            else:
                self._pass_on(body.wide, raw, None)

    def _pass_on(self, wide: bool, raw: bytes, source: Port | None) -> None:
        cluster = self.map.me.cluster
        for neighbour in self.neighbours.values():
            if neighbour.link is not source and (wide or neighbour.cluster == cluster):
                self.updates_told += 1
                self.put(neighbour, Kind.INTEREST, raw)

    # -- what is known --------------------------------------------------------------------------------------------

    def known(self) -> dict[Item, None]:
        """Everything that was told, by others and by us."""
        items: dict[Item, None] = {("member", broker): None for broker in self.map.members}
        items.update({("gateway", broker): None for broker in self.map.gateways})
        items["narrow", self.me] = None
        if self.speaker.voice is not None:
            items["wide", self.me] = None
        items.update({("wide" if wide else "narrow", broker): None for broker, wide in self.interests.owners})
        return items

    def age(self, what: What, broker: int) -> tuple[int, int] | None:
        """The number of the newest word about it; None if there is none."""
        if what == "member" or what == "gateway":
            record: Record | None = (self.map.members if what == "member" else self.map.gateways).get(broker)
            return None if record is None else record.age
        if broker == self.me:
            voice = self.speaker.voice if what == "wide" else self.voice
            return None if voice is None else voice.age
        return self.interests.age(broker, what == "wide")

    def in_reach(self, what: What, broker: int) -> bool:
        """True if a way leads there and it still means something."""
        if what in INNER:
            return broker in self.paths.cluster
        if what == "gateway":
            return broker in self.paths.costs and bool(self.map.gateways[broker].outside)
        return broker in self.paths.parts or broker in (self.speaker.broker, self.me)

    def forget(self, what: What, broker: int) -> None:
        """It is out of reach for good."""
        if what == "member" or what == "gateway":
            self.map.forget(what, broker)
            return
        for pattern in self.interests.forget((broker, what == "wide")).patterns:
            self._forget(pattern)

    def note(self, note: Note) -> None:
        """Write down an observation."""
        self._outbox.note(note)

    def refuse(self, reason: Reason) -> None:
        """Count that something was not done, or not believed."""
        self._links.count(reason)

    # -- after a change of the map --------------------------------------------------------------------------------

    def settle_soon(self, now: Instant) -> None:
        """Something changed. Draw the consequences at once or, where that was done just now, together with others'."""
        at = self._settle_at
        if self.map.version == self._costs_version:
            at = max(at, self._costs_at)
        if now >= at:
            self.settle(now)
        elif self._settle_timer is None or at < self._settle_timer:
            self._settle_timer = at
            self._timers.set("settle", at, self.settle)

    def look_again(self, at: Instant) -> None:
        """Settle at that time, whatever comes: something waits to be told."""
        self._timers.set(("look again", at), at, self._look_again)

    def _look_again(self, _: Instant) -> None:
        self.map.version += 1

    def settle(self, now: Instant) -> None:
        """Draw the consequences of what changed in the map since the last time."""
        self._settle_timer = None
        self.times_settled += 1
        before = self._paths
        if self._is_unsaid and now >= self._pace.next_at:
            self.announce(now)
        elif self._is_unsaid:
            self.look_again(self._pace.next_at)
        while self.settled != self.map.version:
            self.settled = self.map.version
            self._paths = self.map.paths
            self.slots.settle(now)
            self.speaker.settle()
            self.speaker.announce_gateway(now)
        paths = self.paths
        self._settle_at = now + max(SETTLE_NS, SETTLE_EACH_NS * paths.links)
        self._costs_at = now + COSTS_NS
        ways = (paths.steps, paths.members, paths.parts, self.epoch, tuple(self.neighbours))
        if ways != self._ways or self._losses != self.map.losses:
            self._ways = ways
            self._change_ways(before, now)
        self._look_at_links(now)
        self.exchange.offer(self.memory.look(now))
        self.waves.look_again(None, now)

    def _change_ways(self, before: Paths | None, now: Instant) -> None:
        """A way that is lost is left at once, and nobody waits for what was on it; others are left in order."""
        is_lossy, self._losses = self._losses != self.map.losses, self.map.losses
        if is_lossy:
            self.is_troubled = True
            self._timers.set("troubled", now + TROUBLED_NS, self._calm_down)
        self.forget_ways(before or self.paths, now)
        if is_lossy:
            self.changeover.release_all(now)
        elif before is not None:
            self.changeover.begin(before, now)
        self.eddies.release(now)

    def _calm_down(self, now: Instant) -> None:
        self.is_troubled = False
        self.forget_ways(self.paths, now)

    def forget_ways(self, before: Paths, now: Instant) -> None:
        """The ways, or what is held back on them, are others from now on than they were ``before``."""
        self.plans.forget(before.members, now)
        self._forget_all()

    def _look_at_links(self, now: Instant) -> None:
        """A link that begins to count brings news to both sides. One that ends to count need not be broken."""
        for neighbour in list(self.neighbours.values()):
            names_us = self.map.names(neighbour.broker, self.me, neighbour.incarnation)
            counts = names_us and not neighbour.suspected
            if counts == neighbour.counts:
                continue
            neighbour.counts = counts
            if counts:
                self.exchange.greet(neighbour)
            elif not names_us:
                self.cut_off(neighbour, now)

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
        return Elsewhere(tuple(self.plans.hops(targets)), shares)

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

    def is_here(self, part: int) -> bool:
        """True if a parcel for this part of a cluster has arrived: it is ours, or was when it was sent."""
        # A part is named after its speaker. If that one has left, parcels are still on their way under its name.
        return part in self.paths.cluster or (part in self.map.members and part not in self.paths.parts)


def _shape(record: Record, links: dict[int, int]) -> tuple[object, ...]:
    """What a record says beside costs."""
    place = (record.slot, record.epoch) if isinstance(record, Member) else (record.speaker,)
    return (record.incarnation, record.address, record.lives, links.keys(), *place)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a topic goes besides a broker's own clients."""

    hops: tuple[HopSink, ...] = ()
    shares: dict[int, list[Targets]] = field(default_factory=dict)  # group -> who has members, nearest first
