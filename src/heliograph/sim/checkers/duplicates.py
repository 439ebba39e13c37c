"""Duplicates: no program gets the same publication twice from one subscription.

In:    "received".
Out:   a violation for each repetition, at the step at which it was read.
State: what each subscription has received.
Not here: publications that never arrived (delivery.py).
Paper: [grid] §1, event-id caches; N6.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker


class Duplicates(Checker):
    """Nothing arrives twice."""

    name = "duplicates"

    def prepare(self) -> None:
        """Nothing has arrived yet."""
        self._received: dict[tuple[str, int, str], dict[int, None]] = {}

    def on_received(
        self, who: str, subscription: int, publisher: str, _session: int, number: int, topic: str, *_: object
    ) -> None:
        """A program read a publication."""
        key = (who, subscription, publisher)
        seen = self._received.get(key)
        if seen is None:
            seen = self._received[key] = {}
        if number in seen:
            self.blame(f"{who} got publication {number} of {publisher} on {topic} twice from one subscription")
        seen[number] = None
