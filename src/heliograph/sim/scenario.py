"""Scenarios: a world to try, as a file that someone who never saw the code can read.

In:    TOML: [scenario], [network], [hosts], [topology], [[workload]], [[fault]], [checks].
Out:   Scenario, a frozen value; or ConfigError with all problems at once.
State: none.
Not here: building the world (stage.py), what the words mean in action (workloads.py, faults.py, checkers/).

In topics and filters, ``{n}`` is the client's number in its group and ``{k}`` a number drawn from 1 to ``spread``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from heliograph.broker.config import AccessConfig, LimitsConfig
from heliograph.errors import ConfigError
from heliograph.model.identity import Role, entity_is_valid
from heliograph.model.subscription import Policy
from heliograph.model.topics import filter_fault, topic_fault
from heliograph.sim.network import NetworkSettings
from heliograph.sim.reading import read_table, suggest
from heliograph.sim.world import HostSettings

FAULTS = {
    "stall": "a direction of a link stands still for a while, then everything arrives",
    "partition": "nothing arrives in one direction between two hosts until it heals",
    "reset": "a link breaks; of what was in flight a suffix is lost",
    "crash": "a process dies and is started again after a while",
    "power_cut": "the same, but its peers are told nothing",
    "pause": "a process handles nothing for a while",
    "slow": "every input costs a process `factor` times as much for a while",
    "clock_step": "a wall clock is set by `step_ms`",
    "drop_frame": "a planted bug: one publication or delivery silently disappears",
}
OF_LINKS = ("stall", "partition", "reset", "drop_frame")  # their target is "from > to"
CLIENTS_MAX = 20_000
DURATION_S_MAX = 86_400
SIZE_BYTES_MIN = 16  # a payload says who published it and as what number
SIZE_BYTES_MAX = 1 << 20

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What it is about, and how long it takes."""

    name: str
    about: str = ""
    duration_s: float = 10.0  # of workload and faults
    settle_s: float = 5.0  # then quiet, so that what is on its way arrives


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """A broker; everything has a default."""

    auth: str = "none"  # "none" or "certificate"
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    access: AccessConfig = field(default_factory=AccessConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """A group of equal clients, called NAME-1, NAME-2 …; or just NAME if there is one."""

    broker: str
    count: int = 1
    entity: str = ""  # what its certificate says; {n} is the client's number
    roles: tuple[str, ...] = (Role.CLIENT.value,)
    hold: bool = False  # ready to wait for slow consumers
    keep_alive_ms: int = 2_000
    join_s: Range = (0.0, 0.0)  # when each appears: drawn from this range
    stay_s: Range | None = None  # how long it stays; None: to the end
    away_s: Range | None = None  # how long it stays away before it comes back, as a new session; None: for good


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Who is there."""

    brokers: dict[str, BrokerPlan]
    clients: dict[str, ClientPlan] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()  # between brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What each client of a group does: publish on topics, subscribe to filters, or both."""

    client: str
    spread: int = 1  # {k} is drawn from 1 to this
    # publishing
    publish: tuple[str, ...] = ()
    rate_per_s: float = 10.0  # bursts per second and client
    burst: int = 1  # publications at once
    even: bool = False  # evenly spaced rather than at random instants
    size_bytes: tuple[int, int] = (64, 64)
    from_s: float = 0.0
    until_s: float | None = None  # None: to the end of the scenario
    flush_every: int = 20  # publications between two flushes
    # subscribing
    subscribe: tuple[str, ...] = ()
    each: int = 1  # subscriptions per filter (with a {k} in it)
    policy: str = Policy.DROP_OLDEST.value
    echo: bool = True
    reads_per_s: float = 0.0  # how fast the program reads; 0: at once
    inbox_frames_max: int = 65_536
    change_s: Range | None = None  # ends a subscription and makes another, so often


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, once or repeatedly."""

    kind: str
    target: str = "*"  # a host, or "from > to"; * stands for anything, and one of those that fit is drawn
    at_s: float = 0.0
    every_s: float = 0.0  # again after so long …
    times: int = 1  # … so often in all
    probability: float = 1.0
    for_s: float = 1.0  # how long it lasts
    step_ms: int = 0
    factor: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What must hold."""

    names: tuple[str, ...] = ("delivery", "duplicates", "order", "isolation", "bounded", "convergence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that, with a seed, determines a run."""

    scenario: Head
    topology: Topology
    network: NetworkSettings = field(default_factory=NetworkSettings)
    hosts: HostSettings = field(default_factory=HostSettings)
    workload: tuple[Workload, ...] = ()
    fault: tuple[Fault, ...] = ()
    checks: Checks = field(default_factory=Checks)

    def problems(self, checkers: list[str]) -> list[str]:
        """Everything wrong with it."""
        found = _head_problems(self.scenario) + self.network.problems() + self.hosts.problems()
        found += _topology_problems(self.topology)
        for number, workload in enumerate(self.workload):
            found += _workload_problems(workload, self.topology, f"workload[{number}]")
        for number, fault in enumerate(self.fault):
            found += _fault_problems(fault, self.scenario, f"fault[{number}]")
        found += [f"checks.names has {n!r}: {suggest(n, checkers)}" for n in self.checks.names if n not in checkers]
        return found


def parse(text: str) -> Scenario:
    """A scenario from TOML text."""
    from heliograph.sim.checkers import CHECKERS  # it knows Scenario

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"not TOML: {error}"]) from None
    problems: list[str] = []
    scenario = read_table(Scenario, document, "", problems)
    if scenario is not None:
        problems = scenario.problems(list(CHECKERS))
    if scenario is None or problems:
        raise ConfigError(problems)
    return scenario


