"""A network of resource services in virtual time, in which every broker does one thing at a time.

In:    brokers and links, a model of service times; what clients register, request and watch, and when.
Out:   answers with the time they took; what crossed links; the load of each broker.
State: one core per broker, what waits for it, and virtual time.
Not here: workloads (workload.py), experiments (sharing.py, architecture.py), faults (none happen here).

The service-time model: a broker takes ``message_us`` for every message, ``question_us`` for every query to its table of
advertisements, ``result_us`` for every resource that it puts into an answer or passes on, and ``frame_us`` for every
frame that it sends; frames leave when it is done. A link takes ``link_us`` each way, for clients too. The costs are
about those of this implementation on one core; their ratios matter, not their size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from statistics import mean

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.core import ResourceCore
from heliograph.discovery.resources.gathering import GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.messages import AdvertisedResource, ResourceRequest, ResourcesFound
from heliograph.discovery.resources.watchers import Watchers
from heliograph.evaluation.resources.workload import WorkloadRequest, WorkloadResource
from heliograph.machine import LinkId, Timers
from heliograph.wire.ways import LinkedBroker, WaysHere

SECOND = 1_000_000_000
MS = 1_000_000
US = 1_000
CACHE_NS = 100 * SECOND  # the paper's, also as the age that a request allows
LEASE_NS = 10**6 * SECOND
DEADLINE_NS = 90 * SECOND  # above every time measured; with it, requests are forgotten between two runs
EPOCH_NS = 1_000 * SECOND  # network time at the beginning
EDGES, ROUTERS = 20, 4
SEAL = "seal"

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """How long each operation takes, in microseconds."""

    message_us: int = 100
    question_us: int = 20
    result_us: int = 8
    frame_us: int = 20
    link_us: int = 200


@dataclass(slots=True)
class Traffic:
    """The services' counters, over all brokers."""

    subscriptions: int = 0
    publications: int = 0
    matchings: int = 0
    results: int = 0
    completions: int = 0
    advertisements: int = 0
    frames: int = 0  # between brokers, of every kind


