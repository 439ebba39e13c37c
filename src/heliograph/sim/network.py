"""The simulated network: links that delay, stall, split, join, stop and break, but never reorder.

In:    what machines write, hold, hang up and dial, as the world passes it on; what faults do to links.
Out:   inputs (attach, receive, press, detach, failed), offered to the hosts at the instants drawn from the seed; every
       write to the digest.
State: both ends of every link with what is in flight, the listeners, the directions that are cut.
Not here: when a host handles an input and what a machine answers (world.py), when faults strike (faults.py).

A link is two streams. An End holds the stream that *its* machine writes: ``flight`` is what was written and has not
arrived. ``pending`` counts what the far machine has not consumed yet; it is what press is about, as in a real driver
whose buffer fills when the far side does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from heapq import heappush
from random import Random
from typing import TYPE_CHECKING

from heliograph.errors import Reason
from heliograph.machine import Dial, LinkId, Peer, Ticket
from heliograph.sim.digest import PARTS_MAX, WRITE, Digest
from heliograph.sim.loop import MICROSECOND, MILLISECOND, NEVER, SECOND, Loop
from heliograph.sim.tamper import without_frame

if TYPE_CHECKING:
    from heliograph.sim.host import Host, Seat

FLUSH_NS_MAX = SECOND  # how long a driver waits for the last writes of a link that was hung up
DIAL_NS_MAX = 5 * SECOND  # how long a driver waits for an answer to a dial
MARK_BYTES_MIN = 512

_pack_write = WRITE.pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far some hosts are from others, one way; links and datagrams alike."""

    target: str  # "from > to", patterns of hosts
    delay_ms: float

    def problems(self, path: str) -> list[str]:
        """Everything wrong with it."""
        found = []
        if self.target.count(">") != 1:
            found.append(f'{path}.target = {self.target!r}: a distance needs "from > to"')
        if not 0 <= self.delay_ms <= 60_000:
            found.append(f"{path}.delay_ms = {self.delay_ms}: must be between 0 and 60000")
        return found


Writes = Sequence[tuple[LinkId, list[bytes]]]
Flight = list[tuple[int, bytes | Reason]]
"""Chunks with their arrival, oldest first; a Reason ends the stream. A list, not a deque: that takes 600 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How links behave when nothing is wrong with them."""

    delay_ms: float = 0.2  # one way
    jitter_ms: float = 0.1  # up to so much more, drawn for each chunk
    split: float = 0.1  # probability that a chunk arrives in two parts
    join: float = 0.1  # probability that a chunk waits for the next and arrives with it
    bandwidth_kib_s: int = 0  # per link and direction; 0: no limit
    buffer_kib: int = 64  # the mark above which a driver presses; each link draws its own around it
    distance: tuple[Distance, ...] = ()  # the first that fits counts instead of delay_ms

    def problems(self, path: str = "network") -> list[str]:
        """Everything wrong with it."""
        found = []
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 60_000:
                found.append(f"{path}.{name} = {getattr(self, name)}: must be between 0 and 60000")
        for name in ("split", "join"):
            if not 0 <= getattr(self, name) <= 1:
                found.append(f"{path}.{name} = {getattr(self, name)}: a probability is between 0 and 1")
        if self.split + self.join > 1:
            found.append(f"{path}.split and {path}.join add up to more than 1")
        if self.bandwidth_kib_s < 0:
            found.append(f"{path}.bandwidth_kib_s = {self.bandwidth_kib_s}: must not be below 0 (0: no limit)")
        if not 1 <= self.buffer_kib <= 1 << 20:
            found.append(f"{path}.buffer_kib = {self.buffer_kib}: must be between 1 and {1 << 20}")
        for number, distance in enumerate(self.distance):
            found += distance.problems(f"{path}.distance[{number}]")
        return found


