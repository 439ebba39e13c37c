"""The broker: a list of parts, and which part takes which input.

In:    everything in machine.py.
Out:   everything in machine.py.
State: the settings; each part has its own.
Not here: the parts: reading (bytes to frames), sessions (handshake, keep-alive), subscriptions (the table), links
          (writing, pressure), publications (off the fast path), timing (network time), routing/ (other brokers),
          arrivals (from other brokers), requests (services), orders (reports), access, credentials.

What a part needs is an argument of its constructor. Some calls form a cycle: a link that ends may be a lost neighbour,
which changes routes, which are kept with the subscriptions. There, the part that is built first gets a method of the
broker that passes the call on: ``_link_ends``, ``_neighbour_moved``, ``_read_moved``, ``_forget``, ``_forget_all``,
``_stand_back``, ``_settled``, ``_crowd``, ``_others``.
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.arrivals import Arrivals
from heliograph.broker.commands import Busy, Drain, Expel, KeepLink, Listening, Reload, Room, Stop
from heliograph.broker.config import BrokerConfig
from heliograph.broker.expelled import Expelled
from heliograph.broker.expiring import ExpiringLinks
from heliograph.broker.far_consumers import FarConsumers
from heliograph.broker.links import Link, Links
from heliograph.broker.observations import NS_PER_US, Observations
from heliograph.broker.orders import Orders
from heliograph.broker.pacing import Pacing
from heliograph.broker.publications import Publications
from heliograph.broker.reading import Handler, Reading
from heliograph.broker.requests import Requests, ServiceAnswers, ServicePipes
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.ports import GONE, Neighbour, Port
from heliograph.broker.routing.renewals import Renewals
from heliograph.broker.routing.routing import Routing
from heliograph.broker.service_hops import ServiceHops
from heliograph.broker.sessions import Sessions
from heliograph.broker.shedding import Shedding
from heliograph.broker.shortcut import Shortcut
from heliograph.broker.steps import Steps
from heliograph.broker.stored_frames import StoredFrames
from heliograph.broker.subscriptions import Subscriptions
from heliograph.broker.timing import Timing
from heliograph.broker.tracing import Tracing
from heliograph.broker.ways import ServiceWays
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    SocketFailed,
    SocketName,
    SocketOpened,
    Ticket,
    Timers,
    TurnedAway,
)
from heliograph.model.chance import Seed
from heliograph.notes import LinkAttached, LinkDetached, PeerRefused, SettingsReloaded
from heliograph.wire.frames import Frame, Kind

OTHERS_MAX = 4  # addresses given to clients that have to leave
OTHERS_KNOWN_MAX = 16  # addresses over which an overloaded broker spreads its clients


class Broker:
    """A machine (machine.py) that routes publications between its links.

    It has 34 methods because it implements the twelve of the contract and the calls that form a cycle.
    """

    def __init__(self, config: BrokerConfig, *, seed: Seed, incarnation: int) -> None:
        self._config = self._started = config
        self._now: Instant = 0
        outbox = self._outbox = Outbox()
        timers = self._timers = Timers()
        steps = self._steps = Steps()
        links = self._links = Links(config.limits, outbox, timers, self._link_ends)
        self._find_link = links.by_id.get
        # the network
        routing = self._routing = Routing(
            config.name,
            incarnation,
            config.network,
            links,
            outbox,
            timers,
            forget=self._forget,
            forget_all=self._forget_all,
            stand_back=self._stand_back,
            settled=self._settled,
        )
        ways = self._ways = ServiceWays(routing.view, links)
        timing = self._timing = Timing(
            routing.view.me, incarnation, config.time, config.network.heartbeat_ms, seed, outbox, timers
        )
        # clients
        subscriptions = self._subscriptions = Subscriptions(links, routing, steps, outbox, timers, incarnation)
        expelled = self._expelled = Expelled(links, subscriptions.rights, outbox)
        shedding = self._shedding = Shedding(config.load, links, outbox, timers, self._crowd, self._others)
        sessions = self._sessions = Sessions(
            config,
            incarnation,
            routing.advertising.inbox,
            links,
            subscriptions,
            shedding,
            outbox,
            timers,
            pong=timing.pong,
            others=self._others_near,
        )
        far_consumers = self._far_consumers = FarConsumers(routing.view, sessions, links, timers)
        self._pacing = Pacing(routing.view, links)
        # neighbours, and publications on their way
        peering = self._peering = Peering(
            config.network,
            routing.myself,
            routing.view.neighbours,
            routing.is_full,
            routing.incarnations.highest,
            seed,
            links,
            outbox,
            timers,
            proven=sessions.is_broker,
            up=self._neighbour_up,
            changed=routing.neighbour_changed,
            down=self._neighbour_down,
            goodbye=sessions.goodbye,
            renewals=Renewals(links, self._neighbour_moved, self._read_moved),
        )
        self._expiring = ExpiringLinks(links, peering, outbox, timers, self._others_near)
        publications = Publications(links, sessions, subscriptions, routing, timing, steps, outbox)
        tracing = Tracing(routing, subscriptions, timers)
        observations = self._observations = Observations()
        stored = StoredFrames(links, sessions, subscriptions, routing)
        arrivals = Arrivals(
            *(links, sessions, subscriptions, routing, publications, tracing, observations, self._time_us, stored),
            outbox.guard,
        )
        parcels = self._parcels = Parcels(
            routing.view, routing.plans, links, timers, outbox.guard, peering.relieve, arrivals.arrive
        )
        # services
        answers = ServiceAnswers(links)
        pipes = self._pipes = ServicePipes()
        hops = ServiceHops(links, pipes, ways)
        self._orders = Orders(
            config,
            incarnation,
            links,
            sessions,
            subscriptions,
            routing,
            peering,
            parcels,
            publications,
            tracing,
            shedding,
            observations,
            answers,
            ways,
            expelled,
            outbox,
            time=self._time,
            time_us=self._time_us,
            reload=self._reload,
        )
        self._requests = Requests(
            *(links, pipes, outbox, answers),
            order=self._orders.receive,
            send=hops.send,
            ended=ways.ended,
            hearing=subscriptions.hearings.of,
        )
        # bytes
        self._reading = Reading(
            config.limits,
            links,
            subscriptions,
            publications,
            parcels,
            peering,
            steps,
            outbox,
            timers,
            self._client_handlers(publications, stored),
            self._broker_handlers(hops, far_consumers),
        )
        self._shortcut = Shortcut(
            links,
            outbox,
            subscriptions.local,
            subscriptions.inner,
            sessions.origins,
            routing.view,
            parcels,
            config.limits.payload_bytes_max,
        )
        self.shortcut = self._shortcut.take

    def _client_handlers(self, publications: Publications, stored: StoredFrames) -> dict[int, Handler]:
        """The part that handles each kind of frame from a client, a service or an unproven peer."""
        sessions, subscriptions, peering = self._sessions, self._subscriptions, self._peering
        return {
            Kind.EVENT: publications.receive_flagged,
            Kind.HELLO: sessions.hello,
            Kind.PING: sessions.ping,
            Kind.PONG: sessions.pong,
            Kind.GOODBYE: sessions.goodbye,
            Kind.SUBSCRIBE: subscriptions.subscribe,
            Kind.UNSUBSCRIBE: subscriptions.unsubscribe,
            Kind.SERVICE: self._requests.receive,
            Kind.STORED: stored.receive,
            Kind.LINK: peering.receive_link,
            Kind.LINKED: peering.receive_linked,
            Kind.PROOF: peering.receive_proof,
        }

    def _broker_handlers(self, hops: ServiceHops, far_consumers: FarConsumers) -> dict[int, Handler]:
        """The part that handles each kind of frame from a neighbour."""
        return {
            **self._routing.handlers,
            Kind.COUNT: self._counted,
            Kind.PING: self._sessions.ping,
            Kind.PONG: self._neighbour_pong,
            Kind.GOODBYE: self._peering.receive_farewell,
            Kind.SERVICE: hops.receive,
            Kind.HOLD: far_consumers.receive,
            Kind.RELEASE: far_consumers.receive,
        }

    # -- links ----------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A peer dialled in, or a service was joined."""
        joined = self._links.add(Link(link, peer, now))
        self._outbox.note(LinkAttached(link, peer.transport, peer.address))
        if peer.transport == "pipe":
            self._sessions.attach_pipe(joined)
            self._pipes.join(joined)
            return
        if not self._peering.attach(joined, now):
            self._sessions.attach(joined, now)
        if not self._expelled.check(joined):
            self._expiring.add(joined, now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """A link is gone."""
        left = self._links.by_id[link]
        self._expiring.remove(link)
        self._reading.hear_out(left, now)
        self._outbox.note(LinkDetached(link, left.identity.entity, reason))
        self._peering.leave(left, reason, now)
        self._links.remove(left, reason)
        self._subscriptions.leave(left, now)
        self._sessions.leave(left, now)
        self._requests.leave(left)
        self._ways.leave(left)
        self._sessions.check_drained(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """The driver's buffer for a link is full, or has room again."""
        pressing = self._links.by_id.get(link)
        if pressing is not None and pressing.state != GONE:
            self._links.press(pressing, pressed, now)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes of a link's stream. A peer that breaks the rules loses its link; no other link is affected."""
        from_link = self._find_link(link)
        if from_link is None or from_link.state == GONE:
            return
        self._now = now
        from_link.hear(len(data), now)
        self._steps.renew()
        try:
            if from_link.need:
                self._reading.gather(from_link, data, now)
            else:
                self._reading.read(from_link, data, 0, now)
            if from_link.may_be_held:
                self._pacing.has_read(from_link, now)
        except ProtocolError as error:
            self._reading.refuse(from_link, error)
        except Exception as error:
            self._reading.fail(from_link, error, now)

    def fail_shortcut(self, link: LinkId, error: Exception, now: Instant) -> None:
        """The shortcut raised for a read of this link."""
        from_link = self._find_link(link)
        if from_link is not None and from_link.state != GONE:
            self._reading.fail(from_link, error, now)

    # -- calls that form a cycle ----------------------------------------------------------------------------------

    def _link_ends(self, link: Port) -> None:
        """We end a neighbour's link."""
        self._peering.lose(link, self._now)

    def _neighbour_moved(self, neighbour: Neighbour, old: Port, now: Instant) -> None:
        """A neighbour has a new link in place of the old one; what comes on it waits until the old one is read out."""
        self._reading.wait_for_another(self._links.by_id[neighbour.link.id])
        self._routing.neighbour_moved(neighbour, old, now)
        self._ways.look()

    def _read_moved(self, link: Port, now: Instant) -> None:
        """The old link is read out: go on with the new one."""
        self._reading.go_on(self._links.by_id[link.id], now)

    def _forget(self, pattern: bytes) -> None:
        """A remote interest in this filter came or went."""
        self._subscriptions.forget(pattern)

    def _forget_all(self) -> None:
        """The paths changed: routes computed earlier are outdated, including those of unfinished reads."""
        self._subscriptions.forget_all()
        self._parcels.forget_ways()
        self._reading.forget_ways()

    def _stand_back(self, cluster: str) -> None:
        """Our cluster has no slot for us."""
        self._peering.stand_back(cluster)

    def _crowd(self) -> int:
        """The number of sessions, in per mille of the limit."""
        return self._sessions.crowd_permille

    def _others(self) -> list[str]:
        """Addresses to which an overloaded broker may send its clients."""
        return [] if self._sessions.draining else self._routing.addresses(OTHERS_KNOWN_MAX)

    def _others_near(self) -> list[str]:
        """Addresses to which a stopping broker may send its clients."""
        return self._routing.addresses(OTHERS_MAX)

    def _time_us(self) -> int:
        """Network time; before the wall clock is known, the time since the start."""
        return (self._now + (self._timing.ahead_ns or 0)) // NS_PER_US

    def _time(self) -> dict[str, Any]:
        return self._timing.report(self._now)

    def _neighbour_up(self, neighbour: Neighbour, now: Instant) -> None:
        """Services are told of a neighbour before they receive frames from it."""
        self._routing.neighbour_up(neighbour, now)
        self._ways.look()

    def _neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        """Nothing waits for what a lost neighbour would have said."""
        self._far_consumers.lose(neighbour)
        self._routing.neighbour_down(neighbour, now)

    def _settled(self) -> None:
        """The paths of the newest map are in force."""
        self._ways.look()

    def _counted(self, link: Port, frame: Frame, now: Instant) -> None:
        self._routing.forwarding.receive_count(link, frame, now)
        self._pacing.counted(link)

    def _neighbour_pong(self, link: Port, frame: Frame, now: Instant) -> None:
        assert link.neighbour is not None
        self._peering.pong(link.neighbour, frame.sequence, now)
        self._timing.heard(frame, now)

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A datagram from an NTP server; other sockets belong to services."""
        self._now = now
        try:
            self._timing.receive_datagram(data, now)
        except Exception as error:
            self._outbox.guard.caught("datagram of a time server", error, now, entity=source[0])

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A token check, or loading the settings, succeeded."""
        self._now = now
        if not self._orders.done(ticket, result):
            self._prove(ticket, result is True, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A token check, loading the settings, or a dial failed."""
        if not self._orders.failed(ticket, reason) and not self._peering.failed(ticket, reason, now):
            self._prove(ticket, None, now)

    def _prove(self, ticket: Ticket, right: bool | None, now: Instant) -> None:
        """A token check ended. If the peer is welcomed, read what it has sent in the meantime."""
        welcomed = self._sessions.proven(ticket, right, now)
        if welcomed is not None:
            self._reading.resume(welcomed, now)

    def tell(self, command: Any, now: Instant) -> None:
        """A command (commands.py), TurnedAway, or what became of the socket for NTP servers."""
        if isinstance(command, Stop):
            self._sessions.stop(now)
        elif isinstance(command, Drain):
            self._sessions.drain(command.grace_ms, now)
        elif isinstance(command, Reload):
            self._now = now
            self._reload(command)
        elif isinstance(command, KeepLink):
            if command.keep:
                self._peering.aim(command.link, now)
            else:
                self._peering.drop(command.link)
        elif isinstance(command, Listening):
            self._orders.listen(command.addresses)
            self._routing.announcements.listen(command.addresses[0] if command.addresses else "", now)
        elif isinstance(command, Room):
            self._sessions.make_room(command.links_max)
        elif isinstance(command, Busy):
            self._shedding.sampled(command.cpu_permille, now)
        elif isinstance(command, Expel):
            self._expelled.add(command.serials)
        elif isinstance(command, TurnedAway):
            self._links.count(command.reason)
            self._outbox.note(PeerRefused(0, command.reason, command.detail))
        elif isinstance(command, SocketOpened):
            self._timing.opened(command, now)
        elif isinstance(command, SocketFailed):
            pass  # the driver has noted it; network time then comes from other brokers
        else:
            raise UsageError(f"a broker does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The wall clock's time. The first one also counts as the broker's start."""
        self._now = now
        self._routing.incarnations.clock(wall_ns, now)
        if self._timing.ahead_ns is None:
            self._peering.start(now)
        self._timing.clock(wall_ns, now)
        self._expiring.clock(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._now = now
        self._timers.run(now)

    def take(self) -> Effects:
        """The effects since the last take."""
        view = self._routing.view
        if view.settled != view.map.version:
            self._routing.settle_soon(self._now)
        if self._links.touched:
            self._links.flush()
        if self._outbox.notes:
            self._observations.keep(self._outbox.notes, self._time_us())
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What the broker knows: see orders.py."""
        return self._orders.report(question)

    def _reload(self, command: Reload) -> list[str]:
        """Put settings in force. Returns those that changed but need a restart."""
        config = self._config = command.config
        self._orders.reload(config)
        self._links.reload(config.limits)
        self._reading.reload(config.limits)
        self._shortcut.limit(config.limits.payload_bytes_max)
        self._sessions.reload(config)
        self._shedding.reload(config.load)
        self._subscriptions.forget_all()
        self._routing.reload(config.network)
        self._peering.reload(config.network, self._now)
        restart = list(dict.fromkeys((*config.restart_needed(self._started), *command.restart)))
        counts = len(config.access.rules), len(config.tokens)
        self._outbox.note(SettingsReloaded(*counts, restart, list(command.taken)))
        return restart
