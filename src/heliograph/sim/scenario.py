"""Scenarios: network, hosts, topology, workloads, faults and checks of a simulated run, as frozen values.

In:    the values of a scenario file.
Out:   Scenario, and the list of its problems.
State: none.
Not here: reading the file (scenario_files.py), brokers and clients (topology/scenario_network.py), building the world
          (scenario_world.py), what workloads, faults and checks do (workloads.py, faults.py, checkers/).

In topics, filters and conditions, ``{n}`` is the client's number in its group and ``{k}`` a number drawn from 1 to
``spread``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.model.subscription import Policy
from heliograph.model.topics import filter_fault, topic_fault
from heliograph.sim import selections
from heliograph.sim.datagrams import DatagramSettings
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.resourcing.plans import DiscoveryPlan, ResourcePlan, discovery_problems, resource_problems
from heliograph.sim.topics.plans import (
    DirectoryPlan,
    EntityPlan,
    GrantPlan,
    SearchPlan,
    TopicCastPlan,
    TopicPlan,
    TopicsPlan,
)
from heliograph.sim.world import HostSettings
from heliograph.topology.scenario_network import DURATION_S_MAX, Range, ScenarioTopology, filled, range_problems
from heliograph.topology.toml_tables import suggest

FAULTS = {
    "stall": "a direction of a link stands still for a while, then everything arrives",
    "partition": "nothing arrives in one direction between two hosts until it heals",
    "reset": "a link breaks; of what was in flight a suffix is lost",
    "crash": "a process dies and is started again after a while",
    "power_cut": "the same, but its peers are told nothing",
    "pause": "a process handles nothing for a while",
    "slow": "every input costs a process `factor` times as much for a while",
    "clock_step": "a wall clock is set by `step_ms`",
    "lag": "everything on a link takes `factor` times as long for a while; nothing is lost",
    "drop_frame": "a planted bug: one publication, delivery or parcel silently disappears",
    "clog": "the links of a broker stand still, one after another, and are let go in random order",
    "divide": "a set of brokers, drawn from those that fit, is cut off from all others",
    "stop": "a broker is told to end, and is started again after a while",
    "replace": "a broker dies, and after a while another, with a new name, takes its place",
    "link": "two brokers that are not linked are linked for a while",
    "lossy": "datagrams between the hosts that fit are lost with probability `loss` for a while",
    "unlink": "a link between brokers is removed, and added again after a while",
    "disk_full": "a host's vaults take nothing more for a while",
    "disk_slow": "commits and reads of a host's vaults take `factor` times as long for a while",
    "disk_torn": "a process dies while it writes, and is started again after a while; the last record is damaged",
    "disk_flip": "a record in each vault of a host is damaged",
}
OF_LINKS = ("stall", "partition", "reset", "lag", "drop_frame", "unlink")  # the target is "from > to"
OF_DATAGRAMS = ("lossy",)  # the target is "from > to" too; they strike all matches
OF_MANY = ("divide", "link")  # they draw from all matching brokers
OF_DISKS = ("disk_full", "disk_slow", "disk_torn", "disk_flip")  # they draw from hosts that have a vault
SIZE_BYTES_MIN = 16  # a payload names its publisher and its number
SIZE_BYTES_MAX = 1 << 20


Drawn = tuple[int | float | str, ...]
"""The values of a header: [least, most] for numbers, or a choice of texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The description and duration of a scenario."""

    name: str
    about: str = ""
    duration_s: float = 10.0  # of workload and faults
    settle_s: float = 5.0  # then quiet, so that publications under way arrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What each client of a group does: publish on topics, subscribe to filters, or both."""

    client: str
    spread: int = 1  # {k} is drawn from 1 to this
    # publishing
    publish: tuple[str, ...] = ()
    rate_per_s: float = 10.0  # bursts per second and client
    burst: int = 1  # publications at once
    even: bool = False  # evenly spaced instead of at random instants
    size_bytes: tuple[int, int] = (64, 64)
    from_s: float = 0.0
    until_s: float | None = None  # None: to the end of the scenario
    flush_every: int = 20  # publications between two flushes
    headers: dict[str, Drawn] = field(default_factory=dict)
    request: tuple[str, ...] = ()  # topics on which it asks, instead of publishing; no simulated client answers
    # subscribing
    subscribe: tuple[str, ...] = ()
    where: tuple[str, ...] = ()  # conditions: each filter is subscribed to with each of them
    language: str = "predicates"  # the language of the conditions
    each: int = 1  # subscriptions per filter and condition (with a {k} in it)
    policy: str = Policy.DROP_OLDEST.value
    echo: bool = True
    listens: bool = False  # these subscriptions answer no request
    reads_per_s: float = 0.0  # how fast the program reads; 0: at once
    inbox_frames_max: int = 65_536
    change_s: Range | None = None  # how often it replaces a subscription by another


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing:
    """A client that publishes reliably, or that reads with a durable subscription named after it."""

    name: str
    brokers: tuple[str, ...]  # brokers to use; if one fails, the next
    publish: tuple[str, ...] = ()  # topics, in turn …
    count: int = 200  # … this many publications in all
    every_ms: int = 50  # between two bursts …
    at_once: int = 5  # … of this many
    read: str = ""  # or a filter
    window: int = 50  # publications that may be under way
    from_s: float = 2.0  # when it appears
    session: bool = False  # use the session of a real client instead of the simplest machine
    batches: bool = False  # with ``session``: publish each burst as a batch, staged and committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, once or repeated."""

    kind: str
    target: str = "*"  # a host, or "from > to"; * matches anything, and one match is drawn
    at_s: float = 0.0
    within_s: float = 0.0  # each strike is delayed by up to this, drawn from the seed
    every_s: float = 0.0  # again after this long …
    times: int = 1  # … this often in all
    probability: float = 1.0
    for_s: float = 1.0  # how long it lasts
    step_ms: int = 0
    factor: float = 10.0
    loss: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The rules that must hold."""

    names: tuple[str, ...] = ("delivery", "duplicates", "order", "isolation", "bounded", "convergence")
    counts: dict[str, int] = field(default_factory=dict)  # totals of the counters of all brokers' resource services
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # broker -> the lines of its tables of requests
    harmless: tuple[str, ...] = (
        "clock_step",
        "lag",
    )  # faults that must cause no losses, not even while they are active


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that, with a seed, determines a run."""

    scenario: Head
    topology: ScenarioTopology
    network: NetworkSettings = field(default_factory=NetworkSettings)
    datagrams: DatagramSettings = field(default_factory=DatagramSettings)
    hosts: HostSettings = field(default_factory=HostSettings)
    workload: tuple[Workload, ...] = ()
    storing: tuple[Storing, ...] = ()
    resources: ResourcesConfig | None = None  # settings of every broker's resource service; None: no service
    resource: tuple[ResourcePlan, ...] = ()
    discovery: tuple[DiscoveryPlan, ...] = ()
    topics: TopicsPlan | None = None  # None: no service for rights to topics
    directory: tuple[DirectoryPlan, ...] = ()
    entity: tuple[EntityPlan, ...] = ()
    topic: tuple[TopicPlan, ...] = ()
    grant: tuple[GrantPlan, ...] = ()
    search: tuple[SearchPlan, ...] = ()
    fault: tuple[Fault, ...] = ()
    checks: Checks = field(default_factory=Checks)

    @property
    def topic_tables(self) -> TopicCastPlan:
        """All tables about topics."""
        return TopicCastPlan(
            topics=self.topics,
            directories=self.directory,
            entities=self.entity,
            topic=self.topic,
            grants=self.grant,
            searches=self.search,
        )

    def problems(self, checkers: list[str]) -> list[str]:
        """All problems with it."""
        found = _head_problems(self.scenario) + self.network.problems() + self.hosts.problems()
        found += self.datagrams.problems()
        found += self.topology.problems()
        for number, workload in enumerate(self.workload):
            found += _workload_problems(workload, self.topology, f"workload[{number}]")
        for number, storing in enumerate(self.storing):
            found += _storing_problems(storing, self.topology, f"storing[{number}]")
        for number, resource in enumerate(self.resource):
            found += resource_problems(resource, self.topology.brokers, f"resource[{number}]")
        for number, discovery in enumerate(self.discovery):
            found += discovery_problems(discovery, self.topology.brokers, f"discovery[{number}]")
        if (self.resource or self.discovery) and self.resources is None:
            found.append("resource and discovery need the table [resources], which may be empty")
        found += self.topic_tables.problems(self.topology.brokers)
        for number, fault in enumerate(self.fault):
            found += _fault_problems(fault, self.scenario, f"fault[{number}]")
        found += [
            f"checks.harmless has {k!r}: {suggest(k, list(FAULTS))}" for k in self.checks.harmless if k not in FAULTS
        ]
        found += [f"checks.names has {n!r}: {suggest(n, checkers)}" for n in self.checks.names if n not in checkers]
        return found


