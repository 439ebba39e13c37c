"""The base of all checkers: watches the journal, asks machines for reports, and reports violations.

In:    entries of the journal, by kind: a method ``on_KIND(who, *details)`` is called with each; the scenario.
Out:   violations, each with the step and instant at which it was noticed.
State: per checker.
Not here: the checkers (one file each), the list of all (__init__.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.sim.journal import KINDS, Journal
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Scenario

VIOLATIONS_MAX = 50  # per checker: more would not tell anything new

Ask = Callable[[str, str], Any]
"""A host's report: (host, question) -> plain values; None while the host does not run."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    checker: str
    step: int
    instant: int
    text: str

    def __str__(self) -> str:
        return f"{self.checker} at step {self.step}, {self.instant / SECOND:.6f} s: {self.text}"


class Checker:
    """Base of all checkers. They see the world only through its journal and its machines' reports."""

    name = ""

    def __init__(self, scenario: Scenario, journal: Journal, ask: Ask) -> None:
        self.scenario = scenario
        self.journal = journal
        self.ask = ask
        self.violations: list[Violation] = []
        self.prepare()
        for kind in KINDS:
            watcher = getattr(self, f"on_{kind}", None)
            if watcher is not None:
                journal.watch(kind, watcher)

    def prepare(self) -> None:
        """Set up state."""

    def look(self) -> None:
        """Called every quarter of a virtual second."""

    def end(self) -> None:
        """Called when the run is over."""

    def tally(self) -> dict[str, int]:
        """Counts of this run, to be summed over many runs."""
        return {}

    def blame(self, text: str, step: int | None = None, instant: int | None = None) -> None:
        """Report a violation; step and instant are the present ones unless given."""
        if len(self.violations) < VIOLATIONS_MAX:
            now = self.journal
            self.violations.append(
                Violation(
                    self.name, now.step if step is None else step, now.instant if instant is None else instant, text
                )
            )
