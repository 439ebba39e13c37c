"""Reading: splits the bytes of links into frames, hands each to the part for its kind, and does long work in slices.

In:    bytes of a link's stream, split anywhere; what earlier reads left over, at the next wake.
Out:   runs for links, through publications and parcels; frames to their handlers; the end of links that break rules.
State: unfinished reads; the pieces of incomplete frames are kept with their links.
Not here: what a frame means (its handler), the scan itself (wire/scan.py), sending (publications.py, links.py).

A publication alone in its read takes the shortcut (shortcut.py) and does not come here. For all others, the scan finds
runs with the same route, each run is appended to the links of its route, and ``take`` puts one prefix before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from heliograph.broker.config import LimitsConfig
from heliograph.broker.hot import frames_of, scan
from heliograph.broker.links import Link, Links
from heliograph.broker.publications import Publications
from heliograph.broker.routes import Route
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.peering import Peering
from heliograph.broker.routing.ports import GONE, NEW, READY
from heliograph.broker.steps import Steps
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import PeerRefused, PublicationsDropped
from heliograph.wire.columns import Mixed
from heliograph.wire.frames import HEAD, Frame, Kind
from heliograph.wire.limits import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HEAD_BYTES, PAYLOAD_BYTES_MAX
from heliograph.wire.scan import MISS, MORE, OTHER, is_over_limit

UNTIL_WAKE = 1 << 62  # bytes to gather while a read is unfinished: the link is not read meanwhile
LEAVING_STEPS_MAX = 16_384  # for the last bytes of a departed link: more than a read needs, unless it has slow work
SHARES_PER_STEP = 64  # groups that share a topic, and their members here; most topics have none or a few
FAILED = "a bug in this broker, which its log describes"
OPENING = (Kind.HELLO, Kind.LINK, Kind.LINKED, Kind.PROOF)  # what a link may carry before it is proven
ON_PIPES = (Kind.SERVICE, Kind.HELLO)  # what a service may send …
ON_PIPES_WITH_SESSION = (  # … and after its HELLO
    *(Kind.SERVICE, Kind.STORED, Kind.EVENT, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.PING, Kind.PONG),
)

Handler = Callable[[Link, Frame, Instant], None]
Runs = Sequence[tuple[Route | Mixed | None, bytes]]
"""Runs with their routes; None if a route has to be found again."""


class Reading:
    """Reads links."""

    def __init__(
        self,
        limits: LimitsConfig,
        links: Links,
        subscriptions: Subscriptions,
        publications: Publications,
        parcels: Parcels,
        peering: Peering,
        steps: Steps,
        outbox: Outbox,
        timers: Timers,
        handlers: Mapping[int, Handler],
        broker_handlers: Mapping[int, Handler],
    ) -> None:
        self._limits = limits
        self._payload_bytes_max = limits.payload_bytes_max  # of clients; services pass on what is longer
        self._links = links
        self._subscriptions = subscriptions
        self._publications = publications
        self._parcels = parcels
        self._peering = peering
        self._steps = steps
        self._outbox = outbox
        self._timers = timers
        self._handlers = handlers  # by kind, for frames from clients, services and unproven peers
        self._broker_handlers = broker_handlers  # … and for frames from neighbours (N18)
        self._postponed: dict[Link, Runs] = {}  # links with an unfinished read
        self._leaving: Link | None = None  # the link that is gone, while its last bytes are read

    def reload(self, limits: LimitsConfig) -> None:
        """Put new limits in force."""
        self._limits = limits
        self._payload_bytes_max = limits.payload_bytes_max

    def refuse(self, link: Link, error: ProtocolError) -> None:
        """A peer broke the rules: it loses its link."""
        self._outbox.note(PeerRefused(link.id, error.reason, error.detail))
        self._links.hang_up(link, error.reason, error.detail)

    def fail(self, link: Link, error: Exception, now: Instant) -> None:
        """A read raised between two frames, which is a bug of ours: where the next frame begins is not known."""
        self._outbox.guard.caught("read", error, now, link.id, link.identity.entity)
        self._links.count(Reason.INTERNAL_ERROR)
        self._links.hang_up(link, Reason.INTERNAL_ERROR, FAILED)

    def _fail_frame(self, link: Link, raw: bytes, error: Exception, now: Instant) -> None:
        """A frame raised. It costs the peer its link, as what the frame changes may be half changed.

        A publication is dropped alone. So is every frame on a pipe, which a client may have caused, and what a
        neighbour's service sent.
        """
        kind = Frame(raw).kind
        if kind == Kind.EVENT:
            self._publications.fail(link, raw, error, now)
            return
        self._outbox.guard.caught(f"frame of kind {kind}", error, now, link.id, link.identity.entity)
        self._links.count(Reason.INTERNAL_ERROR)
        if not link.is_pipe and kind != Kind.SERVICE:
            self._links.hang_up(link, Reason.INTERNAL_ERROR, FAILED)

    # -- one read -------------------------------------------------------------------------------------------------

    def gather(self, link: Link, data: bytes, now: Instant) -> None:
        """Collect the pieces of a frame, and read it when it is complete."""
        if link.gather(data):
            self.resume(link, now)
        elif link.state != READY and link.parts_bytes > self._limits.handshake_bytes:
            raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")

    def resume(self, link: Link, now: Instant) -> None:
        """Read what was gathered."""
        data = link.take_parts()
        try:
            if data:
                self.read(link, data, 0, now)
        except ProtocolError as error:
            self.refuse(link, error)
        except Exception as error:
            self.fail(link, error, now)

    def read(self, link: Link, data: bytes, pos: int, now: Instant) -> None:
        """Process the bytes from ``pos`` on. ProtocolError if the peer broke the rules."""
        steps = self._steps
        while link.state != GONE:
            if link.need:  # its token is being checked: the rest waits
                break
            if link.neighbour is not None:
                pos = self._parcels.read(link, link.neighbour, data, pos, now)
            elif link.seen is not None:
                spans: list[tuple[Route | Mixed, int, int]] = []
                bytes_max = PAYLOAD_BYTES_MAX if link.service else self._payload_bytes_max
                pos, why = scan(data, pos, link.routes, link.seen, bytes_max, spans)
                for route, start, end in spans:
                    sink = route.one
                    if sink is None and route.guard in link.publishes:
                        sink = route.guarded
                    if sink is None:
                        try:
                            if isinstance(route, Mixed):
                                left = self._spread_mixed(link, route, now)
                            elif route.content is None and not route.shares:
                                self._publications.spread(link, route, data[start:end], now)
                                continue
                            else:
                                left = self._spread_some(link, route, data[start:end], now)
                        except Exception as error:
                            self._publications.fail(link, data[start:end], error, now)
                            continue
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
                    if steps.left <= 0:
                        self._postpone(link, now)
                        break
                    steps.spend(1)
                    pos = self._publications.meet_bad_topic(link, data, pos)
                    continue
                if why != OTHER:
                    raise ProtocolError(Reason(why))
            if pos == len(data):
                return
            end = self._frame_end(link, data, pos)
            if end > len(data):
                link.wait_for(end - pos)
                break
            if link.is_client and steps.left <= 0:
                self._postpone(link, now)
                break
            try:
                self._dispatch(link, data[pos:end], now)
            except ProtocolError:
                raise
            except Exception as error:
                self._fail_frame(link, data[pos:end], error, now)
            if link.is_client:
                # Only now: a publication with flags needs a step for its topic.
                steps.spend(_steps(link, data[pos:end]))
            pos = end
        else:
            return
        rest = data[pos:]
        if rest:
            link.keep_rest(rest)
            if not link.need:
                link.wait_for(self._frame_end(link, data, pos) - pos)
            if link.state != READY and link.parts_bytes > self._limits.handshake_bytes:
                raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")

    def _frame_end(self, link: Link, data: bytes, pos: int) -> int:
        """Where the frame at ``pos`` ends, according to its head; every length is checked here or in the scan."""
        if len(data) - pos < HEAD_BYTES:
            return pos + HEAD_BYTES
        length, kind, _, topic_length, _, _, header_length = HEAD.unpack_from(data, pos)
        if length < HEAD_BYTES - 4:
            raise ProtocolError(Reason.FRAME_TOO_SHORT)
        if kind == Kind.EVENT:
            bytes_max = PAYLOAD_BYTES_MAX if link.service else self._payload_bytes_max
            if is_over_limit(length, topic_length, header_length, bytes_max):
                raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        elif length + 4 > (CONTROL_BYTES_MAX + HEAD_BYTES if link.is_client else FRAME_BYTES_MAX + CONTROL_BYTES_MAX):
            raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        if link.state == NEW and length + 4 > self._limits.handshake_bytes:
            raise ProtocolError(Reason.HANDSHAKE_OVER_BUDGET, "too many bytes before the handshake was over")
        if kind != Kind.PARCEL and topic_length > length - 24:
            raise ProtocolError(Reason.TOPIC_OVER_FRAME)
        if header_length > length - 24 - (0 if kind == Kind.PARCEL else topic_length):
            raise ProtocolError(Reason.HEADERS_OVER_FRAME)
        if kind == Kind.PARCEL and length - 24 - header_length > FRAME_BYTES_MAX:  # a relay may lengthen the prefix
            raise ProtocolError(Reason.FRAME_OVER_LIMIT)
        return int(pos + 4 + length)

    def _dispatch(self, link: Link, raw: bytes, now: Instant) -> None:
        frame = Frame(raw)
        kind = frame.kind
        if link.state == NEW and kind == Kind.GOODBYE and link.peer.ticket is not None:
            self._peering.receive_goodbye(link, frame, now)
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
                self._peering.relieve(neighbour, now)
        if link is self._leaving and kind == Kind.SUBSCRIBE:
            return  # in vain, and it may be slow
        if handler is None:
            known = kind in list(Kind)
            raise ProtocolError(Reason.KIND_UNEXPECTED if known else Reason.KIND_UNKNOWN, f"kind {kind}")
        if kind >= Kind.HELLO and frame.flags and link.is_client:
            raise ProtocolError(Reason.FLAGS_UNKNOWN, "control frames have no flags")
        handler(link, frame, now)

    # -- in slices ------------------------------------------------------------------------------------------------

    def _postpone(self, link: Link, now: Instant, runs: Runs = ()) -> None:
        """This read has too much slow work: the rest of it, and all later reads of the link, wait for the next wake."""
        link.wait_for(UNTIL_WAKE)
        self._links.pause(link)
        self._postponed[link] = runs
        self._timers.set("postponed", now, self._read_on)

    def wait_for_another(self, link: Link) -> None:
        """What this link brings waits for another link to be read out."""
        link.wait_for(UNTIL_WAKE)
        self._links.pause(link)

    def go_on(self, link: Link, now: Instant) -> None:
        """The other link is read out: read this one at the next wake."""
        self._postponed[link] = ()
        self._timers.set("postponed", now, self._read_on)

    def _read_on(self, now: Instant) -> None:
        """Continue one postponed read, and only one, so that no wake takes longer than a read."""
        link = next(iter(self._postponed), None)
        if link is None:
            return
        runs = self._postponed.pop(link)
        if link.state != GONE:
            self._steps.renew()
            self._work_off(link, runs, now)
            if link not in self._postponed and link.state != GONE:
                self._links.go_on(link)
        if self._postponed:
            self._timers.set("postponed", now, self._read_on)

    def _work_off(self, link: Link, runs: Runs, now: Instant) -> None:
        """Process the runs that a read left over, then the rest of its bytes."""
        for position, (route, chunk) in enumerate(runs):
            left: Runs
            try:
                if route is None:
                    left = self._spread_again(link, chunk, now)
                elif isinstance(route, Mixed):
                    left = self._spread_mixed(link, route, now)
                else:
                    left = self._spread_some(link, route, chunk, now)
            except Exception as error:
                self._publications.fail(link, chunk, error, now)
                continue
            if left:
                self._postpone(link, now, [*left, *runs[position + 1 :]])
                return
        self.resume(link, now)

    def _spread_some(self, link: Link, route: Route, chunk: bytes, now: Instant) -> Runs:
        """Send a run in which each publication may take long. Returns the rest once the read has taken too long."""
        steps = sum(1 + len(share.members) for share in route.shares) // SHARES_PER_STEP
        if route.content is not None or not steps:
            left = self._publications.spread_some(link, route, chunk, now)
            return [(route, left)] if left else ()
        start = 0
        for end in frames_of(chunk, 0):
            if self._steps.left <= 0:
                return [(route, chunk[start:])]
            self._steps.spend(steps)
            self._publications.spread(link, route, chunk[start:end], now)
            start = end
        return ()

    def _spread_again(self, link: Link, chunk: bytes, now: Instant) -> Runs:
        """The paths changed since this run was scanned: route its publications again."""
        assert link.table is not None
        start = 0
        for end in frames_of(chunk, 0):
            if self._steps.left <= 0:
                return [(None, chunk[start:])]
            self._steps.spend(1)
            raw = chunk[start:end]
            topic = Frame(raw).topic
            route = link.table.routes.get(topic) or self._subscriptions.resolve(link.table, topic)
            start = end
            if left := self._spread_some(link, route, raw, now):
                return [*left, (None, chunk[start:])]
        return ()

    def _spread_mixed(self, link: Link, mixed: Mixed, now: Instant) -> Runs:
        """The same for frames with different routes: one by one if some topic may take long."""
        if not self._subscriptions.has_slow_topics:
            self._publications.spread_mixed(link, mixed, now)
            return ()
        for position, (route, frame) in enumerate(zip(mixed.routes, mixed.frames, strict=True)):
            if left := self._spread_some(link, route, frame, now):
                return [*left, *zip(mixed.routes[position + 1 :], mixed.frames[position + 1 :], strict=True)]
        return ()

    def forget_ways(self) -> None:
        """The paths changed: the routes of postponed runs are outdated."""
        for link, runs in self._postponed.items():
            self._postponed[link] = [
                (None, b"".join(route.frames) if isinstance(route, Mixed) else chunk) for route, chunk in runs
            ]

    def hear_out(self, link: Link, now: Instant) -> None:
        """Process what a link sent before it ended. What would take too long is dropped: it was not confirmed."""
        if link not in self._postponed:
            return
        runs = self._postponed.pop(link)
        self._steps.renew(LEAVING_STEPS_MAX)
        self._leaving = link
        self._work_off(link, runs, now)
        self._leaving = None
        if link in self._postponed:
            self._drop_rest(link, b"".join(chunk for _, chunk in self._postponed.pop(link)), b"".join(link.parts))

    def _drop_rest(self, link: Link, scanned: bytes, rest: bytes) -> None:
        """Drop what is left. Scanned frames no longer count as seen, so they are new if the session repeats them."""
        seen = link.seen
        frames = len(frames_of(scanned, 0))
        if seen is not None and frames and Frame(scanned).sequence == seen.next - frames:
            seen.take_back(frames)
        lost = frames + len(frames_of(rest, 0))
        size = len(scanned) + len(rest)
        self._outbox.note(PublicationsDropped(link.id, link.identity.entity, lost, size, "unprocessed"))


def _steps(link: Link, raw: bytes) -> int:
    """How many steps a frame takes that is not a plain publication: an EVENT with flags may have conditions."""
    frame = Frame(raw)
    route = link.routes.get(frame.topic) if frame.kind == Kind.EVENT else None
    return 1 if route is None or route.content is None else route.content.steps
