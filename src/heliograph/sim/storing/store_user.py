"""A user of stores: a machine with a link to one broker; if that fails, to another.

In:    addresses of brokers; the bytes of its broker.
Out:   a session; requests to the service `stores`.
State: the link, the requests under way.
Not here: publishing (publisher.py), reading (reader.py).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Effects, Instant, LinkId, Outbox, Peer, SocketName, Ticket, Timers
from heliograph.model.origin import origin_of
from heliograph.wire import bodies
from heliograph.wire import stores as wire
from heliograph.wire.frames import VERSION, Frame, Kind, ServiceFlag, control, service
from heliograph.wire.limits import FRAME_BYTES_MAX
from heliograph.wire.splitter import FROM_BROKER, Splitter

NS_PER_MS = 1_000_000
AGAIN_NS = 200 * NS_PER_MS
TICK_NS = 500 * NS_PER_MS
SILENT_NS = 6_000 * NS_PER_MS
REQUEST_NS = 3_000 * NS_PER_MS
KEEP_ALIVE_MS = 2_000

Answer = Callable[[dict[str, Any] | None, Instant], None]


class StoreUser:
    """What publishers and readers have in common."""

    def __init__(self, name: str, brokers: list[Address], seed: int) -> None:
        self.name = name
        self.secret = sha256(f"{seed}/{name}".encode()).digest()
        self.origin = origin_of(self.secret)
        self.outbox = Outbox()
        self.timers = Timers()
        self.link: LinkId | None = None
        self.inbox = ""
        self._brokers = brokers
        self._turn = 0
        self._dial: Ticket | None = None
        self._splitter = Splitter()
        self._numbers = 0
        self._asked: dict[int, tuple[Answer, Instant]] = {}
        self._heard_at: Instant = 0

    # -- for publishers and readers -------------------------------------------------------------------------------

    def welcomed(self, now: Instant) -> None:
        """A broker has welcomed us."""

    def tick(self, now: Instant) -> None:
        """Called twice a second while a broker is there."""

    def heard(self, frame: Frame, now: Instant) -> None:
        """Handle a STORED frame."""

    def ask(self, request: bodies.Body, answer: Answer, now: Instant) -> None:
        """Ask the service `stores`; the answer is None if refused or missing."""
        self._numbers += 1
        self._asked[self._numbers] = (answer, now + REQUEST_NS)
        self.write(service(wire.STORES, wire.encode(request), self._numbers))

    def write(self, frame: bytes) -> None:
        """Write a frame to the broker."""
        if self.link is not None:
            self.outbox.writes.append((self.link, [frame]))

    # -- the link -------------------------------------------------------------------------------------------------

    def clock(self, wall_ns: int, now: Instant) -> None:
        """The first reading marks the start."""
        if self.link is None and self._dial is None:
            self._connect(now)

    def _connect(self, now: Instant) -> None:
        if self.link is None and self._dial is None:
            host, port = self._brokers[self._turn % len(self._brokers)]
            self._dial = self.outbox.dial(Dial(host, port))

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """A broker has answered."""
        self._dial = None
        self.link = link
        self._heard_at = now
        self._splitter = Splitter({**FROM_BROKER, Kind.STORED: FRAME_BYTES_MAX})
        hello = bodies.Hello([VERSION], self.secret.hex(), name=self.name, keep_alive_ms=KEEP_ALIVE_MS)
        self.write(control(Kind.HELLO, 0, bodies.encode(hello)))
        self.timers.set("tick", now + TICK_NS, self._tick)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is gone: dial the next one."""
        if link != self.link:
            return
        self.link = None
        self.inbox = ""
        asked, self._asked = self._asked, {}
        for answer, _ in asked.values():
            answer(None, now)
        self._turn += 1
        self.timers.set("connect", now + AGAIN_NS, self._connect)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """No broker answered: dial the next one."""
        if ticket == self._dial:
            self._dial = None
            self._turn += 1
            self.timers.set("connect", now + AGAIN_NS, self._connect)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Read bytes of the broker."""
        if link != self.link:
            return
        self._heard_at = now
        for raw in self._splitter.split(data):
            self._hear(Frame(raw), now)
        assert self._splitter.fault is None, self._splitter.fault

    def _hear(self, frame: Frame, now: Instant) -> None:
        match frame.kind:
            case Kind.WELCOME:
                self.inbox = bodies.decode(bodies.Welcome, frame.payload).inbox
                self.welcomed(now)
            case Kind.PING:
                self.write(control(Kind.PONG, frame.sequence))
            case Kind.STORED:
                self.heard(frame, now)
            case Kind.SERVICE:
                answer, _ = self._asked.pop(frame.sequence, (None, 0))
                if answer is not None:
                    refused = frame.flags & ServiceFlag.REFUSAL
                    answer(None if refused else msgspec.json.decode(frame.payload), now)

    def _tick(self, now: Instant) -> None:
        if self.link is None:
            return
        if now - self._heard_at > SILENT_NS:
            self.outbox.hang_up(self.link, Reason.SILENT)
            return
        self.write(control(Kind.PING, 1))
        for number in [number for number, (_, until) in self._asked.items() if until <= now]:
            self._asked.pop(number)[0](None, now)
        if self.inbox:
            self.tick(now)
        self.timers.set("tick", now + TICK_NS, self._tick)

    # -- the rest of the contract ---------------------------------------------------------------------------------

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """It has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Windows bound what it writes."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing that ends so."""

    def tell(self, command: Any, now: Instant) -> None:
        """A test's own command: a function of the machine."""
        command(self, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self.timers.run(now)

    def take(self) -> Effects:
        """All effects since the last take."""
        return self.outbox.empty(self.timers.next())

    def report(self, question: str) -> Any:
        """Nothing: no checker asks for a report."""
        return {}
