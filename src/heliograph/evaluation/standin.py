"""A stand-in for a broker: attached to a real responder, it only spreads the requests of broker discovery.

In:    frames of its responder on the pipe; datagrams of neighbours.
Out:   the topic's publications to its responder and, once each, to its other neighbours; answers about usage.
State: the ids of the publications that it has seen, its responder's subscription.
Not here: the responder (discovery/brokers/responder.py), brokers (broker/): ten thousand of these would not fit.

For discovery, a network of brokers delivers each publication on one topic to all of them once. Brokers send it along
shortest paths; stand-ins flood, so more is sent and nothing arrives later. Their network time is given, with an error,
instead of being agreed on.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import msgspec

from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.brokers.messages import REQUEST_TOPIC
from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Outbox, Peer, Socket, SocketName, Ticket
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, ServiceFlag, delivery, service
from heliograph.wire.limits import FRAME_BYTES_MAX
from heliograph.wire.splitter import Splitter

PORT = 4_716
SOCKET = "neighbours"
FROM_SERVICE: dict[int, int] = dict.fromkeys((Kind.HELLO, Kind.SUBSCRIBE, Kind.SERVICE, Kind.EVENT), FRAME_BYTES_MAX)
ERROR_NS = 5_000_000  # the bound that it claims for its network time
SEEN_MAX = 1_000  # the newest publications, whose repeats are recognised


class StandIn:
    """A machine in place of a broker."""

    def __init__(self, name: str, neighbours: tuple[str, ...], brokers: int, ahead_ns: int) -> None:
        """``ahead_ns``: the lead of its host's wall clock over this broker's network time."""
        self._outbox = Outbox()
        self._splitter = Splitter(FROM_SERVICE)
        self._pipe: LinkId | None = None
        self._subscription = 0
        self._neighbours = neighbours
        self._seen: dict[tuple[int, int], None] = {}
        self.forwarded = 0
        self._usage = {
            "addresses": [f"heliograph://{name}:{DEFAULT_PORT}"],
            "connections": 0,
            "links": len(neighbours),
            "full": False,
            "draining": False,
            "address": "",
            "network": "",
            "island": "all",
            "brokers": brokers,
            "linking": 0,
        }
        self._ahead_ns = ahead_ns
        self._time: dict[str, Any] = {}

    @staticmethod
    def sockets(host: str) -> tuple[Socket, ...]:
        """Where its neighbours reach it."""
        return (Socket(name=SOCKET, host=host, port=PORT),)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """Its responder is attached."""
        self._pipe = link

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Frames from the responder."""
        for raw in self._splitter.split(data):
            frame = Frame(raw)
            match frame.kind:
                case Kind.SUBSCRIBE:
                    body = bodies.decode(bodies.Subscribe, frame.payload)
                    if body.filter.encode() == REQUEST_TOPIC:
                        self._subscription = body.number
                case Kind.SERVICE if self._time:  # it is ready only once it knows the time; it will be asked again
                    answer = msgspec.json.encode(self._usage | {"time": self._time})
                    self._write(service(frame.topic, answer, frame.sequence, flags=ServiceFlag.ANSWER))
                case Kind.EVENT if frame.topic == REQUEST_TOPIC:
                    self._pass_on(frame, "")

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """A publication from a neighbour."""
        frame = Frame(data)
        if self._pass_on(frame, source[0]):
            self._write(delivery(pack("<I", self._subscription), len(data), 0) + data)

    def _pass_on(self, frame: Frame, last_hop: str) -> bool:
        """Send it to all neighbours but the one it came from. Returns False if it was seen before."""
        id = (frame.origin, frame.sequence)
        if id in self._seen:
            return False
        self._seen[id] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        for neighbour in self._neighbours:
            if neighbour != last_hop:
                self.forwarded += 1
                self._outbox.datagrams.append((SOCKET, (neighbour, PORT), frame.raw))
        return True

    def _write(self, frame: bytes) -> None:
        if self._pipe is not None:
            self._outbox.writes.append((self._pipe, [frame]))

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """Its responder is detached."""
        self._pipe = None

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: a pipe is never full for long."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """Ignored: it requests nothing."""

    def tell(self, command: Any, now: Instant) -> None:
        """Ignored: its address, and that its socket is open, are known."""

    def clock(self, wall_ns: int, now: Instant) -> None:
        """Network time, as a broker would report it."""
        self._time = {
            "synchronised": True,
            "at_ns": now,
            "time_ns": wall_ns - self._ahead_ns,
            "slope_ppm": 0,
            "error_ns": ERROR_NS,
            "error_growth_ppm": 50,
        }

    def wake(self, now: Instant) -> None:
        """Ignored: it sets no timers."""

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(None)

    def report(self, question: str) -> Any:
        """How much it has passed on."""
        if question != "overview":
            raise UsageError("a stand-in reports its overview only")
        return {"forwarded": self.forwarded}
