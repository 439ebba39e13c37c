"""Ways: in a settled network a publication goes only where it is wanted, along a path that is nearly the shortest.

In:    "published", "subscribing", "carried", "settled"; the brokers' maps.
Out:   a violation for each broker that saw a publication without being a target or on the path to one, for each link
       that carried one twice, and if paths are too long; "measured": their length.
State: what was published since the network settled, and which brokers it reached.
Not here: publications that did not arrive (delivery.py), whether maps are right (maps.py).
Paper: [grid] §1.2, dissemination along shortest paths; N5.

For scenarios without faults and with constant subscriptions. Costs may change and links may be added, but publications
made before the last broker has changed its paths, and for CALM after that, are ignored. The path of a publication is
found as brokers find it: each names its next neighbour. Its cost is compared with the shortest path in the graph of all
links, at the costs that their ends measured.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from heliograph.broker.routing.map import shortest
from heliograph.model.topics import matches
from heliograph.sim.checkers.base import Checker
from heliograph.sim.checkers.rules import people
from heliograph.sim.loop import SECOND

PAIRS_MAX = 4_000  # pairs of brokers whose paths are measured
STRETCH_MAX = 1.7  # a cluster is entered at one gateway, and costs between gateways are told in steps
QUANTILE = 0.95
HOPS_MAX = 64
CALM_NS = SECOND // 2  # for this long, publications under way may be held back


class Ways(Checker):
    """Publications take no detours."""

    name = "ways"

    def prepare(self) -> None:
        """Nothing has happened yet."""
        self._people = people(self.scenario)
        self._settled = False
        self._calm_from = 0
        self._changes: list[int] = []  # how often each broker has changed its paths
        self._wanted: dict[tuple[str, str], None] = {}  # (broker, filter)
        self._topics: dict[tuple[str, int], str] = {}
        self._links: dict[tuple[str, int], list[tuple[str, str]]] = {}  # the links over which a publication went

    def on_settled(self, _: str) -> None:
        """Begin to record."""
        self._settled = True

    def look(self) -> None:
        """Forget what was recorded when paths change: only the final paths are known at the end."""
        if not self.scenario.fault:
            return
        changes = [self.ask(host, "map")["times_changed"] for host in self.scenario.topology.brokers]
        if changes != self._changes:
            self._changes = changes
            self._calm_from = self.journal.instant + CALM_NS
            self._topics.clear()
            self._links.clear()

    def on_subscribing(self, who: str, _subscription: int, pattern: str, *_: object) -> None:
        """A client subscribed."""
        self._wanted[self._people[who].broker, pattern] = None

    def on_published(self, who: str, number: int, topic: str, *_: object) -> None:
        """A program published."""
        if self._settled and self.journal.instant >= self._calm_from:
            self._topics[who, number] = topic
            self._links[who, number] = []

    def on_carried(self, who: str, to: str, publisher: str, number: int) -> None:
        """A broker sent a publication to another."""
        if (publisher, number) in self._links:
            self._links[publisher, number].append((who, to))

    def end(self) -> None:
        """Compare actual paths with the expected ones."""
        self.look()
        atlas = Atlas({host: self.ask(host, "map") for host in self.scenario.topology.brokers})
        self._look_at_publications(atlas)
        self._look_at_costs(atlas)

    def _look_at_publications(self, atlas: Atlas) -> None:
        on_the_way: dict[tuple[str, str], set[str]] = {}
        for (publisher, number), topic in self._topics.items():
            entry = self._people[publisher].broker
            if (entry, topic) not in on_the_way:
                on_the_way[entry, topic] = self._on_the_way(atlas, entry, topic)
            links = self._links[publisher, number]
            for broker in {to for _, to in links} - on_the_way[entry, topic]:
                self.blame(f"{broker} saw publication {number} of {publisher} on {topic}, and was not on the way")
            if len(set(links)) < len(links):
                self.blame(f"a link carried publication {number} of {publisher} twice: {links}")

    def _on_the_way(self, atlas: Atlas, entry: str, topic: str) -> set[str]:
        targets = {broker for broker, pattern in self._wanted if matches(pattern.encode(), topic.encode())}
        ways = [atlas.way(entry, target) for target in sorted(targets)]
        return {broker for way in ways for broker in way or ()}

    def _look_at_costs(self, atlas: Atlas) -> None:
        brokers = sorted(atlas.reports)
        pairs = [(one, other) for one in brokers for other in brokers if one != other]
        if len(pairs) > PAIRS_MAX:
            pairs = Random(len(pairs)).sample(pairs, PAIRS_MAX)
        stretches = []
        for one, other in pairs:
            way = atlas.way(one, other)
            if way is None:
                self.blame(f"no way leads from {one} to {other}")
            else:
                stretches.append(atlas.cost(way) / atlas.shortest(one, other))
        stretches.sort()
        if stretches:
            reached = stretches[int(QUANTILE * (len(stretches) - 1))]
            self.journal.write("measured", "the network", f"ways are at p95 {reached:.3f} times the shortest")
            if reached > STRETCH_MAX:
                self.blame(f"ways are at p95 {reached:.3f} times as long as the shortest, above {STRETCH_MAX}")


class Atlas:
    """All maps together. Here a broker has the name of its host, as none was replaced."""

    def __init__(self, reports: dict[str, dict[str, Any]]) -> None:
        self.reports = reports
        self._ids = {report["id"]: host for host, report in reports.items()}
        self._numbers = {host: number for number, host in enumerate(reports)}
        self._edges = {
            self._numbers[host]: {self._numbers[row["broker"]]: int(row["cost"]) for row in report["neighbours"]}
            for host, report in reports.items()
        }
        self._members = {
            host: {row["broker"]: row["via"] for row in report["members"] if row["cost"] is not None}
            for host, report in reports.items()
        }
        self._parts = {host: self._ways_to_parts(report) for host, report in reports.items()}
        self._leaders = {host: self._name(report["leader"]) for host, report in reports.items()}
        self._shortest: dict[str, dict[int, int]] = {}

    def _name(self, broker: str) -> str:
        return self._ids.get(broker, broker)

    def _ways_to_parts(self, report: dict[str, Any]) -> dict[str, str]:
        via = {row["broker"]: row["via"] for row in report["gateways"]}
        return {self._name(row["leader"]): via[row["nearest_gateway"]] for row in report["clusters"]}

    def way(self, start: str, target: str) -> list[str] | None:
        """The brokers that a publication passes, from first to last; None if it does not arrive."""
        way = [start]
        while way[-1] != target:
            here = way[-1]
            step = self._members[here].get(target) or self._parts[here].get(self._leaders[target])
            if step is None or len(way) > HOPS_MAX:
                return None
            way.append(self._name(step))
        return way

    def cost(self, way: list[str]) -> int:
        """The cost of a path."""
        return sum(self._edges[self._numbers[one]][self._numbers[other]] for one, other in pairwise(way))

    def shortest(self, start: str, target: str) -> int:
        """The cost of the shortest path in the graph of all links."""
        if start not in self._shortest:
            self._shortest[start] = shortest(self._numbers[start], self._edges)[0]
        return self._shortest[start][self._numbers[target]]
