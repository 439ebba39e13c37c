"""Resource services joined by ordered links, without brokers: trees and cyclic graphs, faults, and an oracle.

In:    a graph, a seed; registrations, updates, requests, crashes, links that come and go.
Out:   answers; messages by kind.
State: one core per broker, the messages on each link, virtual time.
Not here: judgement (the tests), brokers (the simulator).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.core import ResourceCore
from heliograph.discovery.resources.gathering import GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.messages import (
    AdvertisedResource,
    RequestId,
    ResourceRequest,
    ResourcesFound,
    ResourceState,
)
from heliograph.machine import Timers
from heliograph.wire.ways import LinkedBroker, WaysHere

SECOND = 1_000_000_000
MS = 1_000_000
EPOCH = 1_000 * SECOND  # network time at the beginning
Edge = tuple[str, str]


@dataclass(eq=False)
class Wire:
    """One direction of a link: messages in order."""

    to: str
    link: int  # its number at the receiver
    queue: deque[tuple[int, bytes]] = field(default_factory=deque)
    last: int = 0
    cut: bool = False


class Node:
    """A broker's resource service."""

    def __init__(self, net: Net, name: str, incarnation: int) -> None:
        self.net = net
        self.name = name
        self.incarnation = incarnation
        self.timers = Timers()
        self.wires: dict[int, Wire] = {}
        self.states: list[tuple[RequestId, ResourceState]] = []
        self.stirred: list[RequestId] = []
        self.core = ResourceCore(
            net.config,
            self.timers,
            network_time=lambda now: now + EPOCH + net.ahead.get(name, 0),
            time_error=lambda now: net.time_error,
            send=self._send,
            state=lambda state: None,
            told=lambda id, state: net.told(self, id, state),
            stirred=lambda id: net.stirred(self, id),
            emptied=lambda id, host: net.emptied(self, id, str(host.broker), host.incarnation),
            learned=lambda host, difference: None,
            direct=self._send_directly,
            reply=lambda id: (name, "topic"),
        )

    def _send(self, link: int, payload: bytes) -> None:
        wire = self.wires.get(link)
        if wire is not None and not wire.cut:
            self.net.carry(self.name, wire, payload)

    def _send_directly(
        self, request: ResourceRequest, found: ResourcesFound, undelivered: Callable[[], None], now: int
    ) -> bool:
        """As a link of its own would: it may be refused at once, fail later, or lose what was sent."""
        assert request.reply is not None
        draw, net = self.net.random.random() if self.net.direct_faults else 1.0, self.net
        if draw < 0.2:
            return False
        at = net.now + net.random.randint(net.delay_ms[0] * MS, 3 * net.delay_ms[1] * MS)
        if draw < 0.4:
            net.at(at, undelivered)
        elif draw > 0.5:
            core = net.nodes[request.reply[0]].core
            payload = messages.encode(found)
            net.at(at, lambda: core.hear_direct(payload, "seal", lambda id: "seal"))
        net.kinds["Direct"] += 1
        return True


