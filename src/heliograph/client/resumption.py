"""Resumption: brings a session's state to the broker whose line comes into use.

In:    a line that a broker has welcomed, or that was prepared by a move.
Out:   subscriptions, requests and unconfirmed publications on that line; outcomes of requests that waited for a broker.
State: none.
Not here: each kind of state (the parts that keep it), deciding that a line comes into use (client/handshake.py,
          client/roaming.py).
"""

from __future__ import annotations

from heliograph.client.deliveries import Deliveries
from heliograph.client.dialler import Dialler
from heliograph.client.flushes import Flushes
from heliograph.client.inquiries import Inquiries
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.publisher import Publisher
from heliograph.client.service_requests import ServiceRequests
from heliograph.client.stored.parts import StoreParts
from heliograph.client.subscription_requests import SubscriptionRequests
from heliograph.client.watches import ServiceWatches
from heliograph.errors import Reason, RefusedError
from heliograph.machine import Instant


class Resumption:
    """Resumes one session at one broker after another."""

    def __init__(
        self,
        lines: Lines,
        dialler: Dialler,
        publisher: Publisher,
        subscription_requests: SubscriptionRequests,
        service_requests: ServiceRequests,
        inquiries: Inquiries,
        flushes: Flushes,
        deliveries: Deliveries,
        store_parts: StoreParts,
        watches: ServiceWatches,
    ) -> None:
        self._lines = lines
        self._dialler = dialler
        self._publisher = publisher
        self._subscription_requests = subscription_requests
        self._service_requests = service_requests
        self._inquiries = inquiries
        self._flushes = flushes
        self._deliveries = deliveries
        self._store_parts = store_parts
        self._watches = watches

    def start(self, line: Line, now: Instant) -> None:
        """A broker has welcomed us: subscribe again, and repeat what no broker has confirmed."""
        self._subscription_requests.begin_restoring(line)
        self._lines.use(line)
        self._resume(line, now, planned=False)

    def switch(self, line: Line, now: Instant, *, planned: bool) -> None:
        """A line that rose beside another is now the one in use."""
        if not planned:  # the other line was lost before the move was complete
            self._subscription_requests.begin_restoring(line)
        self._lines.use(line)
        if line.held:
            self._lines.hold(line, False, now)
        self._subscription_requests.settle_all(line)
        self._resume(line, now, planned=planned)
        self._deliveries.deliver_kept(line, now)

    def _resume(self, line: Line, now: Instant, *, planned: bool) -> None:
        assert line.welcome is not None
        repeated = self._publisher.resume(line.welcome, line.seen)
        self._subscription_requests.restore(line, repeated, now, planned=planned)
        self._watches.use(line)
        self._service_requests.ask_waiting(line)
        self._store_parts.resume(now)
        self._dialler.welcomed(line.target, line.welcome)
        if not line.inbox:
            error = RefusedError(Reason.FEATURE_UNSUPPORTED, "this broker has no inboxes for answers")
            self._inquiries.refuse_all(error)
        self._inquiries.publish_waiting(now)
        self._flushes.confirm_soon()
        self._flushes.progressed(now)
