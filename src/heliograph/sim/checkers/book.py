"""The subscriptions that every client should have now, according to its program.

In:    "subscribing", "unsubscribing" and similar entries.
Out:   ``present``, for the checkers that extend this class.
State: per client its subscriptions: number -> filter and condition; which of them only listen.
Not here: judging (convergence.py, covered.py); what a subscription must receive (delivery.py).
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import people
from heliograph.sim.selections import Selection


class Book(Checker):
    """Clients that should be present, with their subscriptions."""

    def prepare(self) -> None:
        """No client is present yet."""
        self.people = people(self.scenario)
        self.present: dict[str, dict[int, Selection]] = {}
        self.listening: dict[tuple[str, int], None] = {}  # of all subscriptions ever, those that only listen

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

    def on_subscribing(
        self, who: str, subscription: int, pattern: str, _policy: str, _echo: bool, where: str, listens: bool = False
    ) -> None:
        """A program subscribed."""
        self.present[who][subscription] = (pattern, where)
        if listens:
            self.listening[who, subscription] = None

    def on_unsubscribing(self, who: str, subscription: int) -> None:
        """The program ended a subscription."""
        self.present[who].pop(subscription, None)

    def on_refused(self, who: str, what: str, subscription: int, _reason: str) -> None:
        """The broker refused it."""
        if what == "subscribe" and who in self.present:
            self.present[who].pop(subscription, None)
