"""Deliveries: puts what brokers deliver into the inboxes of subscriptions.

In:    DELIVERY frames; the inboxes' state.
Out:   publications in inboxes; a held line while an inbox is full.
State: the reader.
Not here: taking a frame apart (client/reader.py), queues (client/inbox.py).
"""

from __future__ import annotations

from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.reader import DeliveryReader, prefix_of
from heliograph.client.refusals import Losses
from heliograph.client.requests import OpenRequests
from heliograph.client.subscriptions import ANSWERS, DIRECTED, LocalSubscriptions
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant
from heliograph.model.publication import Publication

UNANSWERED_TIMES = 2  # while an answer is due, the link is held only when an inbox has twice its limit
KEPT_BYTES_MAX = 16 << 20  # deliveries of the next broker that wait for the move; beyond it that move fails


class Deliveries:
    """Puts the deliveries of one session into inboxes."""

    def __init__(
        self, origin: int, subscriptions: LocalSubscriptions, requests: OpenRequests, lines: Lines, losses: Losses
    ) -> None:
        self.reader = DeliveryReader()
        self._origin = origin
        self._subscriptions = subscriptions
        self._requests = requests
        self._lines = lines
        self._losses = losses

    def deliver(self, line: Line, raw: bytes, now: Instant) -> None:
        """Put the publications of a delivery into the inboxes of the subscriptions that it names."""
        if line.rising:
            self._keep(line, raw)
            return
        subscriptions = self._subscriptions
        numbers, lost, start = prefix_of(raw)
        if lost > line.lost:
            self._losses.add("broker", line.newly_lost(lost), now)
        if not numbers:
            self._directed(self.reader.read(raw, start), now)
            return
        named = subscriptions.of(numbers)
        if line is not self._lines.current:  # we have moved: the old line brings only answers
            named = tuple(subscription for subscription in named if subscription.number == ANSWERS)
        if not named:  # ended meanwhile
            return
        share = named[0].number if len(named) == 1 and named[0].group else 0
        publications = self.reader.read(raw, start, share)
        if not publications:
            return
        for subscription in named:
            inbox = subscription.inbox
            wants_own = subscription.echo or subscription.group
            dropped = inbox.put(publications if wants_own else self._without_own(publications))
            subscriptions.news[subscription.number] = inbox
            if dropped:
                self._losses.add("inbox", dropped, now)
            elif inbox.pressing:
                subscriptions.pressing[subscription.number] = subscription

    def _keep(self, line: Line, raw: bytes) -> None:
        """Keep a delivery of the broker to which we are moving until those of the present broker have been read."""
        line.keep(raw)
        if line.kept_bytes > KEPT_BYTES_MAX:
            self._lines.hang_up(line, Reason.GOODBYE, "too much was delivered before the move was complete")

    def deliver_kept(self, line: Line, now: Instant) -> None:
        """The line is now in use: read the deliveries that were kept."""
        try:
            for raw in line.take_kept():
                self.deliver(line, raw, now)
                if line.gone:
                    return
        except ProtocolError as error:
            self._lines.refuse(line, error)

    def _without_own(self, publications: list[Publication]) -> list[Publication]:
        """Without our own publications, which a broker to which we have moved since does not recognise as ours."""
        return [publication for publication in publications if publication.origin != self._origin]

    def _directed(self, publications: list[Publication], now: Instant) -> None:
        if publications:
            directed = self._subscriptions.directed
            dropped = directed.put(publications)
            self._subscriptions.news[DIRECTED] = directed
            if dropped:
                self._losses.add("inbox", dropped, now)

    def review_hold(self, now: Instant) -> None:
        """Stop reading while an inbox is full, so that the broker notices and applies its policy."""
        line = self._lines.current
        pressing = self._subscriptions.pressing
        if line is None or not line.is_ready or not (pressing or line.held):
            return
        times = UNANSWERED_TIMES if len(self._requests) or self._lines.settles else 1
        held = any(times == 1 or subscription.inbox.fills(times) for subscription in pressing.values())
        if held != line.held:
            self._lines.hold(line, held, now)
