"""Ordered: each durable subscriber takes positions of a store, and numbers of a publisher, in rising order.

In:    "acknowledged", "taken", "missed" and "damaged" of the journal.
Out:   a violation for each exception; nothing is excused.
State: what was taken so far.
Not here: the publishers and readers (storing/).
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker


class Ordered(Checker):
    """Each durable subscriber takes positions of a store, and numbers of a publisher, in rising order."""

    name = "ordered"

    def prepare(self) -> None:
        """Nothing was taken yet."""
        self._positions: dict[tuple[str, int], int] = {}
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._wrong = 0

    def on_taken(self, who: str, store: int, position: int, origin: int, number: int) -> None:
        """A subscriber took a publication."""
        if position <= self._positions.get((who, store), -1):
            self._wrong += 1
            self.blame(f"{who} took position {position} of store {store:016x} behind a later one")
        if number <= self._numbers.get((who, store, origin), -1):
            self._wrong += 1
            self.blame(f"{who} took {number} of {origin:016x} behind a later one")
        self._positions[(who, store)] = position
        self._numbers[(who, store, origin)] = number

    def tally(self) -> dict[str, int]:
        """Counts of this run, to be summed over many runs."""
        return {"misordered": self._wrong}
