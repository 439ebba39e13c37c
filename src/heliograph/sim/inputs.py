"""The inputs of a simulated host, as the network, sockets, disks and workers see it.

In:    nothing: an interface.
Out:   HostInputs, which host.Host implements.
State: none.
Not here: when a host handles an input (host.py), inputs about links (network.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from heliograph.errors import Reason
from heliograph.machine import Instant, Ticket
from heliograph.sim.seat import Seat

Handler = Callable[[Any, Any, Instant], None]
"""Handles an input: called with its subject, its detail and the machine's time."""


class HostInputs(Protocol):
    """A host that runs machines."""

    name: str
    up: bool
    seats: list[Seat]
    settings: Any  # the result of a LoadSettings job

    def offer(self, handler: Handler, subject: Any, detail: Any) -> None:
        """Handle an input now if the host is idle; otherwise it waits for a turn."""

    def tell(self, seat: Seat, command: Any) -> None:
        """Give a machine a command."""

    def fail(self, seat: Seat, ticket: Ticket, reason: Reason) -> None:
        """A promise failed."""

    def finish_job(self, seat: Seat, ticket: Ticket, result: Any) -> None:
        """A promise was kept."""

    def settle(self, seat: Seat, now: Instant) -> None:
        """Carry out a machine's effects before it gets an input that must come after them."""
