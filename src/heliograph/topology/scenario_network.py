"""The topology of a scenario: its brokers, clients, time servers and links, listed or generated.

In:    the table [topology] of a scenario; a random source for generated links.
Out:   ScenarioTopology with every broker and link named; its problems as texts.
State: none.
Not here: building brokers (sim/scenario_world.py), links that are added and removed during a run (sim/wiring.py),
          files of `network up` (process_network.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from random import Random
from typing import TypeVar

from heliograph.broker.config import SERVERS_MAX, AccessConfig, LimitsConfig, LoadConfig, NetworkConfig
from heliograph.model.identity import Role, entity_is_valid
from heliograph.stores.config import StoreConfig
from heliograph.topology.toml_tables import suggest
from heliograph.wire.broker_bodies import MEMBERS_MAX

SHAPES = {
    "line": "each broker is linked to the next",
    "ring": "a line whose ends are linked",
    "star": "the first broker is linked to all others",
    "random": "a tree drawn from the seed",
    "clusters": "rings of brokers, each linked to the next, all round, by bridges whose ends are drawn from the seed",
}
BROKERS_MAX = 10_000
CLIENTS_MAX = 20_000
DURATION_S_MAX = 86_400
DRAWS_MAX = 100  # attempts to draw one chord, before the graph counts as full

Range = tuple[float, float]
Pair = tuple[str, str]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """A broker; all fields have defaults."""

    auth: str = "none"  # "none" or "certificate"
    network: str = ""  # the network's name; brokers of different networks do not link
    cluster: str = "main"
    slot: int | None = None  # None: the broker chooses one and settles it with the others
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    store: StoreConfig | None = None  # it has a store, named after the host


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """A group of identical clients, called NAME-1, NAME-2 …; or just NAME if there is one."""

    broker: str  # a broker, or a pattern such as "b*": the group's clients use the matching brokers in turn
    count: int = 1
    entity: str = ""  # the entity in its certificate; {n} is the client's number
    roles: tuple[str, ...] = (Role.CLIENT.value,)
    hold: bool = False  # accepts being held back by slow consumers
    keep_alive_ms: int = 2_000
    join_s: Range = (0.0, 0.0)  # when each appears: drawn from this range
    stay_s: Range | None = None  # how long it stays; None: to the end
    away_s: Range | None = None  # how long it is away before it returns with a new session; None: for good


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePlan:
    """An NTP server, and the brokers that ask it."""

    brokers: str = "*"
    wrong_ms: float = 0.0  # the error of a server that lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A rule that generates brokers b1, b2 … in clusters c1, c2 … and their links."""

    shape: str
    brokers: int
    clusters: int = 1  # of equal size, as far as possible
    bridges: int = 1  # links between neighbouring clusters, in the shape "clusters"
    chords: int = 0  # additional links within clusters, drawn from the seed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTopology:
    """The brokers, clients, time servers and links of a scenario."""

    brokers: dict[str, BrokerPlan] = field(default_factory=dict)
    clients: dict[str, ClientPlan] = field(default_factory=dict)
    links: tuple[Pair, ...] = ()  # between brokers: the first dials the second
    generate: Shape | None = None  # more brokers and links
    time_servers: dict[str, TimePlan] = field(default_factory=dict)
    key: str = "a key that all brokers of this world have"
    heartbeat_ms: int = 500
    suspect_ms: int = 2_000
    dead_ms: int = 10_000
    forget_ms: int = 60_000

    def problems(self) -> list[str]:
        """All problems with it."""
        if self.generate is not None:
            found = _shape_problems(self.generate)
            if found:
                return found
        whole = with_generated(self, Random(0))
        return _broker_problems(whole) + _client_problems(whole) + _name_problems(whole) + _link_problems(whole)


def client_names(group: str, plan: ClientPlan) -> list[str]:
    """The clients of a group: NAME if there is one, else NAME-1, NAME-2 …"""
    return [group] if plan.count == 1 else [f"{group}-{number}" for number in range(1, plan.count + 1)]


