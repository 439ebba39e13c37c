"""How long ways are, on whole graphs: against the shortest there are, and against the best that summaries allow."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from heliograph.broker.routing.leadership import coarse
from heliograph.broker.routing.map import Edges, NetworkMap, shortest
from heliograph.wire.broker_bodies import Gateway, Member

pytestmark = pytest.mark.req("N4", "N5")

OUTSIDE = 1_000


class Graph:
    """Rings of brokers with chords, each ring linked to the next, all round; and links between any two rings."""

    def __init__(self, seed: int, brokers: int, clusters: int, across: int, chords: int | None = None) -> None:
        self._random = Random(seed)
        self.brokers = range(1, brokers + 1)
        self.cluster = {broker: (broker - 1) * clusters // brokers for broker in self.brokers}
        self.groups = [[one for one in self.brokers if self.cluster[one] == number] for number in range(clusters)]
        self.edges: Edges = {broker: {} for broker in self.brokers}
        for number, group in enumerate(self.groups):
            for one, other in zip(group, [*group[1:], group[0]], strict=True):
                self._link(one, other)
            self._draw(group, group, len(group) if chords is None else chords)
            self._draw(group, self.groups[(number + 1) % clusters], 2)
        for _ in range(across):
            self._draw(*self._random.sample(self.groups, 2), 1)
        self.inner = {broker: shortest(broker, self._inside(broker))[0] for broker in self.brokers}
        ways = {broker: shortest(broker, self.edges) for broker in self.brokers}
        self.costs = {broker: costs for broker, (costs, _) in ways.items()}
        self.steps = {broker: steps for broker, (_, steps) in ways.items()}
        self.gateways = {one for one in self.brokers if self._links(one, inside=False)}
        self.maps = self._maps()

    def _link(self, one: int, other: int) -> None:
        cost = self._random.randint(900, 1_600) + (OUTSIDE if self.cluster[one] != self.cluster[other] else 0)
        self.edges[one][other] = self.edges[other][one] = cost

    def _draw(self, ones: list[int], others: list[int], count: int) -> None:
        while count:
            one, other = self._random.choice(ones), self._random.choice(others)
            if one != other and other not in self.edges[one]:
                self._link(one, other)
                count -= 1

    def _links(self, one: int, inside: bool) -> dict[int, int]:
        same = self.cluster[one]
        return {other: cost for other, cost in self.edges[one].items() if (self.cluster[other] == same) is inside}

    def _inside(self, one: int) -> Edges:
        return {other: self._links(other, inside=True) for other in self.groups[self.cluster[one]]}

    def _maps(self) -> dict[int, NetworkMap]:
        members = {
            one: Member(one, f"b{one}", f"c{self.cluster[one]}", one % 64, 0, 1, 1, self._links(one, inside=True))
            for one in self.brokers
        }
        maps = {}
        for one in self.brokers:
            maps[one] = NetworkMap(members[one])
            for other in self.groups[self.cluster[one]]:
                maps[one].learn(members[other])
        leaders = {one: maps[one].paths.leader for one in self.brokers}
        for one in sorted(self.gateways):
            others = [other for other in self.inner[one] if other in self.gateways and other != one]
            inside = {other: coarse(self.inner[one][other]) for other in others}
            outside = self._links(one, inside=False)
            record = Gateway(one, f"b{one}", f"c{self.cluster[one]}", leaders[one], 1, 1, outside, inside)
            for each in maps.values():
                each.learn(record)
        return maps

    def way(self, start: int, target: int) -> list[tuple[int, int]]:
        """The links of the way that brokers take, hop by hop."""
        links, here = [], start
        while here != target:
            paths = self.maps[here].paths
            entry = target if target in paths.cluster else paths.parts[self.maps[target].paths.leader]
            links.append((here, paths.steps[entry]))
            here = paths.steps[entry]
        return links

    def shortest_way(self, start: int, target: int) -> list[tuple[int, int]]:
        """The links of the shortest way there is."""
        links, here = [], start
        while here != target:
            links.append((here, self.steps[here][target]))
            here = self.steps[here][target]
        return links

    def cost(self, links: Iterable[tuple[int, int]]) -> int:
        """What these links cost together, each counted once."""
        return sum(self.edges[one][other] for one, other in set(links))

    def stretch(self, start: int, target: int) -> float:
        """What the way costs that brokers take, as a multiple of the shortest."""
        return self.cost(self.way(start, target)) / self.costs[start][target]

    def stretch_of_all(self, start: int, targets: list[int]) -> float:
        """What all links cost over which a publication for several members goes, by those of the shortest ways."""
        ours = [link for target in targets for link in self.way(start, target)]
        return self.cost(ours) / self.cost(link for target in targets for link in self.shortest_way(start, target))

    def best_of_one_entry(self, start: int, group: list[int]) -> list[float]:
        """The same for a whole cluster, if it is entered where that is best for its members on the whole."""
        if start in group:
            return [self.inner[start][one] / self.costs[start][one] for one in group if one != start]
        entries = [gateway for gateway in group if gateway in self.gateways]
        ways = [
            [(self.costs[start][entry] + self.inner[entry][one]) / self.costs[start][one] for one in group]
            for entry in entries
        ]
        return min(ways, key=sum)


def p95(stretches: list[float]) -> float:
    return sorted(stretches)[int(0.95 * (len(stretches) - 1))]


def measured(graph: Graph) -> float:
    """At p95, over all pairs."""
    return p95([graph.stretch(one, other) for one in graph.brokers for other in graph.brokers if one != other])


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("across", "chords", "most"), [(0, None, 1.3), (60, None, 1.6), (100, 5, 2.1)])
def test_ways_are_not_much_longer_than_the_shortest_however_clusters_are_linked(
    seed: int, across: int, chords: int | None, most: float
) -> None:
    assert measured(Graph(seed, brokers=100, clusters=5, across=across, chords=chords)) <= most


def test_ways_are_about_as_short_as_one_entry_per_cluster_allows() -> None:
    graph = Graph(1, brokers=100, clusters=5, across=60)
    best = [way for one in graph.brokers for group in graph.groups for way in graph.best_of_one_entry(one, group)]
    assert measured(graph) <= 1.1 * p95(best)


@pytest.mark.parametrize(("across", "chords", "most"), [(0, None, 1.4), (60, None, 1.3), (100, 5, 1.6)])
def test_a_publication_for_many_members_crosses_no_more_than_the_shortest_ways_would(
    across: int, chords: int | None, most: float
) -> None:
    graph = Graph(1, brokers=100, clusters=5, across=across, chords=chords)
    random = Random(1)

    def measured(members: int) -> list[float]:
        found = []
        for _ in range(300):
            one, group = random.choice(graph.brokers), random.choice(graph.groups)
            if one not in group:
                found.append(graph.stretch_of_all(one, random.sample(group, members)))
        return sorted(found)

    assert p95(measured(2)) <= most
    many = measured(5)
    assert p95(many) <= 1.3
    assert many[len(many) // 2] < 1.0  # they share what they can
