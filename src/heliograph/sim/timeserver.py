"""A simulated NTP server: a host whose clock is right, or wrong by as much as the scenario sets.

In:    NTP requests.
Out:   answers, with the server's own time.
State: how far its clock is ahead of the host's monotonic one.
Not here: asking (timekeeping/sntp.py), where servers are and which hosts ask them (topology.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.errors import Reason, UsageError
from heliograph.machine import (
    Address,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    Socket,
    SocketFailed,
    SocketName,
    SocketOpened,
    Ticket,
)
from heliograph.timekeeping.sntp import ANSWER_MODE, PACKET, PORT, ntp_stamp

VERSION_4 = 4 << 3
DISPERSION = 1 << 6  # in 1/65536 s: it states an error of a millisecond
SOCKETS = (Socket(name="ntp", port=PORT),)


class TimeServer:
    """Answers every request at once."""

    def __init__(self, stratum: int = 1) -> None:
        self._stratum = stratum
        self._outbox = Outbox()
        self._ahead_ns: int | None = None

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Answer a request."""
        if self._ahead_ns is None or len(data) != PACKET.size:
            return
        nonce = PACKET.unpack(data)[-1]
        stamp = ntp_stamp(now + self._ahead_ns)
        answer = PACKET.pack(
            VERSION_4 | ANSWER_MODE, self._stratum, 6, -20, 0, DISPERSION, b"SIM", stamp, nonce, stamp, stamp
        )
        self._outbox.datagrams.append((socket, source, answer))

    def clock(self, wall_ns: int, now: Instant) -> None:
        """Its clock is the host's."""
        self._ahead_ns = wall_ns - now

    def tell(self, command: Any, now: Instant) -> None:
        """It has one socket, and is told when it is open."""
        if not isinstance(command, SocketOpened | SocketFailed):
            raise UsageError(f"a time server does not know the command {command!r}")

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """It has no links."""

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """It has no links."""

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """It has no links."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """It has no links."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """It asks for nothing."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """It asks for nothing."""

    def wake(self, now: Instant) -> None:
        """It waits for nothing."""

    def take(self) -> Effects:
        """Its answers."""
        return self._outbox.empty(None)

    def report(self, question: str) -> Any:
        """It has no report."""
        return {}