def home(topology: ScenarioTopology, plan: ClientPlan, number: int) -> str:
    """The broker of the client with this number in its group, from 1."""
    if plan.broker in topology.brokers:
        return plan.broker
    fitting = [name for name in topology.brokers if fnmatchcase(name, plan.broker)]
    return fitting[(number - 1) % len(fitting)]


def filled(pattern: str, n: int, k: int) -> str:
    """A topic, filter or entity with its numbers filled in."""
    return pattern.replace("{n}", str(n)).replace("{k}", str(k))


# Generating.


def with_generated(topology: ScenarioTopology, random: Random) -> ScenarioTopology:
    """A copy with the generated brokers and links added."""
    shape = topology.generate
    if shape is None:
        return topology
    brokers = dict(topology.brokers)
    clusters: list[list[str]] = [[] for _ in range(shape.clusters)]
    for number in range(shape.brokers):
        name, cluster = f"b{number + 1}", number * shape.clusters // shape.brokers
        plan = BrokerPlan(cluster=f"c{cluster + 1}", slot=len(clusters[cluster]) % MEMBERS_MAX)
        brokers.setdefault(name, plan)
        clusters[cluster].append(name)
    links = dict.fromkeys([*topology.links, *_links(shape, clusters, random)])
    for number in range(shape.chords):
        _add(links, clusters[number % len(clusters)], clusters[number % len(clusters)], random)
    if shape.shape == "clusters":
        for one, other in _in_turn(clusters):
            for _ in range(shape.bridges):
                _add(links, one, other, random)
    return replace(topology, brokers=brokers, links=tuple(links), generate=None)


def _links(shape: Shape, clusters: list[list[str]], random: Random) -> list[Pair]:
    names = [name for cluster in clusters for name in cluster]
    match shape.shape:
        case "star":
            return [(name, names[0]) for name in names[1:]]
        case "random":
            return [(name, names[random.randrange(number)]) for number, name in enumerate(names[1:], 1)]
        case "ring":
            return _in_turn(names)
        case "clusters":
            return [pair for cluster in clusters for pair in _in_turn(cluster)]
    return list(pairwise(names))


def _in_turn(things: list[_T]) -> list[tuple[_T, _T]]:
    """Each with the next, and the last with the first."""
    pairs = list(pairwise(things))
    return [*pairs, (things[-1], things[0])] if len(things) > 2 else pairs


def _add(links: dict[Pair, None], ones: list[str], others: list[str], random: Random) -> None:
    """Add a link between the two groups, unless nearly all pairs are already linked."""
    for _ in range(DRAWS_MAX):
        one, other = random.choice(ones), random.choice(others)
        if one != other and (one, other) not in links and (other, one) not in links:
            links[one, other] = None
            return


# Problems.


def _shape_problems(shape: Shape) -> list[str]:
    path = "topology.generate"
    found = []
    if shape.shape not in SHAPES:
        found.append(f"{path}.shape = {shape.shape!r}: {suggest(shape.shape, list(SHAPES))}")
    if not 1 <= shape.brokers <= BROKERS_MAX:
        found.append(f"{path}.brokers = {shape.brokers}: must be between 1 and {BROKERS_MAX}")
    elif not 1 <= shape.clusters <= shape.brokers <= shape.clusters * MEMBERS_MAX:
        found.append(f"{path}.clusters = {shape.clusters}: a cluster has between 1 and {MEMBERS_MAX} brokers")
    for name, least in (("chords", 0), ("bridges", 1)):
        if not least <= getattr(shape, name) <= BROKERS_MAX:
            found.append(f"{path}.{name} = {getattr(shape, name)}: must be between {least} and {BROKERS_MAX}")
    return found


