"""Kept: what a store acknowledged reaches every durable subscriber that wants it, and publishers come to an end.

In:    "acknowledged", "taken", "missed" and "damaged" of the journal.
Out:   a violation for each exception; there are no excuses.
State: what was told and taken so far.
Not here: the publishers and readers (storing/).
"""

from __future__ import annotations

from heliograph.model.topics import matches
from heliograph.sim.checkers.base import Checker


class Kept(Checker):
    """What a store acknowledged reaches every durable subscriber that wants it, and publishers come to an end."""

    name = "kept"

    def prepare(self) -> None:
        """Nothing was acknowledged yet."""
        self._acknowledged: dict[tuple[int, int], str] = {}  # origin and number -> topic
        self._taken: dict[str, dict[tuple[int, int], None]] = {}
        self._missed: dict[str, int] = {}
        self._damaged = 0

    def on_acknowledged(self, who: str, origin: int, number: int, topic: str) -> None:
        """A store said that it has it."""
        self._acknowledged[(origin, number)] = topic

    def on_taken(self, who: str, store: int, position: int, origin: int, number: int) -> None:
        """A subscriber has it."""
        self._taken.setdefault(who, {})[(origin, number)] = None

    def on_missed(self, who: str, store: int, first: int, end: int) -> None:
        """A subscriber was told of a gap. Only damage of a disk explains one."""
        self._missed[who] = self._missed.get(who, 0) + end - first

    def on_damaged(self, who: str, *_: object) -> None:
        """A fault damaged a record."""
        self._damaged += 1

    def end(self) -> None:
        """Everything that was acknowledged was read, but for what was told to be damaged."""
        self.journal.write("measured", "kept", f"{len(self._acknowledged)} acknowledged")
        for plan in self.scenario.storing:
            if plan.publish:
                report = self.ask(plan.name, "overview")
                if report is not None and "left" in report and (report["left"] or report["waiting"]):
                    self.blame(f"{plan.name} has {report['left']} left and waits for {report['waiting']}")
                continue
            taken = self._taken.get(plan.name, {})
            lost = [
                key
                for key, topic in self._acknowledged.items()
                if key not in taken and matches(plan.read.encode(), topic.encode())
            ]
            missed = self._missed.get(plan.name, 0)
            if missed and not self._damaged:
                self.blame(f"{plan.name} was told of a gap of {missed} though nothing was damaged")
            if len(lost) > missed:
                self.blame(f"{plan.name} never got {len(lost)} that were acknowledged, the first {lost[0]}")
