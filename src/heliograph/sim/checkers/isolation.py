"""Isolation: a subscription gets only what its filter, condition and rights allow, unaltered.

In:    "published", "subscribing", "received".
Out:   a violation for each publication that should not have been delivered, or was altered.
State: what was published, and every subscription's filter and condition.
Not here: publications that never arrived (delivery.py).
Paper: [grid] §1, interests; T11, denied actions spread nowhere.
"""

from __future__ import annotations

from heliograph.model.publication import Headers
from heliograph.model.topics import matches
from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import may, people
from heliograph.sim.selections import comparisons_of, fits


class Isolation(Checker):
    """No subscriber gets publications that it should not get."""

    name = "isolation"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._people = people(self.scenario)
        self._published: dict[tuple[str, int], tuple[str, bytes, Headers]] = {}
        self._wanted: dict[tuple[str, int], tuple[str, bool, str]] = {}
        self._verdicts: dict[tuple[str, int, str, str], str | None] = {}

    def on_published(self, who: str, number: int, topic: str, payload: bytes, headers: Headers) -> None:
        """A program published."""
        self._published[who, number] = (topic, payload, headers)

    def on_subscribing(
        self, who: str, subscription: int, pattern: str, _policy: str, echo: bool, where: str, _listens: bool = False
    ) -> None:
        """A program subscribed."""
        self._wanted[who, subscription] = (pattern, echo, where)

    def on_received(
        self,
        who: str,
        subscription: int,
        publisher: str,
        _session: int,
        number: int,
        topic: str,
        payload: bytes,
        headers: Headers,
    ) -> None:
        """A program read a publication."""
        if self._published.get((publisher, number)) != (topic, payload, headers):
            self.blame(f"{who} got publication {number} of {publisher!r} on {topic}, which no client published so")
            return
        key = (who, subscription, publisher, topic)
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(*key)
        verdict = self._verdicts[key]
        where = self._wanted[who, subscription][2]
        if verdict is None and not fits(comparisons_of(where), headers):
            verdict = f"it asked for {where}, and that has {headers}"
        if verdict is not None:
            self.blame(f"{who} got publication {number} of {publisher} on {topic}, but {verdict}")

    def _judge(self, who: str, subscription: int, publisher: str, topic: str) -> str | None:
        pattern, echo, _ = self._wanted[who, subscription]
        if not matches(pattern.encode(), topic.encode()):
            return f"it subscribed to {pattern}"
        if publisher == who and not echo:
            return "it asked not to get its own"
        if self._people[publisher].broker != self._people[who].broker and not self.scenario.topology.links:
            return "their brokers are not linked"
        if not may(self.scenario, self._people[publisher], "publish", topic):
            return f"{publisher} may not publish there"
        if not may(self.scenario, self._people[who], "subscribe", topic):
            return f"{who} may not subscribe there"
        return None