def _broker_problems(topology: ScenarioTopology) -> list[str]:
    found = [] if topology.brokers else ["topology.brokers: there must be at least one broker"]
    for name, broker in topology.brokers.items():
        path = f"topology.brokers.{name}"
        if broker.auth not in ("none", "certificate"):
            found.append(f"{path}.auth = {broker.auth!r}: must be one of none, certificate")
        for section in ("limits", "access", "load"):
            found += map(str, getattr(broker, section).problems(f"{path}.{section}"))
        network = NetworkConfig(name=broker.network, cluster=broker.cluster, slot=broker.slot)
        for problem in network.problems(path):  # for brokers, the key of this name is "name"; here it is "network"
            key = f"{path}.network" if problem.key == f"{path}.name" else problem.key
            found.append(key + problem.said)
    times = NetworkConfig(
        heartbeat_ms=topology.heartbeat_ms,
        suspect_ms=topology.suspect_ms,
        dead_ms=topology.dead_ms,
        forget_ms=topology.forget_ms,
    )
    return found + [str(problem) for problem in times.problems("topology")]


def _name_problems(topology: ScenarioTopology) -> list[str]:
    found = []
    for name in [*topology.brokers, *topology.clients, *topology.time_servers]:
        if not entity_is_valid(name):
            found.append(f"topology: {name!r} is not a name; letters, digits and . _ @ - only")
    names = [*topology.brokers, *topology.time_servers]
    for group, plan in topology.clients.items():
        names += client_names(group, plan) if plan.count <= CLIENTS_MAX else []
    if len(dict.fromkeys(names)) < len(names):
        found.append("topology: two of the brokers, clients and time servers would have the same name")
    if len(topology.time_servers) > SERVERS_MAX:
        found.append(f"topology.time_servers: more than {SERVERS_MAX}")
    if sum(max(0, client.count) for client in topology.clients.values()) > CLIENTS_MAX:
        found.append(f"topology.clients: more than {CLIENTS_MAX} in all")
    return found


def _link_problems(topology: ScenarioTopology) -> list[str]:
    found = []
    for number, pair in enumerate(topology.links):
        path = f"topology.links[{number}]"
        found += [
            f"{path} has {name!r}: {suggest(name, list(topology.brokers))}"
            for name in pair
            if name not in topology.brokers
        ]
        if pair[0] == pair[1]:
            found.append(f"{path} links {pair[0]!r} to itself")
    pairs = [tuple(sorted(pair)) for pair in topology.links]
    if len(dict.fromkeys(pairs)) < len(pairs):
        found.append("topology.links: two brokers are linked twice; one link is enough")
    return found


def _client_problems(topology: ScenarioTopology) -> list[str]:
    found = []
    for name, client in topology.clients.items():
        path = f"topology.clients.{name}"
        fitting = [broker for broker in topology.brokers if fnmatchcase(broker, client.broker)]
        if not fitting:
            found.append(f"{path}.broker = {client.broker!r}: {suggest(client.broker, list(topology.brokers)[:20])}")
        if not 1 <= client.count <= CLIENTS_MAX:
            found.append(f"{path}.count = {client.count}: must be between 1 and {CLIENTS_MAX}")
        if client.entity and not entity_is_valid(filled(client.entity, 1, 1)):
            found.append(f"{path}.entity = {client.entity!r}: letters, digits and . _ @ - only")
        if not client.entity and any(topology.brokers[broker].auth != "none" for broker in fitting):
            found.append(f"{path}.entity is missing: {client.broker} asks for certificates")
        found += [
            f"{path}.roles has {r!r}: the roles are {', '.join(Role)}" for r in client.roles if r not in list(Role)
        ]
        if not 1 <= client.keep_alive_ms <= 3_600_000:
            found.append(f"{path}.keep_alive_ms = {client.keep_alive_ms}: must be between 1 and 3600000")
        for key in ("join_s", "stay_s", "away_s"):
            found += range_problems(getattr(client, key), f"{path}.{key}")
        if client.away_s is not None and client.stay_s is None:
            found.append(f"{path}.away_s needs {path}.stay_s: a client that never leaves does not come back")
    return found


def range_problems(given: Range | None, path: str, above: float = 0.0) -> list[str]:
    """The problems of a range of seconds."""
    if given is None or above <= given[0] <= given[1] <= DURATION_S_MAX:
        return []
    return [f"{path} = {list(given)}: must be [from, to] in seconds, from {above:g} on"]
