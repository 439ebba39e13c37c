"""Forgotten: some time after the last change, brokers keep nothing about brokers that are gone.

In:    faults, links and brokers as they come and go; at the end the brokers' report "map".
Out:   a violation for each broker that still remembers a broker that is out of reach or was replaced.
State: when the network last changed; since when names are out of use.
Not here: whether maps of brokers in reach are right (maps.py), limits of single tables (bounded.py).
Paper: N4; O9, named limits: names that come and go must not fill a map.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.sim.loop import MILLISECOND, SECOND

SLACK_MS = 2_000  # until the last broker has been told what the first has noticed


class Forgotten(Checker):
    """Brokers that are gone are forgotten."""

    name = "forgotten"

    def prepare(self) -> None:
        """No broker is gone yet."""
        topology = self.scenario.topology
        self._kept_ns = (topology.dead_ms + topology.forget_ms + SLACK_MS) * MILLISECOND
        self._changed = 0
        self._names: dict[str, str] = {}
        self._replaced: dict[str, int] = {}  # name -> when another broker took its place

    def on_started(self, who: str, _incarnation: int) -> None:
        """A broker starts, perhaps in place of another."""
        if who not in self.scenario.topology.brokers:
            return
        self._change()
        before = self._names.get(who)
        self._names[who] = name = str(self.ask(who, "overview")["broker"])
        if before is not None and before != name:
            self._replaced[before] = self.journal.instant

    def on_fault(self, _target: str, _kind: str) -> None:
        """A fault began."""
        self._change()

    def on_healed(self, _target: str, _kind: str) -> None:
        """A fault ended."""
        self._change()

    def on_linked(self, _one: str, _other: str) -> None:
        """A link was added."""
        self._change()

    def on_unlinked(self, _one: str, _other: str) -> None:
        """A link was removed."""
        self._change()

    def _change(self) -> None:
        self._changed = self.journal.instant

    def end(self) -> None:
        """Find brokers that were remembered for too long."""
        if self.journal.instant - self._changed <= self._kept_ns:
            self.blame("the run ends before anything has to be forgotten")
            return
        for host in self.scenario.topology.brokers:
            report = self.ask(host, "map")
            if report is not None:
                self._look_at(host, report["remembered"])

    def _look_at(self, host: str, remembered: list[str]) -> None:
        for thing in remembered:
            name = thing.split()[1]
            ago_s = (self.journal.instant - self._replaced.get(name, self._changed)) // SECOND
            why = "was replaced" if name in self._replaced else "has been out of reach since the last change,"
            self.blame(f"{host} still remembers {thing}, which {why} {ago_s} s ago")
