"""The topology of a network of processes: its brokers and links, from a file or generated.

In:    a number of brokers and clusters; or the text of a topology file.
Out:   NetworkTopology, checked: names, slots, links; or ConfigError with every problem at once.
State: none.
Not here: starting it (cli/network_processes.py), what a running network looks like (maps/network_view.py).
Paper: [grid] §1.1, clusters that stay connected when any one broker is lost.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from string import ascii_lowercase

from heliograph.errors import ConfigError
from heliograph.model.identity import entity_is_valid
from heliograph.topology.toml_tables import others, read_table

BROKERS_MAX = 512  # processes on one machine
MEMBERS_MAX = 64  # slots of a cluster
CHORDS_FROM = 6  # a ring of this size or larger gets chords
FREE_PORT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBroker:
    """One broker. Without a slot one is chosen; port 0 means any free port."""

    name: str
    cluster: str = "main"
    slot: int | None = None
    port: int = FREE_PORT
    store: bool = False  # it has a store


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTopology:
    """A graph of brokers. In each link the first broker dials the second."""

    brokers: tuple[PlannedBroker, ...]
    links: tuple[tuple[str, str], ...] = ()

    def problems(self) -> Iterator[str]:
        """All problems with it."""
        if not 0 < len(self.brokers) <= BROKERS_MAX:
            yield f"brokers: there are {len(self.brokers)}; must be 1 to {BROKERS_MAX}"
        found = [*self._broker_problems(), *self._link_problems()]
        yield from found or self._cluster_problems()

    def _broker_problems(self) -> Iterator[str]:
        names: dict[str, int] = {}
        slots: dict[tuple[str, int], str] = {}
        ports: dict[int, str] = {}
        for number, broker in enumerate(self.brokers):
            path = f"brokers[{number}]"
            if not entity_is_valid(broker.name):
                yield f"{path}.name = {broker.name!r}: letters, digits and . _ @ - only"
            if names.setdefault(broker.name, number) != number:
                yield f"{path}.name = {broker.name!r}: brokers[{names[broker.name]}] has this name already"
            if not entity_is_valid(broker.cluster):
                yield f"{path}.cluster = {broker.cluster!r}: letters, digits and . _ @ - only"
            if broker.slot is not None:
                if not 0 <= broker.slot < MEMBERS_MAX:
                    yield f"{path}.slot = {broker.slot}: must be between 0 and {MEMBERS_MAX - 1}"
                other = slots.setdefault((broker.cluster, broker.slot), broker.name)
                if other != broker.name:
                    yield f"{path}.slot = {broker.slot}: {other!r} has it in cluster {broker.cluster!r} already"
            if not 0 <= broker.port <= 65_535:
                yield f"{path}.port = {broker.port}: must be between 0 and 65535 (0 takes a free port)"
            elif broker.port and ports.setdefault(broker.port, broker.name) != broker.name:
                yield f"{path}.port = {broker.port}: {ports[broker.port]!r} has it already"
        for cluster, members in self.clusters.items():
            if len(members) > MEMBERS_MAX:
                yield f"cluster {cluster!r} has {len(members)} brokers; {MEMBERS_MAX} is the most"

    def _link_problems(self) -> Iterator[str]:
        names = {broker.name for broker in self.brokers}
        seen: dict[frozenset[str], int] = {}
        for number, (one, other) in enumerate(self.links):
            for name in dict.fromkeys((one, other)):
                if name not in names:
                    yield f"links[{number}]: there is no broker {name!r}"
            if one == other:
                yield f"links[{number}]: {one!r} cannot be linked to itself"
            elif seen.setdefault(frozenset((one, other)), number) != number:
                yield f"links[{number}]: {one!r} and {other!r} are linked by links[{seen[frozenset((one, other))]}]"

    def _cluster_problems(self) -> Iterator[str]:
        """Events would cross such a network, but resources of one part would not be found from the other."""
        for whole in self.parts():
            for cluster in self.clusters:
                parts = [part for part in self.parts(cluster=cluster) if part[0] in whole]
                if len(parts) > 1:
                    told = " and ".join(", ".join(part) for part in parts)
                    yield (
                        f"cluster {cluster!r} is in parts that only other clusters join: {told}; link its brokers to "
                        "one another, or give each part a cluster of its own"
                    )

    @property
    def clusters(self) -> dict[str, list[str]]:
        """Names of brokers by cluster, in the order of the file."""
        found: dict[str, list[str]] = {}
        for broker in self.brokers:
            found.setdefault(broker.cluster, []).append(broker.name)
        return found

    @property
    def neighbours(self) -> dict[str, list[str]]:
        """The neighbours of each broker."""
        found: dict[str, list[str]] = {broker.name: [] for broker in self.brokers}
        for one, other in self.links:
            found[one].append(other)
            found[other].append(one)
        return found

    def parts(self, without: Iterable[str] = (), cluster: str | None = None) -> list[list[str]]:
        """The connected parts of the graph, or of one cluster by itself."""
        gone = set(without)
        left = [broker.name for broker in self.brokers if broker.name not in gone and cluster in (None, broker.cluster)]
        inside = set(left)
        neighbours = self.neighbours
        found: list[list[str]] = []
        met: set[str] = set()
        for start in left:
            if start in met:
                continue
            part = [start]
            met.add(start)
            for name in part:  # grows during the iteration
                for other in neighbours[name]:
                    if other in inside and other not in met:
                        met.add(other)
                        part.append(other)
            found.append(part)
        return found

    def with_slots(self) -> NetworkTopology:
        """A copy in which every broker has a slot: the lowest free one in its cluster."""
        taken = {(broker.cluster, broker.slot) for broker in self.brokers if broker.slot is not None}
        brokers = []
        for broker in self.brokers:
            slot = broker.slot
            if slot is None:
                slot = next(free for free in range(MEMBERS_MAX) if (broker.cluster, free) not in taken)
                taken.add((broker.cluster, slot))
            brokers.append(replace(broker, slot=slot))
        return replace(self, brokers=tuple(brokers))

    def with_ports(self, base: int) -> NetworkTopology:
        """A copy in which brokers without a port have consecutive ones."""
        taken = {broker.port for broker in self.brokers}
        brokers = []
        for broker in self.brokers:
            if broker.port == FREE_PORT:
                while base in taken:
                    base += 1
                broker = replace(broker, port=base)
                base += 1
            brokers.append(broker)
        return _checked(replace(self, brokers=tuple(brokers)))

    def with_stores(self, count: int) -> NetworkTopology:
        """A copy with this many additional brokers, each with a store and linked to two others if there are two."""
        brokers, links = list(self.brokers), list(self.links)
        for number in range(count):
            name = f"store-{number + 1}"
            first = self.brokers[number % len(self.brokers)]
            second = self.brokers[(number + 1) % len(self.brokers)]
            brokers.append(PlannedBroker(name=name, cluster=first.cluster, store=True))
            links += [(name, other) for other in dict.fromkeys((first.name, second.name))]
        return _checked(replace(self, brokers=tuple(brokers), links=tuple(links)))


def read_topology(text: str) -> NetworkTopology:
    """The topology that a TOML document describes. Unknown keys are reported with all other problems."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"not TOML: {error}"]) from None
    problems: list[str] = []
    topology = read_table(NetworkTopology, document, "", problems)
    if topology is not None:
        problems += others(topology.problems(), problems)
    if topology is None or problems:
        raise ConfigError(problems)
    return topology