class End:
    """One end of a link, with the stream that leaves from it."""

    # fmt: off
    __slots__ = (
        "busy_until", "deaf", "delay", "far", "flight", "held", "high", "host", "hung", "last", "link", "low", "odd",
        "over", "peer", "pending", "pipe", "pressed", "reason", "scheduled", "seat", "silent", "stops", "tamper",
        "told_pressed", "writer",
    )
    # fmt: on

    def __init__(self, host: Host, seat: Seat, link: LinkId, peer: Peer) -> None:
        self.host = host
        self.seat = seat
        self.link = link
        self.peer = peer
        self.far: End = self  # until joined
        self.pipe = False
        # the stream from here to the far end
        self.flight: Flight = []
        self.last = 0  # arrival of the newest chunk: later ones never overtake it
        self.delay = 0
        self.busy_until = 0  # the line is sending until then, where there is a bandwidth
        self.scheduled = False  # an arrival is in the loop
        self.stops = 0  # how many partitions, stalls and holds keep it from arriving
        self.tamper = 0  # how many frames to lose silently: the planted bug
        self.odd = False  # a write needs a closer look: over, a pipe, tampered with, or of limited bandwidth
        self.pending = 0
        self.high = NEVER
        self.low = 0
        self.pressed = False
        self.told_pressed = False
        # the life of this end
        self.writer: Seat | None = None  # who may write to it: set by attach, until it hangs up or is detached
        self.held = False  # the machine does not want to read now
        self.hung = False  # the machine hung up …
        self.reason = Reason.CLOSED  # … for this reason
        self.over = False  # detach was told or is on its way to the machine, or the host crashed
        self.deaf = False  # hung or over: what arrives is for nobody
        self.silent = False  # the host lost power: the far side is told nothing


class Listener:
    """An address that answers dials."""

    __slots__ = ("host", "machine", "name", "secure")

    def __init__(self, host: Host, machine: str, name: str, secure: bool) -> None:
        self.host = host
        self.machine = machine
        self.name = name
        self.secure = secure


