"""Links: what a broker knows of each peer, and how runs are written to it, even if it is slow.

In:    sinks with chunks of whole frames; control frames; press and release by the driver.
Out:   writes, holds, hangups in the outbox.
State: per link the gathered output, the queue behind a pressed driver, the publishers held because of it.
Not here: reading (reading.py), handshake and keep-alive (sessions.py), choosing sinks (subscriptions.py), holds between
          brokers (far_publishers.py, far_consumers.py), counting drops (drops.py).

While the driver keeps up, a run goes into ``link.out`` at once, and one DELIVERY prefix is put before all runs of
consecutive equal sinks when the effects are taken. When the driver is pressed, runs wait in the link's backlog, which
is bounded in bytes and frames. Beyond that, the sink of each run decides: droppable runs lose their oldest frames,
publishers are held, or, if nothing may be dropped, the consumer loses its link. A service of this node keeps its pipe:
what waits for it is dropped, and no publisher waits for it until it reads again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from heliograph.broker.config import LimitsConfig
from heliograph.broker.drops import Drops
from heliograph.broker.far_publishers import FarPublisher, FarPublishers
from heliograph.broker.hot import frames_of
from heliograph.broker.routes import Routes, RouteTable
from heliograph.broker.routing.ports import GONE, PROVING, READY, Port, Sink, Waiting, describe_end
from heliograph.broker.routing.seen import NS_PER_MS, Seen
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Outbox, Peer, Timers
from heliograph.model.identity import Identity
from heliograph.model.subscription import Subscription
from heliograph.notes import PublisherHeld
from heliograph.wire.bodies import goodbye
from heliograph.wire.frames import Kind, control

HANDOVER_BYTES = 1 << 20  # given to the driver at once when it has room again; it presses again if that is too much
SMALL_BYTES = 1 << 16  # a chunk of this size never has to be split

UNTIL_PROVEN = 1 << 62  # bytes to gather while a token is checked: more than any peer may send

NO_ROUTES = Routes()


class Link(Port):
    """A link as the broker sees it: a port, what is read from it, and the client session on it.

    _native.c reads: need, bytes_in, seen, routes; and what it reads of a Port (routing/ports.py).
    """

    __slots__ = (
        "bytes_in",
        "came_at",
        "hears_as_of",
        "inbox",
        "keep_alive_ns",
        "need",
        "origin",
        "parts",
        "parts_bytes",
        "publishes",
        "rests_until",
        "routes",
        "seen",
        "service",
        "sinks",
        "source",
        "subscriptions",
        "table",
        "timed",
    )

    def __init__(self, link: LinkId, peer: Peer, now: Instant) -> None:
        super().__init__(link, peer, now)
        self.source = ""  # the source it counts for (shares.py); empty if we dialled, and on a pipe
        self.service = ""  # the service at the other end, for a pipe
        # reading
        self.parts: list[bytes] = []  # pieces of a frame that has not arrived in full
        self.parts_bytes = 0
        self.need = 0  # bytes needed to complete the next frame
        self.bytes_in = 0
        self.came_at = now
        # the session
        self.origin = 0
        self.inbox = b""  # the topic under which its session is found
        self.seen: Seen | None = None
        self.table: RouteTable | None = None
        self.routes = NO_ROUTES  # until it has a session
        self.subscriptions: dict[int, Subscription] = {}
        self.sinks: dict[tuple[int, ...], Sink] = {}
        self.publishes: dict[bytes, None] = {}  # roots of created topics on which it may publish (rights.py)
        self.timed = False  # the client wants to know the time
        self.rests_until: Instant = 0  # it is not asked to move before this
        self.keep_alive_ns = 0
        self.hears_as_of = 0  # when what it may hear last became less (hearings.py)

    def let_publish(self, root: bytes, may: bool) -> None:
        """Allow or forbid publishing below the root of a created topic."""
        if may:
            self.publishes[root] = None
        else:
            self.publishes.pop(root, None)

    # -- reading (reading.py)

    def hear(self, size: int, now: Instant) -> None:
        """This many bytes were received."""
        self.heard_at = now
        self.bytes_in += size

    def wait_for(self, size: int) -> None:
        """Continue reading once this many bytes of the next frame are there."""
        self.need = size

    def gather(self, data: bytes) -> bool:
        """Keep a piece of a frame; True if enough bytes are there."""
        self.parts.append(data)
        self.parts_bytes += len(data)
        return self.parts_bytes >= self.need

    def keep_rest(self, data: bytes) -> None:
        """Keep what a read left over."""
        self.parts = [data]
        self.parts_bytes = len(data)

    def take_parts(self) -> bytes:
        """Take the bytes that were kept, to read them now."""
        data = b"".join(self.parts)
        self.parts = []
        self.parts_bytes = self.need = 0
        return data

    # -- the session (sessions.py, shedding.py)

    def count_for(self, source: str) -> None:
        """The source for which this link counts as unproven; empty for none."""
        self.source = source

    def serve(self, identity: Identity) -> None:
        """A service of this node is at the other end."""
        self.state = READY
        self.service = self.peer.address
        self.identity = identity

    def prove(self) -> None:
        """A job checks the peer's token: its frames wait until that is done."""
        self.state = PROVING
        self.need = UNTIL_PROVEN

    def begin(
        self,
        identity: Identity,
        name: str,
        inbox: bytes,
        seen: Seen,
        *,
        may_be_held: bool,
        timed: bool,
        keep_alive_ns: int,
    ) -> None:
        """A session begins."""
        self.state = READY
        self.identity = identity
        self.name = name
        self.origin = seen.origin
        self.inbox = inbox
        self.seen = seen
        self.may_be_held = may_be_held
        self.timed = timed
        self.keep_alive_ns = keep_alive_ns

    def use(self, table: RouteTable) -> None:
        """Use the route table of the access profile that applies to this link."""
        self.table = table
        self.routes = table.routes

    def hear_as_of(self, number: int) -> None:
        """What it may hear has become less."""
        self.hears_as_of = number

    def excuse(self, now: Instant) -> None:
        """We did not read from this link, so its silence does not count."""
        self.heard_at = now

    def rest(self, until: Instant) -> None:
        """Do not ask it to move before this."""
        self.rests_until = until


