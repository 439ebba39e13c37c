"""Calls to the vault: each commit and read, with the functions to call when it is answered.

In:    changes and queries with two functions; answers by ticket.
Out:   commits and reads in the outbox; the functions called, once each.
State: calls in progress.
Not here: what is stored (the other files here), the vault (vault.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import Instant, Outbox, Ticket
from heliograph.vault import Change, Query

Answered = Callable[[Any, Instant], None]
Unanswered = Callable[[Reason, Instant], None]


class VaultCalls:
    """The outstanding calls of a store to its vault."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[Ticket, tuple[Answered, Unanswered]] = {}

    def commit(self, changes: Sequence[Change], answered: Answered, unanswered: Unanswered) -> None:
        """Make a durable change."""
        self._open[self._outbox.commit(changes)] = (answered, unanswered)

    def read(self, query: Query, answered: Answered, unanswered: Unanswered) -> None:
        """Read something."""
        self._open[self._outbox.read(query)] = (answered, unanswered)

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A call succeeded."""
        self._open.pop(ticket)[0](result, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A call failed."""
        self._open.pop(ticket)[1](reason, now)
