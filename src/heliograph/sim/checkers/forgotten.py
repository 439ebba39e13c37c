"""Forgotten: a broker that was replaced long ago is in nobody's tables any more.

In:    "started"; at the end the brokers' report "map".
Out:   a violation for each broker that still remembers one that is no more.
State: the name that the broker of each host has, and since when names are out of use.
Not here: brokers that are there (maps.py).
Paper: N4; O9, named limits: names that come and go must not fill a map.
"""

from __future__ import annotations

from heliograph.broker.routing.network import FORGET_MS
from heliograph.sim.checkers.base import Checker
from heliograph.sim.loop import MILLISECOND, SECOND

SLACK_MS = 20_000  # it takes a while until the last has noticed
FORGOTTEN_NS = (FORGET_MS + SLACK_MS) * MILLISECOND


class Forgotten(Checker):
    """The dead are let go."""

    name = "forgotten"

    def prepare(self) -> None:
        """Nobody is gone yet."""
        self._names: dict[str, str] = {}
        self._replaced: dict[str, int] = {}  # name -> when somebody else took its place

    def on_started(self, who: str, _incarnation: int) -> None:
        """A broker begins, perhaps in the place of another."""
        if who not in self.scenario.topology.brokers:
            return
        before = self._names.get(who)
        self._names[who] = name = str(self.ask(who, "overview")["broker"])
        if before is not None and before != name:
            self._replaced[before] = self.journal.instant

    def end(self) -> None:
        """Who is remembered for too long?"""
        now = self.journal.instant
        for host in self.scenario.topology.brokers:
            report = self.ask(host, "map")
            for name in report["out_of_reach"] if report is not None else ():
                gone_ns = now - self._replaced.get(name, now)
                if gone_ns > FORGOTTEN_NS:
                    self.blame(f"{host} still remembers {name}, which was replaced {gone_ns // SECOND} s ago")