def _head_problems(head: Head) -> list[str]:
    found = []
    if not 0 < head.duration_s <= DURATION_S_MAX:
        found.append(f"scenario.duration_s = {head.duration_s}: must be above 0 and at most {DURATION_S_MAX}")
    if not 0 <= head.settle_s <= DURATION_S_MAX:
        found.append(f"scenario.settle_s = {head.settle_s}: must be between 0 and {DURATION_S_MAX}")
    return found


def _workload_problems(workload: Workload, topology: ScenarioTopology, path: str) -> list[str]:
    found = []
    if workload.client not in topology.clients:
        found.append(f"{path}.client = {workload.client!r}: {suggest(workload.client, list(topology.clients))}")
    if not workload.publish and not workload.subscribe and not workload.request:
        found.append(f"{path}: has neither publish, subscribe nor request")
    if workload.publish and workload.request:
        found.append(f"{path}: has both publish and request")
    for topic in (*workload.publish, *workload.request):
        fault = topic_fault(filled(topic, 1, 1).encode())
        if fault is not None:
            found.append(f"{path}.publish has {topic!r}: {fault}")
    for pattern in workload.subscribe:
        fault = filter_fault(filled(pattern, 1, 1).encode())
        if fault is not None:
            found.append(f"{path}.subscribe has {pattern!r}: {fault}")
    found += _content_problems(workload, path)
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
    return found + range_problems(workload.change_s, f"{path}.change_s", above=0.001)


