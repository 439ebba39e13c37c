"""Neighbours: brokers at the other end of a link, what was sent to them, and how far away they are.

In:    parcels on their way out, counts and pongs on their way in.
Out:   hop prefixes; parcels that a lost neighbour has not confirmed; a cost.
State: per neighbour its parcels since the last confirmed one, and smoothed round-trip times.
Not here: making a link (peering.py), choosing a neighbour (network.py), queues (broker/links.py).
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from heliograph.broker.links import READY, Link, Taker
from heliograph.broker.routing.routes import Sink
from heliograph.machine import Instant, Peer
from heliograph.wire.frames import BODY_BYTES, LENGTH, Kind, hop_headers
from heliograph.wire.limits import PARCEL_BYTES_MAX

UNCONFIRMED_BYTES_MAX = 1 << 20  # kept to be planned again if the link breaks; beyond it the oldest are given up
UNMEASURED_COST = 1_000  # until the first pong
OUTSIDE_COST = 1_000  # added to links between clusters: staying inside is cheaper
SMOOTHING = 8  # a new round trip counts for one part in eight
SINKS_MAX = 4_096  # remembered per neighbour
FIXED = Struct("<BBHQ")  # of a hop prefix: kind, ttl, epoch, members
VARYING = Struct("<I12sQ")  # its length, what is fixed, its number
OUTLIER = 4  # a round trip counts as at most so many times what is usual: after a stall, one or two are long
NOTICED = 4  # a cost that changed by less than a quarter is not told to anybody


class Targets:
    """Whom a parcel is for: slots of this cluster, parts of clusters, and the groups that alone may have it."""

    __slots__ = ("groups", "key", "members", "parts")

    def __init__(self, members: int, parts: tuple[int, ...] = (), groups: tuple[int, ...] = ()) -> None:
        self.members = members
        self.parts = parts
        self.groups = groups
        self.key = (members, parts, groups)  # equal targets have equal keys


class Run:
    """Frames that have the same targets, and how far they have come."""

    __slots__ = ("frames", "targets", "trace", "ttl")

    def __init__(self, targets: Targets, ttl: int, trace: tuple[int, ...], frames: bytes) -> None:
        self.targets = targets
        self.ttl = ttl
        self.trace = trace  # without us
        self.frames = frames


class Neighbour:
    """A linked broker."""

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

    def __init__(self, link: Link, broker: int, name: str, cluster: str, incarnation: int, dialled: bool) -> None:
        self.link = link
        self.broker = broker
        self.name = name
        self.cluster = cluster
        self.incarnation = incarnation
        self.dialled = dialled
        self.suspected = False
        self.counts = False  # whether both ends say that the link is there
        self.cost = self.told_cost = UNMEASURED_COST
        self.round_trip_ns = 0
        self.sent_at: Instant = 0
        self.sent_number = 0
        self.sent: deque[Sent] = deque()  # not confirmed, oldest first
        self.sent_bytes = 0
        self.given_up = 0  # parcels that would not be planned again
        self.heard_in = 0  # the number of the last parcel that came
        self.owed = 0  # what has come since the last count that we sent, as parcels.py counts it
        self.is_timed = False  # a timer runs, after which we confirm
        self.sinks: dict[tuple[object, ...], HopSink] = {}  # until the ways change
        self.aimed_members = 0  # slots and parts for which there was a sink, since then
        self.aimed_parts: dict[int, None] = {}

    def confirm(self, number: int) -> None:
        """Every parcel up to this number has arrived."""
        sent = self.sent
        while sent and sent[0][0] <= number:
            self.sent_bytes -= sent.popleft()[1]

    def give_up(self) -> None:
        """More is unconfirmed than is kept: forget the oldest, but not the newest."""
        while self.sent_bytes > UNCONFIRMED_BYTES_MAX and len(self.sent) > 1:
            self.sent_bytes -= self.sent.popleft()[1]
            self.given_up += 1

    def measure(self, round_trip_ns: int, outside: bool) -> bool:
        """A pong came; True if the cost is now so different that others should know."""
        if self.round_trip_ns:
            self.round_trip_ns += (min(round_trip_ns, OUTLIER * self.round_trip_ns) - self.round_trip_ns) // SMOOTHING
        else:
            self.round_trip_ns = round_trip_ns
        self.cost = max(1, self.round_trip_ns // 2_000) + (OUTSIDE_COST if outside else 0)
        return abs(self.cost - self.told_cost) * NOTICED > max(self.told_cost, 200)

    def sink(self, targets: Targets, ttl: int, epoch: int, trace: tuple[int, ...]) -> HopSink:
        """The sink for what goes to these targets this way; what has come the same way shares one."""
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
        """The ways change: let nothing new take an old sink. Returns for whom there was one: slots and parts."""
        aimed = (self.aimed_members, self.aimed_parts)
        self.sinks.clear()
        self.aimed_members, self.aimed_parts = 0, {}
        return aimed


class HopSink(Sink):
    """A neighbour as the next hop of a run. What it cannot take is dropped, oldest first: broker links hold nobody."""

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

    def run(self, frames: bytes, me: int) -> Run:
        """These frames, to be planned anew at this broker."""
        trace = self.trace
        return Run(self.targets, self.ttl, trace[:-1] if trace[-1:] == (me,) else trace, frames)


def stand_in(taker: Taker) -> Neighbour:
    """A neighbour that is nobody: its link is always pressed, so that all that is sent there comes to the taker."""
    link = Link(0, Peer("stand-in", ""), 0)
    link.state = READY
    link.pressed = True
    link.taker = taker
    return Neighbour(link, 0, "", "", 0, False)


Sent = tuple[int, int, list[bytes], HopSink]
"""A parcel that a neighbour has not confirmed: its number, its size, its frames, and whom it is for."""
