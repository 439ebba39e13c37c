"""Order: what one publisher session publishes reaches each subscription in the order in which it was published.

In:    "published", "received", "detached", "started"; a broker's overview when something came late.
Out:   a violation for each publication that comes after a later one, whatever their topics.
State: per subscription and publisher session the highest number so far; when publications were made and links broke.
Not here: gaps (delivery.py), repetitions (duplicates.py).
Paper: [grid] §1; N11, publisher order.

Order holds on a link. A subscriber that was away may get late what it missed, when a publisher repeats to a new broker
what the old one never confirmed: a publication made before the subscriber's link last broke is excused.

Between brokers a publication may be overtaken when ways change. Then the broker that delivers it has counted it as
late: of the publications that were delivered late by a broker in one life, it must have counted every one.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import people


class Order(Checker):
    """Publisher order holds across topics."""

    name = "order"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._highest: dict[tuple[str, int, str, int], int] = {}
        self._published: dict[tuple[str, int], int] = {}
        self._broke: dict[str, int] = {}
        self._people = people(self.scenario)
        self._late: dict[str, dict[tuple[str, int, int], None]] = {}  # broker -> what it delivered late in this life

    def on_started(self, who: str, _incarnation: int) -> None:
        """A broker, or a client, begins a new life."""
        self._late.pop(who, None)

    def on_published(self, who: str, number: int, _topic: str, *_: object) -> None:
        """A program published."""
        self._published[who, number] = self.journal.instant

    def on_detached(self, who: str, *_: object) -> None:
        """A host lost a link."""
        self._broke[who] = self.journal.instant

    def on_received(
        self, who: str, subscription: int, publisher: str, session: int, number: int, topic: str, *_: object
    ) -> None:
        """A program read a publication."""
        key = (who, subscription, publisher, session)
        before = self._highest.get(key, 0)
        if number > before:
            self._highest[key] = number
        elif number < before and self._published.get((publisher, number), 0) > self._broke.get(who, -1):
            self._came_late(who, publisher, session, number, topic, before)

    def _came_late(self, who: str, publisher: str, session: int, number: int, topic: str, before: int) -> None:
        broker = self._people[who].broker
        late = self._late.setdefault(broker, {})
        late[publisher, session, number] = None
        counted = (self.ask(broker, "overview") or {}).get("late", 0) if self.scenario.topology.links else 0
        if len(late) > counted or self._people[publisher].broker == broker:
            self.blame(f"{who} got publication {number} of {publisher} on {topic} after its publication {before}")
