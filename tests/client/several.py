"""Several brokers and sessions, as machines: every link is a queue of bytes, and a seed says whose turn it is.

In:    which brokers, who dials whom, what programs tell their sessions.
Out:   what each session received; outcomes; notes.
State: one machine per name, the queues between them, one clock.
Not here: sockets (live.py), a scripted broker (script.py), faults (the simulator), any judgement (the tests).
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from heliograph.broker.broker import Broker
from heliograph.broker.commands import Drain, Listening
from heliograph.broker.config import BrokerConfig, LinkConfig, NetworkConfig
from heliograph.client.commands import Inquire, Outcome, Subscribe
from heliograph.client.config import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.errors import Reason
from heliograph.machine import Dial, Machine, Peer
from heliograph.model.publication import Publication
from heliograph.notes import Note

MS = 1_000_000
STEP_NS = 1_000  # an input takes a microsecond, so that round trips cost something
PORT = 4717


class End:
    """One end of a link: what was written to it waits here for the other end to read."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.other: End
        self.queue: deque[bytes] = deque()
        self.held = False
        self.hung_up: Reason | None = None
        self.over = False  # detached


class Node:
    """A machine with its links."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.ends: dict[int, End] = {}
        self.wake_at: int | None = None
        self.notes: list[Note] = []
        self.stopped = False


class Several:
    """Brokers and sessions by name."""

    def __init__(self, links: dict[str, list[str]], seed: int, clusters: dict[str, str] | None = None) -> None:
        self.random = Random(seed)
        self.now = 1
        self.nodes: dict[str, Node] = {}
        self.dials: list[tuple[Node, int, Dial]] = []
        self.requests = 0
        self.outcomes: dict[int, Outcome] = {}
        self.received: dict[str, list[Publication]] = {}
        self.replied: dict[tuple[int, int], None] = {}
        self._links = 0
        for name in dict.fromkeys([*links, *(other for others in links.values() for other in others)]):
            dialled = tuple(LinkConfig(host=other) for other in links.get(name, []))
            network = NetworkConfig(key=b"k" * 32, cluster=(clusters or {}).get(name, "main"), links=dialled)
            broker = Broker(BrokerConfig(name=name, network=network), seed=seed, incarnation=1)
            self._add(name, broker)
            self.tell(name, Listening((f"heliograph://{name}:{PORT}",)))
        self.run()
        self.pass_ms(100)

    # -- what programs do ---------------------------------------------------------------------------------------

    def session(self, name: str, at: str, **settings: Any) -> Session:
        """A session that is connected."""
        config = ClientConfig(targets=(Target(host=at, port=PORT),), name=name, **settings)
        session = Session(config, secret=name.encode().ljust(16, b"."), seed=1)
        self.received[name] = []
        self._add(name, session)
        self.pass_ms(1)
        assert session.is_connected
        return session

    def subscribe(self, name: str, pattern: str, **fields: Any) -> None:
        """Subscribe, and wait until everybody knows."""
        request = self.number()
        self.tell(name, Subscribe(request, pattern, wide=True, **fields))
        self.run()
        assert self.outcomes[request].error is None

    def publish(self, name: str, topic: str, *payloads: bytes) -> None:
        """Publish, and carry nothing yet."""
        node = self.nodes[name]
        assert isinstance(node.machine, Session)
        for payload in payloads:
            assert node.machine.publisher.publish(topic, payload, self.now)
        self._take(node)

    def drain(self, broker: str, grace_ms: int = 10_000) -> None:
        self.tell(broker, Drain(grace_ms))

    def request(self, name: str, topic: str, payload: bytes) -> int:
        """Publish a request; its outcome will be under this number."""
        number = self.number()
        self.tell(name, Inquire(number, topic, payload))
        return number

    def reply(self, name: str) -> None:
        """Answer every request that came, with what came."""
        for request in self.received[name]:
            if request.reply_to is not None and request.id not in self.replied:
                self.replied[request.id] = None
                self.publish(name, request.reply_to, request.payload)

    def tell(self, name: str, command: Any) -> None:
        node = self.nodes[name]
        node.machine.tell(command, self.now)
        self._take(node)

    def number(self) -> int:
        self.requests += 1
        return self.requests

    def payloads(self, name: str, topic: str | None = None) -> list[bytes]:
        return [one.payload for one in self.received[name] if topic in (None, one.topic)]

    def notes(self, name: str, kind: type[Note]) -> list[Note]:
        return [note for note in self.nodes[name].notes if isinstance(note, kind)]

    # -- carrying -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry everything to its end, in any order that links allow."""
        while self.step():
            pass

    def step(self) -> bool:
        """Carry something, somewhere; False if there is nothing to carry."""
        ends = [end for node in self.nodes.values() for end in node.ends.values() if self._moves(end)]
        choice = self.random.randrange(len(ends) + len(self.dials)) if ends or self.dials else -1
        if choice < 0:
            return False
        self.now += STEP_NS
        if choice < len(ends):
            self._carry(ends[choice])
        else:
            self._connect(*self.dials.pop(choice - len(ends)))
        return True

    def pass_ms(self, ms: int) -> None:
        """Let time pass for everybody, and carry what comes of it."""
        until = self.now + ms * MS
        while True:
            self.run()
            due = [node for node in self.nodes.values() if node.wake_at is not None and node.wake_at <= until]
            if not due:
                break
            node = min(due, key=lambda node: node.wake_at or 0)
            self.now = max(self.now, node.wake_at or 0)
            node.machine.wake(self.now)
            self._take(node)
        self.now = max(self.now, until)

    def kill(self, name: str) -> None:
        """A broker ends without a word. What was on its way to it, or from it, is lost."""
        node = self.nodes.pop(name)
        node.stopped = True
        self.dials = [dial for dial in self.dials if dial[0] is not node]
        for end in list(node.ends.values()):
            end.over = True
            self._detach(end.other, Reason.RESET)

    def _add(self, name: str, machine: Machine) -> None:
        node = self.nodes[name] = Node(name, machine)
        machine.clock(self.now, self.now)
        self._take(node)

    @staticmethod
    def _moves(end: End) -> bool:
        """Is there something that the other end has not read, or the news that nothing more will come?"""
        if end.over:
            return False
        return bool(end.queue and not end.other.held) or (end.hung_up is not None and not end.queue)

    def _carry(self, end: End) -> None:
        other = end.other
        if not end.queue:  # everything was read: now both hear of the hangup
            self._detach(end, end.hung_up or Reason.CLOSED)
            self._detach(other, other.hung_up or Reason.CLOSED)
            return
        data = end.queue.popleft()
        if end.queue and self.random.random() < 0.3:
            data += end.queue.popleft()
        if len(data) > 1 and self.random.random() < 0.2:
            cut = self.random.randrange(1, len(data))
            end.queue.appendleft(data[cut:])
            data = data[:cut]
        if other.hung_up is None and not other.over:
            other.node.machine.receive(other.number, data, self.now)
            self._take(other.node)

    def _detach(self, end: End, reason: Reason) -> None:
        if not end.over:
            end.over = True
            del end.node.ends[end.number]
            end.node.machine.detach(end.number, reason, self.now)
            self._take(end.node)

    def _connect(self, node: Node, ticket: int, dial: Dial) -> None:
        other = self.nodes.get(dial.host)
        if other is None or other.stopped:
            node.machine.failed(ticket, Reason.DIAL_FAILED, self.now)
            self._take(node)
            return
        self._links += 2
        here, there = End(node, self._links), End(other, self._links + 1)
        here.other, there.other = there, here
        node.ends[here.number], other.ends[there.number] = here, there
        other.machine.attach(there.number, Peer("tcp", f"{node.name}:1", "main"), self.now)
        node.machine.attach(here.number, Peer("tcp", f"{dial.host}:{dial.port}", ticket=ticket), self.now)
        self._take(other)
        self._take(node)

    def _take(self, node: Node) -> None:
        effects = node.machine.take()
        for link, chunks in effects.writes:
            end = node.ends.get(link)
            if end is not None and end.hung_up is None:
                end.queue.append(b"".join(chunks))
        for link, held in effects.holds:
            if link in node.ends:
                node.ends[link].held = held
        for link, reason in effects.hangups:
            if link in node.ends:
                node.ends[link].hung_up = reason
                node.ends[link].held = False
        node.notes += effects.notes
        node.stopped = node.stopped or effects.stop
        if not node.stopped:
            self.dials += [(node, ticket, dial) for ticket, dial in effects.dials]
        node.wake_at = None if node.stopped else effects.wake_at
        if isinstance(node.machine, Session):
            self._collect(node.name, node.machine)

    def _collect(self, name: str, session: Session) -> None:
        for outcome in session.collect():
            self.outcomes[outcome.request] = outcome
        for inbox in session.collect_news():
            self.received[name] += inbox.take_all()
