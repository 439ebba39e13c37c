"""Ports, sinks and neighbours: what routing knows of links, and of the brokers at their other ends.

In:    parcels on their way out, counts and pongs on their way in.
Out:   prefixes of deliveries and parcels; parcels that a lost neighbour has not confirmed; a cost.
State: per link its output; per neighbour its parcels since the last confirmed one, and smoothed round-trip times.
Not here: making a link (peering.py), choosing a neighbour (plans.py), queues (broker/links.py).

A port refers to its neighbour, a neighbour to its port and its sinks, and a sink to its port: that is why they are in
one file. _native.c reads and writes attributes of all of them by name; broker/twins.py compares the names
when it loads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from heliograph.broker.routing.targets import TargetedRun, Targets
from heliograph.errors import Reason
from heliograph.machine import Instant, LinkId, Peer
from heliograph.model.identity import ANONYMOUS, Identity
from heliograph.wire.frames import BODY_BYTES, HEAD, LENGTH, Kind, ServiceFlag, hop_headers
from heliograph.wire.limits import DELIVERY_BYTES, PARCEL_BYTES_MAX

NEW, PROVING, READY, GONE = range(4)  # states: before Hello, while a job checks its token, in use, after our hangup
NOTE_EVERY_NS = 1_000_000_000
VOIDS_MAX = 64  # empty entries in a backlog before they are removed
END_TEXT_MAX = 200  # characters kept of the reason why a link ended
UNCONFIRMED_BYTES_MAX = 1 << 20  # kept to be sent another way if the link breaks; beyond it the oldest are forgotten
UNMEASURED_COST = 1_000  # until a round trip was timed
OUTSIDE_COST = 1_000  # added to links between clusters: staying inside is cheaper
SMOOTHING = 8  # a new round trip counts for one part in eight
SINKS_MAX = 4_096  # remembered per neighbour
BULKY_BYTES = 32 << 10  # a publication from this size on is large
FIXED = Struct("<BBHQ")  # of a hop prefix: kind, ttl, epoch, members
VARYING = Struct("<I12sQ")  # its length, the fixed part, its number
OUTLIER = 4  # a round trip counts as at most this many times the usual one: after a stall, one or two are too long
NOTICED = 4  # a cost that changed by less than a quarter is not told

_pack_length = LENGTH.pack

Taker = Callable[["Sink", bytes, Instant], None]
"""Takes runs: sink, whole frames, now."""


class Waiting:
    """A run (or, without a sink, control frames) in a backlog. ``start`` moves when the oldest frames are dropped."""

    __slots__ = ("chunk", "frames", "sink", "start")

    def __init__(self, sink: Sink | None, chunk: bytes, frames: int) -> None:
        self.sink = sink
        self.chunk = chunk
        self.frames = frames
        self.start = 0

    @property
    def is_answer(self) -> bool:
        """True for an answer of the broker to an order of a service."""
        if self.sink is not None or not self.chunk:
            return False
        return self.chunk[4] == Kind.SERVICE and bool(self.chunk[5] & ServiceFlag.ANSWER)

    def drop_first(self, end: int) -> int:
        """Drop the first frame, which ends at ``end``. Returns its size in bytes."""
        size = end - self.start
        self.start = end
        self.frames -= 1
        if not self.frames:
            self.chunk = b""
        return size


class Port:
    """A link as routing and the writing parts see it. The broker's Link (broker/links.py) adds what a client's session
    needs. Only Links changes the attributes under "writing"; it assigns them directly, since this is done for every
    run. The hot paths append to ``out`` while ``sink`` is theirs. Arrivals assigns ``trace``, for every parcel.

    _native.c reads: id, state, neighbour, heard_at, touched, deliveries, pressed, backlog, dropped.
    """

    __slots__ = (
        "backlog",
        "backlog_bytes",
        "backlog_frames",
        "bulky",
        "deliveries",
        "droppable",
        "dropped",
        "dropped_bytes",
        "ended",
        "heard_at",
        "held_by",
        "holding",
        "id",
        "identity",
        "is_paused",
        "is_pipe",
        "mark",
        "may_be_held",
        "name",
        "neighbour",
        "noted_at",
        "noted_dropped",
        "noted_dropped_bytes",
        "notes_later",
        "out",
        "peer",
        "pressed",
        "progress_at",
        "sink",
        "state",
        "stuck",
        "taker",
        "told",
        "touched",
        "trace",
        "voids",
    )

    def __init__(self, link: LinkId, peer: Peer, now: Instant) -> None:
        self.id = link
        self.peer = peer
        self.is_pipe = peer.transport == "pipe"  # a service of this node is at the other end
        self.state = NEW
        self.identity: Identity = ANONYMOUS
        self.name = ""
        self.ended = ""  # why it ended, from the side that ended it first
        self.heard_at = now
        self.told: dict[bytes, None] = {}  # topics for which this peer was told of a refusal
        self.neighbour: Neighbour | None = None  # the broker at the other end, once proven
        # writing
        self.out: list[bytes] = []
        self.sink: Sink | None = None  # the sink of the open delivery in ``out``, whose prefix goes to ``mark``
        self.mark = 0
        self.touched = False
        self.deliveries = 0
        # slow
        self.pressed = False
        self.backlog: deque[Waiting] = deque()
        self.backlog_bytes = 0
        self.backlog_frames = 0
        self.droppable: deque[Waiting] = deque()
        self.bulky: deque[Waiting] = deque()  # droppable, too: large publications for a neighbour
        self.voids = 0  # backlog entries whose frames were all dropped
        self.dropped = self.dropped_bytes = 0
        self.noted_dropped = self.noted_dropped_bytes = 0
        self.noted_at = -NOTE_EVERY_NS
        self.notes_later = False  # a timer runs that will note what was dropped
        self.progress_at = now
        self.taker: Taker | None = None  # takes runs in place of a peer, on a link that is always pressed
        self.trace: tuple[int, ...] = ()  # of the parcel being read from it: the brokers that it passed, us last
        self.may_be_held = False
        self.stuck = False  # a consumer that has read nothing for long: no publisher waits for it
        self.holding: dict[Port, None] = {}  # publishers that wait for this link
        self.held_by: dict[Port, None] = {}  # slow links for which this one waits
        self.is_paused = False  # its last bytes are not processed yet, so it is not read

    @property
    def is_held(self) -> bool:
        """True if it is not read for now."""
        return self.is_paused or bool(self.held_by)

    def pause(self, paused: bool) -> None:
        """Read it no more until its last bytes are processed, or again."""
        self.is_paused = paused

    @property
    def is_client(self) -> bool:
        """True unless a service or a proven broker is at the other end."""
        return self.neighbour is None and not self.is_pipe

    # -- slow: what waits behind a pressed driver, oldest first

    def press(self, pressed: bool, now: Instant) -> None:
        """The driver's buffer is full, or has room again."""
        self.pressed = pressed
        self.progress_at = now
        self.stuck = self.stuck and pressed

    def progress(self, now: Instant) -> None:
        """Begin to watch whether the link still takes output."""
        self.progress_at = now

    def queue(self, waiting: Waiting) -> None:
        """Add a run or a control frame to the backlog."""
        self.backlog.append(waiting)
        self.backlog_bytes += len(waiting.chunk)
        self.backlog_frames += waiting.frames

    def unqueue(self) -> Waiting | None:
        """The next entry that waits; None if all of it was dropped."""
        waiting = self.backlog.popleft()
        if not waiting.frames:
            self.voids -= 1
            return None
        if self.droppable and self.droppable[0] is waiting:
            self.droppable.popleft()
        elif self.bulky and self.bulky[0] is waiting:
            self.bulky.popleft()
        self.backlog_bytes -= len(waiting.chunk) - waiting.start
        self.backlog_frames -= waiting.frames
        return waiting

    def drop_all(self) -> tuple[int, int]:
        """The link ends: drop everything that waits. Returns how many publications that were, and their bytes."""
        runs = [waiting for waiting in self.backlog if waiting.sink is not None]
        frames = sum(waiting.frames for waiting in runs)
        size = sum(len(waiting.chunk) - waiting.start for waiting in runs if waiting.frames)
        self.clear_backlog()
        self.dropped += frames
        self.dropped_bytes += size
        return frames, size

    def clear_backlog(self) -> None:
        """Forget everything that waits."""
        self.backlog.clear()
        self.droppable.clear()
        self.bulky.clear()
        self.backlog_bytes = self.backlog_frames = 0

    def get_stuck(self) -> None:
        """It has read nothing for long: no publisher waits for it until it reads again."""
        self.stuck = True

    def give_up(self) -> tuple[int, int]:
        """Drop what waits for a service that has read nothing for long, but not the answers to its own orders: it
        waits for each of them. Returns frames and bytes."""
        frames, size = self.backlog_frames, self.backlog_bytes
        answers = [waiting for waiting in self.backlog if waiting.is_answer]
        self.voids = 0
        self.clear_backlog()
        for waiting in answers:
            self.queue(waiting)
        frames, size = frames - self.backlog_frames, size - self.backlog_bytes
        self.dropped += frames
        self.dropped_bytes += size
        self.get_stuck()
        return frames, size

    def take_back(self) -> list[tuple[Sink, bytes]]:
        """Remove the waiting runs, so that they can be sent another way; control frames stay."""
        runs = [
            (waiting.sink, waiting.chunk[waiting.start :])
            for waiting in self.backlog
            if waiting.sink is not None and waiting.frames
        ]
        self.backlog = deque(waiting for waiting in self.backlog if waiting.sink is None)
        self.droppable.clear()
        self.bulky.clear()
        self.backlog_bytes = sum(len(waiting.chunk) for waiting in self.backlog)
        self.backlog_frames = len(self.backlog)
        return runs

    def may_drop(self, waiting: Waiting) -> None:
        """This run may be dropped if there is no room.

        A neighbour's link is shared by all clients there, so large publications are kept apart: if they take most of
        the room, they lose it, and not what is small beside them.
        """
        is_bulky = self.neighbour is not None and len(waiting.chunk) >= BULKY_BYTES * waiting.frames
        (self.bulky if is_bulky else self.droppable).append(waiting)

    def next_to_drop(self) -> deque[Waiting]:
        """Of large and other runs, those that take more room; the first of them is the next to lose frames."""
        bulk = sum(len(waiting.chunk) for waiting in self.bulky)  # a few hundred at most
        return self.bulky if 2 * bulk > self.backlog_bytes or not self.droppable else self.droppable

    def is_over(self, bytes_max: int, frames_max: int) -> bool:
        """True if more waits than is allowed."""
        return self.backlog_bytes > bytes_max or self.backlog_frames > frames_max

    def drop_oldest(self, ends: list[int], bytes_max: int, frames_max: int) -> tuple[int, int]:
        """Drop frames of the oldest droppable run until the limits are kept or none is left; ``ends``: where they end.

        Returns how many frames and bytes were dropped.
        """
        runs = self.next_to_drop()
        waiting, frames, size = runs[0], 0, 0
        for end in ends:
            dropped = waiting.drop_first(end)
            frames, size = frames + 1, size + dropped
            self.backlog_bytes -= dropped
            self.backlog_frames -= 1
            if not self.is_over(bytes_max, frames_max):
                break
        self.dropped += frames
        self.dropped_bytes += size
        if not waiting.frames:  # the empty entry stays in the backlog for now, without its bytes
            self.voids += 1
            runs.popleft()
        return frames, size

    def sweep(self) -> None:
        """Remove empty entries, once there are many."""
        if self.voids > VOIDS_MAX and 2 * self.voids > len(self.backlog):
            self.backlog = deque(waiting for waiting in self.backlog if waiting.frames)
            self.voids = 0

    @property
    def has_unnoted(self) -> bool:
        """True if something was dropped since the last note."""
        return self.dropped > self.noted_dropped

    def note_later(self) -> Instant:
        """A timer will note what was dropped. Returns when: not before a second after the last note."""
        self.notes_later = True
        return self.noted_at + NOTE_EVERY_NS

    def note_drops(self, now: Instant) -> None:
        """What was dropped is noted now."""
        self.noted_at = now
        self.notes_later = False

    def unnoted_drops(self) -> tuple[int, int]:
        """What was dropped since the last note: publications and bytes. It counts as noted."""
        lost, lost_bytes = self.dropped - self.noted_dropped, self.dropped_bytes - self.noted_dropped_bytes
        self.noted_dropped, self.noted_dropped_bytes = self.dropped, self.dropped_bytes
        return lost, lost_bytes

    # -- its end and its uses

    def end(self, why: str) -> None:
        """The link has ended; keep the reason, unless the other side gave one before."""
        self.ended = self.ended or why

    def forget_output(self) -> None:
        """The link is gone: drop its output."""
        self.backlog.clear()
        self.droppable.clear()
        self.bulky.clear()
        self.out = []
        self.sink = None

    def count_delivery(self) -> None:
        """Count a delivery to this link."""
        self.deliveries += 1

    def say_why(self, why: str) -> None:
        """Keep the reason given by the side that ends the link."""
        self.ended = why

    def rise(self, neighbour: Neighbour) -> None:
        """A broker has proven itself at the other end."""
        self.neighbour = neighbour
        self.name = neighbour.name
        self.state = READY