def load(name: str) -> Scenario:
    """A scenario from a file, or one of those that come with Heliograph, by its name."""
    path = Path(name)
    try:
        if path.suffix == ".toml" or path.exists():
            return parse(path.read_text("utf-8"))
        if name in shipped():
            return parse(files("heliograph.sim").joinpath("scenarios", f"{name}.toml").read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{name} cannot be read: {error}"]) from None
    raise ConfigError([f"{name}: no such file, and no scenario of that name; {suggest(name, shipped())}"])


def shipped() -> list[str]:
    """The names of the scenarios that come with Heliograph."""
    found = files("heliograph.sim").joinpath("scenarios").iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in found if entry.name.endswith(".toml"))


def client_names(group: str, plan: ClientPlan) -> list[str]:
    """The clients of a group: NAME if there is one, else NAME-1, NAME-2 …"""
    return [group] if plan.count == 1 else [f"{group}-{number}" for number in range(1, plan.count + 1)]


def filled(pattern: str, n: int, k: int) -> str:
    """A topic or filter with its numbers in place."""
    return pattern.replace("{n}", str(n)).replace("{k}", str(k))


def _head_problems(head: Head) -> list[str]:
    found = []
    if not 0 < head.duration_s <= DURATION_S_MAX:
        found.append(f"scenario.duration_s = {head.duration_s}: must be above 0 and at most {DURATION_S_MAX}")
    if not 0 <= head.settle_s <= DURATION_S_MAX:
        found.append(f"scenario.settle_s = {head.settle_s}: must be between 0 and {DURATION_S_MAX}")
    return found


def _topology_problems(topology: Topology) -> list[str]:
    found = [] if topology.brokers else ["topology.brokers: there must be at least one broker"]
    for name in [*topology.brokers, *topology.clients]:
        if not entity_is_valid(name):
            found.append(f"topology: {name!r} is not a name; letters, digits and . _ @ - only")
    for name, broker in topology.brokers.items():
        path = f"topology.brokers.{name}"
        if broker.auth not in ("none", "certificate"):
            found.append(f"{path}.auth = {broker.auth!r}: must be one of none, certificate")
        found += broker.limits.problems(f"{path}.limits") + broker.access.problems(f"{path}.access")
    for name, client in topology.clients.items():
        found += _client_problems(client, topology, f"topology.clients.{name}")
    names = [*topology.brokers]
    for group, plan in topology.clients.items():
        names += client_names(group, plan) if plan.count <= CLIENTS_MAX else []
    if len(dict.fromkeys(names)) < len(names):
        found.append("topology: two of the brokers and clients would have the same name")
    if sum(max(0, client.count) for client in topology.clients.values()) > CLIENTS_MAX:
        found.append(f"topology.clients: more than {CLIENTS_MAX} in all")
    if topology.links:
        found.append("topology.links: brokers are not linked to each other in this version; leave it out")
    return found


def _client_problems(client: ClientPlan, topology: Topology, path: str) -> list[str]:
    found = []
    if client.broker not in topology.brokers:
        found.append(f"{path}.broker = {client.broker!r}: {suggest(client.broker, list(topology.brokers))}")
    if not 1 <= client.count <= CLIENTS_MAX:
        found.append(f"{path}.count = {client.count}: must be between 1 and {CLIENTS_MAX}")
    if client.entity and not entity_is_valid(filled(client.entity, 1, 1)):
        found.append(f"{path}.entity = {client.entity!r}: letters, digits and . _ @ - only")
    if not client.entity and client.broker in topology.brokers and topology.brokers[client.broker].auth != "none":
        found.append(f"{path}.entity is missing: {client.broker} asks for certificates")
    found += [f"{path}.roles has {r!r}: the roles are {', '.join(Role)}" for r in client.roles if r not in list(Role)]
    if not 1 <= client.keep_alive_ms <= 3_600_000:
        found.append(f"{path}.keep_alive_ms = {client.keep_alive_ms}: must be between 1 and 3600000")
    for name in ("join_s", "stay_s", "away_s"):
        found += _range_problems(getattr(client, name), f"{path}.{name}")
    if client.away_s is not None and client.stay_s is None:
        found.append(f"{path}.away_s needs {path}.stay_s: a client that never leaves does not come back")
    return found


