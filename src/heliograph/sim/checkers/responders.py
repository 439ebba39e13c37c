"""Responders: a request that no subscriber can answer is refused at once, and any other is not.

In:    "inquired", "unanswered"; the subscriptions that every client should have (book.py); "settled", "disturbed".
Out:   a violation for a request that waited although only stores and monitors heard it, or that was refused although a
       subscriber could have answered. Requests made while the network is disturbed, or just after a subscription
       changed, are not judged.
State: when the network settled or subscriptions last changed, and the requests that have no outcome yet.
Not here: whether requests arrive (delivery.py).
Paper: N19.
"""

from __future__ import annotations

from heliograph.errors import Reason
from heliograph.model.topics import matches
from heliograph.sim.checkers.book import Book
from heliograph.sim.loop import SECOND

SPREAD_NS = SECOND  # after a change of subscriptions, all brokers know it by then


class Responders(Book):
    """Requests are refused if and only if no subscriber can answer."""

    name = "responders"

    def prepare(self) -> None:
        """Nothing is settled yet."""
        super().prepare()
        self._calm_since: int | None = None
        self._open: dict[tuple[str, int], tuple[bool, str]] = {}  # request -> whether it can be answered, its topic
        self._away: dict[str, None] = {}  # subscribers without a broker
        self._judged = {True: 0, False: 0}

    def on_settled(self, *_: object) -> None:
        """The brokers agree."""
        self._calm_since = self.journal.instant

    def on_disturbed(self, *_: object) -> None:
        """They may not, from now on: requests under way are not judged."""
        self._calm_since = None
        self._open.clear()

    def _stir(self) -> None:
        """Subscriptions changed."""
        if self._calm_since is not None:
            self._calm_since = self.journal.instant
        self._open.clear()

    def on_subscribed(self, who: str, *_: object) -> None:
        """A subscription is in force at its broker."""
        self._away.pop(who, None)
        self._stir()

    def on_detached(self, who: str, *_: object) -> None:
        """A client lost its broker: its subscriptions are in force again once it is restored."""
        if self.present.get(who):
            self._away[who] = None
            self._stir()

    def on_restored(self, who: str, *_: object) -> None:
        """A client is back with all its subscriptions."""
        self._away.pop(who, None)
        self._stir()

    def on_unsubscribing(self, who: str, subscription: int) -> None:
        """The program ended a subscription."""
        super().on_unsubscribing(who, subscription)
        self._stir()

    def on_inquired(self, who: str, number: int, topic: str) -> None:
        """A program sent a request."""
        calm_since = self._calm_since
        if calm_since is not None and not self._away and self.journal.instant - calm_since >= SPREAD_NS:
            self._open[who, number] = (self._can_be_answered(topic), topic)

    def _can_be_answered(self, topic: str) -> bool:
        return any(
            matches(pattern.encode(), topic.encode()) and (who, number) not in self.listening
            for who, wanted in self.present.items()
            for number, (pattern, _) in wanted.items()
        )

    def on_unanswered(self, who: str, number: int, why: str) -> None:
        """The request has ended."""
        known = self._open.pop((who, number), None)
        if known is None:
            return
        can_be_answered, topic = known
        self._judged[can_be_answered] += 1
        if can_be_answered is (why == Reason.RESPONDERS_MISSING.word):
            others = "a subscriber could answer" if can_be_answered else "no subscriber could answer"
            self.blame(f"request {number} of {who} on {topic} ended with {why}, although {others}")

    def tally(self) -> dict[str, int]:
        """How many requests of each kind were judged."""
        return {"answerable": self._judged[True], "unanswerable": self._judged[False]}