class Sink:
    """One link that gets a publication, with the matching subscriptions and their policy if the link is slow.

    _native.c reads: link, own, bytes_max, neighbour, _dropped, _rest, _length.
    """

    __slots__ = ("_dropped", "_length", "_rest", "disconnects", "holds", "link", "listens", "numbers", "own")
    bytes_max = DELIVERY_BYTES
    neighbour: Neighbour | None = None  # the broker, if the sink is a next hop

    def __init__(
        self, link: Port, numbers: bytes, own: Sink | bool, holds: bool, disconnects: bool, listens: bool = False
    ) -> None:
        self.link = link
        self.numbers = numbers  # the client's own, packed u32, ascending
        # What the link gets of its own publications. True: the same; a Sink: fewer numbers; False: nothing.
        self.own = own
        self.holds = holds
        self.disconnects = disconnects
        self.listens = listens  # none of the subscriptions answers requests
        self._dropped = -1  # the count of dropped publications for which ``_rest`` is valid
        self._rest = b""  # the prefix after its length
        self._length = BODY_BYTES + len(numbers)

    def prefix(self, size: int, chunks: list[bytes]) -> bytes:
        """The prefix on the wire for these chunks of whole frames, ``size`` bytes together."""
        dropped = self.link.dropped
        if dropped != self._dropped:
            self._dropped = dropped
            self._rest = HEAD.pack(0, 3, 0, 0, dropped, 0, len(self.numbers))[4:] + self.numbers
        return _pack_length(self._length + size) + self._rest


