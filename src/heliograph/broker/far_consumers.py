"""Far consumers: holds our publishers for slow consumers at other brokers.

In:    HOLD and RELEASE frames; neighbours that are gone; time.
Out:   holds and releases of clients that agreed to wait; the frames that are for other brokers.
State: which broker has which of our publishers held, and by which neighbour it said so.
Not here: asking for it (far_publishers.py), holding itself (links.py).

A HOLD goes to the broker where the publications entered its cluster. If they came from another cluster, that broker
passes it on, back along the path by which they came.
"""

from __future__ import annotations

from heliograph.broker.far_publishers import LEASE_NS
from heliograph.broker.links import Links
from heliograph.broker.routing.ports import READY, Neighbour, Port
from heliograph.broker.routing.view import View
from heliograph.broker.routing.way_back import way_back
from heliograph.broker.sessions import Sessions
from heliograph.errors import Reason
from heliograph.machine import Instant, Peer, Timers
from heliograph.wire import broker_bodies as wire
from heliograph.wire.frames import Frame, Kind, control

HELD_MAX = 65_536  # pairs of a broker and a publisher of ours that it has held


class FarConsumers:
    """Slow consumers at other brokers, for which our publishers wait."""

    def __init__(self, view: View, sessions: Sessions, links: Links, timers: Timers) -> None:
        self._view = view
        self._sessions = sessions
        self._links = links
        self._timers = timers
        self._slow: dict[tuple[int, int], Port] = {}  # (broker, origin) -> stands for its consumers
        self._by: dict[tuple[int, int], Neighbour] = {}  # … and the neighbour by which it asked

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """A HOLD or RELEASE, for us or to be passed on."""
        asked = wire.decode_hold(frame.payload)
        assert link.neighbour is not None
        if asked.broker != self._view.me:
            self._pass_on(frame.kind, asked.broker, asked, asked.way)
            return
        publisher = self._sessions.by_origin(asked.origin)
        key = (asked.by, asked.origin)
        if publisher is None:
            seen = self._sessions.origins.known(asked.origin, now)
            if seen is not None and seen.trace:
                self._pass_on(frame.kind, seen.trace[0], asked, list(seen.trace[:-1]))
        elif frame.kind == Kind.RELEASE:
            self._release(key)
        elif publisher.may_be_held and publisher.state == READY:
            self._hold(key, publisher, link.neighbour, now)

    def _pass_on(self, kind: int, broker: int, asked: wire.HoldOrigin, passed: list[int]) -> None:
        neighbour, way = way_back(self._view, broker, passed)
        if neighbour is not None and asked.ttl > 0:
            body = wire.HoldOrigin(broker, asked.by, asked.origin, asked.ttl - 1, way)
            self._links.put(neighbour.link, control(Kind(kind), 0, wire.encode(body)))

    def _hold(self, key: tuple[int, int], publisher: Port, by: Neighbour, now: Instant) -> None:
        slow = self._slow.get(key)
        if slow is None:
            if len(self._slow) >= HELD_MAX:
                self._links.count(Reason.REQUESTS_OVER_LIMIT)
                return
            slow = self._slow[key] = Port(0, Peer("far", ""), now)
        self._by[key] = by
        self._links.hold(publisher, slow, now)
        self._timers.set(("far consumer", *key), now + LEASE_NS, lambda _: self._release(key))

    def _release(self, key: tuple[int, int]) -> None:
        slow = self._slow.pop(key, None)
        if slow is not None:
            del self._by[key]
            self._timers.cancel(("far consumer", *key))
            self._links.release(slow)

    def lose(self, neighbour: Neighbour) -> None:
        """A neighbour is gone: its RELEASE would not arrive. If the consumer is slow, a HOLD comes another way."""
        for key in [key for key, by in self._by.items() if by is neighbour]:
            self._release(key)