def generated(count: int, clusters: int = 1) -> NetworkTopology:
    """``count`` brokers in clusters of equal size (plus or minus one). The graph survives the loss of any one broker.

    Each cluster is a ring with chords, and so is the ring of clusters. Two neighbouring clusters are joined by two
    links that share no broker.
    """
    if count > clusters * MEMBERS_MAX:
        raise ConfigError([f"{count} brokers in {clusters} clusters: a cluster has {MEMBERS_MAX} at most"])
    sizes = [count // clusters + (number < count % clusters) for number in range(clusters)]
    names = [[f"{_letters(number)}{member + 1}" for member in range(size)] for number, size in enumerate(sizes)]
    links = [(members[one], members[other]) for members in names for one, other in _ring(len(members))]
    for one, other in _ring(clusters):
        links += _joined(names[one], names[other])
    brokers = [
        PlannedBroker(name=name, cluster=_letters(number), slot=slot)
        for number, members in enumerate(names)
        for slot, name in enumerate(members)
    ]
    return _checked(NetworkTopology(brokers=tuple(brokers), links=tuple(dict.fromkeys(links))))


def _checked(topology: NetworkTopology) -> NetworkTopology:
    problems = list(topology.problems())
    if problems:
        raise ConfigError(problems)
    return topology


def _letters(number: int) -> str:
    """a to z, then aa, ab …"""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, len(ascii_lowercase))
        text = ascii_lowercase[letter] + text
    return text


def _ring(size: int) -> Iterator[tuple[int, int]]:
    """The links of a ring, with chords if it is long."""
    if size > 1:
        yield from ((place, place + 1) for place in range(size - 1))
    if size > 2:
        yield (size - 1, 0)
    if size >= CHORDS_FROM:
        yield from ((place, place + size // 2) for place in range(size // 2))


def _joined(one: list[str], other: list[str]) -> Iterator[tuple[str, str]]:
    """Two links between two clusters. A ring enters a cluster at its first brokers and leaves by its last ones."""
    yield one[-1], other[0]
    if len(one) > 1 or len(other) > 1:
        yield one[-2 if len(one) > 1 else -1], other[1 if len(other) > 1 else 0]