class Links:
    """All links of a broker, and everything that is written to them."""

    def __init__(self, limits: LimitsConfig, outbox: Outbox, timers: Timers, ends: Callable[[Port], None]) -> None:
        self.limits = limits
        self.by_id: dict[LinkId, Link] = {}
        self._outbox = outbox
        self._timers = timers
        self.touched: list[Port] = []  # links with output gathered in ``out``
        self.refused: dict[str, int] = {}  # reason word -> how often it was given, for reports
        self.drops = Drops(outbox, timers)
        self._ends = ends  # called with a neighbour's link that we end
        self._far = FarPublishers(self.put, timers)

    def reload(self, limits: LimitsConfig) -> None:
        """Put new limits in force."""
        self.limits = limits

    def add(self, link: Link) -> Link:
        """A new link."""
        self.by_id[link.id] = link
        return link

    # -- writing ----------------------------------------------------------------------------------------------

    def deliver(self, publisher: Port, sink: Sink, chunk: bytes, now: Instant) -> None:
        """Send whole frames to a sink, or queue them behind what it has not taken yet."""
        link = sink.link
        if link.sink is sink:  # its delivery is open, so nothing waits
            link.out.append(chunk)
            return
        if link.state != READY:
            return
        if link.pressed or link.backlog:
            self._queue(publisher, sink, chunk, now)
            return
        if link.sink is not None:
            self._close(link)
        if not link.touched:
            link.touched = True
            self.touched.append(link)
        out = link.out
        link.mark = len(out)
        out += (b"", chunk)
        link.sink = sink

    def fan_out(self, publisher: Port, sinks: Sequence[Sink], chunk: bytes, now: Instant) -> None:
        """Send whole frames to many sinks; the publisher's own link gets those that it wants of its own."""
        touched = self.touched
        for sink in sinks:
            link = sink.link
            if link is publisher and sink.own is not True:
                if sink.own is False:
                    continue
                sink = sink.own
            if link.sink is sink:
                link.out.append(chunk)
            elif link.touched or link.pressed or link.backlog or link.state != READY:
                self.deliver(publisher, sink, chunk, now)
            else:  # the usual case: nothing else was gathered for it, and nothing waits
                link.touched = True
                touched.append(link)
                link.out = [b"", chunk]
                link.mark = 0
                link.sink = sink

    def ready(self, sink: Sink) -> Callable[[bytes], None] | None:
        """Open a delivery to a sink. Returns the function that adds chunks, valid until something else is sent there.

        None if the link is slow or gone. A delivery that is opened must get a chunk.
        """
        link = sink.link
        if link.state != READY or link.pressed or link.backlog:
            return None
        if link.sink is not sink:
            self._open(link, sink)
        return link.out.append

    def put(self, link: Port, frame: bytes) -> None:
        """Send a control frame, in order with the deliveries."""
        if link.state == GONE:
            return
        if link.pressed or link.backlog:
            link.queue(Waiting(None, frame, 1))
            self._keep_bounds(link)
            self.drops.note_soon(link)
            return
        if link.sink is not None:
            self._close(link)
        link.out.append(frame)
        self._touch(link)

    def flush(self) -> None:
        """Hand what was gathered to the outbox: one write per link."""
        writes = self._outbox.writes
        for link in self.touched:
            link.touched = False
            out, sink = link.out, link.sink
            if sink is not None:
                if len(out) == 2 and (size := len(chunk := out[1])) <= SMALL_BYTES:  # the usual case: one chunk
                    link.sink = None
                    link.deliveries += 1
                    out[0] = sink.prefix(size, [chunk])
                else:
                    self._close(link)
            writes.append((link.id, out))
            link.out = []
        self.touched.clear()

    def abandon(self, link: Port) -> list[tuple[Sink, bytes]]:
        """Take back what waits for a link, so that it can be sent another way; control frames stay."""
        if link.sink is not None:
            self._close(link)
        self.release(link)
        return link.take_back()

    def hang_up(self, link: Port, reason: Reason, text: str = "") -> None:
        """Say goodbye and end the link. What still waited for it is dropped and counted."""
        if link.state == GONE:
            return
        self.count(reason)
        link.end(describe_end(reason.word, text))
        if reason is Reason.SLOW_CONSUMER and (seen := self.by_id[link.id].seen) is not None:
            seen.end_slow()  # the GOODBYE is behind what the client does not read: its next WELCOME tells it
        if link.neighbour is not None:
            self._ends(link)  # before the driver reports the end: what arrives in the meantime must take another path
        self.drops.end(link, reason)
        if not link.is_pipe:
            if link.sink is not None:
                self._close(link)
            link.out.append(control(Kind.GOODBYE, 0, goodbye(reason, text)))
            self._touch(link)
        link.state = GONE
        self.release(link)
        self._outbox.hang_up(link.id, reason)

    def count(self, reason: Reason) -> None:
        """Something was refused or ended for this reason."""
        self.refused[reason.word] = self.refused.get(reason.word, 0) + 1

    def _touch(self, link: Port) -> None:
        if not link.touched:
            link.touched = True
            self.touched.append(link)

    def _open(self, link: Port, sink: Sink) -> None:
        """Begin a delivery: reserve a place for its prefix; chunks are then appended to ``out`` directly."""
        if link.sink is not None:
            self._close(link)
        if not link.touched:
            link.touched = True
            self.touched.append(link)
        link.mark = len(link.out)
        link.out.append(b"")
        link.sink = sink

    def _close(self, link: Port) -> None:
        """End a delivery: its size is known now, so write the prefix."""
        out, mark, sink = link.out, link.mark, link.sink
        assert sink is not None
        link.sink = None
        link.deliveries += 1
        chunks = out[mark + 1 :]
        size = sum(map(len, chunks))
        if size > sink.bytes_max:
            out[mark:] = _split(chunks, sink)
        else:
            out[mark] = sink.prefix(size, chunks)

    # -- pressure ---------------------------------------------------------------------------------------------

    def press(self, link: Port, pressed: bool, now: Instant) -> None:
        """The driver's buffer for this link is full, or has room again."""
        if link.sink is not None:
            self._close(link)  # so that the next run does not join it unchecked
        link.press(pressed, now)
        if not pressed:
            self._hand_over(link, now)

    def _queue(self, publisher: Port, sink: Sink, chunk: bytes, now: Instant) -> None:
        link = sink.link
        if link.taker is not None:
            link.taker(sink, chunk, now)
            return
        ends = frames_of(chunk, 0)
        waiting = Waiting(sink, chunk, len(ends))
        link.queue(waiting)
        holds = sink.holds and publisher.may_be_held and not link.stuck
        if not (sink.disconnects or holds):
            link.may_drop(waiting)
        if sink.holds and not link.stuck and self._is_long(link):
            if holds:
                self._hold(publisher, link, now)
            elif publisher.neighbour is not None:
                for far in self._far.of(publisher, chunk, ends, now):
                    self._hold(far, link, now)
        self._keep_bounds(link)
        self.drops.note(link, now)

    def _is_long(self, link: Port) -> bool:
        limits = self.limits
        return link.backlog_bytes >= limits.hold_bytes or 2 * link.backlog_frames >= limits.queue_frames_max

    def _keep_bounds(self, link: Port) -> None:
        """Drop the oldest droppable frames; if there are none, the consumer loses its link."""
        limits = self.limits
        while link.is_over(limits.queue_bytes_max, limits.queue_frames_max):
            droppable = link.next_to_drop()
            if not droppable:
                self._give_up(link)
                return
            oldest = droppable[0]
            ends = frames_of(oldest.chunk, oldest.start)
            self.drops.count(*link.drop_oldest(ends, limits.queue_bytes_max, limits.queue_frames_max))
        link.sweep()

    def _give_up(self, link: Port) -> None:
        """End the link of a slow consumer: a client's at once, a broker's at the next wake, because this may be called
        in a loop over all neighbours. A service only loses what waits for it: without its pipe it could do nothing."""
        if link.is_pipe:
            self.drops.count(*link.give_up())
            self.release(link)
        elif link.neighbour is None:
            self.hang_up(link, Reason.SLOW_CONSUMER, "it does not read fast enough and asked not to lose anything")
        else:
            why = "it does not read what it has to know"
            self._timers.set(("slow", link.id), 0, lambda _: self.hang_up(link, Reason.SLOW_CONSUMER, why))

    def _hand_over(self, link: Port, now: Instant) -> None:
        """Give the driver a portion of the backlog; if more is left, continue at the next wake."""
        given = 0
        while link.backlog and given < HANDOVER_BYTES and not link.pressed:
            waiting = link.unqueue()
            if waiting is None:
                continue
            chunk = waiting.chunk[waiting.start :]
            given += len(chunk)
            if waiting.sink is None:
                if link.sink is not None:
                    self._close(link)
                self._touch(link)
            elif link.sink is not waiting.sink:
                self._open(link, waiting.sink)
            link.out.append(chunk)
        if link.backlog and link.sink is not None:
            self._close(link)  # new runs must queue behind the rest, not join what was handed over
        if link.backlog and not link.pressed:
            self._timers.set(("backlog", link.id), now, lambda at: self._hand_over(link, at))
        if link.holding and not self._is_long(link):
            self.release(link)

    def _hold(self, publisher: Port, slow: Port, now: Instant) -> None:
        if not slow.holding:
            slow.progress(now)
            self._watch(slow, now)
        self.hold(publisher, slow, now)

    def hold(self, publisher: Port, slow: Port, now: Instant) -> None:
        """Read no more from a publisher until this consumer, which may be at another broker, is released."""
        if publisher in slow.holding:
            return
        slow.holding[publisher] = None
        publisher.held_by[slow] = None
        if publisher.is_paused or len(publisher.held_by) > 1:
            return
        if isinstance(publisher, FarPublisher):
            self._far.hold(publisher, now)
        else:
            self._outbox.holds.append((publisher.id, True))
            self._outbox.note(PublisherHeld(publisher.id, True))

    def _watch(self, slow: Port, now: Instant) -> None:
        """End the link of a consumer that holds publishers and takes nothing for too long.

        Publishers at other brokers may not have agreed to wait: if it holds no others, they are let go, and what does
        not fit the queue is dropped.
        """
        at = slow.progress_at + self.limits.hold_ms_max * NS_PER_MS
        if now < at:
            self._timers.set(("hold", slow.id), at, lambda now: self._watch(slow, now) if slow.holding else None)
        elif slow.holding and all(isinstance(publisher, FarPublisher) for publisher in slow.holding):
            slow.get_stuck()
            self.release(slow)
        elif slow.is_pipe:
            self._give_up(slow)
            self.drops.note(slow, now)
        else:
            self.hang_up(slow, Reason.SLOW_CONSUMER, "it held publishers and took nothing for too long")

    def release(self, slow: Port) -> None:
        """Read again from the publishers that waited for this consumer, unless they wait for another one, too."""
        for publisher in slow.holding:
            del publisher.held_by[slow]
            if publisher.is_held or publisher.state == GONE:
                continue
            if isinstance(publisher, FarPublisher):
                self._far.release(publisher)
            else:
                self._outbox.holds.append((publisher.id, False))
                self._outbox.note(PublisherHeld(publisher.id, False))
        slow.holding.clear()

    def pause(self, link: Port) -> None:
        """Stop reading a link whose last bytes are not processed yet."""
        if not link.is_held:
            self._outbox.holds.append((link.id, True))
        link.pause(True)

    def go_on(self, link: Port) -> None:
        """Read it again."""
        if link.is_paused:
            link.pause(False)
            if not link.held_by:
                self._outbox.holds.append((link.id, False))

    # -- coming and going -------------------------------------------------------------------------------------

    def remove(self, link: Port, reason: Reason) -> None:
        """The link is gone: no link waits for it, and it waits for none."""
        self.drops.end(link, reason)
        link.state = GONE
        self.release(link)
        for slow in link.held_by:
            del slow.holding[link]
        link.held_by.clear()
        link.forget_output()
        for key in ("backlog", "hold", "alive", "handshake", "slow"):
            self._timers.cancel((key, link.id))
        del self.by_id[link.id]


def _split(chunks: list[bytes], sink: Sink) -> list[bytes]:
    """Split a delivery that is too large for one frame into several."""
    parts: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for piece in (piece for chunk in chunks for piece in _pieces(chunk, sink.bytes_max)):
        if group and size + len(piece) > sink.bytes_max:
            parts += [sink.prefix(size, group), *group]
            group, size = [], 0
        group.append(piece)
        size += len(piece)
    return [*parts, sink.prefix(size, group), *group]


def _pieces(chunk: bytes, bytes_max: int) -> Iterator[bytes]:
    """Cut a chunk between frames, so that no piece is larger than ``bytes_max`` unless it is a single frame."""
    if len(chunk) <= bytes_max:
        yield chunk
        return
    start, ends = 0, frames_of(chunk, 0)
    while start < len(chunk):
        at = bisect_right(ends, start + bytes_max)
        end = ends[at - 1] if at and ends[at - 1] > start else ends[at]
        yield chunk[start:end]
        start = end
