"""Once: no durable subscriber takes a publication twice, even across its own crashes.

In:    "acknowledged", "taken", "missed" and "damaged" of the journal.
Out:   a violation for each exception; nothing is excused.
State: what was taken so far.
Not here: the publishers and readers (storing/).
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker


class Once(Checker):
    """No durable subscriber takes a publication twice, even across its own crashes."""

    name = "once"

    def prepare(self) -> None:
        """Nothing was taken yet."""
        self._taken: dict[tuple[str, int, int], int] = {}
        self._places: dict[tuple[str, int, int], None] = {}
        self._repeats = 0

    def on_taken(self, who: str, store: int, position: int, origin: int, number: int) -> None:
        """A subscriber took a publication."""
        before = self._taken.setdefault((who, origin, number), position)
        if before != position or (who, store, position) in self._places:
            self._repeats += 1
            self.blame(f"{who} took {number} of {origin:016x} twice, at positions {before} and {position}")
        self._places[(who, store, position)] = None

    def tally(self) -> dict[str, int]:
        """Counts of this run, to be summed over many runs."""
        return {"duplicated": self._repeats}
