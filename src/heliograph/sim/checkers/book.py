"""The subscriptions that every client should have now, as far as its program knows.

In:    "subscribing", "unsubscribing" and their like.
Out:   ``present``, for the checkers that extend this.
State: per client its subscriptions: number -> filter and condition.
Not here: judging (convergence.py, covered.py); what is due to a subscription (delivery.py).
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import people
from heliograph.sim.selections import Selection


class Book(Checker):
    """Clients that should be there, with their subscriptions."""

    def prepare(self) -> None:
        """No client is there yet."""
        self.people = people(self.scenario)
        self.present: dict[str, dict[int, Selection]] = {}

    def on_started(self, who: str, _incarnation: int) -> None:
        """A client's program begins."""
        if who in self.people:
            self.present[who] = {}

    def on_leaving(self, who: str) -> None:
        """A client's program says goodbye."""
        self.present.pop(who, None)

    def on_crashed(self, who: str, *_: object) -> None:
        """A client is gone, until it is started again."""
        self.present.pop(who, None)

    def on_subscribing(self, who: str, subscription: int, pattern: str, _policy: str, _echo: bool, where: str) -> None:
        """A program asked for publications."""
        self.present[who][subscription] = (pattern, where)

    def on_unsubscribing(self, who: str, subscription: int) -> None:
        """The program ended a subscription."""
        self.present[who].pop(subscription, None)

    def on_refused(self, who: str, what: str, subscription: int, _reason: str) -> None:
        """The broker refused it."""
        if what == "subscribe" and who in self.present:
            self.present[who].pop(subscription, None)
