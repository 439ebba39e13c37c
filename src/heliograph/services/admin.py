"""The admin service: reports, drain and reload for clients with the role admin. The CLI is its first user.

In:    SERVICE frames on its pipe; the broker has checked the requester's rights.
Out:   SERVICE frames: orders to the broker, and their answers back to the requester.
State: which orders are in progress.
Not here: carrying an order out (broker/broker.py), access rights (broker/access.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Outbox, Peer, SocketName, Ticket
from heliograph.services.declared import NoSettings, Service, Surroundings
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from heliograph.wire.limits import FRAME_BYTES_MAX
from heliograph.wire.splitter import Splitter

NAME = b"admin"
ACTIONS = ("report", "trace", "drain", "reload", "link", "unlink")

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Admin:
    """A machine at the end of a pipe that passes an administrator's requests on to the broker."""

    def __init__(self) -> None:
        self._outbox = Outbox()
        self._splitters: dict[LinkId, Splitter] = {}
        self._open: dict[int, tuple[int, int]] = {}  # our number -> the requester's link and number
        self._next = 1
        self._answered = 0

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached."""
        self._splitters[link] = Splitter({Kind.SERVICE: FRAME_BYTES_MAX})

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached, and with it all requesters."""
        del self._splitters[link]
        self._open.clear()

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Requests from clients, and answers from the broker."""
        splitter = self._splitters[link]
        for raw in splitter.split(data):
            frame = Frame(raw)
            if frame.flags & ServiceFlag.ANSWER:
                self._pass_back(link, frame)
            else:
                self._ask(link, frame)
        if splitter.fault is not None:
            self._outbox.hang_up(link, splitter.fault)

    def _ask(self, link: LinkId, frame: Frame) -> None:
        try:
            request = _decode(frame.payload)
            if request.get("do") not in ACTIONS:
                raise UsageError(f'"do" must be one of {", ".join(ACTIONS)}')
        except (msgspec.MsgspecError, UsageError, UnicodeDecodeError, RecursionError) as error:
            refusal = bodies.refusal(Reason.QUESTION_UNKNOWN, str(error))
            self._write(link, NAME, refusal, frame.sequence, frame.origin, ServiceFlag.ANSWER | ServiceFlag.REFUSAL)
            return
        number = self._next
        self._next += 1
        self._open[number] = (frame.origin, frame.sequence)
        self._write(link, b"broker", frame.payload, number, 0, 0)

    def _pass_back(self, link: LinkId, frame: Frame) -> None:
        asked = self._open.pop(frame.sequence, None)
        if asked is None:
            return
        asker, number = asked
        self._answered += 1
        self._write(link, NAME, frame.payload, number, asker, frame.flags)

    def _write(self, link: LinkId, name: bytes, body: bytes, number: int, asker: int, flags: int) -> None:
        self._outbox.writes.append((link, [service(name, body, number, asker, flags=flags)]))

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: a pipe is never pressed for long, and answers are few."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def tell(self, command: Any, now: Instant) -> None:
        """Ignored: it takes no commands."""
        raise UsageError(f"the admin service does not know the command {command!r}")

    def clock(self, wall_ns: int, now: Instant) -> None:
        """Ignored: it does not use the time."""

    def wake(self, now: Instant) -> None:
        """Ignored: it sets no timers."""

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(None)

    def report(self, question: str) -> Any:
        """How many orders were passed on and are in progress."""
        if question != "overview":
            raise UsageError("the admin service reports its overview only")
        return {"answered": self._answered, "under_way": len(self._open)}


class AdminService(Service[NoSettings]):
    """Every broker has it."""

    name = "admin"
    config = NoSettings

    def build(self, config: NoSettings, around: Surroundings) -> Machine:
        """The machine above."""
        return Admin()


ADMIN_SERVICE = AdminService()
