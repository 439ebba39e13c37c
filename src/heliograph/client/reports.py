"""Reports: what a session says about itself, as plain values.

In:    the parts of a session, read only.
Out:   answers to ``Session.report``.
State: none.
Not here: what the counters mean (the parts that count).
"""

from __future__ import annotations

from typing import Any

from heliograph.client.deliveries import Deliveries
from heliograph.client.inquiries import Inquiries
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.refusals import Losses, Refusals
from heliograph.client.requests import OpenRequests
from heliograph.client.roaming import Roaming
from heliograph.client.subscriptions import LocalSubscription, LocalSubscriptions
from heliograph.client.watches import ServiceWatches


class Reports:
    """Describes one session."""

    def __init__(
        self,
        lines: Lines,
        roaming: Roaming,
        outgoing: Outgoing,
        deliveries: Deliveries,
        subscriptions: LocalSubscriptions,
        requests: OpenRequests,
        inquiries: Inquiries,
        refusals: Refusals,
        losses: Losses,
        watches: ServiceWatches,
    ) -> None:
        self._lines = lines
        self._roaming = roaming
        self._outgoing = outgoing
        self._deliveries = deliveries
        self._subscriptions = subscriptions
        self._requests = requests
        self._inquiries = inquiries
        self._refusals = refusals
        self._losses = losses
        self._watches = watches

    def overview(self) -> dict[str, Any]:
        """The present link, and what the session has done so far."""
        return {"inbox": self._lines.inbox, **self._link(), **self._counts()}

    def subscriptions(self) -> list[dict[str, Any]]:
        """Each subscription, its state on the present line, and its inbox."""
        return [_describe(subscription, self._lines.current) for subscription in self._subscriptions]

    def _link(self) -> dict[str, Any]:
        """The present link and the broker at its end; ``links`` and ``roamed`` count all since the beginning."""
        line = self._lines.current
        welcome = self._lines.welcome if self._lines.is_ready else None
        return {
            "target": None if line is None else str(line.target),
            "broker": None if welcome is None else welcome.broker,
            "entity": None if welcome is None else welcome.entity,
            "roles": [] if welcome is None else list(welcome.roles),
            "links": self._lines.used,
            "held": line is not None and line.held,
            "roaming": self._roaming.is_active,
            "roamed": self._roaming.count,
        }

    def _counts(self) -> dict[str, Any]:
        """What was published, received and lost."""
        reader, directed = self._deliveries.reader, self._subscriptions.directed
        return {
            "published": self._outgoing.assigned,
            "confirmed": self._outgoing.confirmed,
            "outgoing_bytes": self._outgoing.bytes,
            "received": reader.received,
            "duplicates": reader.duplicates,
            "discarded": reader.discarded,
            "lost": dict(self._losses.counts),
            "subscriptions": len(self._subscriptions),
            "requests": len(self._requests),
            "inquiries": len(self._inquiries),
            "watches": len(self._watches),
            "news_unexpected": self._watches.unexpected,
            "directed": {"received": directed.received, "waiting": len(directed), "lost": directed.lost},
            **self._refusals.report(),
        }


def _describe(subscription: LocalSubscription, line: Line | None) -> dict[str, Any]:
    inbox = subscription.inbox
    if subscription.ending:
        stage = "ending"
    elif line is None or subscription.number not in line.asked:
        stage = "wanted"
    else:
        stage = "in_force" if subscription.number in line.in_force else "asked"
    return {
        "number": subscription.number,
        "filter": subscription.filter,
        "policy": subscription.policy.value,
        "echo": subscription.echo,
        "group": subscription.group,
        "language": subscription.language,
        "where": subscription.where,
        "stage": stage,
        "received": inbox.received,
        "waiting": len(inbox),
        "lost": inbox.lost,
    }
