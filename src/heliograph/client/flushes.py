"""Flushes: requests that end when a broker has confirmed what was published, and the drain that ends a session.

In:    Flush and Drain commands; confirmations of brokers and of stores.
Out:   settled requests; the end of a session that has drained.
State: open flushes, each with the sequence that has to be confirmed; the drain.
Not here: confirmations themselves (client/outgoing.py), unsubscribing before a drain (client/session.py).
"""

from __future__ import annotations

from heliograph.client.commands import Drain, EndSession, Flush, Request
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.refusals import Refusals
from heliograph.client.requests import OpenRequests
from heliograph.client.stored.parts import StoreParts
from heliograph.client.subscriptions import LocalSubscriptions
from heliograph.machine import Instant


class Flushes:
    """The open flushes and the drain of one session."""

    def __init__(
        self,
        requests: OpenRequests,
        outgoing: Outgoing,
        refusals: Refusals,
        subscriptions: LocalSubscriptions,
        lines: Lines,
        store_parts: StoreParts,
        end_session: EndSession,
    ) -> None:
        self._requests = requests
        self._outgoing = outgoing
        self._refusals = refusals
        self._subscriptions = subscriptions
        self._lines = lines
        self._store_parts = store_parts
        self._end_session = end_session
        self._sequences: dict[Request, tuple[int, int]] = {}  # of each open flush: what must be confirmed, and stored
        self._drain_request = 0
        self.is_draining = False

    def flush(self, command: Flush, now: Instant) -> None:
        """Wait until everything published so far is confirmed."""
        request = command.request
        self._requests.open(request, now, lambda now: self._forget(request))
        self._sequences[request] = (self._outgoing.assigned, self._store_parts.mark)
        self._review_flushes(now)
        if request in self._sequences:
            self._lines.confirm_soon()

    def drain(self, command: Drain, now: Instant) -> None:
        """Wait until everything is confirmed and every subscription has ended; then end the session."""
        self._requests.open(command.request, now, lambda now: self._end_session(None, now))
        self.is_draining = True
        self._drain_request = command.request

    def confirm_soon(self) -> None:
        """A broker is there again: ask it to confirm what is awaited."""
        if self._sequences or self.is_draining:
            self._lines.confirm_soon()

    def confirmed(self, sequence: int, now: Instant) -> None:
        """The broker has routed everything up to this sequence."""
        self._outgoing.confirm(sequence)
        self.progressed(now)

    def progressed(self, now: Instant) -> None:
        """The broker confirmed or answered something."""
        if self._sequences:
            self._review_flushes(now)
        if self.is_draining:
            self._requests.extend(self._drain_request, now)
            self.review_drain(now)

    def review(self, now: Instant) -> None:
        """Time has passed: reliable publications may have failed."""
        if self._sequences:
            self._settle_finished()
        self.review_drain(now)

    def _review_flushes(self, now: Instant) -> None:
        self._settle_finished()
        for request in self._sequences:
            self._requests.extend(request, now)

    def _settle_finished(self) -> None:
        confirmed = self._outgoing.confirmed
        durable = self._store_parts.is_durable
        finished = [
            request for request, (sequence, mark) in self._sequences.items() if durable(mark) and sequence <= confirmed
        ]
        error = self._refusals.flushed() if finished else None
        for request in finished:
            del self._sequences[request]
            self._requests.settle(request, error=error)

    def _forget(self, request: Request) -> None:
        self._sequences.pop(request, None)

    def review_drain(self, now: Instant) -> None:
        """End the session once everything is confirmed and nothing more can arrive."""
        empty = not len(self._subscriptions) and not self._outgoing.bytes
        if self.is_draining and empty and self._store_parts.is_idle:
            error = self._refusals.flushed()
            self._requests.settle(self._drain_request, error=error)
            self._end_session(None, now)
