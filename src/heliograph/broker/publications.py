"""Publications off the fast path: new topics, flags, groups, destinations, refusals.

In:    EVENT frames that the scan left to us, and runs with their route.
Out:   runs for links and neighbours; REFUSED frames.
State: counters.
Not here: the fast path (reading.py, wire/scan.py), what comes from other brokers (arrivals.py), queues (links.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.broker.contents import event_of
from heliograph.broker.hot import frames_of
from heliograph.broker.links import Link, Links
from heliograph.broker.routes import Route, Share
from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import Port, Sink
from heliograph.broker.routing.routing import Routing
from heliograph.broker.routing.targets import Targets
from heliograph.broker.sessions import Sessions
from heliograph.broker.steps import Steps
from heliograph.broker.subscriptions import Subscriptions
from heliograph.broker.timing import Timing
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox
from heliograph.model.identity import Role
from heliograph.model.publication import DESTINATIONS, EXPIRY, REPLY_TO
from heliograph.model.topics import is_inbox, topic_fault
from heliograph.notes import ActionDenied, PublicationRefused
from heliograph.wire import bodies
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import EVENT_FLAGS_KNOWN, HEAD, Flag, Frame, Kind, control
from heliograph.wire.limits import DESTINATIONS_MAX, HEAD_BYTES

TOLD_MAX = 256  # refused topics remembered per link, so that a publisher is told once per topic

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Publications:
    """Sends publications to the sinks of their routes."""

    def __init__(
        self,
        links: Links,
        sessions: Sessions,
        subscriptions: Subscriptions,
        routing: Routing,
        timing: Timing,
        steps: Steps,
        outbox: Outbox,
    ) -> None:
        self._links = links
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._routing = routing
        self._inbox = routing.advertising.inbox
        self._forward = routing.forwarding.forward
        self._timing = timing
        self._steps = steps
        self._outbox = outbox
        self._last_directed: Sink | None = None
        self.denied = 0
        self.expired = 0
        self.shares_lost = 0  # publications for a group that has no member in reach

    def meet_bad_topic(self, link: Link, data: bytes, pos: int) -> int:
        """A publication with an invalid topic: discard it, and tell the publisher why. Returns where to read on."""
        assert link.seen is not None
        length, _, _, topic_length, _, sequence, _ = HEAD.unpack_from(data, pos)
        topic = data[pos + HEAD_BYTES : pos + HEAD_BYTES + topic_length]
        if link.seen.admit(sequence):
            fault = topic_fault(topic)  # None: resolving it raised
            self._refuse(link, topic, Reason.INTERNAL_ERROR if fault is None else Reason.TOPIC_INVALID, fault or "")
        return int(pos + 4 + length)

    def receive_flagged(self, link: Link, frame: Frame, now: Instant) -> None:
        """An EVENT with flags, off the fast path."""
        assert link.seen is not None
        assert link.table is not None
        if frame.flags & ~EVENT_FLAGS_KNOWN:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, f"flags {frame.flags}")
        if frame.origin != link.origin:
            raise ProtocolError(Reason.ORIGIN_FOREIGN)
        is_new = link.seen.admit(frame.sequence)
        if not is_new and not frame.flags & Flag.REPEAT:
            return
        fault = topic_fault(frame.topic)
        if fault is not None:
            self._refuse(link, frame.topic, Reason.TOPIC_INVALID, fault)
            return
        headers = headers_of(frame)
        if frame.flags & Flag.EXPIRES and not self._is_wanted_still(link, frame, headers, now):
            return
        route = link.table.routes.get(frame.topic) or self._subscriptions.resolve(link.table, frame.topic)
        denied = self._is_denied(link, route)
        if frame.flags & Flag.DIRECTED:
            self._direct(link, frame, headers, denied, now)
            return
        if denied:
            self._deny(link, frame.raw)
            return
        if not is_new:
            self.spread_repeat(link, route, frame.raw, now)
            return
        if route.content is not None:
            route = route.content.route(frame.raw)
        self.spread(link, route, frame.raw, now)
        if frame.flags & Flag.REQUEST and not self._is_answered(route, frame):
            subject = str(headers.get(REPLY_TO, ""))[:256]
            text = f"no subscriber answers on {frame.topic.decode()}"
            self._links.count(Reason.RESPONDERS_MISSING)
            body = bodies.refusal(Reason.RESPONDERS_MISSING, text, subject)
            self._links.put(link, control(Kind.REFUSED, 0, body))

    def _is_answered(self, route: Route, frame: Frame) -> bool:
        """True if some subscriber in reach may answer a request. Those that only listen (stores, monitors) do not."""
        return route.answers_here or self._routing.destinations.answers(frame.topic, lambda: event_of(frame.raw))

    def _direct(self, link: Link, frame: Frame, headers: dict[str, Any], denied: bool, now: Instant) -> None:
        """Send a publication to the sessions that it names, and to no others."""
        if denied:
            self._deny(link, frame.raw)
            return
        inboxes = inboxes_of(headers)
        if not inboxes:
            text = f"$d must name 1 to {DESTINATIONS_MAX} inboxes"
            self._refuse(link, frame.topic, Reason.HEADERS_MALFORMED, text)
            return
        self.send_to(link, inboxes, False, frame.raw, now)

    def send_to(self, link: Port, inboxes: list[bytes], inside: bool, raw: bytes, now: Instant) -> None:
        """Deliver to those of these sessions that are here, and forward to the brokers of the others."""
        members = 0
        parts: dict[int, None] = {}
        for inbox in inboxes:
            if inbox.startswith(self._inbox + b"/"):
                found = self._sessions.by_origin(int(inbox.rsplit(b"/", 1)[1], 16))
                if found is not None:
                    self._links.deliver(link, self._directed(found), raw, now)
                continue
            targets, _ = self._routing.destinations.targets_of(inbox, inside)
            members |= targets.members
            parts.update(dict.fromkeys(targets.parts))
        if members or parts:
            self._forward(link, Targets(members, tuple(sorted(parts))), raw, TTL, (), now)

    def _directed(self, link: Port) -> Sink:
        """Where directed publications to a link go: the same as before, so that those of a run travel together."""
        sink = self._last_directed
        if sink is None or sink.link is not link:
            sink = self._last_directed = Sink(link, b"", True, False, False)
        return sink

    def _is_wanted_still(self, link: Link, frame: Frame, headers: dict[str, Any], now: Instant) -> bool:
        expiry_us = headers.get(EXPIRY)
        if not isinstance(expiry_us, int):
            self._refuse(link, frame.topic, Reason.HEADERS_MALFORMED, "no expiry ($x) in the headers")
            return False
        ahead_ns = self._timing.ahead_ns
        if ahead_ns is not None and expiry_us * 1_000 <= now + ahead_ns:
            self.expired += 1
            self._links.count(Reason.PUBLICATION_EXPIRED)
            return False
        return True

    def spread_some(self, publisher: Port, route: Route, chunk: bytes, now: Instant) -> bytes:
        """Send each publication of a run by its content. Returns the rest once the read has taken too long."""
        content, steps = route.content, self._steps
        if content is None or self._is_denied(publisher, route):
            self.spread(publisher, route, chunk, now)
            return b""
        start = 0
        for end in frames_of(chunk, 0):
            if steps.left <= 0:
                return chunk[start:]
            steps.spend(content.steps)
            raw = chunk[start:end]
            start = end
            try:
                self.spread(publisher, content.route(raw), raw, now)
            except Exception as error:
                self.fail(publisher, raw, error, now)
        return b""

    def spread(self, publisher: Port, route: Route, chunk: bytes, now: Instant) -> None:
        """Send a run to every sink of its route, and each of its publications to one member of each group."""
        if self._is_denied(publisher, route):
            self._deny(publisher, chunk)
            return
        if route.content is not None:
            start = 0
            for end in frames_of(chunk, 0):
                raw = chunk[start:end]
                start = end
                try:
                    self.spread(publisher, route.content.route(raw), raw, now)
                except Exception as error:
                    self.fail(publisher, raw, error, now)
            return
        self._links.fan_out(publisher, route.sinks, chunk, now)
        if publisher.neighbour is None:  # groups are decided where a publication enters
            for share in route.shares:
                self.share_out(publisher, share, chunk, TTL, (), now)

    def spread_repeat(self, publisher: Port, route: Route, raw: bytes, now: Instant) -> None:
        """Send a repeated publication only to stores, and to other brokers, which may have stores."""
        if route.denied:
            self._deny(publisher, raw)
            return
        sinks = [sink for sink in route.sinks if sink.link.neighbour is not None or sink.link.identity.has(Role.STORE)]
        self._links.fan_out(publisher, sinks, raw, now)

    def spread_mixed(self, publisher: Port, mixed: Mixed, now: Instant) -> None:
        """Send each of many frames to the sinks of its own route, in order."""
        adds = self._ways(mixed.routes)
        if adds is None:
            for route, frame in zip(mixed.routes, mixed.frames, strict=True):
                sink = route.one
                if sink is None:
                    self.spread(publisher, route, frame, now)
                elif sink.link.sink is sink:
                    sink.link.out.append(frame)
                else:
                    self._links.deliver(publisher, sink, frame, now)
            return
        for add, frame in zip(map(adds.__getitem__, mixed.routes), mixed.frames, strict=True):
            add(frame)

    def _ways(self, routes: list[Route]) -> dict[Route, Callable[[bytes], None]] | None:
        """For each route, the function that adds a frame to its only sink; None if it is not as simple as that."""
        distinct = dict.fromkeys(routes)
        links = {route.one.link: None for route in distinct if route.one is not None}
        if len(links) < len(distinct):
            return None  # a route has many sinks or none, or two sinks share a link and would have to take turns
        adds: dict[Route, Callable[[bytes], None]] = {}
        for route in distinct:
            assert route.one is not None
            add = self._links.ready(route.one)
            if add is None:
                return None  # its link is slow
            adds[route] = add
        return adds

    def share_out(
        self, publisher: Port, share: Share, chunk: bytes, ttl: int, trace: tuple[int, ...], now: Instant
    ) -> None:
        """Members here take turns; if none of them may have it, it goes to the nearest broker with members."""
        start = 0
        for end in frames_of(chunk, 0):
            sink = share.member(publisher)
            if sink is None:
                break
            self._links.deliver(publisher, sink, chunk[start:end], now)
            start = end
        else:
            return
        for targets in share.elsewhere:
            if self._forward(publisher, targets, chunk, ttl, trace, now):
                return
        self.shares_lost += 1

    def _is_denied(self, publisher: Port, route: Route) -> bool:
        """True if the rules deny the topic, or if it is a created topic and the publisher has no right to it."""
        if route.guard is None:
            return route.denied
        return route.denied or not self._subscriptions.rights.may_publish(publisher.id, route.guard)

    def _deny(self, link: Port, chunk: bytes) -> None:
        """Count publications that the rules deny, and tell the publisher once per topic."""
        start = 0
        for end in frames_of(chunk, 0):
            topic = Frame(chunk[start:end]).topic
            start = end
            self.denied += 1
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

    def fail(self, publisher: Port, run: bytes, error: Exception, now: Instant) -> None:
        """Sending these publications raised, which is a bug of ours: they are dropped alone, and counted.

        A client that published them is told. A neighbour only relayed them, and a service keeps its pipe.
        """
        self._outbox.guard.caught("publication", error, now, publisher.id, publisher.identity.entity)
        for _ in frames_of(run, 0):
            self._links.count(Reason.INTERNAL_ERROR)
        if publisher.neighbour is None and not publisher.is_pipe:
            subject = Frame(run).topic[:256].decode(errors="replace")
            body = bodies.refusal(Reason.INTERNAL_ERROR, "a bug in this broker; the publication was dropped", subject)
            self._links.put(publisher, control(Kind.REFUSED, 0, body))

    def _refuse(self, link: Link, topic: bytes, reason: Reason, text: str) -> None:
        self._links.count(reason)
        self._outbox.note(PublicationRefused(link.id, reason, text))
        subject = topic[:256].decode(errors="replace")
        self._links.put(link, control(Kind.REFUSED, 0, bodies.refusal(reason, text, subject)))


def headers_of(frame: Frame) -> dict[str, Any]:
    """A publication's headers; empty if they are not a JSON object."""
    try:
        return _decode(frame.headers) if frame.headers else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def inboxes_of(headers: dict[str, Any]) -> list[bytes]:
    """The inboxes that a publication names, each once; empty if one of them is no inbox, or if there are too many."""
    named = headers.get(DESTINATIONS)
    if not isinstance(named, list) or len(named) > DESTINATIONS_MAX:
        return []
    inboxes = [name.encode() for name in named if isinstance(name, str) and is_inbox(name)]
    return list(dict.fromkeys(inboxes)) if len(inboxes) == len(named) else []