class Net:
    """Nodes by name, numbered from 1 in the order given."""

    def __init__(
        self, names: list[str], edges: list[Edge], seed: int = 0, config: ResourcesConfig | None = None
    ) -> None:
        self.random = Random(seed)
        self.config = config or ResourcesConfig()
        self.now = 0
        self.ids = {name: number for number, name in enumerate(names, 1)}
        self.nodes: dict[str, Node] = {}
        self.edges: dict[Edge, int] = {}
        self.kinds: Counter[str] = Counter()
        self.traffic: list[tuple[str, str, str]] = []
        self.delay_ms = (1, 1)
        self.ahead: dict[str, int] = {}  # by how much the clocks of these nodes are ahead
        self.time_error = 0  # the error that all nodes state
        self.direct_faults = False
        self.on_told: Callable[[Node, RequestId, ResourceState], None] | None = None
        self.on_stirred: Callable[[Node, RequestId], None] | None = None
        self.on_emptied: Callable[[Node, RequestId, str, int], None] | None = None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counter = 0
        self._links = 1_000
        for name in names:
            self.nodes[name] = Node(self, name, 1)
        for edge in edges:
            self._join(edge)
        self.reroute()
        self.run(0.1)

    # -- links ----------------------------------------------------------------------------------------------------

    def _join(self, edge: Edge) -> None:
        one, other = edge
        self._links += 2
        here, there = self._links, self._links + 1
        self.nodes[one].wires[here] = Wire(other, there)
        self.nodes[other].wires[there] = Wire(one, here)
        self.edges[edge] = here

    def reroute(self) -> None:
        """Everybody hears of the ways that there are now."""
        for node in self.nodes.values():
            self._tell_ways(node)

    def _tell_ways(self, node: Node) -> None:
        costs, steps = self._shortest(node)
        neighbours = [
            LinkedBroker(link, self.ids[wire.to], wire.to, "main", 1, 1)
            for link, wire in node.wires.items()
            if not wire.cut
        ]
        members = [
            (self.ids[name], self.ids[name], link, costs[name])
            for name, link in sorted(steps.items(), key=lambda x: x[0])
        ]
        me = self.ids[node.name]
        ways = WaysHere(me, node.name, "main", me, node.incarnation, neighbours, members, [])
        node.core.hear_ways(ways, self.now)

    def _shortest(self, node: Node) -> tuple[dict[str, int], dict[str, int]]:
        costs, steps = {node.name: 0}, {}
        heap: list[tuple[int, int, str, int]] = []
        for link, wire in node.wires.items():
            if not wire.cut:
                heappush(heap, (1, self.ids[wire.to], wire.to, link))
        while heap:
            cost, tie, name, link = heappop(heap)
            if name in costs:
                continue
            costs[name], steps[name] = cost, link
            for wire in self.nodes[name].wires.values():
                if not wire.cut and wire.to not in costs:
                    heappush(heap, (cost + 1, tie, wire.to, link))
        return costs, steps

    def cut(self, edge: Edge) -> None:
        """A link breaks; what was on it is lost."""
        one, other = edge
        here = self.edges.pop(edge)
        for node, link in ((self.nodes[one], here), (self.nodes[other], here + 1)):
            wire = node.wires.pop(link)
            wire.cut = True
            wire.queue.clear()

    def mend(self, edge: Edge) -> None:
        self._join(edge)

    def crash(self, name: str) -> list[Edge]:
        """A broker dies and begins another life, without links."""
        edges = [edge for edge in self.edges if name in edge]
        for edge in edges:
            self.cut(edge)
        self.nodes[name] = Node(self, name, self.nodes[name].incarnation + 1)
        return edges

    # -- time -----------------------------------------------------------------------------------------------------

    def carry(self, source: str, wire: Wire, payload: bytes) -> None:
        kind = type(messages.decode(payload)).__name__
        self.kinds[kind] += 1
        self.traffic.append((kind, source, wire.to))
        at = max(wire.last, self.now + self.random.randint(self.delay_ms[0] * MS, self.delay_ms[1] * MS))
        wire.last = at
        wire.queue.append((at, payload))
        self.at(at, lambda: self._arrive(wire))

    def _arrive(self, wire: Wire) -> None:
        if wire.cut or not wire.queue:
            return
        _, payload = wire.queue.popleft()
        self.nodes[wire.to].core.hear_neighbour(wire.link, payload, self.now)

    def at(self, instant: int, call: Callable[[], None]) -> None:
        self._counter += 1
        heappush(self._events, (instant, self._counter, call))

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while True:
            wakes = [(at, name) for name, node in self.nodes.items() if (at := node.timers.next()) is not None]
            wake = min(wakes, default=(until + 1, ""))
            event = self._events[0][0] if self._events else until + 1
            if min(wake[0], event) > until:
                break
            if event <= wake[0]:
                self.now, _, call = heappop(self._events)
                call()
            else:
                self.now = max(self.now, wake[0])
                self.nodes[wake[1]].timers.run(self.now)
        self.now = until

    def told(self, node: Node, id: RequestId, state: ResourceState) -> None:
        node.states.append((id, state))
        if self.on_told is not None:
            self.on_told(node, id, state)

    def stirred(self, node: Node, id: RequestId) -> None:
        node.stirred.append(id)
        if self.on_stirred is not None:
            self.on_stirred(node, id)

    def emptied(self, node: Node, id: RequestId, host: str, life: int) -> None:
        if self.on_emptied is not None:
            self.on_emptied(node, id, host, life)

    # -- owners and requesters --------------------------------------------------------------------------------------

    def register(
        self, at: str, id: int, where: str, static: bool = False, epoch: int = 1, lease_s: float = 3_600
    ) -> None:
        text = read_condition(where).text
        advertised = AdvertisedResource(id, static, text, epoch, f"R{id}", epoch > 1)
        self.nodes[at].core.hosting.register(advertised, "owner", int(lease_s * SECOND), self.now)

    def update(self, at: str, id: int, version: int, **values: Any) -> None:
        self.nodes[at].core.hosting.update(id, values, version, self.now)

    def ask(
        self, at: str, where: str, answers: list[GatheredAnswer] | None = None, **question: Any
    ) -> list[GatheredAnswer]:
        answers = [] if answers is None else answers
        self.nodes[at].core.gathering.begin(
            ResourceQuestion(read_condition(where), **question), lambda answer, now: answers.append(answer), self.now
        )
        return answers
