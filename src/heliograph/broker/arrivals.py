"""Arrivals: publications that other brokers sent here, for our clients or for our cluster.

In:    the frames of parcels that have reached a target.
Out:   runs for our clients' links and, at the first broker of a cluster, for its other members.
State: none of its own; the sessions keep which publications were seen.
Not here: parcels to be passed on (routing/parcels.py), publications of our own clients (publications.py).

The broker where a publication entered has already checked it. If a frame is malformed nevertheless, it is discarded and
counted, and the neighbour that relayed it keeps its link. So is a publication that raises an exception here: if it
ended the link, its sender would send it on another way, and end link after link.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.hot import frames_of, scan
from heliograph.broker.links import Links
from heliograph.broker.observations import Observations
from heliograph.broker.publications import Publications, headers_of, inboxes_of
from heliograph.broker.routes import Route, RouteTable
from heliograph.broker.routing.parcels import Way
from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import HopSink, Port, Sink
from heliograph.broker.routing.routing import Routing
from heliograph.broker.routing.seen import Seen
from heliograph.broker.routing.targets import Targets
from heliograph.broker.sessions import Sessions
from heliograph.broker.stored_frames import StoredFrames
from heliograph.broker.subscriptions import Subscriptions
from heliograph.broker.tracing import Tracing
from heliograph.errors import Reason
from heliograph.guard import Guard
from heliograph.machine import Instant
from heliograph.model.topics import topic_fault
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import EVENT_FLAGS_KNOWN, HEAD, ORIGIN, SCAN, Flag, Frame, Kind
from heliograph.wire.limits import HEAD_BYTES, PAYLOAD_BYTES_MAX
from heliograph.wire.scan import MISS, OTHER, is_over_limit

JOINED_MAX = 1_024  # remembered per way
MATCHED_FLAGS = int(Flag.EXPIRES | Flag.REQUEST)  # flags of publications that are routed by their topic


class Arrivals:
    """Reads what arrives from other brokers."""

    def __init__(
        self,
        links: Links,
        sessions: Sessions,
        subscriptions: Subscriptions,
        routing: Routing,
        publications: Publications,
        tracing: Tracing,
        observations: Observations,
        time_us: Callable[[], int],
        stored: StoredFrames,
        guard: Guard,
    ) -> None:
        self._guard = guard
        self._observations = observations
        self._time_us = time_us
        self._links = links
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._routing = routing
        self._publications = publications
        self._tracing = tracing
        self._stored = stored

    def arrive(self, link: Port, frames: bytes, way: Way, now: Instant) -> None:
        """Frames that a neighbour sent for our clients and, if ``way.inside``, for the members of our cluster."""
        link.trace = way.trace
        try:
            self._arrive(link, frames, way, now)
        except Exception as error:  # between two publications: the rest of the parcel is dropped
            self._fail(link, error, now)

    def _fail(self, link: Port, error: Exception, now: Instant) -> None:
        """Something that a neighbour relayed raised: it is dropped alone, and counted."""
        self._guard.caught("relayed publication", error, now, link.id, link.identity.entity)
        self._links.count(Reason.INTERNAL_ERROR)

    def _arrive(self, link: Port, frames: bytes, way: Way, now: Instant) -> None:
        if self._observations.is_due():
            self._observations.parcel(frames, way.trace, self._time_us())
        if way.joins:
            self._arrive_and_pass(link, frames, way, now)
            return
        table = self._subscriptions.inner if way.inside else self._subscriptions.local
        if way.groups:
            self._arrive_for_groups(link, frames, table, way.groups, way.trace, now)
            return
        pos = 0
        while pos + HEAD_BYTES <= len(frames):
            origin = ORIGIN.unpack_from(frames, pos + 8)[0]
            seen = self._sessions.origins.visit(origin, now)
            if way.inside:
                seen.come_by(way.trace)
            spans: list[tuple[Route | Mixed, int, int]] = []
            pos, why = scan(frames, pos, table.routes, seen, PAYLOAD_BYTES_MAX, spans)
            for route, start, end in spans:
                try:
                    if isinstance(route, Mixed):
                        self._publications.spread_mixed(link, route, now)
                    else:
                        self._publications.spread(link, route, frames[start:end], now)
                except Exception as error:
                    self._publications.fail(link, frames[start:end], error, now)
            if pos == len(frames):
                return
            if why == MISS:
                pos = self._meet_bad_topic(frames, pos, seen)
            elif why == OTHER:
                pos = self._meet_other(link, table, frames, pos, way.trace, now)
            elif why != Reason.ORIGIN_FOREIGN:
                break
        if pos != len(frames):  # the entry broker should have refused it: discard, count, and do not blame the relay
            self._links.count(Reason.BODY_MALFORMED)

    def _arrive_and_pass(self, link: Port, frames: bytes, way: Way, now: Instant) -> None:
        """The same for frames that also go on to other parts: each neighbour gets each frame once."""
        passed = tuple(way.sinks)
        run_sinks: tuple[Sink, ...] = passed
        start = run_start = 0
        for end in frames_of(frames, 0):
            raw = frames[start:end]
            is_event = _is_event(raw)
            sinks: tuple[Sink, ...] = passed
            if is_event:
                try:
                    sinks = self._join(raw, way, passed, now)
                except Exception as error:  # here it is dropped; others get it
                    self._fail(link, error, now)
            if sinks is not run_sinks or not is_event:
                self._pass(link, run_sinks, frames[run_start:start], now)
                run_start, run_sinks = start, sinks
            if not is_event:
                self._meet_alone(link, raw, way, now)
            start = end
        self._pass(link, run_sinks, frames[run_start:], now)

    def _pass(self, link: Port, sinks: tuple[Sink, ...], run: bytes, now: Instant) -> None:
        if run:
            self._links.fan_out(link, sinks, run, now)

    def _join(self, raw: bytes, way: Way, passed: tuple[HopSink, ...], now: Instant) -> tuple[Sink, ...]:
        """All sinks of a publication here: those that it is passed on to and, if it is new, our own clients.

        After a loss, a publication that we have seen may be missing at members of our cluster: it is passed on to
        them, once.
        """
        _, word, origin, sequence, _ = SCAN.unpack_from(raw)
        seen = self._sessions.origins.visit(origin, now)
        seen.come_by(way.trace)
        is_new = seen.admit(sequence)
        if not is_new and not (way.repeats and self._sessions.repeat_origins.visit(origin, now).admit(sequence)):
            return passed
        route = self._subscriptions.inner.routes[raw[HEAD_BYTES : HEAD_BYTES + (word >> 16)]]
        if route is None:
            self._links.count(Reason.TOPIC_INVALID)
            return passed
        if route.content is not None:
            route = route.content.route(raw)
        sinks = route.sinks if is_new else tuple(sink for sink in route.sinks if isinstance(sink, HopSink))
        joined = way.joined.get(sinks)
        if joined is None:
            if len(way.joined) >= JOINED_MAX:
                way.joined.clear()
            joined = way.joined[sinks] = self._joined(sinks, passed)
        return joined

    def _joined(self, ours: tuple[Sink, ...], passed: tuple[HopSink, ...]) -> tuple[Sink, ...]:
        """The sinks of a route and those of a way, with one for each neighbour that is in both."""
        left = list(passed)
        found: list[Sink] = []
        for sink in ours:
            other = next((each for each in left if each.neighbour is sink.neighbour), None)
            if isinstance(sink, HopSink) and other is not None:
                left.remove(other)
                targets = Targets(sink.targets.members, other.targets.parts)
                sink = sink.neighbour.sink(targets, other.ttl, self._routing.view.epoch, other.trace)
            found.append(sink)
        return (*found, *left)

    def _meet_alone(self, link: Port, raw: bytes, way: Way, now: Instant) -> None:
        """Handle a frame that is not matched like a publication. It is passed on in any case."""
        if len(raw) < HEAD_BYTES:
            self._links.count(Reason.BODY_MALFORMED)
            return
        self._meet_other(link, self._subscriptions.inner, raw, 0, way.trace, now)

    def _arrive_for_groups(
        self,
        link: Port,
        frames: bytes,
        table: RouteTable,
        groups: tuple[int, ...],
        trace: tuple[int, ...],
        now: Instant,
    ) -> None:
        """Deliver each frame to one member of each of these groups; if no member is left here, to one elsewhere."""
        pos = 0
        while pos < len(frames):
            frame = _frame_at(frames, pos)
            if frame is None or frame.kind != Kind.EVENT:
                self._links.count(Reason.BODY_MALFORMED)
                return
            pos += len(frame.raw)
            try:
                self._share_out(link, frame, table, groups, trace, now)
            except Exception as error:
                self._fail(link, error, now)

    def _share_out(
        self,
        link: Port,
        frame: Frame,
        table: RouteTable,
        groups: tuple[int, ...],
        trace: tuple[int, ...],
        now: Instant,
    ) -> None:
        if not self._is_sound(frame):
            return
        route = table.routes[frame.topic]
        if route.content is not None:
            route = route.content.route(frame.raw)
        for share in route.shares:
            seen = self._sessions.group_origins.visit(frame.origin ^ share.id, now)
            if share.id in groups and seen.admit(frame.sequence):
                self._publications.share_out(link, share, frame.raw, TTL - len(trace), trace[:-1], now)

    def _is_sound(self, frame: Frame) -> bool:
        """False if the entry broker should have refused this frame."""
        if topic_fault(frame.topic) is not None:
            self._links.count(Reason.TOPIC_INVALID)
            return False
        if frame.flags & ~EVENT_FLAGS_KNOWN:
            self._links.count(Reason.FLAGS_UNKNOWN)
            return False
        return True

    def _meet_bad_topic(self, frames: bytes, pos: int, seen: Seen) -> int:
        length, _, _, _, _, sequence, _ = HEAD.unpack_from(frames, pos)
        seen.admit(sequence)
        self._links.count(Reason.TOPIC_INVALID)
        return int(pos + 4 + length)

    def _meet_other(
        self, link: Port, table: RouteTable, frames: bytes, pos: int, trace: tuple[int, ...], now: Instant
    ) -> int:
        """A TRACE, MARK, STORED, or EVENT with flags, checked by its entry broker; any other kind ends the reading.

        It may be of another origin than the frames before it.
        """
        frame = _frame_at(frames, pos)
        if frame is None:
            self._links.count(Reason.BODY_MALFORMED)
            return len(frames)
        end = pos + len(frame.raw)
        try:
            if frame.kind == Kind.MARK:
                self._routing.changeover.arrive(link, frame, table is self._subscriptions.inner, trace, now)
                return end
            if frame.kind == Kind.STORED:
                self._stored.arrive(link, frame, table is self._subscriptions.inner, now)
                return end
            if frame.kind != Kind.EVENT:
                self._tracing.receive(link, frame, table is self._subscriptions.inner, trace, now)
                return end
            is_new = self._sessions.origins.visit(frame.origin, now).admit(frame.sequence)
            if not (is_new or frame.flags & Flag.REPEAT) or not self._is_sound(frame):
                return end
            if frame.flags & Flag.DIRECTED:
                inboxes = inboxes_of(headers_of(frame))
                if not inboxes:
                    self._links.count(Reason.HEADERS_MALFORMED)
                if table is self._subscriptions.local:
                    inboxes = [inbox for inbox in inboxes if inbox.startswith(self._routing.advertising.inbox)]
                self._publications.send_to(link, inboxes, True, frame.raw, now)
            else:
                route = table.routes[frame.topic]
                spread = self._publications.spread if is_new else self._publications.spread_repeat
                spread(link, route, frame.raw, now)
        except Exception as error:
            self._fail(link, error, now)
        return end


def _is_event(raw: bytes) -> bool:
    """True if this is a well-formed EVENT that is routed by its topic."""
    if len(raw) < HEAD_BYTES:
        return False
    length, kind, flags, topic_length, _, _, header_length = HEAD.unpack_from(raw)
    return (
        kind == Kind.EVENT
        and not flags & ~MATCHED_FLAGS
        and length == len(raw) - 4
        and topic_length + header_length <= len(raw) - HEAD_BYTES
        and not is_over_limit(length, topic_length, header_length, PAYLOAD_BYTES_MAX)
    )


def _frame_at(frames: bytes, pos: int) -> Frame | None:
    """The whole frame that begins there; None if there is none, or if its kind does not travel in parcels."""
    if len(frames) - pos < HEAD_BYTES:
        return None
    length, kind, _, topic_length, _, _, header_length = HEAD.unpack_from(frames, pos)
    end = pos + 4 + length
    if (
        kind not in (Kind.EVENT, Kind.STORED, Kind.TRACE, Kind.TRACED, Kind.MARK)
        or end > len(frames)
        or HEAD_BYTES - 4 + topic_length + header_length > length
    ):
        return None
    return Frame(frames[pos:end])
