"""The simulated network: links that delay, stall, split, join, stop and break, but never reorder.

In:    writes, holds, hangups and dials of machines, passed on by the world; effects of faults on links.
Out:   inputs (attach, receive, press, detach, failed), offered to hosts at instants drawn from the seed; every write to
       the digest.
State: both ends of every link with what is in flight, the listeners, the directions that are cut.
Not here: when a host handles an input and what a machine answers (world.py), when faults strike (faults.py).

A link is two streams. An End holds the stream that *its* machine writes: ``flight`` is what was written and has not
arrived. ``pending`` counts what the far machine has not consumed yet. It decides about press, as in a real driver,
whose buffer fills when the far side does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Protocol

from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Peer
from heliograph.model.identity import Identity
from heliograph.sim.clock import WallClock
from heliograph.sim.digest import PARTS_MAX, WRITE, Digest
from heliograph.sim.distances import Distances, NetworkSettings
from heliograph.sim.flows import Flow
from heliograph.sim.inputs import HostInputs
from heliograph.sim.loop import NEVER, SECOND, Loop
from heliograph.sim.seat import Seat
from heliograph.sim.tamper import without_frame

FLUSH_NS_MAX = SECOND  # how long a driver waits for the last writes of a link that was hung up
MARK_BYTES_MIN = 512
PIECE_BYTES_MAX = 1 << 16  # what a driver reads at once; a link of limited bandwidth hands it over when it has come

_pack_write = WRITE.pack


Writes = Sequence[tuple[LinkId, list[bytes]]]
Flight = list[tuple[int, bytes | Reason]]
"""Chunks with their arrival, oldest first; a Reason ends the stream. A list, as each deque would take 600 bytes."""


class End:
    """One end of a link, with the stream that leaves from it."""

    # fmt: off
    __slots__ = (
        "busy_until", "deaf", "delay", "far", "flight", "flow", "held", "high", "host", "hung", "last", "link", "low",
        "odd", "over", "peer", "pending", "pipe", "pressed", "reason", "scheduled", "seat", "silent", "stops", "tamper",
        "told_pressed", "writer",
    )
    # fmt: on

    def __init__(self, host: LinkHost, seat: Seat, link: LinkId, peer: Peer) -> None:
        self.host = host
        self.seat = seat
        self.link = link
        self.peer = peer
        self.far: End = self  # until joined
        self.pipe = False
        # the stream from here to the far end
        self.flight: Flight = []
        self.last = 0  # arrival of the newest chunk, which later ones never overtake
        self.delay = 0
        self.busy_until = 0  # sending until then, if bandwidth is limited
        self.scheduled = False  # an arrival is scheduled
        self.stops = 0  # how many partitions, stalls and holds stop it
        self.tamper = 0  # how many frames to lose silently: the planted bug
        self.odd = False  # a write needs special care: over, a pipe, tampered with, recorded, or of limited bandwidth
        self.flow: Flow | None = None  # records what the stream carries
        self.pending = 0
        self.high = NEVER
        self.low = 0
        self.pressed = False
        self.told_pressed = False
        # from attach to detach
        self.writer: Seat | None = None  # the seat that may write: set by attach, until it hangs up or is detached
        self.held = False  # the machine has stopped reading
        self.hung = False  # the machine hung up …
        self.reason = Reason.CLOSED  # … for this reason
        self.over = False  # the machine was told of the detach or soon will be, or the host crashed
        self.deaf = False  # hung or over: what arrives is dropped
        self.silent = False  # the host lost power: the far side is told nothing

    def open(self) -> None:
        """Its machine has been told of the link, and may write from now on."""
        self.writer = self.seat

    def close(self) -> None:
        """Its machine may no longer write."""
        self.writer = None

    def lengthen(self, by_ns: int) -> None:
        """Everything takes this much longer (below 0: less) in both directions."""
        self.delay += by_ns
        self.far.delay += by_ns

    def stop(self) -> None:
        """Stop this stream; nothing arrives until it has been let go as often."""
        self.stops += 1

    def plant_loss(self) -> None:
        """Lose the next publication or delivery of this stream, silently: a planted bug."""
        self.tamper += 1
        self.odd = True

    def lose_flight(self) -> int:
        """Lose everything in flight; returns how many bytes."""
        lost = sum(len(data) for _, data in self.flight if isinstance(data, bytes))
        self.flight.clear()
        return lost

    def shorten(self, keep: float) -> int:
        """Keep this share of the bytes in flight, from the beginning; returns how many bytes were lost."""
        chunks = [(arrival, data) for arrival, data in self.flight if isinstance(data, bytes)]
        lost = self.lose_flight()
        room = int(keep * lost)
        for arrival, data in chunks:
            if room > 0:
                self.flight.append((arrival, data[:room]))
                lost -= min(room, len(data))
                room -= len(data)
        return lost


class LinkHost(HostInputs, Protocol):
    """A host, as the network sees it."""

    identity: Identity | None  # the identity that its certificate proves on secure links
    serial: str  # the number of that certificate
    expires_ms: int | None  # its end, Unix time
    wall: WallClock
    ends: dict[LinkId, End]

    def seat(self, machine: str) -> Seat:
        """The seat of the machine with this name."""

    def new_end(self, seat: Seat, peer: Peer) -> End:
        """One end of a new link, under the next number of this host."""

    def own_end(self, seat: Seat, link: LinkId, verb: str) -> End | None:
        """The end that an effect concerns; None if it was detached after the machine asked for the effect."""

    def attach(self, end: End) -> None:
        """A link came up."""

    def receive(self, end: End, data: bytes, instant: int) -> None:
        """Bytes arrived."""

    def detach(self, end: End, reason: Reason) -> None:
        """A link is gone."""


Flows = Callable[[End], Flow | None]
"""Makes the record of the stream that leaves from this end, if one is wanted."""


class SimulatedNetwork:
    """All links of a world."""

    def __init__(
        self,
        settings: NetworkSettings,
        distances: Distances,
        loop: Loop,
        draw: Callable[[], float],
        digest: Digest,
        flows: Flows = lambda _: None,
    ) -> None:
        self.blocked: dict[tuple[str, str], int] = {}  # (from host, to host) -> how many partitions stop it
        self.bytes_lost = 0
        self.frames_lost = 0  # by tampering
        self._flows = flows
        self._settings = settings
        self._loop = loop
        self._digest = digest
        self._draw = draw
        self._arrives = self._arrive  # bound once, as it is scheduled for every chunk
        self._distances = distances
        self._jitter_ns = distances.jitter_ns
        self._split = settings.split
        self._split_or_join = settings.split + settings.join
        self._ns_per_kib = SECOND // settings.bandwidth_kib_s if settings.bandwidth_kib_s else 0

    # Links come up.

    def connect(self, here: End, there: End, instant: int) -> None:
        """Make a link of two ends."""
        here.far, there.far = there, here
        for end in (here, there):
            end.delay = self._distances.delay_ns(end.host.name, end.far.host.name)
            end.last = instant
            end.flow = self._flows(end)
            end.odd = self._ns_per_kib > 0 or end.flow is not None
            end.stops = self.blocked.get((end.host.name, end.far.host.name), 0)
            end.high = max(MARK_BYTES_MIN, int(self._settings.buffer_kib * 1024 * (0.5 + self._draw())))
            end.low = end.high // 4
        here.host.attach(here)
        there.host.attach(there)

    def pipe(self, host: LinkHost, broker: Seat, service: Seat) -> None:
        """Join two machines of one host: no delay, no loss, the same inputs."""
        here = host.new_end(broker, Peer("pipe", service.name))
        there = host.new_end(service, Peer("pipe", broker.name))
        here.far, there.far = there, here
        for end in (here, there):
            end.pipe = end.odd = True
            end.high = self._settings.buffer_kib * 1024
            end.low = end.high // 4
        host.attach(here)
        host.attach(there)

    # Bytes travel.

    def send(self, host: LinkHost, seat: Seat, writes: Writes, instant: int) -> None:
        """Send the writes of a machine, and add them to the digest. The hot path: it does as little as possible."""
        ends, loop, parts = host.ends, self._loop, self._digest.parts
        draw, jitter, split_or_join, arrives = self._draw, self._jitter_ns, self._split_or_join, self._arrives
        for link, frames in writes:
            end = ends.get(link)
            if end is None or end.writer is not seat:
                end = host.own_end(seat, link, "writes to")
                if end is None:
                    continue
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            size = len(data)
            parts.append(_pack_write(link, size))
            parts.append(data)
            leaves = instant
            if end.odd:
                leaves, data = self._prepare(end, data, instant)
                size = len(data)
            if not size:
                continue
            end.pending = pending = end.pending + size
            if pending > end.high and not end.pressed:
                end.pressed = True
                loop.at(leaves, self._press, end)
            first = arrival = leaves + end.delay + int(jitter * draw())
            if arrival < end.last:
                first = arrival = end.last  # it cannot overtake, so it arrives together with the chunk before
            fate = draw()
            if fate < split_or_join:
                arrival, data = (self._cut if fate < self._split else self._join)(end, arrival, data)
            end.flight.append((arrival, data))
            end.last = arrival
            if not end.scheduled:
                end.scheduled = True
                heappush(loop.heap, (first, loop.next_number(), arrives, end))
        if len(parts) > PARTS_MAX:
            self._digest.feed()

    def _prepare(self, end: End, data: bytes, instant: int) -> tuple[int, bytes]:
        """What remains of a write to an unusual link, and when it is sent."""
        if end.over:
            return instant, b""  # the link is gone and the machine does not know yet
        if end.pipe:
            self.put_through(end, data)
            return instant, b""
        if end.tamper:
            data = self._tampered(end, data)
        if end.flow is not None:
            end.flow.write(data)
        if self._ns_per_kib:
            for start in range(0, len(data) - PIECE_BYTES_MAX, PIECE_BYTES_MAX):
                self._send_piece(end, data[start : start + PIECE_BYTES_MAX], instant)
            data = data[(len(data) - 1) // PIECE_BYTES_MAX * PIECE_BYTES_MAX :]
            instant = self._sent_at(end, data, instant)
        return instant, data

    def _sent_at(self, end: End, data: bytes, instant: int) -> int:
        """When a link of limited bandwidth has sent this, behind what it sends already."""
        end.busy_until = max(instant, end.busy_until) + (len(data) * self._ns_per_kib >> 10)
        return end.busy_until

    def _send_piece(self, end: End, data: bytes, instant: int) -> None:
        """Send a part of a large write: the far machine gets it while the rest is still being sent."""
        end.pending += len(data)
        end.last = max(end.last, self._sent_at(end, data, instant) + end.delay)
        end.flight.append((end.last, data))
        self.resume(end)

    def put_through(self, end: End, data: bytes) -> None:
        """Deliver at once, as a pipe takes no time, unless the machine at the far end holds it."""
        end.pending += len(data)
        if end.pending > end.high and not end.pressed:
            end.pressed = True
            self._loop.at(self._loop.now, self._press, end)
        if end.far.held:
            end.flight.append((self._loop.now, data))
        else:
            end.far.host.receive(end.far, data, self._loop.now)

    def _empty_pipe(self, end: End) -> None:
        """Deliver what waited in a pipe."""
        flight, end.flight = end.flight, []
        for _, data in flight:
            assert isinstance(data, bytes)
            end.far.host.receive(end.far, data, self._loop.now)

    def _cut(self, end: End, arrival: int, data: bytes) -> tuple[int, bytes]:
        """The first part arrives then, the rest a little later."""
        if len(data) == 1:
            return arrival, data
        cut = 1 + int((len(data) - 1) * self._draw())
        end.flight.append((arrival, data[:cut]))
        return arrival + 1 + int(self._jitter_ns * self._draw()), data[cut:]

    def _join(self, end: End, arrival: int, data: bytes) -> tuple[int, bytes]:
        """The chunk before waits for this one, if it has not arrived."""
        flight = end.flight
        if flight and isinstance(before := flight[-1][1], bytes):
            flight.pop()
            return arrival, before + data
        return arrival, data

    def _arrive(self, end: End, instant: int) -> None:
        """Everything that is due at the far end of this stream arrives there, in one piece."""
        end.scheduled = False
        flight = end.flight
        if end.stops or not flight:
            return  # the code that releases it calls ``resume``
        due, data = flight.pop(0)
        if due > instant:  # it was joined with a later chunk, or the one before was lost
            flight.insert(0, (due, data))
            self.resume(end)
            return
        if type(data) is not bytes:
            self._end_stream(end, data)  # type: ignore[arg-type]  # not bytes: a Reason
            return
        if flight:
            if flight[0][0] <= instant:
                data = self._joined(data, flight, instant)
            self.resume(end)
        far = end.far
        if far.deaf:
            self._arrive_nowhere(end, data, instant)
        else:
            far.host.receive(far, data, instant)

    def _joined(self, data: bytes, flight: Flight, instant: int) -> bytes:
        chunks = [data]
        while flight and flight[0][0] <= instant and type(flight[0][1]) is bytes:
            chunks.append(flight.pop(0)[1])  # type: ignore[arg-type]  # the test says bytes
        return b"".join(chunks)

    def _arrive_nowhere(self, end: End, data: bytes, instant: int) -> None:
        """No machine reads there any more. A host that lost power and is back answers with a reset."""
        self.bytes_lost += len(data)
        if not end.far.silent:
            end.pending -= len(data)
        elif end.far.host.up:
            end.far.silent = False
            self._loop.at(instant + end.delay, self._reset, end)

    def resume(self, end: End) -> None:
        """Schedule the next arrival of this stream."""
        if end.flight and not end.scheduled:
            end.scheduled = True
            self._loop.at(max(self._loop.now, end.flight[0][0]), self._arrives, end)

    def let_go(self, end: End) -> None:
        """One of the reasons that stop a stream has ended."""
        end.stops -= 1
        if not end.stops:
            self.resume(end)

    def consume(self, end: End, size: int) -> None:
        """The far machine has taken this many bytes of this stream; below the mark, the writer is no longer pressed."""
        end.pending = pending = end.pending - size
        if end.pressed and pending <= end.low:
            end.pressed = False
            self._loop.at(self._loop.now, self._press, end)

    def _press(self, end: End, _instant: int) -> None:
        if not end.over and end.pressed != end.told_pressed:
            end.told_pressed = end.pressed
            end.host.offer(_press_machine, end, end.pressed)

    def hold(self, end: End, held: bool) -> None:
        """The machine at this end stops or resumes reading."""
        if held == end.held:
            return
        end.held = held
        if end.pipe:
            if not held:
                self._empty_pipe(end.far)
        elif held:
            end.far.stop()
        else:
            self.let_go(end.far)

    # Links end.

    def hang_up(self, end: End, reason: Reason, instant: int) -> None:
        """The machine ends this link: flush for at most a second, then close."""
        end.close()
        if end.over:
            return
        end.hung = end.deaf = True
        end.reason = reason
        if end.pipe:
            self._empty_pipe(end)
            self.finish(end, reason)
            self.finish(end.far, Reason.CLOSED)
            return
        self.hold(end, False)  # what still arrives is read and discarded
        end.flight.append((max(end.last, instant + end.delay), Reason.CLOSED))
        self.resume(end)
        self._loop.at(instant + FLUSH_NS_MAX, self._abort, end)

    def _abort(self, end: End, _instant: int) -> None:
        """The flush took too long: what is still in flight is lost, and the far side sees a reset as soon as it can."""
        if not end.over:
            self.bytes_lost += end.lose_flight()
            end.flight.append((self._loop.now + end.delay, Reason.RESET))
            self.resume(end)
            self.finish(end, Reason.RESET)

    def _end_stream(self, end: End, reason: Reason) -> None:
        """The last bytes of this stream have arrived: both sides see the end of the link."""
        self.finish(end.far, reason)
        self.finish(end, reason)

    def _reset(self, end: End, _instant: int) -> None:
        self.finish(end, Reason.RESET)

    def finish(self, end: End, reason: Reason) -> None:
        """The link is gone at this end: tell the machine, once; after its own hangup, with its own reason."""
        if end.over:
            return
        end.over = end.odd = end.deaf = True
        end.host.detach(end, end.reason if end.hung else reason)
        if end.far.over:
            end.flight.clear()

    def break_link(self, end: End, keep: float) -> None:
        """Reset a link: in each direction a share ``keep`` of what is in flight still arrives, the rest is lost."""
        for side in (end, end.far):
            self.bytes_lost += side.shorten(keep)
            side.flight.append((max(side.last, self._loop.now + side.delay), Reason.RESET))
            self.resume(side)

    def leave(self, end: End) -> None:
        """The host of this end stops: what it wrote still arrives, then the far side is told of the end."""
        end.over = end.odd = end.deaf = True
        if not end.pipe and not end.hung:
            end.hung = True
            self.bytes_lost += end.far.lose_flight()
            end.flight.append((max(end.last, self._loop.now + end.delay), Reason.CLOSED))
            self.resume(end)

    def drop_end(self, end: End, keep: float, silent: bool) -> None:
        """The host of this end crashed: a prefix of what it wrote may still arrive; what was sent to it is lost."""
        end.over = end.odd = end.deaf = True
        end.silent = silent
        if end.pipe:
            return
        self.bytes_lost += end.far.lose_flight()
        self.bytes_lost += end.shorten(keep)
        if not silent:
            end.flight.append((max(end.last, self._loop.now + end.delay), Reason.RESET))
        self.resume(end)

    # Called by faults.

    def block(self, source: str, target: str, by: int) -> None:
        """Stop (+1) or release (-1) everything from one host to another, also on future links."""
        self.blocked[source, target] = self.blocked.get((source, target), 0) + by

    def is_blocked(self, one: str, other: str) -> bool:
        """True if a dial between the two cannot be answered."""
        return bool(self.blocked.get((one, other)) or self.blocked.get((other, one)))

    def _tampered(self, end: End, data: bytes) -> bytes:
        shorter = without_frame(data)
        if len(shorter) < len(data):
            end.tamper -= 1
            self.frames_lost += 1
        return shorter


def _press_machine(end: End, pressed: bool, now: Instant) -> None:
    """A link's buffer is above its mark, or below it again."""
    if end.writer is not None:
        end.seat.touch().press(end.link, pressed, now)
