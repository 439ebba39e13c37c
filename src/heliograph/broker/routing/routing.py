"""Routing: keeps a map of the network and answers where a topic goes from this broker.

In:    neighbours that come, change and go; their frames (MAP, INTEREST, SYNC, WAVE, MARKED, COUNT; MARKs in parcels);
       what our own clients want; time.
Out:   frames to neighbours; calls to the route cache when a filter or all paths are to be forgotten; where a topic
       goes; reports.
State: the view, and what each part keeps.
Not here: making links (peering.py), reading parcels (parcels.py), and the parts: announcements, advertising and
          leadership (what we tell), exchange and memory (what each side lacks, what is forgotten), slots, incarnation,
          barriers, plans, changeover and eddies (which path parcels take), forwarding, destinations.
Paper: [grid] §1.1 and §1.2.

What is learned is passed on at once, as the bytes that came, to every neighbour but the one it came from: Member
records and brokers' interests within the cluster, Gateway records and clusters' interests everywhere. When a link
begins to count, both sides offer what they have; that is also how a healed partition merges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.broker.routing.advertising import Advertising
from heliograph.broker.routing.announcements import Announcements
from heliograph.broker.routing.barriers import Barriers
from heliograph.broker.routing.catalogue import Catalogue, Item
from heliograph.broker.routing.changeover import Changeover
from heliograph.broker.routing.config import NetworkConfig
from heliograph.broker.routing.destinations import Destinations
from heliograph.broker.routing.eddies import Eddies
from heliograph.broker.routing.exchange import Exchange
from heliograph.broker.routing.forwarding import Forwarding
from heliograph.broker.routing.holds import Holds
from heliograph.broker.routing.incarnation import Incarnation
from heliograph.broker.routing.interests import RemoteInterest
from heliograph.broker.routing.map import Paths
from heliograph.broker.routing.out_of_reach import Memory
from heliograph.broker.routing.plans import Plans
from heliograph.broker.routing.ports import LinkWriter, Neighbour, Port, Sink
from heliograph.broker.routing.slots import Slots
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.matching.contents import Field
from heliograph.model.subscription import Subscription
from heliograph.notes import NeighbourLinked, NeighbourLost
from heliograph.timekeeping.incarnations import Incarnations
from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import (
    MEMBERS_MAX,
    SYNC_PER_BODY_MAX,
    LinkUp,
    Member,
    Record,
    What,
    broker_id,
)
from heliograph.wire.frames import VERSION, Frame, Kind

SETTLE_NS = 2_000_000  # changes this soon after others wait, so that the map is settled once for all of them …
SETTLE_EACH_NS = 10_000  # … or this long for each known link: bounds the time spent recomputing routes
COSTS_NS = 50_000_000  # … and this long if only costs changed: no path was lost, and none is new


class Routing:
    """The routing of one broker."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        config: NetworkConfig,
        links: LinkWriter,
        outbox: Outbox,
        timers: Timers,
        *,
        forget: Callable[[bytes], None],
        forget_all: Callable[[], None],
        stand_back: Callable[[str], None],
        settled: Callable[[], None],
    ) -> None:
        me = broker_id(name)
        slot = config.slot if config.slot is not None else me % MEMBERS_MAX
        self.network_name = config.name  # changing it needs a restart
        self._timers = timers
        self._settled = settled  # called when the paths of the newest map are in force
        self._forget_pattern = forget  # called when the routes of a filter's topics are outdated
        view = self.view = View(Member(me, name, config.cluster, slot, 0, incarnation, 1, {}), timers)
        teller = self._teller = Teller(view, links, outbox)
        self.announcements = Announcements(view, teller)
        self.advertising = Advertising(view, teller, config.interests_max, timers)
        self.catalogue = Catalogue(view, self.advertising)
        self.memory = Memory(view, self.catalogue, teller, timers, config.forget_ms, self.settle, self._forget)
        self.incarnations: Incarnations[Item] = Incarnations(timers, self._ask_again)  # which ones we believe
        self._exchange = Exchange(view, self.catalogue, self.incarnations, teller, timers)
        self._slots = Slots(view, self.announcements, teller, timers, stand_back)
        self._incarnation = Incarnation(view, self.advertising, self.announcements, self._exchange, teller, timers)
        self._holds = Holds(view, self._hold_back, self._turn_back)
        self.plans = Plans(view, self._holds, links, timers, forget_all)
        self.changeover = Changeover(view, self._holds, self.plans, teller, links, timers)
        self.eddies = Eddies(view, self._holds, self.plans, timers)
        self.barriers = Barriers(view, self.advertising.leadership, teller, timers)
        self.forwarding = Forwarding(view, self.plans, links, outbox.guard)
        self.destinations = Destinations(view, self.plans)
        self._settle_at: Instant = 0  # not earlier, unless it is urgent
        self._settle_timer: Instant | None = None
        self._costs_version = -1  # the map's version, if only costs changed since it was settled …
        self._costs_at: Instant = 0  # … and when that is to be settled
        self._ways: tuple[object, ...] = ()
        self._losses = 0  # the map's losses when the paths were computed
        self._updates_heard = 0
        self._times_settled = 0
        self._times_changed = 0  # how often the paths changed
        self.handlers: dict[int, Callable[[Port, Frame, Instant], None]] = {  # of frames from neighbours
            Kind.COUNT: self.forwarding.receive_count,
            Kind.MAP: self._receive_map,
            Kind.INTEREST: self._receive_interest,
            Kind.SYNC: self._exchange.receive,
            Kind.WAVE: self.barriers.receive,
            Kind.MARKED: self.changeover.receive,
        }

    def reload(self, config: NetworkConfig) -> None:
        """Put new times in force."""
        self.memory.keep_for(config.forget_ms)

    def myself(self) -> LinkUp:
        """Our own LINK body, with an empty nonce."""
        me = self.view.map.me
        return LinkUp([VERSION], me.broker, me.name, me.cluster, me.incarnation, "", network=self.network_name)

    def is_full(self, other: LinkUp, now: Instant) -> bool:
        """True if this broker must not become a member of our cluster with us."""
        return self._slots.is_full(other, now)

    def local_change(self, came: list[Subscription], went: list[Subscription]) -> None:
        """Our own clients' subscriptions changed."""
        self.advertising.local_change(came, went)

    def when_known(self, done: Callable[[Instant], None], now: Instant) -> None:
        """Call ``done`` once every broker in reach knows what we told before this."""
        self.barriers.when_known(done, now)

    def fields(self, topic: bytes) -> tuple[Field[RemoteInterest], ...]:
        """The fields of this topic: where remote conditions on a publication's content are looked up."""
        return self.view.interests.fields(topic)

    def addresses(self, count: int) -> list[str]:
        """Other brokers' addresses for clients that should move: nearest first, our own cluster before others."""
        paths = self.view.paths
        near = sorted((paths.costs[broker], member.address) for broker, member in paths.cluster.items())
        far = sorted(
            (paths.costs[broker], gateway.address)
            for broker, gateway in self.view.map.gateways.items()
            if broker in paths.costs and broker not in paths.cluster
        )
        own = self.view.map.me.address
        found = dict.fromkeys(address for _, address in [*near, *far] if address and address != own)
        return list(found)[:count]

    def refuse(self, reason: Reason) -> None:
        """Count something from another broker that was rejected."""
        self._teller.refuse(reason)

    def _hold_back(self, sink: Sink, frames: bytes, now: Instant) -> None:
        self.changeover.hold_back(sink, frames, now)

    def _turn_back(self, sink: Sink, frames: bytes, now: Instant) -> None:
        self.eddies.take(sink, frames, now)

    # -- neighbours -----------------------------------------------------------------------------------------------

    def neighbour_up(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour is up: tell the others soon."""
        self._teller.note(NeighbourLinked(neighbour.link.id, neighbour.name, neighbour.cluster))
        self.announcements.announce_soon()

    def neighbour_changed(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour's cost changed, or it is suspected or relieved."""
        neighbour.tell_cost()
        if neighbour.suspected:
            self.announcements.announce(now)
            self.settle(now)
            self.forwarding.plan_again(neighbour, now)
        else:
            self.announcements.announce_soon()

    def neighbour_moved(self, neighbour: Neighbour, old: Port, now: Instant) -> None:
        """A neighbour has a new link in place of the old one. No path changes; what waited for the old one follows on
        the new one."""
        self.plans.forget_ways(self.view.paths, now)
        self.forwarding.send_on(neighbour, old, now)

    def neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        """A neighbour is gone: tell the others, let no barrier wait for it, and send its parcels another way."""
        self.incarnations.forget(neighbour.broker)
        self.announcements.announce(now)
        self.barriers.look_again(neighbour, now)
        self.settle(now)
        replanned = self.forwarding.plan_again(neighbour, now)
        self._teller.note(NeighbourLost(neighbour.name, replanned))

    # -- what neighbours tell -------------------------------------------------------------------------------------

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """A frame from a neighbour, of a kind that ``handlers`` names. ProtocolError if it breaks the rules."""
        self.handlers[frame.kind](link, frame, now)

    def _receive_map(self, link: Port, frame: Frame, now: Instant) -> None:
        """A record of a broker's links."""
        record = wire.decode_record(frame.payload)
        known = self.view.map
        self._updates_heard += 1
        if record.broker != broker_id(record.name):
            raise ProtocolError(Reason.BODY_MALFORMED, "a broker's id follows from its name")
        if isinstance(record, Member):
            self._check_inside(link)
            if record.cluster != known.me.cluster:
                raise ProtocolError(Reason.BODY_MALFORMED, "a member of another cluster")
        what: What = "member" if isinstance(record, Member) else "gateway"
        if self._is_ahead(link, (what, record.broker), record.incarnation, now):
            return
        if record.broker == self.view.me:
            self._incarnation.hear_record(record, link, now)
            return
        if not known.has_room(record):
            self._teller.refuse(Reason.BROKERS_OVER_LIMIT)
            return
        is_cost = self._is_cost(record)
        losses = known.losses
        if known.learn(record):
            if is_cost:
                self._costs_version = known.version
            if known.losses != losses:
                self.plans.hear_loss(now)
            self._teller.tell_record(record, link, frame.payload)

    def _is_ahead(self, link: Port, item: Item, incarnation: int, now: Instant) -> bool:
        """True, and counted, if we do not believe this incarnation."""
        neighbour = link.neighbour
        assert neighbour is not None
        is_ahead = self.incarnations.refuses(incarnation, neighbour.broker, item, now)
        if is_ahead:
            self._teller.refuse(Reason.INCARNATION_AHEAD)
        return is_ahead

    def _ask_again(self, broker: int, items: list[Item], now: Instant) -> None:
        """These were not believed when a neighbour told them, and can be now."""
        neighbour = self.view.neighbours.get(broker)
        for start in range(0, len(items) if neighbour is not None else 0, SYNC_PER_BODY_MAX):
            assert neighbour is not None
            self._exchange.ask(neighbour, items[start : start + SYNC_PER_BODY_MAX])

    def _check_inside(self, link: Port) -> None:
        """Records and interests of a cluster's members are accepted from its own brokers only."""
        if link.neighbour is None or link.neighbour.cluster != self.view.map.me.cluster:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "only members of the cluster may send this")

    def _is_cost(self, record: Record) -> bool:
        """True if, with this record, only costs have changed since the map was settled."""
        known = self.view.map
        if known.version not in (self.view.settled, self._costs_version):
            return False
        if isinstance(record, Member):
            member = known.members.get(record.broker)
            return member is not None and _shape(member, member.links) == _shape(record, record.links)
        gateway = known.gateways.get(record.broker)
        return (
            gateway is not None
            and gateway.inside.keys() == record.inside.keys()
            and _shape(gateway, gateway.outside) == _shape(record, record.outside)
        )

    def _receive_interest(self, link: Port, frame: Frame, now: Instant) -> None:
        """The interests of a broker or a cluster."""
        interest = wire.decode_interest(frame.payload)
        view, leadership = self.view, self.advertising.leadership
        self._updates_heard += 1
        if not interest.wide:
            self._check_inside(link)
        item: Item = ("wide" if interest.wide else "narrow", interest.owner)
        if self._is_ahead(link, item, interest.incarnation, now):
            return
        if interest.owner == view.me:
            self._incarnation.hear_interest(interest, now)
            return
        before = view.interests.age(interest.owner, interest.wide)
        if before is not None and interest.age <= before:
            return
        difference = view.interests.learn(interest)
        if difference is None:
            neighbour = link.neighbour
            assert neighbour is not None
            self._exchange.ask(neighbour, [item])
            return
        if difference.is_cut:
            self._teller.refuse(Reason.SUBSCRIPTIONS_OVER_LIMIT)
        for pattern in difference.patterns:
            self._forget_pattern(pattern)
        self._teller.pass_on(interest.wide, frame.payload, link)
        if interest.wide:
            self.barriers.look_again(None, now)
        else:
            leadership.hear(interest.owner, difference)
        if before is None or (interest.wide and leadership.leader != view.paths.leader):
            view.map.touch()  # no path changed, but a broker may be ready to lead, or has to be forgotten later

    def _forget(self, what: What, broker: int) -> None:
        """An item is out of reach for good."""
        if what == "member" or what == "gateway":
            self.view.map.forget(what, broker)
            return
        for pattern in self.view.interests.forget((broker, what == "wide")).patterns:
            self._forget_pattern(pattern)

    # -- after a change of the map --------------------------------------------------------------------------------

    def settle_soon(self, now: Instant) -> None:
        """Something changed: settle at once or, if that was done just now, together with later changes."""
        at = self._settle_at
        if self.view.map.version == self._costs_version:
            at = max(at, self._costs_at)
        if now >= at:
            self.settle(now)
        elif self._settle_timer is None or at < self._settle_timer:
            self._settle_timer = at
            self._timers.set("settle", at, self.settle)

    def settle(self, now: Instant) -> None:
        """Act on everything that changed in the map since the last time."""
        view, leadership = self.view, self.advertising.leadership
        self._settle_timer = None
        self._times_settled += 1
        before = view.paths_so_far
        self.announcements.announce_due(now)
        while not view.is_settled:
            view.settle()
            self._slots.settle(now)
            leadership.settle()
            leadership.announce_gateway(now)
        paths = view.paths
        self._settle_at = now + max(SETTLE_NS, SETTLE_EACH_NS * paths.links)
        self._costs_at = now + COSTS_NS
        ways = (paths.steps, paths.members, paths.parts, view.epoch, tuple(view.neighbours))
        if ways != self._ways or self._losses != view.map.losses:
            self._ways = ways
            self._change_ways(before, now)
        self._look_at_links(now)
        self._exchange.offer(self.memory.look(now))
        self.barriers.look_again(None, now)
        self._settled()

    def _change_ways(self, before: Paths | None, now: Instant) -> None:
        """Replace lost paths at once, without waiting for parcels on them; change other paths without reordering."""
        self._times_changed += 1
        is_lossy, self._losses = self._losses != self.view.map.losses, self.view.map.losses
        if is_lossy:
            self.plans.lost(now)
        self.plans.forget_ways(before or self.view.paths, now)
        if is_lossy:
            self.changeover.release_all(now)
        elif before is not None:
            self.changeover.begin(before, now)
        self.eddies.release(now)

    def _look_at_links(self, now: Instant) -> None:
        """A link that begins to count brings news to both sides. A link may stop counting without having failed: its
        neighbour reports that it does not hear us, and what it has not confirmed is sent another way without
        waiting for the link to end."""
        view = self.view
        for neighbour in list(view.neighbours.values()):
            names_us = view.map.names(neighbour.broker, view.me, neighbour.incarnation)
            if not neighbour.begins_or_ends(names_us):
                continue
            if neighbour.counts:
                self._exchange.greet(neighbour)
            elif not names_us:
                self.forwarding.plan_again(neighbour, now)

    def report(self) -> dict[str, Any]:
        """How much was heard and told, and how often the map was settled and the paths changed."""
        return {
            "updates_heard": self._updates_heard,
            "updates_told": self._teller.told,
            "times_settled": self._times_settled,
            "times_changed": self._times_changed,
        }


def _shape(record: Record, links: dict[int, int]) -> tuple[object, ...]:
    """A record without its costs."""
    place = (record.slot, record.epoch) if isinstance(record, Member) else (record.leader,)
    return (record.incarnation, record.address, record.incarnations, links.keys(), *place)