class LinkWriter(Protocol):
    """What routing needs from the part that writes to links (broker/links.py)."""

    def put(self, link: Port, frame: bytes) -> None:
        """Send a control frame, in order with the deliveries."""

    def deliver(self, publisher: Port, sink: Sink, chunk: bytes, now: Instant) -> None:
        """Send whole frames to a sink, or queue them behind what it has not taken yet."""

    def abandon(self, link: Port) -> list[tuple[Sink, bytes]]:
        """Take back what waits for a link, so that it can be sent another way."""
        ...

    def hang_up(self, link: Port, reason: Reason, text: str = "") -> None:
        """Say goodbye and end the link."""

    def count(self, reason: Reason) -> None:
        """Something was refused or ended for this reason."""


class Neighbour:
    """A linked broker.

    _native.c reads or writes: suspected, is_timed, owed, heard_in, sent, sent_bytes, sent_number.
    """

    __slots__ = (
        "aimed_members",
        "aimed_parts",
        "broker",
        "cluster",
        "cost",
        "counts",
        "dialled",
        "given_up",
        "heard_in",
        "incarnation",
        "is_timed",
        "link",
        "name",
        "owed",
        "round_trip_ns",
        "sent",
        "sent_at",
        "sent_bytes",
        "sent_number",
        "sinks",
        "suspected",
        "told_cost",
    )

    def __init__(self, link: Port, broker: int, name: str, cluster: str, incarnation: int, dialled: bool) -> None:
        self.link = link
        self.broker = broker
        self.name = name
        self.cluster = cluster
        self.incarnation = incarnation
        self.dialled = dialled
        self.suspected = False
        self.counts = False  # whether both ends report the link
        self.cost = self.told_cost = UNMEASURED_COST
        self.round_trip_ns = 0
        self.sent_at: Instant = 0
        self.sent_number = 0
        self.sent: deque[Sent] = deque()  # not confirmed, oldest first
        self.sent_bytes = 0
        self.given_up = 0  # parcels forgotten before they were confirmed
        self.heard_in = 0  # the number of the last parcel received
        self.owed = 0  # received since the last count that we sent, as parcels.py counts it
        self.is_timed = False  # a timer runs that will confirm
        self.sinks: dict[tuple[object, ...], HopSink] = {}  # cached until the paths change
        self.aimed_members = 0  # slots and parts for which there was a sink since the last change
        self.aimed_parts: dict[int, None] = {}

    def move(self, link: Port) -> None:
        """The neighbour is reached over this link from now on; numbers and what is unconfirmed stay the same."""
        self.link = link

    def suspect(self) -> None:
        """The neighbour is silent: paths avoid it."""
        self.suspected = True

    def relieve(self) -> None:
        """The neighbour was heard again."""
        self.suspected = False

    def tell_cost(self) -> None:
        """The current cost is being told to others."""
        self.told_cost = self.cost

    def begins_or_ends(self, names_us: bool) -> bool:
        """True if the link begins or stops counting; ``names_us``: the other end reports it."""
        counts = names_us and not self.suspected
        if counts == self.counts:
            return False
        self.counts = counts
        return True

    def heard(self, number: int, size: int) -> int:
        """Parcels up to this number came in one read. Returns how much we have not confirmed yet."""
        self.heard_in = number
        self.owed += size
        return self.owed

    def wait_to_confirm(self) -> None:
        """A timer runs, after which we confirm."""
        self.is_timed = True

    def waited(self) -> bool:
        """The timer has run out; True if there is something to confirm."""
        self.is_timed = False
        return bool(self.owed)

    def count(self) -> int:
        """Confirm what was received. Returns the number to confirm up to."""
        self.owed = 0
        return self.heard_in

    def take_back(self) -> list[Sent]:
        """Take out the unconfirmed parcels, so that they can be sent another way."""
        sent = list(self.sent)
        self.sent.clear()
        self.sent_bytes = 0
        return sent

    def confirm(self, number: int) -> None:
        """Every parcel up to this number has arrived."""
        sent = self.sent
        while sent and sent[0][0] <= number:
            self.sent_bytes -= sent.popleft()[1]

    def give_up(self) -> None:
        """Too much is unconfirmed: forget the oldest parcels, but never the newest."""
        while self.sent_bytes > UNCONFIRMED_BYTES_MAX and len(self.sent) > 1:
            self.sent_bytes -= self.sent.popleft()[1]
            self.given_up += 1

    def measure(self, round_trip_ns: int, outside: bool) -> bool:
        """A round trip was measured; True if the cost changed so much that others should be told."""
        if self.round_trip_ns:
            self.round_trip_ns += (min(round_trip_ns, OUTLIER * self.round_trip_ns) - self.round_trip_ns) // SMOOTHING
        else:
            self.round_trip_ns = round_trip_ns
        self.cost = max(1, self.round_trip_ns // 2_000) + (OUTSIDE_COST if outside else 0)
        return abs(self.cost - self.told_cost) * NOTICED > max(self.told_cost, 200)

    def sink(self, targets: Targets, ttl: int, epoch: int, trace: tuple[int, ...]) -> HopSink:
        """The sink for these targets through this neighbour; parcels with the same trace share one."""
        key = (targets.key, ttl, trace)
        sink = self.sinks.get(key)
        if sink is None:
            if len(self.sinks) >= SINKS_MAX:
                self.sinks.clear()
            sink = self.sinks[key] = HopSink(self, targets, ttl, epoch, trace)
            self.aimed_members |= targets.members
            self.aimed_parts.update(dict.fromkeys(targets.parts))
        return sink

    def forget_sinks(self) -> tuple[int, dict[int, None]]:
        """The paths change: nothing new may use an old sink. Returns the slots and parts for which there was one."""
        aimed = (self.aimed_members, self.aimed_parts)
        self.sinks.clear()
        self.aimed_members, self.aimed_parts = 0, {}
        return aimed


class HopSink(Sink):
    """A neighbour as the next hop of a run. If it is slow, the oldest runs are dropped; publishers are not held."""

    __slots__ = ("_fixed", "_hops", "neighbour", "targets", "trace", "ttl")
    bytes_max = PARCEL_BYTES_MAX

    def __init__(self, neighbour: Neighbour, targets: Targets, ttl: int, epoch: int, trace: tuple[int, ...]) -> None:
        super().__init__(neighbour.link, b"", True, holds=False, disconnects=False)
        self.neighbour: Neighbour = neighbour
        self.targets = targets
        self.ttl = ttl
        self.trace = trace
        hops = hop_headers(targets.parts, trace, targets.groups)
        self._fixed = FIXED.pack(Kind.PARCEL, ttl, epoch, targets.members)
        self._hops = LENGTH.pack(len(hops)) + hops
        self._length = BODY_BYTES + len(hops)

    def prefix(self, size: int, chunks: list[bytes]) -> bytes:
        """The hop prefix of a parcel, which is numbered and kept until it is confirmed."""
        neighbour = self.neighbour
        number = neighbour.sent_number = neighbour.sent_number + 1
        neighbour.sent.append((number, size, chunks, self))
        neighbour.sent_bytes += size
        if neighbour.sent_bytes > UNCONFIRMED_BYTES_MAX:
            neighbour.give_up()
        return VARYING.pack(self._length + size, self._fixed, number) + self._hops

    def run(self, frames: bytes, me: int) -> TargetedRun:
        """These frames, to be planned again at this broker."""
        trace = self.trace
        return TargetedRun(self.targets, self.ttl, trace[:-1] if trace[-1:] == (me,) else trace, frames)


def stand_in(taker: Taker) -> Neighbour:
    """A neighbour without a broker: its link is always pressed, so everything sent to it goes to the taker."""
    link = Port(0, Peer("stand-in", ""), 0)
    link.state = READY
    link.pressed = True
    link.taker = taker
    return Neighbour(link, 0, "", "", 0, False)


Sent = tuple[int, int, list[bytes], HopSink]
"""A parcel that a neighbour has not confirmed: its number, size, frames and targets."""


def describe_end(reason: str, text: str) -> str:
    """Why a link ended, for people. The other side may have written the text, so its length is limited."""
    return (f"{reason}: {text}" if text else reason)[:END_TEXT_MAX]