class Network:
    """All links of a world. ``offer`` and the handlers are the world's: they give inputs to machines."""

    def __init__(self, settings: NetworkSettings, loop: Loop, random: Random, digest: Digest) -> None:
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.blocked: dict[tuple[str, str], int] = {}  # (from host, to host) -> how many partitions stop it
        self.links_made = 0
        self.bytes_lost = 0
        self.frames_lost = 0  # by tampering
        self.tap: Callable[[End, bytes], None] | None = None  # sees what is written to links made after it was set
        self._settings = settings
        self._loop = loop
        self._digest = digest
        self._draw = random.random
        self._arrives = self._arrive  # bound once: it is pushed for every chunk
        self.jitter_ns = float(int(settings.jitter_ms * MILLISECOND))
        self._delay = int(settings.delay_ms * MILLISECOND)
        self._delays: dict[tuple[str, str], int] = {}  # of pairs of hosts, once asked for
        self.ruler: Callable[[str, str], float] | None = None  # one-way ms between hosts, in place of the settings
        self._split = settings.split
        self._split_or_join = settings.split + settings.join
        self._ns_per_kib = SECOND // settings.bandwidth_kib_s if settings.bandwidth_kib_s else 0

    def delay_ns(self, source: str, sink: str) -> int:
        """How long anything takes from one host to another, at least."""
        if not (self._settings.distance or self.ruler):
            return self._delay
        delay = self._delays.get((source, sink))
        if delay is None:
            delay = self._delays[source, sink] = self._measure(source, sink)
        return delay

    def _measure(self, source: str, sink: str) -> int:
        if self.ruler is not None:
            return int(self.ruler(source, sink) * MILLISECOND)
        fitting = (one for one in self._settings.distance if _fits(one.target, source, sink))
        distance = next(fitting, None)
        return self._delay if distance is None else int(distance.delay_ms * MILLISECOND)

    # Links come up.

    def dial(self, seat: Seat, ticket: Ticket, dial: Dial, instant: int) -> None:
        """Try to open a link; one round trip later the dialler knows."""
        there = self.delay_ns(seat.host.name, dial.host) + self.delay_ns(dial.host, seat.host.name)
        trip = there + 2 * (int(self.jitter_ns * self._draw()) + MICROSECOND)
        self._loop.at(instant + trip, self._answer_dial, (seat, ticket, dial))

    def _answer_dial(self, dialled: tuple[Seat, Ticket, Dial], instant: int) -> None:
        seat, ticket, dial = dialled
        listener = self.listeners.get((dial.host, dial.port))
        if seat.gone:
            return
        if listener is None or not listener.host.up:
            seat.host.fail(seat, ticket, Reason.DIAL_FAILED)
        elif self.is_blocked(seat.host.name, listener.host.name):
            self._loop.at(instant + DIAL_NS_MAX, self._give_up_dial, dialled)
        elif listener.secure != dial.secure:
            seat.host.fail(seat, ticket, Reason.TLS_FAILED)
        else:
            self._accept(seat, ticket, dial, listener, instant)

    def _give_up_dial(self, dialled: tuple[Seat, Ticket, Dial], _instant: int) -> None:
        seat, ticket, _ = dialled
        if not seat.gone:
            seat.host.fail(seat, ticket, Reason.TIME_OUT)

    def _accept(self, seat: Seat, ticket: Ticket, dial: Dial, listener: Listener, instant: int) -> None:
        transport = "tls" if listener.secure else "tcp"
        self.links_made += 1
        dialler = seat.host
        caller = Peer(
            transport,
            f"{dialler.name}:{50_000 + self.links_made % 10_000}",
            listener=listener.name,
            identity=dialler.identity if listener.secure else None,
        )
        called = Peer(transport, f"{dial.host}:{dial.port}", ticket=ticket)
        here = dialler.new_end(seat, called)
        there = listener.host.new_end(listener.host.seat(listener.machine), caller)
        self._connect(here, there, instant)

    def _connect(self, here: End, there: End, instant: int) -> None:
        here.far, there.far = there, here
        for end in (here, there):
            end.delay = self.delay_ns(end.host.name, end.far.host.name)
            end.last = instant
            end.odd = self._ns_per_kib > 0 or self.tap is not None
            end.stops = self.blocked.get((end.host.name, end.far.host.name), 0)
            end.high = max(MARK_BYTES_MIN, int(self._settings.buffer_kib * 1024 * (0.5 + self._draw())))
            end.low = end.high // 4
        here.host.attach(here)
        there.host.attach(there)

    def pipe(self, host: Host, broker: Seat, service: Seat) -> None:
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

    def send(self, host: Host, seat: Seat, writes: Writes, instant: int) -> None:
        """Put what a machine wrote on its way, and into the digest. The hot path: it does no more than it must."""
        ends, loop, parts = host.ends, self._loop, self._digest.parts
        draw, jitter, split_or_join, arrives = self._draw, self.jitter_ns, self._split_or_join, self._arrives
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
                first = arrival = end.last  # it cannot overtake: it arrives together with the chunk before
            fate = draw()
            if fate < split_or_join:
                arrival, data = (self._cut if fate < self._split else self._join)(end, arrival, data)
            end.flight.append((arrival, data))
            end.last = arrival
            if not end.scheduled:
                end.scheduled = True
                loop.count += 1
                heappush(loop.heap, (first, loop.count, arrives, end))
        if len(parts) > PARTS_MAX:
            self._digest.feed()

    def _prepare(self, end: End, data: bytes, instant: int) -> tuple[int, bytes]:
        """What is left of a write to an unusual link, and when it leaves."""
        if end.over:
            return instant, b""  # the link is gone and the machine does not know yet
        if end.pipe:
            self.put_through(end, data)
            return instant, b""
        if end.tamper:
            data = self._tampered(end, data)
        if self.tap is not None:
            self.tap(end, data)
        if self._ns_per_kib:
            instant = end.busy_until = max(instant, end.busy_until) + (len(data) * self._ns_per_kib >> 10)
        return instant, data

    def put_through(self, end: End, data: bytes) -> None:
        """A pipe takes no time."""
        end.pending += len(data)
        end.far.host.receive(end.far, data, self._loop.now)

    def _cut(self, end: End, arrival: int, data: bytes) -> tuple[int, bytes]:
        """A first part arrives then, the rest a little later."""
        if len(data) == 1:
            return arrival, data
        cut = 1 + int((len(data) - 1) * self._draw())
        end.flight.append((arrival, data[:cut]))
        return arrival + 1 + int(self.jitter_ns * self._draw()), data[cut:]

    def _join(self, end: End, arrival: int, data: bytes) -> tuple[int, bytes]:
        """The chunk before waits for this one, if it is still on its way."""
        flight = end.flight
        if flight and isinstance(before := flight[-1][1], bytes):
            flight.pop()
            return arrival, before + data
        return arrival, data

    def _arrive(self, end: End, instant: int) -> None:
        """What is due at the far end of this stream arrives there, in one piece."""
        end.scheduled = False
        flight = end.flight
        if end.stops or not flight:
            return  # whoever lets it go on calls ``resume``
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
        """Nobody reads there any more. A host that lost power and is back answers with a reset."""
        self.bytes_lost += len(data)
        if not end.far.silent:
            end.pending -= len(data)
        elif end.far.host.up:
            end.far.silent = False
            self._loop.at(instant + end.delay, self._reset, end)

    def resume(self, end: End) -> None:
        """Have a look at this stream when its next chunk is due."""
        if end.flight and not end.scheduled:
            end.scheduled = True
            self._loop.at(max(self._loop.now, end.flight[0][0]), self._arrives, end)

    def stop(self, end: End) -> None:
        """Nothing of this stream arrives until it is let go as often as it was stopped."""
        end.stops += 1

    def let_go(self, end: End) -> None:
        """One reason to stand still is gone."""
        end.stops -= 1
        if not end.stops:
            self.resume(end)

    def relieve(self, end: End) -> None:
        """The far machine has taken enough of this stream: its buffer is below the mark again."""
        end.pressed = False
        self._loop.at(self._loop.now, self._press, end)

    def _press(self, end: End, _instant: int) -> None:
        if not end.over and end.pressed != end.told_pressed:
            end.told_pressed = end.pressed
            end.host.press(end)

    def hold(self, end: End, held: bool) -> None:
        """The machine at this end stops or resumes reading. Nothing waits in a pipe, so it has nothing to hold."""
        if held != end.held and not end.pipe:
            end.held = held
            if held:
                self.stop(end.far)
            else:
                self.let_go(end.far)

    # Links end.

    def hang_up(self, end: End, reason: Reason, instant: int) -> None:
        """The machine is done with this link: flush for at most a second, then close."""
        end.writer = None
        if end.over:
            return
        end.hung = end.deaf = True
        end.reason = reason
        if end.pipe:
            self.finish(end, reason)
            self.finish(end.far, Reason.CLOSED)
            return
        self.hold(end, False)  # what still comes in is read and thrown away
        end.flight.append((max(end.last, instant + end.delay), Reason.CLOSED))
        self.resume(end)
        self._loop.at(instant + FLUSH_NS_MAX, self._abort, end)

    def _abort(self, end: End, _instant: int) -> None:
        """The flush took too long: what is still in flight is lost, and the far side sees a reset once it can."""
        if not end.over:
            self._lose_flight(end)
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
        """The link is gone as seen from this end: tell the machine, once; after its own hangup, with its reason."""
        if end.over:
            return
        end.over = end.odd = end.deaf = True
        end.host.detach(end, end.reason if end.hung else reason)
        if end.far.over:
            end.flight.clear()

    def break_link(self, end: End, keep: float) -> None:
        """Reset a link: of each direction a share ``keep`` of what is in flight still arrives, the suffix is lost."""
        for side in (end, end.far):
            self._shorten(side, keep)
            side.flight.append((max(side.last, self._loop.now + side.delay), Reason.RESET))
            self.resume(side)

    def leave(self, end: End) -> None:
        """The host of this end stops: what it wrote still arrives, then the far side sees the end."""
        end.over = end.odd = end.deaf = True
        if not end.pipe and not end.hung:
            end.hung = True
            self._lose_flight(end.far)
            end.flight.append((max(end.last, self._loop.now + end.delay), Reason.CLOSED))
            self.resume(end)

    def drop_end(self, end: End, keep: float, silent: bool) -> None:
        """The host of this end crashed: a prefix of what it wrote may still arrive; what was sent to it is lost."""
        end.over = end.odd = end.deaf = True
        end.silent = silent
        if end.pipe:
            return
        self._lose_flight(end.far)
        self._shorten(end, keep)
        if not silent:
            end.flight.append((max(end.last, self._loop.now + end.delay), Reason.RESET))
        self.resume(end)

    def _shorten(self, end: End, keep: float) -> None:
        """Keep this share of the bytes in flight, in order; lose the rest."""
        chunks = [(arrival, data) for arrival, data in end.flight if isinstance(data, bytes)]
        room = int(keep * sum(len(data) for _, data in chunks))
        self._lose_flight(end)
        for arrival, data in chunks:
            if room > 0:
                end.flight.append((arrival, data[:room]))
                self.bytes_lost -= min(room, len(data))
                room -= len(data)

    def _lose_flight(self, end: End) -> None:
        for _, data in end.flight:
            if isinstance(data, bytes):
                self.bytes_lost += len(data)
        end.flight.clear()

    # What faults ask for.

    def block(self, source: str, target: str, by: int) -> None:
        """Stop (+1) or let go (-1) everything that flows from one host to another, now and on links to come."""
        self.blocked[source, target] = self.blocked.get((source, target), 0) + by

    def is_blocked(self, one: str, other: str) -> bool:
        """True if a dial between the two cannot be answered."""
        return bool(self.blocked.get((one, other)) or self.blocked.get((other, one)))

    def tamper(self, end: End) -> None:
        """Lose the next publication or delivery of this stream, silently."""
        end.tamper += 1
        end.odd = True

    def _tampered(self, end: End, data: bytes) -> bytes:
        shorter = without_frame(data)
        if len(shorter) < len(data):
            end.tamper -= 1
            self.frames_lost += 1
        return shorter


def _fits(target: str, source: str, sink: str) -> bool:
    here, there = (part.strip() for part in target.split(">"))
    return fnmatchcase(source, here) and fnmatchcase(sink, there)
