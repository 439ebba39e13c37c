"""Kept: what a store acknowledged reaches every durable subscriber that wants it, and publishers finish.

In:    "acknowledged", "taken", "missed" and "damaged" of the journal.
Out:   a violation for each exception; nothing is excused.
State: what was acknowledged and taken so far.
Not here: the publishers and readers (storing/).
"""

from __future__ import annotations

from heliograph.model.topics import matches
from heliograph.sim.checkers.base import Checker
from heliograph.wire.stores import MAIN


class Kept(Checker):
    """What a store acknowledged reaches every durable subscriber that wants it, and publishers finish."""

    name = "kept"

    def prepare(self) -> None:
        """Nothing was acknowledged yet."""
        self._acknowledged: dict[tuple[int, int], str] = {}  # origin and number -> topic
        self._taken: dict[str, dict[tuple[int, int], None]] = {}
        self._missed: dict[str, dict[tuple[int, int], None]] = {}  # reader -> store and position
        self._damaged: dict[int, None] = {}  # positions of the log `main`, of any store
        self._by: dict[str, int] = {}  # publisher -> how many were acknowledged
        self._lost = 0

    def on_acknowledged(self, who: str, origin: int, number: int, topic: str) -> None:
        """A store acknowledged a publication."""
        self._acknowledged[(origin, number)] = topic
        self._by[who] = self._by.get(who, 0) + 1

    def on_taken(self, who: str, store: int, position: int, origin: int, number: int) -> None:
        """A subscriber took a publication."""
        self._taken.setdefault(who, {})[(origin, number)] = None

    def on_missed(self, who: str, store: int, first: int, end: int) -> None:
        """A subscriber was told of a gap. Only damage to a disk explains one."""
        missed = self._missed.setdefault(who, {})
        for position in range(first, end):
            missed[(store, position)] = None
            if position not in self._damaged:
                self.blame(f"{who} was told that position {position} cannot be read, which was not damaged")

    def on_damaged(self, who: str, vault: str, log: str, position: int, count: int) -> None:
        """A fault damaged a run."""
        if log == MAIN:
            self._damaged.update(dict.fromkeys(range(position, position + count)))

    def end(self) -> None:
        """Everything acknowledged was read, except what was reported as damaged."""
        self.journal.write("measured", "kept", f"{len(self._acknowledged)} acknowledged")
        for plan in self.scenario.storing:
            if plan.publish:
                if self._by.get(plan.name, 0) < plan.count:
                    self.blame(f"{plan.name} was told of {self._by.get(plan.name, 0)} of its {plan.count}")
                continue
            taken = self._taken.get(plan.name, {})
            lost = [
                key
                for key, topic in self._acknowledged.items()
                if key not in taken and matches(plan.read.encode(), topic.encode())
            ]
            if len(lost) > len(self._missed.get(plan.name, {})):
                self._lost += len(lost)
                self.blame(f"{plan.name} never got {len(lost)} that were acknowledged, the first {lost[0]}")

    def tally(self) -> dict[str, int]:
        """Counts of this run, to be summed over many runs."""
        return {"acknowledged": len(self._acknowledged), "lost": self._lost}
