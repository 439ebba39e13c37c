"""The broker: the front door. It reads frames, hands each kind to the room that owns it, and gathers what they want.

In:    everything in machine.py.
Out:   everything in machine.py; ``report`` answers overview, links, subscriptions, routes and limits.
State: none of its own but counters; each room has its own.
Not here: the rooms: sessions (handshake, life), subscriptions (who wants what), links (writing, pressure),
          requests (services), access, credentials, routing/.

One publication travels: ``receive`` → wire/scan.py finds runs with the same route → each run is appended to the links
of its route → ``take`` puts one prefix before them. See ARCHITECTURE.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.broker.commands import Drain, LoadSettings, Reload, Stop
from heliograph.broker.config import BrokerConfig
from heliograph.broker.links import GONE, NEW, READY, Link, Links, frames_of
from heliograph.broker.requests import Requests
from heliograph.broker.routing.neighbours import Neighbour, Targets
from heliograph.broker.routing.network import TTL, Network
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.routes import Route, RouteTable, Share, Sink
from heliograph.broker.routing.seen import Seen
from heliograph.broker.sessions import Sessions
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.publication import DESTINATIONS, EXPIRY, REPLY_TO
from heliograph.model.topics import topic_fault
from heliograph.notes import (
    ActionDenied,
    LinkAttached,
    LinkDetached,
    NeighbourLost,
    PeerRefused,
    PublicationRefused,
    ReloadFailed,
    SettingsReloaded,
)
from heliograph.wire import bodies
from heliograph.wire.frames import EVENT_FLAGS_KNOWN, HEAD, Flag, Frame, Kind, control
from heliograph.wire.limits import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HEAD_BYTES, PAYLOAD_BYTES_MAX
from heliograph.wire.scan import MISS, MORE, OTHER, is_over_limit, scan

ROWS_MAX = 500  # of a report in one answer: well within a frame, whatever the rows hold
OPENING = (Kind.HELLO, Kind.LINK, Kind.LINKED, Kind.PROOF)  # what a link may carry before it is proven
DESTINATIONS_MAX = 64  # inboxes that one publication may name
TOLD_MAX = 256  # refused topics remembered per link, so that a stream of them is answered once each

Handler = Callable[[Link, Frame, Instant], None]
INBOX = re.compile(r"Inbox/[0-9a-f]{16}/[0-9a-f]{16}\Z")
_headers = msgspec.json.Decoder(dict[str, Any]).decode


class Broker:
    """A machine (machine.py) that routes publications between its links."""

    def __init__(self, config: BrokerConfig, *, seed: int, incarnation: int) -> None:
        self._config = config
        self._incarnation = incarnation
        self._outbox = Outbox()
        self._timers = Timers()
        self._links = Links(config.limits, self._outbox, self._timers)
        self._subscriptions = Subscriptions(self._links, self._outbox, self._timers)
        self._sessions = Sessions(
            config, incarnation, self._links, self._subscriptions, self._outbox, self._timers, self._resume
        )
        self._requests = Requests(self._links, self._outbox, self._order)
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
            self._subscriptions.forget_all,
        )
        self._parcels = Parcels(network, self._links, self._timers, self._arrive)
        self._sessions.inbox_root = network.inbox
        self._subscriptions.elsewhere = network.elsewhere
        self._subscriptions.changed = network.local_change
        self._subscriptions.spread = network.when_known
        peering = network.peering
        peering.up = network.neighbour_up
        peering.changed = self._neighbour_changed
        peering.down = self._neighbour_down
        self._reloads: dict[Ticket, tuple[Link, int] | None] = {}
        self._wall_offset_ns: int | None = None  # wall time = now + this
        self._payload_bytes_max = config.limits.payload_bytes_max
        self._denied = 0
        self._expired = 0
        self._shares_lost = 0  # publications for a group that has no member in reach
        self._handlers: dict[int, Handler] = {
            Kind.EVENT: self._flagged_event,
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
            Kind.PARCEL: self._parcels.receive,
            Kind.COUNT: self._parcels.receive_count,
            Kind.MAP: network.receive_map,
            Kind.INTEREST: network.receive_interest,
            Kind.SYNC: network.receive_sync,
            Kind.WAVE: network.receive_wave,
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
        self._outbox.note(LinkDetached(link, left.identity.entity, reason))
        self._network.peering.leave(left, now)
        self._links.remove(left)
        self._subscriptions.leave(left, now)
        self._sessions.leave(left, now)
        self._requests.leave(left)
        self._sessions.check_drained(now)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """The driver's buffer for a link is full, or has room again."""
        pressing = self._links.by_id.get(link)
        if pressing is not None and pressing.state != GONE:
            self._links.press(pressing, pressed, now)

    # -- reading --------------------------------------------------------------------------------------------------

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Bytes of a link's stream. A peer that breaks the rules loses its link, and nobody else notices."""
        from_link = self._links.by_id.get(link)
        if from_link is None or from_link.state == GONE:
            return
        from_link.heard_at = self._now = now
        from_link.bytes_in += len(data)
        try:
            if from_link.need:
                self._gather(from_link, data, now)
            else:
                self._read(from_link, data, now)
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
                self._read(link, data, now)
        except ProtocolError as error:
            self._refuse_peer(link, error)

    def _read(self, link: Link, data: bytes, now: Instant) -> None:
        pos = 0
        while link.state != GONE:
            if link.need:  # its token is being checked: the rest waits
                break
            if link.seen is not None:
                spans: list[tuple[Route, int, int]] = []
                pos, why = scan(data, pos, link.routes, link.seen, self._payload_bytes_max, spans)
                for route, start, end in spans:
                    sink = route.one
                    if sink is None:
                        self._spread(link, route, data[start:end], now)
                    elif sink.link.sink is sink:
                        sink.link.out.append(data[start:end])
                    else:
                        self._links.deliver(link, sink, data[start:end], now)
                if why == MORE:
                    break
                if why == MISS:
                    pos = self._meet_topic(link, data, pos)
                    continue
                if why != OTHER:
                    raise ProtocolError(Reason(why))
            end = self._frame_end(link, data, pos)
            if end > len(data):
                link.need = end - pos
                break
            self._dispatch(link, data[pos:end], now)
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
        return int(pos + 4 + length)

    def _dispatch(self, link: Link, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        kind = frame.kind
        if link.state == NEW and kind not in OPENING:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "the first frame must be a HELLO or a LINK")
        if link.is_pipe and kind != Kind.SERVICE:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "pipes carry SERVICE frames")
        neighbour = link.neighbour
        if neighbour is None:
            handler = self._handlers.get(kind)
        else:
            handler = self._broker_handlers.get(kind)
            if neighbour.suspected:
                self._network.peering.relieve(neighbour, now)
        if handler is None:
            known = kind in list(Kind)
            raise ProtocolError(Reason.KIND_UNEXPECTED if known else Reason.KIND_UNKNOWN, f"kind {kind}")
        if kind >= Kind.HELLO and frame.flags and link.is_client:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, "control frames have no flags")
        handler(link, frame, now)

    # -- publications off the fast path ---------------------------------------------------------------------------

    def _meet_topic(self, link: Link, data: bytes, pos: int) -> int:
        """A topic that the cache does not have: work out its route, or discard the publication. Where to go on."""
        assert link.table is not None
        assert link.seen is not None
        length, _, _, topic_length, _, sequence, _ = HEAD.unpack_from(data, pos)
        topic = data[pos + HEAD_BYTES : pos + HEAD_BYTES + topic_length]
        fault = topic_fault(topic)
        if fault is None:
            self._subscriptions.resolve(link.table, topic)
            return pos
        if link.seen.admit(sequence):
            self._refuse_publication(link, topic, Reason.TOPIC_INVALID, fault)
        return int(pos + 4 + length)

    def _flagged_event(self, link: Link, frame: Frame, now: Instant) -> None:
        """An EVENT with flags, off the fast path."""
        assert link.seen is not None
        assert link.table is not None
        if frame.flags & ~EVENT_FLAGS_KNOWN:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, f"flags {frame.flags}")
        if frame.origin != link.origin:
            raise ProtocolError(Reason.ORIGIN_FOREIGN)
        if not link.seen.admit(frame.sequence):
            return
        fault = topic_fault(frame.topic)
        if fault is not None:
            self._refuse_publication(link, frame.topic, Reason.TOPIC_INVALID, fault)
            return
        headers = _headers_of(frame)
        if frame.flags & Flag.EXPIRES and not self._is_wanted_still(link, frame, headers, now):
            return
        route = link.table.routes.get(frame.topic) or self._subscriptions.resolve(link.table, frame.topic)
        if frame.flags & Flag.DIRECTED:
            self._direct(link, frame, headers, route.denied, now)
            return
        self._spread(link, route, frame.raw, now)
        if frame.flags & Flag.REQUEST and route.is_empty and not route.denied:
            subject = str(headers.get(REPLY_TO, ""))[:256]
            text = f"nobody answers on {frame.topic.decode()}"
            self._links.count(Reason.RESPONDERS_MISSING)
            body = bodies.refusal(Reason.RESPONDERS_MISSING, text, subject)
            self._links.put(link, control(Kind.REFUSED, 0, body))

    def _direct(self, link: Link, frame: Frame, headers: dict[str, Any], denied: bool, now: Instant) -> None:
        """A publication for the sessions that it names, and for nobody else."""
        if denied:
            self._deny(link, frame.raw)
            return
        inboxes = _inboxes_of(headers)
        if not inboxes:
            text = f"$d must name 1 to {DESTINATIONS_MAX} inboxes"
            self._refuse_publication(link, frame.topic, Reason.HEADERS_MALFORMED, text)
            return
        self._send_to(link, inboxes, False, frame.raw, now)

    def _send_to(self, link: Link, inboxes: list[bytes], inside: bool, raw: bytes, now: Instant) -> None:
        """Deliver to those of these sessions that are here, and forward to the brokers of the others."""
        members = 0
        parts: dict[int, None] = {}
        for inbox in inboxes:
            if inbox.startswith(self._network.inbox + b"/"):
                found = self._sessions.by_origin(int(inbox.rsplit(b"/", 1)[1], 16))
                if found is not None:
                    self._links.deliver(link, Sink(found, b"", True, False, False), raw, now)
                continue
            targets, _ = self._network.targets_of(inbox, inside)
            members |= targets.members
            parts.update(dict.fromkeys(targets.parts))
        if members or parts:
            self._parcels.forward(link, Targets(members, tuple(sorted(parts))), raw, TTL, (), now)

    def _is_wanted_still(self, link: Link, frame: Frame, headers: dict[str, Any], now: Instant) -> bool:
        expiry_us = headers.get(EXPIRY)
        if not isinstance(expiry_us, int):
            self._refuse_publication(link, frame.topic, Reason.HEADERS_MALFORMED, "no expiry ($x) in the headers")
            return False
        if self._wall_offset_ns is not None and expiry_us * 1_000 <= now + self._wall_offset_ns:
            self._expired += 1
            self._links.count(Reason.PUBLICATION_EXPIRED)
            return False
        return True

    def _spread(self, publisher: Link, route: Route, chunk: bytes, now: Instant) -> None:
        """Send a run to every sink of its route, and each of its publications to one member of each group."""
        if route.denied:
            self._deny(publisher, chunk)
            return
        deliver = self._links.deliver
        for sink in route.sinks:
            link = sink.link
            if link is publisher and sink.own is not True:
                if sink.own is False:
                    continue
                sink = sink.own
            if link.sink is sink:
                link.out.append(chunk)
            else:
                deliver(publisher, sink, chunk, now)
        if publisher.neighbour is None:  # groups are decided where a publication enters
            for share in route.shares:
                self._share_out(publisher, share, chunk, TTL, (), now)

    def _share_out(
        self, publisher: Link, share: Share, chunk: bytes, ttl: int, trace: tuple[int, ...], now: Instant
    ) -> None:
        """Members here take turns; where there are none, the nearest broker that has some gets it."""
        if share.members:
            start = 0
            for end in frames_of(chunk):
                sink = share.member(publisher)
                if sink is not None:
                    self._links.deliver(publisher, sink, chunk[start:end], now)
                start = end
            return
        for targets in share.elsewhere:
            if self._parcels.forward(publisher, targets, chunk, ttl, trace, now):
                return
        self._shares_lost += 1

    def _deny(self, link: Link, chunk: bytes) -> None:
        """Publications that the rules deny: counted, and told once per topic."""
        start = 0
        for end in frames_of(chunk):
            topic = Frame(chunk[start:end]).topic
            start = end
            self._denied += 1
            self._links.count(Reason.PUBLISH_DENIED)
            if topic not in link.told:
                if len(link.told) >= TOLD_MAX:
                    link.told.clear()
                link.told[topic] = None
                subject = topic.decode()
                entity = link.identity.entity
                self._outbox.note(ActionDenied(link.id, entity, Reason.PUBLISH_DENIED, subject))
                body = bodies.refusal(Reason.PUBLISH_DENIED, f"{entity} may not publish on {subject}", subject)
                self._links.put(link, control(Kind.REFUSED, 0, body))

    def _refuse_publication(self, link: Link, topic: bytes, reason: Reason, text: str) -> None:
        self._links.count(reason)
        self._outbox.note(PublicationRefused(link.id, reason, text))
        subject = topic[:256].decode(errors="replace")
        self._links.put(link, control(Kind.REFUSED, 0, bodies.refusal(reason, text, subject)))

    def _refuse_peer(self, link: Link, error: ProtocolError) -> None:
        self._outbox.note(PeerRefused(link.id, error.reason, error.detail))
        self._links.hang_up(link, error.reason, error.detail)

    # -- other brokers --------------------------------------------------------------------------------------------

    def _arrive(
        self, link: Link, frames: bytes, inside: bool, groups: tuple[int, ...], trace: tuple[int, ...], now: Instant
    ) -> None:
        """Frames that a neighbour sent for our clients and, ``inside``, for the members of our cluster."""
        table = self._subscriptions.inner if inside else self._subscriptions.local
        if groups:
            self._arrive_for_groups(link, frames, table, groups, trace, now)
            return
        pos = 0
        while pos + HEAD_BYTES <= len(frames):
            origin = HEAD.unpack_from(frames, pos)[4]
            seen = self._sessions.origins.visit(origin, now)
            spans: list[tuple[Route, int, int]] = []
            pos, why = scan(frames, pos, table.routes, seen, PAYLOAD_BYTES_MAX, spans)
            for route, start, end in spans:
                self._spread(link, route, frames[start:end], now)
            if why == MISS:
                pos = self._meet_foreign_topic(table, frames, pos, seen)
            elif why == OTHER:
                pos = self._meet_flagged(link, table, frames, pos, seen, now)
            elif why != Reason.ORIGIN_FOREIGN:
                break
        if pos != len(frames):  # its entry broker should have seen this: discard, count, and do not blame the relay
            self._links.count(Reason.BODY_MALFORMED)

    def _arrive_for_groups(
        self,
        link: Link,
        frames: bytes,
        table: RouteTable,
        groups: tuple[int, ...],
        trace: tuple[int, ...],
        now: Instant,
    ) -> None:
        """Frames of which one member of each of these groups is to get each. If its members are gone, others may."""
        start = 0
        for end in frames_of(frames):
            frame = Frame(frames[start:end])
            start = end
            if topic_fault(frame.topic) is not None:
                continue
            route = table.routes.get(frame.topic) or self._subscriptions.resolve(table, frame.topic)
            for share in route.shares:
                seen = self._sessions.group_origins.visit(frame.origin ^ share.id, now)
                if share.id in groups and seen.admit(frame.sequence):
                    self._share_out(link, share, frame.raw, TTL - len(trace), trace, now)

    def _meet_foreign_topic(self, table: RouteTable, frames: bytes, pos: int, seen: Seen) -> int:
        length, _, _, topic_length, _, sequence, _ = HEAD.unpack_from(frames, pos)
        topic = frames[pos + HEAD_BYTES : pos + HEAD_BYTES + topic_length]
        if topic_fault(topic) is None:
            self._subscriptions.resolve(table, topic)
            return pos
        seen.admit(sequence)
        self._links.count(Reason.TOPIC_INVALID)
        return int(pos + 4 + length)

    def _meet_flagged(self, link: Link, table: RouteTable, frames: bytes, pos: int, seen: Seen, now: Instant) -> int:
        """An EVENT with flags, which its entry broker has checked; anything else inside a parcel ends the reading."""
        length, kind, _, topic_length, _, sequence, header_length = HEAD.unpack_from(frames, pos)
        end = int(pos + 4 + length)
        if kind != Kind.EVENT or end > len(frames) or 24 + topic_length + header_length > length:
            self._links.count(Reason.BODY_MALFORMED)
            return len(frames)
        topic = frames[pos + HEAD_BYTES : pos + HEAD_BYTES + topic_length]
        if not seen.admit(sequence) or topic_fault(topic) is not None:
            return end
        frame = Frame(frames[pos:end])
        if frame.flags & Flag.DIRECTED:
            inboxes = _inboxes_of(_headers_of(frame))
            if table is self._subscriptions.local:
                inboxes = [inbox for inbox in inboxes if inbox.startswith(self._network.inbox)]
            self._send_to(link, inboxes, True, frame.raw, now)
        else:
            route = table.routes.get(topic) or self._subscriptions.resolve(table, topic)
            self._spread(link, route, frame.raw, now)
        return end

    def _neighbour_pong(self, link: Link, frame: Frame, now: Instant) -> None:
        assert link.neighbour is not None
        self._network.peering.pong(link.neighbour, frame.sequence, now)

    def _neighbour_changed(self, neighbour: Neighbour, now: Instant) -> None:
        self._network.neighbour_changed(neighbour, now)
        if neighbour.suspected:
            self._network.settle(now)
            self._parcels.plan_again(neighbour, now)

    def _neighbour_down(self, neighbour: Neighbour, now: Instant) -> None:
        self._network.neighbour_down(neighbour, now)
        self._network.settle(now)
        replanned = self._parcels.plan_again(neighbour, now)
        self._outbox.note(NeighbourLost(neighbour.name, replanned))

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A broker has no sockets for datagrams; its services may."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A token's check, or the loading of settings, ended."""
        if ticket in self._reloads:
            self._reload(result)
            self._answer_reload(ticket, {"ok": True, "rules": len(result.access.rules), "tokens": len(result.tokens)})
        else:
            self._sessions.proven(ticket, result is True, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """It did not end well."""
        if ticket in self._reloads:
            self._outbox.note(ReloadFailed([reason.word]))
            self._answer_reload(ticket, {"ok": False, "reason": reason.word})
        elif not self._network.peering.failed(ticket, reason, now):
            self._sessions.proven(ticket, False, now)

    def tell(self, command: Any, now: Instant) -> None:
        """Stop, Drain or Reload."""
        if isinstance(command, Stop):
            self._sessions.stop(now)
        elif isinstance(command, Drain):
            self._sessions.drain(command.grace_ms, now)
        elif isinstance(command, Reload):
            self._reload(command.config)
        else:
            raise UsageError(f"a broker does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """What the wall clock says. The first word of it is also the broker's start."""
        if self._wall_offset_ns is None:
            self._network.start(now)
        self._wall_offset_ns = wall_ns - now

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._now = now
        self._timers.run(now)

    def take(self) -> Effects:
        """What is wanted since the last take."""
        network = self._network
        if network.settled != network.map.version:
            network.settle(self._now)
        self._links.flush()
        return self._outbox.empty(self._timers.next())

    # -- orders and reports ---------------------------------------------------------------------------------------

    def _order(self, pipe: Link, number: int, body: bytes, now: Instant) -> None:
        """A request to the broker itself, from one of its services."""
        try:
            order = _headers(body)
            self._carry_out(pipe, number, order, now)
        except (UsageError, msgspec.MsgspecError) as error:
            self._requests.refuse(pipe, b"broker", number, Reason.QUESTION_UNKNOWN, str(error))

    def _carry_out(self, pipe: Link, number: int, order: dict[str, Any], now: Instant) -> None:
        match order.get("do"):
            case "report":
                self._requests.answer_order(pipe, number, self._page(order))
            case "drain":
                grace_ms = order.get("grace_ms")
                if grace_ms is not None and not (isinstance(grace_ms, int) and 0 <= grace_ms <= 86_400_000):
                    raise UsageError("grace_ms must be a number of milliseconds, at most a day")
                self._requests.answer_order(pipe, number, {"ok": True})
                self._sessions.drain(grace_ms, now)
            case "reload":
                self._reloads[self._outbox.job(LoadSettings())] = (pipe, number)
            case other:
                raise UsageError(f"a broker cannot {other!r}; it can report, drain and reload")

    def _page(self, order: dict[str, Any]) -> Any:
        """A report that fits one frame: of a long list, the rows that were asked for."""
        answer = self.report(str(order.get("question", "overview")))
        if not isinstance(answer, list):
            return answer
        start, count = order.get("start", 0), order.get("count", ROWS_MAX)
        if not (isinstance(start, int) and isinstance(count, int) and start >= 0 and count > 0):
            raise UsageError("start must be a number from 0, count a number from 1")
        return {"start": start, "total": len(answer), "rows": answer[start : start + min(count, ROWS_MAX)]}

    def _reload(self, config: BrokerConfig) -> None:
        self._config = config
        self._links.limits = config.limits
        self._payload_bytes_max = config.limits.payload_bytes_max
        self._sessions.reload(config)
        self._subscriptions.forget_all()
        self._outbox.note(SettingsReloaded(len(config.access.rules), len(config.tokens)))

    def _answer_reload(self, ticket: Ticket, answer: dict[str, Any]) -> None:
        asked = self._reloads.pop(ticket)
        if asked is not None and asked[0].state == READY:
            self._requests.answer_order(*asked, answer)

    def report(self, question: str) -> Any:
        """What the broker knows: overview, links, subscriptions, routes or limits."""
        match question:
            case "overview":
                return self._overview()
            case "links":
                return [_describe(link) for link in self._links.by_id.values()]
            case "subscriptions":
                return self._subscriptions.report()
            case "map":
                return self._network.report()
            case "routes":
                return {"cached": self._subscriptions.routes_cached, "max": self._config.limits.routes_max}
            case "limits":
                return {name: getattr(self._config.limits, name) for name in self._config.limits.__slots__}
        raise UsageError(
            f"no report is called {question[:64]!r}; ask for overview, links, subscriptions, map, routes or limits"
        )

    def _overview(self) -> dict[str, Any]:
        links = [link for link in self._links.by_id.values() if not link.is_pipe]
        origins = self._sessions.origins
        return {
            "broker": self._config.name,
            "incarnation": self._incarnation,
            "links": len(links),
            "sessions": sum(1 for link in links if link.state == READY),
            "subscriptions": self._subscriptions.count,
            "publications": sum(seen.accepted for seen in origins),
            "duplicates": sum(seen.duplicates for seen in origins),
            "origins": len(origins),
            "origins_forgotten": origins.forgotten,
            "denied": self._denied,
            "expired": self._expired,
            "shares_lost": self._shares_lost,
            "dropped": self._links.frames_dropped,
            "dropped_bytes": self._links.bytes_dropped,
            "backlog_bytes": sum(link.backlog_bytes for link in links),
            "backlog_frames": sum(link.backlog_frames for link in links),
            "routes_cached": self._subscriptions.routes_cached,
            "refused": dict(sorted(self._links.refused.items())),
            "draining": self._sessions.draining,
        }


def _headers_of(frame: Frame) -> dict[str, Any]:
    """A publication's headers; none where they are not a JSON object."""
    try:
        return _headers(frame.headers) if frame.headers else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _inboxes_of(headers: dict[str, Any]) -> list[bytes]:
    """The inboxes that a publication names; none if one of them is no inbox, or if there are too many."""
    named = headers.get(DESTINATIONS)
    if not isinstance(named, list) or len(named) > DESTINATIONS_MAX:
        return []
    inboxes = [name.encode() for name in named if isinstance(name, str) and INBOX.match(name)]
    return inboxes if len(inboxes) == len(named) else []


def _describe(link: Link) -> dict[str, Any]:
    return {
        "link": link.id,
        "address": link.peer.address,
        "transport": link.peer.transport,
        "listener": link.peer.listener,
        "entity": link.identity.entity,
        "roles": [role.value for role in link.identity.roles],
        "proof": link.identity.proof,
        "name": link.name,
        "service": link.service,
        "ready": link.state == READY,
        "subscriptions": len(link.subscriptions),
        "publications": link.seen.accepted if link.seen is not None else 0,
        "bytes_in": link.bytes_in,
        "deliveries": link.deliveries,
        "dropped": link.dropped,
        "backlog_bytes": link.backlog_bytes,
        "backlog_frames": link.backlog_frames,
        "pressed": link.pressed,
        "held": bool(link.held_by),
        "holds": len(link.holding),
    }
