"""Stations: the smallest machines that speak to a broker. They write raw frames and look at nothing that comes back.

In:    the inputs of a machine.
Out:   a HELLO, then SUBSCRIBE or an EVENT every millisecond of virtual time.
State: a link, a sequence number, bytes received.
Not here: a real client (client/session.py); these cost next to nothing, so that world and brokers are what is measured.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from heliograph.broker.config import DEFAULT_PORT
from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket
from heliograph.model.origin import origin_of
from heliograph.wire import bodies
from heliograph.wire.frames import Kind, control, event

PERIOD_NS = 1_000_000
PAYLOAD = b"x" * 64
NOTHING = Outbox().empty(None)


class Station:
    """Dials its broker and says hello."""

    __slots__ = ("_broker", "_dialled", "bytes_in", "link", "outbox", "secret", "wake_at", "wants")

    def __init__(self, broker: str, name: str) -> None:
        self.outbox = Outbox()
        self.bytes_in = 0
        self.link: LinkId = 0
        self.wake_at: Instant | None = None
        self.secret = sha256(f"{broker}/{name}".encode()).digest()
        self._broker = broker
        self._dialled = False
        self.wants = False  # something, at the next take

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The first input of all: time to begin."""
        if not self._dialled:
            self._dialled = True
            self.outbox.dial(Dial(self._broker, DEFAULT_PORT))
            self.wants = True

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """Say hello."""
        self.link = link
        hello = bodies.Hello(versions=[1], secret=self.secret.hex(), keep_alive_ms=120_000)
        self.outbox.writes.append((link, [control(Kind.HELLO, 0, bodies.encode(hello))]))
        self.wants = True

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Count."""
        self.bytes_in += len(data)

    def take(self) -> Effects:
        """What is wanted; mostly nothing, which is one and the same object."""
        if not self.wants:
            return NOTHING
        self.wants = self.wake_at is not None
        return self.outbox.empty(self.wake_at)

    def wake(self, now: Instant) -> None:
        """Nothing to do."""

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """It has no socket."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """It does not come back."""
        self.wake_at = None

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """It never writes that much."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """It does not try again."""

    def tell(self, command: Any, now: Instant) -> None:
        """It takes no commands."""

    def report(self, question: str) -> Any:
        """What it has received."""
        return {"bytes_in": self.bytes_in}


class Subscriber(Station):
    """Wants everything that a filter matches."""

    __slots__ = ("_pattern",)

    def __init__(self, broker: str, pattern: str, number: int) -> None:
        super().__init__(broker, f"subscriber/{pattern}/{number}")
        self._pattern = pattern

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """Say hello and subscribe."""
        super().attach(link, peer, now)
        body = bodies.encode(bodies.Subscribe(number=1, filter=self._pattern))
        self.outbox.writes[-1][1].append(control(Kind.SUBSCRIBE, 1, body))


class Publisher(Station):
    """Publishes every millisecond."""

    __slots__ = ("_number", "_origin", "_sequence", "_topic")

    def __init__(self, broker: str, topic: bytes, number: int) -> None:
        super().__init__(broker, f"publisher/{number}")
        self._topic = topic
        self._origin = origin_of(self.secret)
        self._sequence = 0
        self._number = number

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """Say hello, and publish from then on; not all publishers at the same instant."""
        super().attach(link, peer, now)
        self.wake_at = now + PERIOD_NS * (100 + self._number) // 10

    def wake(self, now: Instant) -> None:
        """Publish."""
        self._sequence += 1
        self.outbox.writes.append((self.link, [event(self._topic, PAYLOAD, self._origin, self._sequence)]))
        self.wake_at = now + PERIOD_NS