def _workload_problems(workload: Workload, topology: Topology, path: str) -> list[str]:
    found = []
    if workload.client not in topology.clients:
        found.append(f"{path}.client = {workload.client!r}: {suggest(workload.client, list(topology.clients))}")
    if not workload.publish and not workload.subscribe:
        found.append(f"{path}: has neither publish nor subscribe")
    for topic in workload.publish:
        fault = topic_fault(filled(topic, 1, 1).encode())
        if fault is not None:
            found.append(f"{path}.publish has {topic!r}: {fault}")
    for pattern in workload.subscribe:
        fault = filter_fault(filled(pattern, 1, 1).encode())
        if fault is not None:
            found.append(f"{path}.subscribe has {pattern!r}: {fault}")
    if workload.policy not in list(Policy):
        found.append(f"{path}.policy = {workload.policy!r}: must be one of {', '.join(Policy)}")
    if not SIZE_BYTES_MIN <= workload.size_bytes[0] <= workload.size_bytes[1] <= SIZE_BYTES_MAX:
        found.append(f"{path}.size_bytes: must be [least, most] between {SIZE_BYTES_MIN} and {SIZE_BYTES_MAX}")
    if not 0 < workload.rate_per_s <= 1_000_000:
        found.append(f"{path}.rate_per_s = {workload.rate_per_s}: must be above 0 and at most 1000000")
    if not 0 <= workload.reads_per_s <= 1_000_000:
        found.append(f"{path}.reads_per_s = {workload.reads_per_s}: must be between 0 and 1000000 (0: at once)")
    for name, most in (("spread", 1 << 20), ("burst", 10_000), ("flush_every", 1 << 20), ("each", 10_000)):
        if not 1 <= getattr(workload, name) <= most:
            found.append(f"{path}.{name} = {getattr(workload, name)}: must be between 1 and {most}")
    if workload.inbox_frames_max < 1:
        found.append(f"{path}.inbox_frames_max = {workload.inbox_frames_max}: must be above 0")
    if workload.from_s < 0 or (workload.until_s is not None and workload.until_s < workload.from_s):
        found.append(f"{path}: must have 0 <= from_s <= until_s")
    return found + _range_problems(workload.change_s, f"{path}.change_s", above=0.001)


def _fault_problems(fault: Fault, head: Head, path: str) -> list[str]:
    found = []
    if fault.kind not in FAULTS:
        found.append(f"{path}.kind = {fault.kind!r}: {suggest(fault.kind, list(FAULTS))}")
    elif fault.kind in OF_LINKS and fault.target != "*" and fault.target.count(">") != 1:
        found.append(f'{path}.target = {fault.target!r}: a {fault.kind} needs "from > to", or "*"')
    if not 0 <= fault.at_s <= head.duration_s:
        found.append(f"{path}.at_s = {fault.at_s}: must lie within scenario.duration_s")
    if not 0 < fault.probability <= 1:
        found.append(f"{path}.probability = {fault.probability}: must be above 0 and at most 1")
    if not 1 <= fault.times <= 1_000_000:
        found.append(f"{path}.times = {fault.times}: must be between 1 and 1000000")
    if fault.times > 1 and not 0.001 <= fault.every_s <= DURATION_S_MAX:
        found.append(f"{path}.every_s = {fault.every_s}: is needed to strike {fault.times} times")
    if not 0 <= fault.for_s <= DURATION_S_MAX:
        found.append(f"{path}.for_s = {fault.for_s}: must be between 0 and {DURATION_S_MAX}")
    if not 1 <= fault.factor <= 1_000_000:
        found.append(f"{path}.factor = {fault.factor}: must be between 1 and 1000000")
    if fault.kind == "clock_step" and not fault.step_ms:
        found.append(f"{path}.step_ms is missing: by how much the clock steps")
    return found


def _range_problems(given: Range | None, path: str, above: float = 0.0) -> list[str]:
    if given is None or above <= given[0] <= given[1] <= DURATION_S_MAX:
        return []
    return [f"{path} = {list(given)}: must be [from, to] in seconds, from {above:g} on"]