def _storing_problems(storing: Storing, topology: ScenarioTopology, path: str) -> list[str]:
    found = [
        f"{path}.brokers has {name!r}: {suggest(name, list(topology.brokers))}"
        for name in storing.brokers
        if name not in topology.brokers
    ]
    if not storing.brokers:
        found.append(f"{path}.brokers: must name at least one")
    if bool(storing.publish) == bool(storing.read):
        found.append(f"{path}: must have either publish or read")
    for topic in storing.publish:
        fault = topic_fault(topic.encode())
        if fault is not None:
            found.append(f"{path}.publish has {topic!r}: {fault}")
    if storing.read:
        fault = filter_fault(storing.read.encode())
        if fault is not None:
            found.append(f"{path}.read = {storing.read!r}: {fault}")
    for name, most in (("count", 1_000_000), ("every_ms", 60_000), ("at_once", 10_000), ("window", 1 << 20)):
        if not 1 <= getattr(storing, name) <= most:
            found.append(f"{path}.{name} = {getattr(storing, name)}: must be between 1 and {most}")
    if not 0 <= storing.from_s <= DURATION_S_MAX:
        found.append(f"{path}.from_s = {storing.from_s}: must be between 0 and {DURATION_S_MAX}")
    return found


def _content_problems(workload: Workload, path: str) -> list[str]:
    found = []
    for condition in workload.where:
        try:
            selections.comparisons_of(filled(condition, 1, 1))
        except ValueError as error:
            found.append(f"{path}.where has {condition!r}: {error}")
    if workload.where and not workload.subscribe:
        found.append(f"{path}.where needs {path}.subscribe: the topics of which these are conditions")
    if workload.language not in selections.LANGUAGES:
        known = ", ".join(selections.LANGUAGES)
        found.append(f"{path}.language = {workload.language!r}: must be one of {known}")
    for name, drawn_from in workload.headers.items():
        if not name or name.startswith("$"):
            found.append(f"{path}.headers has {name!r}: a name that does not begin with $ is needed")
        elif not _can_be_drawn(drawn_from):
            found.append(f"{path}.headers.{name} = {list(drawn_from)}: must be [least, most], or a list of texts")
    return found


def _can_be_drawn(drawn_from: Drawn) -> bool:
    match drawn_from:
        case (int() | float() as least, int() | float() as most):
            return least <= most
    return bool(drawn_from) and all(isinstance(value, str) for value in drawn_from)


def _fault_problems(fault: Fault, head: Head, path: str) -> list[str]:
    found = []
    if fault.kind not in FAULTS:
        found.append(f"{path}.kind = {fault.kind!r}: {suggest(fault.kind, list(FAULTS))}")
    elif fault.kind in OF_LINKS + OF_DATAGRAMS and fault.target != "*" and fault.target.count(">") != 1:
        found.append(f'{path}.target = {fault.target!r}: a {fault.kind} needs "from > to", or "*"')
    if not 0 <= fault.at_s <= head.duration_s:
        found.append(f"{path}.at_s = {fault.at_s}: must lie within scenario.duration_s")
    if not 0 <= fault.within_s <= DURATION_S_MAX:
        found.append(f"{path}.within_s = {fault.within_s}: must be between 0 and {DURATION_S_MAX}")
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
    if not 0 <= fault.loss <= 1:
        found.append(f"{path}.loss = {fault.loss}: a probability is between 0 and 1")
    if fault.kind == "clock_step" and not fault.step_ms:
        found.append(f"{path}.step_ms is missing: by how much the clock steps")
    return found
