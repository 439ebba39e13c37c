"""Order: what one publisher session publishes reaches each subscription in the order in which it was published.

In:    "received".
Out:   a violation for each publication that comes after a later one, whatever their topics.
State: per subscription and publisher session the highest number so far.
Not here: gaps (delivery.py), repetitions (duplicates.py).
Paper: [grid] §1; N11, publisher order.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker


class Order(Checker):
    """Publisher order holds across topics."""

    name = "order"

    def prepare(self) -> None:
        """Nothing has arrived yet."""
        self._highest: dict[tuple[str, int, str, int], int] = {}

    def on_received(
        self, who: str, subscription: int, publisher: str, session: int, number: int, topic: str, _payload: bytes
    ) -> None:
        """A program read a publication."""
        key = (who, subscription, publisher, session)
        before = self._highest.get(key, 0)
        if number > before:
            self._highest[key] = number
        elif number < before:
            self.blame(f"{who} got publication {number} of {publisher} on {topic} after its publication {before}")
