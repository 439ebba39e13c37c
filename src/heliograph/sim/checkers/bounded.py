"""Bounded: no table or queue of a broker grows beyond its limit.

In:    the brokers' reports "overview", "links", "map" and "limits", at intervals.
Out:   a violation when something is above its limit.
State: none.
Not here: memory of the process (measured by a benchmark).
Paper: N15, a slow consumer cannot exhaust a broker's memory; O9, named limits.
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.config import NetworkConfig
from heliograph.broker.routing.ports import UNCONFIRMED_BYTES_MAX
from heliograph.sim.checkers.base import Checker
from heliograph.wire.broker_bodies import MEMBERS_MAX
from heliograph.wire.limits import PARCEL_BYTES_MAX

AT_ONCE_MAX = 3  # brokers checked each time

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

    def prepare(self) -> None:
        """No broker was checked yet."""
        self._looks = 0

    def look(self) -> None:
        """Compare tables and queues with their limits; where there are many brokers, a few at a time."""
        brokers = list(self.scenario.topology.brokers)
        count = min(len(brokers), AT_ONCE_MAX)
        for number in range(count):
            self._compare_all(brokers[(self._looks + number) % len(brokers)])
        self._looks = (self._looks + count) % len(brokers)

    def end(self) -> None:
        """Check all brokers once more."""
        for broker in self.scenario.topology.brokers:
            self._compare_all(broker)

    def _compare_all(self, broker: str) -> None:
        limits = self.ask(broker, "limits")
        if limits is None:
            return
        self._compare(broker, self.ask(broker, "overview"), TABLES, limits)
        for link in self.ask(broker, "links"):
            self._compare(f"{broker}: link {link['link']} ({link['name']})", link, QUEUES, limits)
        if self.scenario.topology.links:
            self._compare_map(broker, self.ask(broker, "map"))

    def _compare_map(self, broker: str, report: dict[str, Any]) -> None:
        """What a broker keeps about others: interests, and what each neighbour has not confirmed."""
        for row in report["neighbours"]:
            if row["unconfirmed_bytes"] > UNCONFIRMED_BYTES_MAX + PARCEL_BYTES_MAX:
                self.blame(f"{broker}: {row['unconfirmed_bytes']} bytes wait for {row['broker']} to confirm them")
        in_cluster = [row for row in report["members"] if row["cost"] is not None]
        if len(in_cluster) > MEMBERS_MAX:
            self.blame(f"{broker}: {len(in_cluster)} members, above {MEMBERS_MAX}")
        most = NetworkConfig().interests_max
        for row in [*report["members"], *report["clusters"]]:
            if max(row["interests"], row["listening"]) > most:
                told = f"{row['interests']} and {row['listening']} interests"
                self.blame(f"{broker}: {told} of one owner, above interests_max = {most}")

    def _compare(self, what: str, report: dict[str, Any], names: dict[str, str], limits: dict[str, int]) -> None:
        for name, limit in names.items():
            if report[name] > limits[limit]:
                self.blame(f"{what}: {name} is {report[name]}, above {limit} = {limits[limit]}")
