"""Bounded: no table or queue of a broker grows beyond its limit.

In:    the brokers' reports "overview", "links" and "limits", again and again.
Out:   a violation when something is above its limit.
State: none.
Not here: memory of the process (a benchmark's matter).
Paper: N15, a slow consumer cannot exhaust a broker's memory; O9, named limits.
"""

from __future__ import annotations

from typing import Any

from heliograph.sim.checkers.base import Checker

TABLES = {  # in the overview -> the limit
    "links": "links_max",
    "subscriptions": "subscriptions_max",
    "origins": "origins_max",
    "routes_cached": "routes_max",
}
QUEUES = {  # per link -> the limit
    "backlog_frames": "queue_frames_max",
    "backlog_bytes": "queue_bytes_max",
    "subscriptions": "subscriptions_per_link_max",
}


class Bounded(Checker):
    """Limits hold."""

    name = "bounded"

    def look(self) -> None:
        """Compare every broker's tables and queues with its limits."""
        for broker in self.scenario.topology.brokers:
            limits = self.ask(broker, "limits")
            if limits is None:
                continue
            self._compare(broker, self.ask(broker, "overview"), TABLES, limits)
            for link in self.ask(broker, "links"):
                self._compare(f"{broker}: link {link['link']} ({link['name']})", link, QUEUES, limits)

    def end(self) -> None:
        """Also at the end."""
        self.look()

    def _compare(self, what: str, report: dict[str, Any], names: dict[str, str], limits: dict[str, int]) -> None:
        for name, limit in names.items():
            if report[name] > limits[limit]:
                self.blame(f"{what}: {name} is {report[name]}, above {limit} = {limits[limit]}")
