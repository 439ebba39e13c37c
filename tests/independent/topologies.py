"""Topologies for live networks: brokers, their clusters and their links, drawn from a seed or given.

In:    a seed; for a network with faults, how many brokers stay without clients.
Out:   Topology values, which are the same for the same seed, and their text as a topology file.
State: none.
Not here: starting the brokers (network.py), what the clients want and publish (workload.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

LETTERS = "abc"


@dataclass(frozen=True)
class Topology:
    """A connected graph of brokers. The first letter of a name is the broker's cluster."""

    name: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """What `heliograph network up --topology` reads."""
        lines = [f"links = {json.dumps(self.links)}"]
        for name in self.brokers:
            lines += ["[[brokers]]", f'name = "{name}"', f'cluster = "{name[0]}"']
        return "\n".join(lines) + "\n"

    def connects(self, brokers: set[str]) -> bool:
        """Whether these brokers reach each other by links among themselves."""
        reached: list[str] = [next(name for name in self.brokers if name in brokers)]
        for name in reached:
            reached += sorted(self.neighbours(name) & brokers - set(reached))
        return set(reached) == brokers

    def neighbours(self, name: str) -> set[str]:
        return {one for link in self.links if name in link for one in link if one != name}

    def without(self, link: tuple[str, str]) -> Topology:
        return Topology(self.name, self.brokers, tuple(other for other in self.links if other != link))


def random_topology(seed: int, sizes: tuple[int, int] = (8, 12)) -> Topology:
    """Brokers in 1 to 3 clusters: in each a random tree and further links, between them two or three."""
    draw = Random(f"topology {seed}")
    clusters = 1 + seed % 3
    size = draw.randint(*sizes)
    brokers = [f"{LETTERS[place % clusters]}{place // clusters + 1}" for place in range(size)]
    links: dict[tuple[str, str], None] = {}
    for letter in LETTERS[:clusters]:
        members = [name for name in brokers if name[0] == letter]
        tree = [(member, draw.choice(members[:place])) for place, member in enumerate(members) if place]
        pairs = [(one, other) for place, one in enumerate(members) for other in members[:place]]
        links |= dict.fromkeys([*tree, *draw.sample(pairs, min(len(pairs), len(members) // 2))])
    for place in range(1, clusters):
        inner = [name for name in brokers if name[0] == LETTERS[place]]
        outer = [name for name in brokers if name[0] < LETTERS[place]]
        bridges = zip(draw.sample(inner, min(2, len(inner))), draw.sample(outer, 2), strict=False)
        links |= dict.fromkeys([*bridges, (draw.choice(inner), draw.choice(outer))])
    return Topology(f"random {seed}", tuple(brokers), tuple(links))


def two_triangles() -> Topology:
    """The smallest network in which a cluster can be entered at two gateways."""
    triangles = [(f"{c}{one}", f"{c}{other}") for c in "ab" for one, other in ((1, 2), (2, 3), (3, 1))]
    brokers = tuple(f"{c}{number}" for c in "ab" for number in (1, 2, 3))
    return Topology("two triangles", brokers, (*triangles, ("a1", "b1"), ("a2", "b2")))
