"""Calls to the vault: each commit and read, with the functions to call when it is answered.

In:    changes and queries with two functions; answers by ticket.
Out:   commits and reads in the outbox; the functions called, once each; if they raise, what to do for the peer.
State: calls in progress.
Not here: what is stored (the other files here), the vault (vault.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import Instant, Outbox, Ticket
from heliograph.vault import Append, Change, Query
from heliograph.wire.stores import MAIN

Answered = Callable[[Any, Instant], None]
Unanswered = Callable[[Reason, Instant], None]
Rescue = Callable[[Instant], None]
"""For a call that one peer caused: called if its functions raise, so that only this peer loses something (guard.py).
Without it what raises is our own fault, because the call is about more than one peer."""

BUG = "a bug in this store, which its log describes"  # told to a peer whose request raised


class VaultCalls:
    """The outstanding calls of a store to its vault."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[Ticket, tuple[Answered, Unanswered, Rescue | None]] = {}
        self._adding: dict[Ticket, int] = {}  # records that commits under way add to the log MAIN

    def commit(
        self, changes: Sequence[Change], answered: Answered, unanswered: Unanswered, rescue: Rescue | None = None
    ) -> None:
        """Make a durable change."""
        ticket = self._outbox.commit(changes)
        self._open[ticket] = (answered, unanswered, rescue)
        records = sum(change.count for change in changes if isinstance(change, Append) and change.log == MAIN)
        if records:
            self._adding[ticket] = records

    @property
    def adding(self) -> int:
        """How many records the commits under way will add to the log MAIN. If one of them fails, so do those after."""
        return sum(self._adding.values())

    def read(self, query: Query, answered: Answered, unanswered: Unanswered, rescue: Rescue | None = None) -> None:
        """Read something."""
        self._open[self._outbox.read(query)] = (answered, unanswered, rescue)

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """A call succeeded."""
        answered, _, rescue = self._open.pop(ticket)
        self._adding.pop(ticket, None)
        self._call(answered, result, rescue, now)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """A call failed."""
        _, unanswered, rescue = self._open.pop(ticket)
        self._adding.pop(ticket, None)
        self._call(unanswered, reason, rescue, now)

    def _call(self, call: Callable[[Any, Instant], None], result: Any, rescue: Rescue | None, now: Instant) -> None:
        if rescue is None:
            call(result, now)
            return
        try:
            call(result, now)
        except Exception as error:
            self._outbox.guard.caught("vault's answer", error, now)
            rescue(now)
