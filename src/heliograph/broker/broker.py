"""The broker: the front door. It reads frames, hands each kind to the room that owns it, and gathers what they want.

In:    everything in machine.py.
Out:   everything in machine.py.
State: reads that are not worked off; each room has its own.
Not here: the rooms: sessions (handshake, life), subscriptions (who wants what), links (writing, pressure), publications
          (off the fast path), timing (network time), arrivals (from other brokers), requests (services), orders
          (reports), access, credentials, routing/ (other brokers).

A publication alone in its read takes the shortcut (shortcut.py). Others travel: ``receive`` → wire/scan.py finds runs
with the same route → each run is appended to the links of its route → ``take`` puts one prefix before them. See
ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heliograph.broker.arrivals import Arrivals
from heliograph.broker.commands import Busy, Drain, KeepLink, Listening, Reload, Room, Stop
from heliograph.broker.config import BrokerConfig
from heliograph.broker.hot import frames_of, scan
from heliograph.broker.links import Link, Links
from heliograph.broker.orders import Orders
from heliograph.broker.publications import Publications
from heliograph.broker.requests import Requests
from heliograph.broker.routes import Route
from heliograph.broker.routing.network import Network
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.ports import GONE, NEW, READY, Neighbour
from heliograph.broker.sessions import Sessions
from heliograph.broker.shedding import Shedding
from heliograph.broker.shortcut import Shortcut
from heliograph.broker.subscriptions import STEPS_MAX, Subscriptions
from heliograph.broker.timing import Timing
from heliograph.broker.tracing import Tracing
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
from heliograph.notes import (
    LinkAttached,
    LinkDetached,
    NeighbourLost,
    PeerRefused,
    PublicationsDropped,
    SettingsReloaded,
)
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import HEAD, Frame, Kind
from heliograph.wire.limits import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HEAD_BYTES
from heliograph.wire.scan import MISS, MORE, OTHER, is_over_limit

OTHERS_MAX = 4  # addresses given to clients that have to leave
OTHERS_KNOWN_MAX = 16  # among which clients of an overloaded broker are spread
UNTIL_WAKE = 1 << 62  # bytes to gather while a read waits to be worked off: the link is not read meanwhile
LEAVING_STEPS_MAX = 16_384  # for what a departed link had said: more than a read can bring, if none of it is slow
SHARES_PER_STEP = 64  # groups, and their members here, that share a topic; for most topics it is none or a few
OPENING = (Kind.HELLO, Kind.LINK, Kind.LINKED, Kind.PROOF)  # what a link may carry before it is proven
ON_PIPES = (Kind.SERVICE, Kind.HELLO)  # what a service may say …
ON_PIPES_WITH_SESSION = (  # … and once it said HELLO
    *(Kind.SERVICE, Kind.EVENT, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.PING, Kind.PONG),
)

Handler = Callable[[Link, Frame, Instant], None]
Runs = Sequence[tuple[Route | Mixed | None, bytes]]
"""Runs with their route; None where that has to be found again."""


class Broker:
    """A machine (machine.py) that routes publications between its links."""

    def __init__(self, config: BrokerConfig, *, seed: int, incarnation: int) -> None:
        self._config = self._started = config
        self._incarnation = incarnation
        self._outbox = Outbox()
        self._timers = Timers()
        self._links = Links(config.limits, self._outbox, self._timers)
        self._find_link = self._links.by_id.get
        self._subscriptions = Subscriptions(self._links, self._outbox, self._timers)
        self._shedding = Shedding(
            config.load, self._links, self._outbox, self._timers, lambda: self._sessions.crowd_permille, self._others
        )
        self._sessions = Sessions(
            config,
            incarnation,
            self._links,
            self._subscriptions,
            self._shedding,
            self._outbox,
            self._timers,
            self._resume,
        )
        self._now: Instant = 0
        network = self._network = Network(
            config.name,
            incarnation,
            config.network,
            seed,
            self._links,
            self._outbox,
            self._timers,
            self._subscriptions.forget,
            self._forget_ways,
        )
        self._timing = Timing(
            network.me, incarnation, config.time, config.network.heartbeat_ms, seed, self._outbox, self._timers
        )
        parcels = self._parcels = Parcels(network, self._links, self._timers)
        self._publications = Publications(
            self._links, self._sessions, self._subscriptions, network, parcels, self._outbox
        )
        tracing = Tracing(network, parcels, self._subscriptions, self._timers)
        arrivals = Arrivals(self._links, self._sessions, self._subscriptions, network, self._publications, tracing)
        parcels.arrive = arrivals.arrive
        self._orders = Orders(
            config,
            incarnation,
            self._links,
            self._sessions,
            self._subscriptions,
            network,
            parcels,
            self._publications,
            tracing,
            self._shedding,
            self._outbox,
            lambda: self._timing.report(self._now),
        )
        self._requests = Requests(self._links, self._outbox, self._orders.receive)
        self._orders.requests = self._requests
        self._orders.reload = self._reload
        self._sessions.inbox_root = network.inbox
        self._sessions.pong_of = self._timing.pong
        self._timing.changed = self._time_changed
        self._sessions.others = lambda: network.addresses(OTHERS_MAX)
        self._subscriptions.elsewhere = network.elsewhere
        self._subscriptions.fields = network.interests.fields
        self._subscriptions.changed = network.local_change
        self._subscriptions.spread = network.waves.when_known
        peering = network.peering
        self._links.leaving = lambda link: peering.lose(link, self._now)
        peering.proven = self._sessions.is_broker
        peering.up = network.neighbour_up
        network.cut_off = self._neighbour_cut_off
        peering.changed = self._neighbour_changed
        peering.down = self._neighbour_down
        self._payload_bytes_max = config.limits.payload_bytes_max
        self._shortcut = Shortcut(
            self._links,
            self._outbox,
            self._subscriptions,
            self._sessions,
            network,
            parcels,
            config.limits.payload_bytes_max,
        )
        self.shortcut = self._shortcut.take
        self._postponed: dict[Link, Runs] = {}  # links with a read that is not worked off
        self._leaving: Link | None = None  # the link that is gone, while what it said last is heard
        self._handlers: dict[int, Handler] = {
            Kind.EVENT: self._publications.receive_flagged,
            Kind.HELLO: self._sessions.hello,
            Kind.PING: self._sessions.ping,
            Kind.PONG: self._sessions.pong,
            Kind.GOODBYE: self._sessions.goodbye,
            Kind.SUBSCRIBE: self._subscriptions.subscribe,
            Kind.UNSUBSCRIBE: self._subscriptions.unsubscribe,
            Kind.SERVICE: self._requests.receive,
            Kind.LINK: peering.receive_link,
            Kind.LINKED: peering.receive_linked,
            Kind.PROOF: peering.receive_proof,
        }
        self._broker_handlers: dict[int, Handler] = {  # from neighbours only (N18)
            Kind.COUNT: self._parcels.receive_count,
            Kind.MAP: network.receive_map,
            Kind.INTEREST: network.receive_interest,
            Kind.SYNC: network.exchange.receive,
            Kind.WAVE: network.waves.receive,
            Kind.MARKED: network.changeover.receive,
            Kind.PING: self._sessions.ping,
            Kind.PONG: self._neighbour_pong,
            Kind.GOODBYE: self._sessions.goodbye,
        }

    # -- links ----------------------------------------------------------------------------------------------------

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A peer dialled in, or a service was joined."""
        joined = Link(link, peer, now)
        self._links.by_id[link] = joined
        self._outbox.note(LinkAttached(link, peer.transport, peer.address))
        if peer.transport == "pipe":
            self._sessions.attach_pipe(joined)
            self._requests.join(joined)
        elif not self._network.peering.attach(joined, now):
            self._sessions.attach(joined, now)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """A link is gone."""
        left = self._links.by_id[link]
        if left in self._postponed:
            self._hear_out(left, now)
        self._outbox.note(LinkDetached(link, left.identity.entity, reason))
        self._network.peering.leave(left, reason, now)
        self._links.remove(left)
        self._subscriptions.leave(left, now)
        self._sessions.leave(left, now)
        self._requests.leave(left)
        self._sessions.check_drained(now)

    def _hear_out(self, link: Link, now: Instant) -> None:
        """It published something before it left. What would take too long is dropped: it was not confirmed."""
        runs = self._postponed.pop(link)
        self._subscriptions.steps_left = LEAVING_STEPS_MAX
        self._leaving = link
        self._work_off(link, runs, now)
        self._leaving = None
        if link in self._postponed:
            self._drop_rest(link, b"".join(chunk for _, chunk in self._postponed.pop(link)), b"".join(link.parts))

    def _drop_rest(self, link: Link, scanned: bytes, rest: bytes) -> None:
        """The frames that were scanned count as seen; if the session comes back and repeats them, they are new."""
        seen = link.seen
        frames = len(frames_of(scanned, 0))
        if seen is not None and frames and Frame(scanned).sequence == seen.next - frames:
            seen.next -= frames
        lost = frames + len(frames_of(rest, 0))
        self._outbox.note(PublicationsDropped(link.id, link.identity.entity, lost, len(scanned) + len(rest)))

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """The driver's buffer for a link is full, or has room again."""
        pressing = self._links.by_id.get(link)
        if pressing is not None and pressing.state != GONE:
            self._links.press(pressing, pressed, now)

    # -- reading --------------------------------------------------------------------------------------------------

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes of a link's stream. A peer that breaks the rules loses its link, and nobody else notices."""
        from_link = self._find_link(link)
        if from_link is None or from_link.state == GONE:
            return
        from_link.heard_at = self._now = now
        from_link.bytes_in += len(data)
        self._subscriptions.steps_left = STEPS_MAX
        try:
            if from_link.need:
                self._gather(from_link, data, now)
                return
            self._read(from_link, data, 0, now)
        except ProtocolError as error:
            self._refuse_peer(from_link, error)

    def _gather(self, link: Link, data: bytes, now: Instant) -> None:
        """Collect the parts of a frame that comes in pieces; read when it is whole."""
        link.parts.append(data)
        link.parts_bytes += len(data)
        if link.parts_bytes >= link.need:
            self._resume(link, now)
        elif link.state != READY and link.parts_bytes > self._config.limits.handshake_bytes:
            raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")

    def _resume(self, link: Link, now: Instant) -> None:
        """Read what was gathered."""
        data = b"".join(link.parts)
        link.parts = []
        link.parts_bytes = link.need = 0
        try:
            if data:
                self._read(link, data, 0, now)
        except ProtocolError as error:
            self._refuse_peer(link, error)

    def _read(self, link: Link, data: bytes, pos: int, now: Instant) -> None:
        while link.state != GONE:
            if link.need:  # its token is being checked: the rest waits
                break
            if link.neighbour is not None:
                pos = self._parcels.read(link, link.neighbour, data, pos, now)
            elif link.seen is not None:
                spans: list[tuple[Route | Mixed, int, int]] = []
                pos, why = scan(data, pos, link.routes, link.seen, self._payload_bytes_max, spans)
                for route, start, end in spans:
                    sink = route.one
                    if sink is None:
                        if isinstance(route, Mixed):
                            left = self._spread_mixed(link, route, now)
                        elif route.content is None and not route.shares:
                            self._publications.spread(link, route, data[start:end], now)
                            continue
                        else:
                            left = self._spread_some(link, route, data[start:end], now)
                        if left:
                            later = spans[spans.index((route, start, end)) + 1 :]
                            self._postpone(link, now, [*left, *((each, data[a:b]) for each, a, b in later)])
                            break
                    elif sink.link.sink is sink:
                        sink.link.out.append(data[start:end])
                    else:
                        self._links.deliver(link, sink, data[start:end], now)
                if why == MORE or link in self._postponed:
                    break
                if why == MISS:
                    if self._subscriptions.steps_left <= 0:
                        self._postpone(link, now)
                        break
                    self._subscriptions.steps_left -= 1
                    pos = self._publications.meet_bad_topic(link, data, pos)
                    continue
                if why != OTHER:
                    raise ProtocolError(Reason(why))
            if pos == len(data):
                return
            end = self._frame_end(link, data, pos)
            if end > len(data):
                link.need = end - pos
                break
            if link.is_client and self._subscriptions.steps_left <= 0:
                self._postpone(link, now)
                break
            self._dispatch(link, data[pos:end], now)
            if link.is_client:
                # Not before: a publication with flags needs a step for its topic.
                self._subscriptions.steps_left -= _steps(link, data[pos:end])
            pos = end
        else:
            return
        rest = data[pos:]
        if rest:
            link.parts = [rest]
            link.parts_bytes = len(rest)
            link.need = link.need or self._frame_end(link, data, pos) - pos
            if link.state != READY and link.parts_bytes > self._config.limits.handshake_bytes:
                raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")

    def _postpone(self, link: Link, now: Instant, runs: Runs = ()) -> None:
        """This read brought much slow work: the rest of it, and what comes behind it, waits for the next wake."""
        link.need = UNTIL_WAKE
        self._links.pause(link)
        self._postponed[link] = runs
        self._timers.set("postponed", now, self._read_on)

    def _read_on(self, now: Instant) -> None:
        """One link at a time, so that no wake takes longer than a read."""
        link = next(iter(self._postponed), None)
        if link is None:
            return
        runs = self._postponed.pop(link)
        if link.state != GONE:
            self._subscriptions.steps_left = STEPS_MAX
            self._work_off(link, runs, now)
            if link not in self._postponed and link.state != GONE:
                self._links.go_on(link)
        if self._postponed:
            self._timers.set("postponed", now, self._read_on)

    def _work_off(self, link: Link, runs: Runs, now: Instant) -> None:
        """The runs that a read left over, then its rest."""
        for position, (route, chunk) in enumerate(runs):
            left: Runs
            if route is None:
                left = self._spread_again(link, chunk, now)
            elif isinstance(route, Mixed):
                left = self._spread_mixed(link, route, now)
            else:
                left = self._spread_some(link, route, chunk, now)
            if left:
                self._postpone(link, now, [*left, *runs[position + 1 :]])
                return
        self._resume(link, now)

    def _spread_some(self, link: Link, route: Route, chunk: bytes, now: Instant) -> Runs:
        """Send a run of which each publication may take long; what is left of it when the read has taken long."""
        steps = sum(1 + len(share.members) for share in route.shares) // SHARES_PER_STEP
        if route.content is not None or not steps:
            left = self._publications.spread_some(link, route, chunk, now)
            return [(route, left)] if left else ()
        start = 0
        for end in frames_of(chunk, 0):
            if self._subscriptions.steps_left <= 0:
                return [(route, chunk[start:])]
            self._subscriptions.steps_left -= steps
            self._publications.spread(link, route, chunk[start:end], now)
            start = end
        return ()

    def _spread_again(self, link: Link, chunk: bytes, now: Instant) -> Runs:
        """The ways changed since this run was scanned: find out anew where its publications go."""
        assert link.table is not None
        start = 0
        for end in frames_of(chunk, 0):
            if self._subscriptions.steps_left <= 0:
                return [(None, chunk[start:])]
            self._subscriptions.steps_left -= 1
            raw = chunk[start:end]
            topic = Frame(raw).topic
            route = link.table.routes.get(topic) or self._subscriptions.resolve(link.table, topic)
            start = end
            if left := self._spread_some(link, route, raw, now):
                return [*left, (None, chunk[start:])]
        return ()

    def _forget_ways(self) -> None:
        """The ways changed: routes that were worked out before lead elsewhere, also those of reads that wait."""
        self._subscriptions.forget_all()
        self._parcels.forget_ways()
        for link, runs in self._postponed.items():
            self._postponed[link] = [
                (None, b"".join(route.frames) if isinstance(route, Mixed) else chunk) for route, chunk in runs
            ]

    def _spread_mixed(self, link: Link, mixed: Mixed, now: Instant) -> Runs:
        """The same for frames of different routes: one by one, where some topic may take long."""
        if not self._subscriptions.has_slow_topics:
            self._publications.spread_mixed(link, mixed, now)
            return ()
        for position, (route, frame) in enumerate(zip(mixed.routes, mixed.frames, strict=True)):
            if left := self._spread_some(link, route, frame, now):
                return [*left, *zip(mixed.routes[position + 1 :], mixed.frames[position + 1 :], strict=True)]
        return ()

    def _frame_end(self, link: Link, data: bytes, pos: int) -> int:
        """Where the frame at ``pos`` ends, as far as its head tells; every length is checked here or in the scan."""
        if len(data) - pos < HEAD_BYTES:
            return pos + HEAD_BYTES
        length, kind, _, topic_length, _, _, header_length = HEAD.unpack_from(data, pos)
        if length < HEAD_BYTES - 4:
            raise ProtocolError(Reason.FRAME_TOO_SHORT)
        if kind == Kind.EVENT:
            if is_over_limit(length, topic_length, header_length, self._payload_bytes_max):
                raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        elif length + 4 > (CONTROL_BYTES_MAX + HEAD_BYTES if link.is_client else FRAME_BYTES_MAX + CONTROL_BYTES_MAX):
            raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        if link.state == NEW and length + 4 > self._config.limits.handshake_bytes:
            raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")
        if kind != Kind.PARCEL and topic_length > length - 24:
            raise ProtocolError(Reason.TOPIC_OVER_FRAME)
        if header_length > length - 24 - (0 if kind == Kind.PARCEL else topic_length):
            raise ProtocolError(Reason.HEADERS_OVER_FRAME)
        if kind == Kind.PARCEL and length - 24 - header_length > FRAME_BYTES_MAX:  # passed on, its prefix may be longer
            raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        return int(pos + 4 + length)

    def _dispatch(self, link: Link, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        kind = frame.kind
        if link.state == NEW and kind == Kind.GOODBYE and link.peer.ticket is not None:
            self._network.peering.receive_goodbye(link, frame, now)
            return
        if link.state == NEW and kind not in OPENING:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "the first frame must be a HELLO or a LINK")
        if link.is_pipe and kind not in (ON_PIPES if link.seen is None else ON_PIPES_WITH_SESSION):
            raise ProtocolError(Reason.KIND_UNEXPECTED, "a pipe carries SERVICE frames and, after HELLO, a session's")
        neighbour = link.neighbour
        if neighbour is None:
            handler = self._handlers.get(kind)
        else:
            handler = self._broker_handlers.get(kind)
            if neighbour.suspected:
                self._network.peering.relieve(neighbour, now)
        if link is self._leaving and kind == Kind.SUBSCRIBE:
            return  # in vain, and it may be slow
        if handler is None:
            known = kind in list(Kind)
            raise ProtocolError(Reason.KIND_UNEXPECTED if known else Reason.KIND_UNKNOWN, f"kind {kind}")
        if kind >= Kind.HELLO and frame.flags and link.is_client:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, "control frames have no flags")
        handler(link, frame, now)

    def _refuse_peer(self, link: Link, error: ProtocolError) -> None:
        self._outbox.note(PeerRefused(link.id, error.reason, error.detail))
        self._links.hang_up(link, error.reason, error.detail)

    # -- other brokers --------------------------------------------------------------------------------------------

    def _neighbour_pong(self, link: Link, frame: Frame, now: Instant) -> None:
        assert link.neighbour is not None
        self._network.peering.pong(link.neighbour, frame.sequence, now)
        self._timing.heard(frame, now)

    def _neighbour_changed(self, neighbour: Neighbour, now: Instant) -> None:
        self._network.neighbour_changed(neighbour, now)
        if neighbour.suspected:
            self._network.settle(now)
            self._parcels.plan_again(neighbour, now)

    def _neighbour_cut_off(self, neighbour: Neighbour, now: Instant) -> None:
        """It says that it does not hear us: what it has not confirmed does not wait until the link is given up."""
        self._parcels.plan_again(neighbour, now)

    def _neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        self._network.neighbour_down(neighbour, now)
        self._network.settle(now)
        replanned = self._parcels.plan_again(neighbour, now)
        self._outbox.note(NeighbourLost(neighbour.name, replanned))

    def _others(self) -> list[str]:
        """Where clients could go, if they may."""
        return [] if self._sessions.draining else self._network.addresses(OTHERS_KNOWN_MAX)

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """From an NTP server; other sockets belong to services."""
        self._now = now
        self._timing.receive_datagram(data, now)

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A token's check, or the loading of settings, ended."""
        self._now = now
        if not self._orders.done(ticket, result):
            self._sessions.proven(ticket, result is True, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """It did not end well."""
        if not self._orders.failed(ticket, reason) and not self._network.peering.failed(ticket, reason, now):
            self._sessions.proven(ticket, None, now)

    def tell(self, command: Any, now: Instant) -> None:
        """Stop, Drain, Reload, Listening, Room, Busy, TurnedAway, or what became of the socket for NTP servers."""
        if isinstance(command, Stop):
            self._sessions.stop(now)
        elif isinstance(command, Drain):
            self._sessions.drain(command.grace_ms, now)
        elif isinstance(command, Reload):
            self._now = now
            self._reload(command.config)
        elif isinstance(command, KeepLink):
            if command.keep:
                self._network.peering.aim(command.link, now)
            else:
                self._network.peering.drop(command.link)
        elif isinstance(command, Listening):
            self._orders.addresses = command.addresses
            self._network.listen(command.addresses[0] if command.addresses else "", now)
        elif isinstance(command, Room):
            self._sessions.room = command.links_max
        elif isinstance(command, Busy):
            self._shedding.sampled(command.cpu_permille, now)
        elif isinstance(command, TurnedAway):
            self._links.count(command.reason)
            self._outbox.note(PeerRefused(0, command.reason, command.detail))
        elif isinstance(command, SocketOpened):
            self._timing.opened(command, now)
        elif isinstance(command, SocketFailed):
            pass  # noted by the driver; the network's time will do
        else:
            raise UsageError(f"a broker does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says. The first word of it is also the broker's start."""
        self._now = now
        if self._publications.time_ahead_ns is None:
            self._network.start(now)
        self._timing.clock(wall_ns, now)

    def _time_changed(self, ahead_ns: int) -> None:
        self._publications.time_ahead_ns = ahead_ns

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._now = now
        self._timers.run(now)

    def take(self) -> Effects:
        """What is wanted since the last take."""
        network = self._network
        if network.settled != network.map.version:
            network.settle_soon(self._now)
        if self._links.touched:
            self._links.flush()
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What the broker knows: see orders.py."""
        return self._orders.report(question)

    def _reload(self, config: BrokerConfig) -> list[str]:
        """Put settings in force. Returns those that changed and need a restart."""
        self._config = self._orders.config = config
        self._links.limits = config.limits
        self._payload_bytes_max = self._shortcut.payload_bytes_max = config.limits.payload_bytes_max
        self._sessions.reload(config)
        self._shedding.config = config.load
        self._subscriptions.forget_all()
        self._network.reload(config.network, self._now)
        restart = config.restart_needed(self._started)
        self._outbox.note(SettingsReloaded(len(config.access.rules), len(config.tokens), restart))
        return restart


def _steps(link: Link, raw: bytes) -> int:
    """How much of a read's time a frame takes that is no plain publication: an EVENT with flags may have a content."""
    frame = Frame(raw)
    route = link.routes.get(frame.topic) if frame.kind == Kind.EVENT else None
    return 1 if route is None or route.content is None else route.content.steps