def backbone(edges: int = EDGES, routers: int = ROUTERS) -> list[Edge]:
    """Edge brokers, divided among routers that form a line. The first numbers are the edge brokers'."""
    line = [(edges + n, edges + n + 1) for n in range(routers - 1)]
    return [(n, edges + n * routers // edges) for n in range(edges)] + line


@dataclass(slots=True)
class _Way:
    to: int
    link: LinkId  # its number at the receiver


class _Node:
    """One broker."""

    def __init__(self, network: ResourceNetwork, number: int) -> None:
        self.network = network
        self.number = number
        self.timers = Timers()
        self.ways: dict[LinkId, _Way] = {}
        self.waiting: deque[Callable[[int], None]] = deque()
        self.is_busy = False
        self.busy_ns = 0
        self.woken_at: int | None = None
        self.frames: list[tuple[_Way, bytes]] = []
        self.direct: list[tuple[int, ResourcesFound]] = []
        self.after: list[Callable[[int], None]] = []  # what clients are told when it is done
        self.extra_results = 0
        self.core = ResourceCore(
            network.config,
            self.timers,
            network_time=lambda now: now + EPOCH_NS,
            time_error=lambda now: 0,
            send=self._send,
            state=lambda state: None,
            told=lambda id, state: self.watchers.state(self.core, id, state, network.now),
            stirred=lambda id: self.watchers.stirred(self.core, id, network.now),
            emptied=lambda id, host: self.watchers.emptied(self.core, id, host),
            learned=lambda host, difference: self.watchers.learned(host, difference),  # noqa: PLW0108 it comes later
            direct=self._send_directly,
            reply=lambda id: (str(number), SEAL),
        )
        self.watchers = Watchers(
            self.timers,
            10**6,
            tell=self._tell,
            age_ms=lambda at, now: 0.0,
            deadline_ns=10 * SECOND,
        )

    def _send(self, link: LinkId, payload: bytes) -> None:
        self.frames.append((self.ways[link], payload))

    def _send_directly(
        self, request: ResourceRequest, found: ResourcesFound, undelivered: Callable[[], None], now: int
    ) -> bool:
        self.direct.append((request.id[0] - 1, found))
        return True

    def _tell(self, asker: LinkId, watch: int, payload: bytes) -> None:
        self.after.append(lambda at: self.network.hear_watcher(payload, at))

    @property
    def cost_marks(self) -> tuple[int, int]:
        """The numbers of queries and results so far."""
        table = self.core.table
        return table.questions + table.checks, self.core.forwarding.counts.results + self.extra_results


class ResourceNetwork:
    """Brokers numbered from 0."""

    def __init__(self, brokers: int, edges: Sequence[Edge], times: ServiceTimes | None = None) -> None:
        self.config = ResourcesConfig(deliver="normal", deadline_ms=600_000)
        self.times = times or ServiceTimes()
        self.now = 0
        self.frames = 0
        self.client_messages = 0
        self._told: Callable[[bytes, int], None] = lambda payload, at: None
        self._edges = list(edges)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._before = Traffic()
        self.nodes = [_Node(self, number) for number in range(brokers)]

    def join(self) -> None:
        """Open all links; all brokers learn what each hosts. Earlier registrations are told in few messages."""
        links = count(1)
        for one, other in self._edges:
            here, there = next(links), next(links)
            self.nodes[one].ways[here] = _Way(other, there)
            self.nodes[other].ways[there] = _Way(one, here)
        for node in self.nodes:
            ways = self._ways(node)
            self._put(node, lambda now, node=node, ways=ways: node.core.hear_ways(ways, now))  # type: ignore[misc]
        self.run(60.0)
        self.reset()

    def _ways(self, node: _Node) -> WaysHere:
        steps: dict[int, tuple[LinkId, int]] = {}
        queue = deque((way.to, link, 1) for link, way in node.ways.items())
        while queue:
            to, link, cost = queue.popleft()
            if to != node.number and to not in steps:
                steps[to] = (link, cost)
                queue.extend((way.to, link, cost + 1) for way in self.nodes[to].ways.values())
        neighbours = [
            LinkedBroker(link, way.to + 1, name(way.to), "main", 1, 1) for link, way in sorted(node.ways.items())
        ]
        members = [(to + 1, to + 1, link, cost) for to, (link, cost) in sorted(steps.items())]
        me = node.number + 1
        return WaysHere(me, name(node.number), "main", me, 1, neighbours, members, [])

    # -- time -------------------------------------------------------------------------------------------------------

    def at(self, instant: int, call: Callable[[], None]) -> None:
        """Schedule a call."""
        heappush(self._events, (instant, next(self._order), call))

    def client(self, broker: int, call: Callable[[int], None]) -> None:
        """A client sends something to its broker."""
        self.client_messages += 1
        node = self.nodes[broker]
        self.at(self.now + self.times.link_us * US, lambda: self._put(node, call))

    def _put(self, node: _Node, call: Callable[[int], None]) -> None:
        node.waiting.append(call)
        if not node.is_busy:
            self._begin(node)

    def _begin(self, node: _Node) -> None:
        """Do the next thing; the resulting frames leave when it is done."""
        node.is_busy = True
        questions, results = node.cost_marks
        node.waiting.popleft()(self.now)
        after_questions, after_results = node.cost_marks
        frames, node.frames = node.frames, []
        direct, node.direct = node.direct, []
        heard, node.after = node.after, []
        times = self.times
        sent = len(frames) + len(direct) + len(heard)
        cost = US * (
            times.message_us
            + times.question_us * (after_questions - questions)
            + times.result_us * (after_results - results)
            + times.frame_us * sent
        )
        node.busy_ns += cost
        self.frames += len(frames) + len(direct)
        self.at(self.now + cost, lambda: self._finish(node, frames, direct, heard))

    def _finish(
        self,
        node: _Node,
        frames: list[tuple[_Way, bytes]],
        direct: list[tuple[int, ResourcesFound]],
        heard: list[Callable[[int], None]],
    ) -> None:
        there = self.now + self.times.link_us * US
        for way, payload in frames:
            self.at(there, lambda way=way, payload=payload: self._arrive(way, payload))  # type: ignore[misc]
        for broker, found in direct:
            self.at(there, lambda broker=broker, found=found: self._arrive_directly(broker, found))  # type: ignore[misc]
        for call in heard:
            self.client_messages += 1
            call(there)
        node.is_busy = False
        self._look_at_timers(node)
        if node.waiting:
            self._begin(node)

    def _arrive(self, way: _Way, payload: bytes) -> None:
        node = self.nodes[way.to]
        self._put(node, lambda now: node.core.hear_neighbour(way.link, payload, now))

    def _arrive_directly(self, broker: int, found: ResourcesFound) -> None:
        node = self.nodes[broker]
        self._put(node, lambda now: node.core.gathering.found((found.id, found.attempt), found.found))

    def _look_at_timers(self, node: _Node) -> None:
        at = node.timers.next()
        if at is not None and (node.woken_at is None or at < node.woken_at):
            node.woken_at = max(at, self.now)
            self.at(node.woken_at, lambda: self._wake(node))

    def _wake(self, node: _Node) -> None:
        node.woken_at = None
        at = node.timers.next()
        if at is not None and at <= self.now:
            self._put(node, node.timers.run)
        else:
            self._look_at_timers(node)

    def run(self, seconds: float) -> None:
        """Let this much time pass, and then as much as it takes until no broker is busy and nothing is in transit."""
        until = self.now + int(seconds * SECOND)
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heappop(self._events)
            call()
        self.now = max(self.now, until)

    def reset(self) -> None:
        """Forget requests everywhere, and reset the counters."""
        self.run(2 * CACHE_NS / SECOND)
        for node in self.nodes:
            node.busy_ns = 0
        self.frames = self.client_messages = 0
        self._before = self._counted()

    # -- clients ----------------------------------------------------------------------------------------------------

    def place(self, broker: int, id: int, resource: WorkloadResource, is_static: bool = False) -> None:
        """Register a resource with its values from the beginning; call it before ``join``."""
        node = self.nodes[broker]
        node.core.hosting.become(broker + 1, 1)
        self.register(broker, id, resource, is_static, self.now)

    def register(self, broker: int, id: int, resource: WorkloadResource, is_static: bool, now: int) -> None:
        """Register a resource now. It comes alone, so it is told at once."""
        core = self.nodes[broker].core
        hosting = core.hosting
        where = read_condition(resource.fixed if is_static else resource.where).text
        hosting.register(AdvertisedResource(id, is_static, where, 1, resource.name), "owner", LEASE_NS, now)
        if not is_static:
            hosting.update(id, dict(resource.values), 1, now)
        core.flush()

    def ask(
        self,
        broker: int,
        request: WorkloadRequest,
        deliver: str,
        answered: Callable[[GatheredAnswer, int], None],
        max_age_ns: int = CACHE_NS,
    ) -> None:
        """A client makes a one-time request; ``answered`` gets the answer and how many nanoseconds it took."""
        began, node = self.now, self.nodes[broker]
        question = ResourceQuestion(
            condition=read_condition(request.where),
            deliver=deliver,
            max_age_ns=max_age_ns,
            deadline_ns=DEADLINE_NS,
            cache_ns=CACHE_NS,
        )

        def hear(answer: GatheredAnswer, now: int) -> None:
            node.extra_results += len(answer.found)
            node.after.append(lambda at: answered(answer, at - began))

        def begin(now: int) -> None:
            node.core.gathering.begin(question, hear, now)

        self.client(broker, begin)

    def ask_static(self, broker: int, request: WorkloadRequest, answered: Callable[[int, int], None]) -> None:
        """A client requests static resources; ``answered`` gets their number and how long it took."""
        began, node = self.now, self.nodes[broker]

        def work(now: int) -> None:
            found = len(node.core.static(read_condition(request.where)))
            node.extra_results += found
            node.after.append(lambda at: answered(found, at - began))

        self.client(broker, work)

    def watch(self, broker: int, request: WorkloadRequest, is_static: bool, number: int) -> None:
        """A client watches, under a number of its own."""
        node = self.nodes[broker]
        condition = read_condition(request.where)

        def begin(now: int) -> None:
            node.watchers.begin(node.core, 1, number, condition, is_static, now)

        self.client(broker, begin)

    def listen(self, told: Callable[[bytes, int], None]) -> None:
        """From now on ``told`` gets what watchers are told, and when."""
        self._told = told

    def hear_watcher(self, payload: bytes, at: int) -> None:
        """A watcher is told something."""
        self._told(payload, at)

    # -- counters ---------------------------------------------------------------------------------------------------

    def traffic(self) -> Traffic:
        """The traffic since the last reset."""
        now, before = self._counted(), self._before
        return Traffic(
            now.subscriptions - before.subscriptions,
            now.publications - before.publications,
            now.matchings - before.matchings,
            now.results - before.results,
            now.completions - before.completions,
            now.advertisements - before.advertisements,
            self.frames,
        )

    def _counted(self) -> Traffic:
        every = [node.core.forwarding.counts for node in self.nodes]
        return Traffic(
            subscriptions=sum(each.subscriptions for each in every),
            publications=sum(each.publications for each in every),
            matchings=sum(node.core.table.questions for node in self.nodes),
            results=sum(each.results for each in every),
            completions=sum(each.completions for each in every),
            advertisements=sum(node.core.spreading.frames_told for node in self.nodes),
        )

    def busiest(self, seconds: float) -> float:
        """The share of the time during which the busiest broker worked."""
        return max(node.busy_ns for node in self.nodes) / (seconds * SECOND)

    def mean_busy(self, seconds: float) -> float:
        """The same, over all brokers."""
        return mean(node.busy_ns for node in self.nodes) / (seconds * SECOND)


def name(number: int) -> str:
    """The name of a broker."""
    return f"b{number}"
