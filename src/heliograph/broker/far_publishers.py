"""Far publishers: asks other brokers to hold the publishers for which a consumer here is too slow.

In:    runs of a neighbour's parcels that wait for a slow consumer; which of their publishers must wait.
Out:   HOLD and RELEASE frames, back along the path of the publications.
State: the publishers that are held at other brokers because of our consumers.
Not here: when a consumer is slow (links.py), the broker that holds the publisher (far_consumers.py).

Which publishers agreed to wait is known only where they are, so all are asked for, and what comes from another broker
may be dropped here. A HOLD is repeated while it is needed, and ends by itself where it arrived if it is not.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import READY, Neighbour, Port
from heliograph.machine import Instant, Peer, Timers
from heliograph.wire import broker_bodies as wire
from heliograph.wire.frames import ORIGIN, Kind, control

LEASE_NS = 10_000_000_000  # a HOLD that is not repeated for so long has ended
REPEAT_NS = LEASE_NS // 4
HELD_MAX = 4_096  # publishers at other brokers; beyond it their publications are dropped when the queue is full


class FarPublisher(Port):
    """A publisher at another broker: a port that nothing is written to, which holds and releases like a client's."""

    __slots__ = ("by", "origin", "way")

    def __init__(self, origin: int, now: Instant) -> None:
        super().__init__(0, Peer("far", ""), now)
        self.state = READY
        self.origin = origin
        self.by: Neighbour | None = None  # the neighbour from which its publications come …
        self.way: tuple[int, ...] = ()  # … and the brokers that they pass, us last

    def comes_by(self, link: Port) -> bool:
        """Its publications come from this link. True if they came by another path before."""
        if link.neighbour is self.by and link.trace == self.way:
            return False
        self.by, self.way = link.neighbour, link.trace
        return True

    def frame(self, kind: Kind) -> bytes:
        """A HOLD or RELEASE for it."""
        entry, *passed, me = self.way
        hold = wire.HoldOrigin(entry, me, self.origin, TTL, [entry, *passed][:-1])
        return control(kind, 0, wire.encode(hold))


class FarPublishers:
    """Publishers that wait at other brokers for consumers of ours."""

    def __init__(self, put: Callable[[Port, bytes], None], timers: Timers) -> None:
        self._put = put
        self._timers = timers
        self._held: dict[int, FarPublisher] = {}  # by origin

    def of(self, link: Port, chunk: bytes, ends: list[int], now: Instant) -> list[FarPublisher]:
        """The publishers of a run of whole frames that comes from a neighbour, as far as there is room for them."""
        if len(link.trace) < 2:  # no broker would send that; there is nobody to ask
            return []
        starts = [0, *ends[:-1]]
        origins = dict.fromkeys(ORIGIN.unpack_from(chunk, start + 8)[0] for start in starts)
        found: list[FarPublisher] = []
        for origin in origins:
            far = self._held.get(origin)
            if far is None and len(self._held) + len(found) < HELD_MAX:
                far = FarPublisher(origin, now)
            if far is not None:
                if far.comes_by(link) and far.held_by:
                    self._send(far, Kind.HOLD)  # by the new path: it may have moved to another broker
                found.append(far)
        return found

    def hold(self, far: FarPublisher, now: Instant) -> None:
        """Have it held where it is."""
        if not self._held:
            self._timers.set("far holds", now + REPEAT_NS, self._repeat)
        self._held[far.origin] = far
        self._send(far, Kind.HOLD)

    def release(self, far: FarPublisher) -> None:
        """Have it released."""
        del self._held[far.origin]
        self._send(far, Kind.RELEASE)

    def _send(self, far: FarPublisher, kind: Kind) -> None:
        assert far.by is not None
        self._put(far.by.link, far.frame(kind))

    def _repeat(self, now: Instant) -> None:
        for far in self._held.values():
            self._send(far, Kind.HOLD)
        if self._held:
            self._timers.set("far holds", now + REPEAT_NS, self._repeat)
