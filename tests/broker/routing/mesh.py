"""Several brokers, linked, with peers that talk to them in bytes: the harness of the tests in this folder.

In:    which brokers, who dials whom, what clients say.
Out:   what clients hear; reports.
State: one Talk per broker, the pipes between them, one clock.
Not here: delays and faults (the simulator), any judgement (the tests).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from heliograph.broker.config import BrokerConfig, LinkConfig, NetworkConfig
from heliograph.broker.routing.routing import SETTLE_NS
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer
from tests.broker.talk import Heard, Talk

KEY = b"k" * 32
READ_BYTES_MAX = 256 << 10  # what a driver hands over at once


class Node(Talk):
    """A broker of a mesh. Links between brokers have numbers from 1000 on."""

    def __init__(self, mesh: Mesh, name: str, config: BrokerConfig, incarnation: int = 1) -> None:
        self.mesh = mesh
        self.name = name
        self.ends: dict[int, tuple[Node, int]] = {}
        self.next = 1000
        super().__init__(config, incarnation)
        self.broker.clock(0, mesh.now)

    def take(self) -> None:
        """Writes and hangups on links to other brokers go to the mesh; the rest is heard as usual."""
        effects = self.broker.take()
        kept = Effects()
        kept.wake_at, kept.notes, kept.jobs, kept.stop = effects.wake_at, effects.notes, effects.jobs, effects.stop
        kept.writes = self._carry(effects.writes)
        kept.holds = effects.holds
        kept.hangups = [(link, reason) for link, reason in effects.hangups if link not in self.ends]
        for link, reason in effects.hangups:
            if link in self.ends:
                self.mesh.cut(self, link, reason)
        for ticket, dial in effects.dials:
            self.mesh.dial(self, ticket, dial.host)
        self._absorb(kept)

    def _hear_all(self, writes: Sequence[tuple[int, list[bytes]]]) -> None:
        super()._hear_all(self._carry(writes))

    def _carry(self, writes: Sequence[tuple[int, list[bytes]]]) -> list[tuple[int, list[bytes]]]:
        """Send on what is for other brokers; the rest."""
        for link, chunks in writes:
            if link in self.ends:
                self.mesh.carry(self, link, b"".join(chunks))
        return [(link, chunks) for link, chunks in writes if link not in self.ends]


class Mesh:
    """Brokers by name. ``links`` maps a broker to those it dials; ``clusters`` a broker to its cluster."""

    def __init__(
        self, links: dict[str, list[str]], clusters: dict[str, str] | None = None, key: bytes = KEY, **network: Any
    ) -> None:
        self.now = 0
        self.work: deque[tuple[Any, ...]] = deque()
        self.stalled: set[frozenset[str]] = set()
        self.muted: set[tuple[str, str]] = set()  # (from, to): nothing arrives in this direction
        self.carried: dict[tuple[str, str], int] = {}
        self.nodes: dict[str, Node] = {}
        self.key = key
        self.network = network
        for name in dict.fromkeys([*links, *(other for others in links.values() for other in others)]):
            self.nodes[name] = self._node(name, links.get(name, []), (clusters or {}).get(name, "main"))
        for node in self.nodes.values():
            node.take()
        self.run()
        self.pass_time(100)

    def _node(self, name: str, links: list[str], cluster: str, incarnation: int = 1) -> Node:
        dials = tuple(LinkConfig(host=other) for other in links)
        config = NetworkConfig(cluster=cluster, key=self.key, links=dials, **self.network)
        return Node(self, name, BrokerConfig(name=name, network=config), incarnation)

    def add(self, name: str, links: list[str], cluster: str = "main", incarnation: int = 2) -> None:
        """A broker begins, perhaps another life."""
        node = self.nodes[name] = self._node(name, links, cluster, incarnation)
        node.now = self.now
        node.take()
        self.run()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def dial(self, node: Node, ticket: int, host: str) -> None:
        self.work.append(("dial", node, ticket, host))

    def carry(self, node: Node, link: int, data: bytes) -> None:
        self.work.append(("data", node, link, data))

    def cut(self, node: Node, link: int, reason: Reason) -> None:
        self.work.append(("cut", node, link, reason))

    def run(self) -> None:
        """Carry everything to its end, in order, in no time; or in as much as brokers take to think about it."""
        self._drain()
        while any(not node.broker._routing.view.is_settled for node in self.nodes.values()):
            self._tick(SETTLE_NS)

    def _drain(self) -> None:
        while self.work:
            self.step()

    def step(self) -> None:
        """The first thing that is under way arrives."""
        kind, node, *rest = self.work.popleft()
        getattr(self, f"_{kind}")(node, *rest)

    def _tick(self, ns: int) -> None:
        self.now += ns
        for node in list(self.nodes.values()):
            node.now = self.now
            if node.wake_at is not None and node.wake_at <= self.now:
                node.broker.wake(self.now)
                node.take()
        self._drain()

    def _dial(self, node: Node, ticket: int, host: str) -> None:
        other = self.nodes.get(host)
        if other is None or frozenset((node.name, host)) in self.stalled:
            node.broker.failed(ticket, Reason.DIAL_FAILED, self.now)
            node.take()
            return
        here, there = node.next, other.next
        node.next += 1
        other.next += 1
        node.ends[here], other.ends[there] = (other, there), (node, here)
        other.broker.attach(there, Peer("tcp", f"127.0.0.1:{there}", "main"), self.now)
        node.broker.attach(here, Peer("tcp", f"127.0.0.1:{here}", None, None, ticket), self.now)
        other.take()
        node.take()

    def _data(self, node: Node, link: int, data: bytes) -> None:
        end = node.ends.get(link)
        if end is None or frozenset((node.name, end[0].name)) in self.stalled or (node.name, end[0].name) in self.muted:
            return
        other, number = end
        self.carried[(node.name, other.name)] = self.carried.get((node.name, other.name), 0) + 1
        for start in range(0, len(data), READ_BYTES_MAX):
            other.say(number, data[start : start + READ_BYTES_MAX])

    def _cut(self, node: Node, link: int, reason: Reason) -> None:
        end = node.ends.pop(link, None)
        if end is None:
            return
        other, number = end
        other.ends.pop(number, None)
        node.broker.detach(link, reason, self.now)
        other.broker.detach(number, Reason.CLOSED, self.now)
        node.take()
        other.take()

    def kill(self, name: str) -> None:
        """A broker ends without a word; its neighbours see their links break."""
        gone = self.nodes.pop(name)
        for other, number in gone.ends.values():
            other.ends.pop(number, None)
            other.broker.detach(number, Reason.RESET, self.now)
            other.take()
        self.run()

    def pass_time(self, ms: float, step_ms: float = 10) -> None:
        """Let time pass for everybody."""
        until = self.now + int(ms * 1_000_000)
        while self.now < until:
            self._tick(min(until - self.now, int(step_ms * 1_000_000)))
        self.run()

    def client(self, at: str, link: int, **hello: Any) -> Heard:
        """A client of a broker."""
        self.nodes[at].join(link, **hello)
        self.run()
        return self.nodes[at].heard[link]

    def subscribe(self, name: str, link: int, pattern: str, number: int = 1, **fields: Any) -> None:
        self.nodes[name].subscribe(link, pattern, number, **fields)
        self.run()

    def publish(self, name: str, link: int, topic: str, *payloads: bytes, **fields: Any) -> None:
        self.nodes[name].publish(link, topic, *payloads, **fields)
        self.run()

    def report(self, name: str, question: str) -> Any:
        return self.nodes[name].broker.report(question)
