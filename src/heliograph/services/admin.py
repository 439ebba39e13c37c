"""The admin service: reports, drain and reload for clients with the role admin. The CLI is its first user.

In:    requests of clients, as typed structs; the broker has checked the requester's rights.
Out:   orders to the broker, and their answers back to the requester.
State: how many orders are in progress and were answered.
Not here: carrying an order out (broker/orders.py), access rights (broker/access.py).
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Any

from msgspec import Meta, field

from heliograph.errors import Reason, UsageError
from heliograph.machine import Address, Effects, Instant, LinkId, Machine, Outbox, Peer, SocketName, Ticket
from heliograph.services.broker_session import BrokerSession
from heliograph.services.declared import NoSettings, Service, Surroundings
from heliograph.wire.bodies import Body
from heliograph.wire.frames import Frame
from heliograph.wire.requests import Asker, RequestTypes

NUMBER_MAX = (1 << 62) - 1
GRACE_MS_MAX = 86_400_000  # a day

Host = Annotated[str, Meta(min_length=1, max_length=255)]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class ReportOrder(Body, frozen=True, tag="report", tag_field="do"):
    """Ask for a report; of a long list, for some of its rows."""

    question: str = "overview"
    start: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | None = None
    count: Annotated[int, Meta(ge=1, le=NUMBER_MAX)] | None = None


class TraceOrder(Body, frozen=True, tag="trace", tag_field="do"):
    """Ask which way a publication would take, and why."""

    topic: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    payload: str = ""


class DrainOrder(Body, frozen=True, tag="drain", tag_field="do"):
    """Ask clients to leave, and stop when they are gone or the time is over."""

    grace_ms: Annotated[int, Meta(ge=0, le=GRACE_MS_MAX)] | None = None


class ReloadOrder(Body, frozen=True, tag="reload", tag_field="do"):
    """Read the settings again."""


class LinkOrder(Body, frozen=True, tag="link", tag_field="do"):
    """Keep a link to another broker."""

    host: Host
    port: Port | None = None
    secure: bool = False


class UnlinkOrder(Body, frozen=True, tag="unlink", tag_field="do"):
    """End such a link."""

    host: Host
    port: Port | None = None
    secure: bool = False


AdminOrder = ReportOrder | TraceOrder | DrainOrder | ReloadOrder | LinkOrder | UnlinkOrder
REQUESTS: RequestTypes[AdminOrder] = RequestTypes(AdminOrder, malformed=Reason.QUESTION_UNKNOWN)


class Admin:
    """A machine at the end of a pipe that passes an administrator's requests on to the broker."""

    def __init__(self) -> None:
        self._outbox = Outbox()
        self._session: BrokerSession | None = None
        self._under_way = 0
        self._answered = 0

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached. Without a HELLO the session carries requests only, so its secret is not used."""
        self._session = BrokerSession(
            link, self._outbox, sha256(b"admin").digest(), requests=REQUESTS, serve=self._serve
        )

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached, and with it all requesters."""
        self._session = None
        self._under_way = 0

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Requests from clients, and answers from the broker."""
        if self._session is not None:
            self._session.receive(data, now)
            if self._session.fault is not None:
                self._outbox.hang_up(link, self._session.fault)

    def _serve(self, frame: Frame, order: AdminOrder, asker: Asker, now: Instant) -> None:
        assert self._session is not None
        self._session.pass_on(order, lambda answer, now: self._pass_back(frame, answer))
        self._under_way += 1

    def _pass_back(self, frame: Frame, answer: Frame) -> None:
        assert self._session is not None
        self._under_way -= 1
        self._answered += 1
        self._session.answer(frame, answer.payload, answer.flags)

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
        return {"answered": self._answered, "under_way": self._under_way}


class AdminService(Service[NoSettings]):
    """Every broker has it."""

    name = "admin"
    config = NoSettings

    def build(self, config: NoSettings, around: Surroundings) -> Machine:
        """The machine above."""
        return Admin()

    def requests(self) -> RequestTypes[AdminOrder]:
        """Orders of administrators."""
        return REQUESTS


ADMIN_SERVICE = AdminService()
