"""Publishers and readers of stores that use the client's own session, as programs do.

In:    the tables [[storing]] of a scenario with ``session = true``.
Out:   commands to the session; what was acknowledged and read, in the notebook.
State: what is left to publish, what is not acknowledged or committed.
Not here: the session (client/session.py), the minimal counterparts (publisher.py, reader.py).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from heliograph.broker.config import DEFAULT_PORT
from heliograph.client.commands import AskStores, PublishReliably, ReadStores, TakenStored
from heliograph.client.config import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.node import Node
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Storing
from heliograph.sim.seat import Seat
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.world import World
from heliograph.wire import stores as wire
from heliograph.wire.bodies import Body
from heliograph.wire.name_proofs import proof_of

MS = SECOND // 1_000
AGAIN_MS = 500  # after a time-out
KEEP_ALIVE_MS = 2_000


def session_node(plan: Storing, seed: int, incarnation: int) -> Node:
    """A client's node: each incarnation is a new session with its own secret."""
    targets = tuple(Target(host=broker, port=DEFAULT_PORT) for broker in plan.brokers)
    config = ClientConfig(
        targets=targets, name=plan.name, keep_alive_ms=KEEP_ALIVE_MS, retry_ms_max=1_000, reliable_window=plan.window
    )
    secret = sha256(f"{seed}/{plan.name}/{incarnation}".encode()).digest()
    session = Session(config, secret=secret, seed=int.from_bytes(secret[:8], "little"))
    return Node(name=plan.name, machines={"session": session}, pipes=(), listeners={})


class StoreProgram:
    """What programs of both kinds have in common."""

    def __init__(self, world: World, host: Host, plan: Storing, notebook: Notebook) -> None:
        self.plan = plan
        self.notebook = notebook
        self._world = world
        self._host = host
        self._numbers = 0
        self._awaited: dict[int, Callable[[Any], None]] = {}
        self._seat: Seat = host.seats[0]
        self.session = self._seat.machine
        self._seat.call_after_take(self._look)

    def tell(self, command: Any) -> None:
        """Give the session a command."""
        self._host.tell(self._seat, command)

    def request(self, answered: Callable[[Any], None]) -> int:
        """A new request number; ``answered`` is called with its outcome."""
        self._numbers += 1
        self._awaited[self._numbers] = answered
        return self._numbers

    def later(self, after_ms: int, call: Callable[[], None]) -> None:
        """Call it then, if this incarnation of the host is still running."""
        loop = self._world.loop
        loop.at(loop.now + after_ms * MS, self._due, (self._seat, call))

    def _due(self, planned: tuple[Seat, Callable[[], None]], _instant: int) -> None:
        seat, call = planned
        if not seat.gone:
            call()

    def _look(self) -> None:
        session: Any = self.session
        for outcome in session.collect():
            self._awaited.pop(outcome.request)(outcome)
        for inbox in session.collect_news():
            self.read(inbox)

    def read(self, inbox: Any) -> None:
        """There is something to read."""


class PublishingProgram(StoreProgram):
    """Publishes reliably, and notes what stores have acknowledged."""

    def __init__(self, world: World, host: Host, plan: Storing, notebook: Notebook) -> None:
        super().__init__(world, host, plan, notebook)
        self._left = plan.count
        self._turn = 0
        self._last: dict[str, PublishReliably] = {}  # by topic
        self.later(plan.every_ms, self._burst)

    def _burst(self) -> None:
        for _ in range(min(self._left, self.plan.at_once)):
            self._turn += 1
            topic = self.plan.publish[self._turn % len(self.plan.publish)]
            if not self._is_waiting(topic):
                self._left -= 1
                self._publish(topic)
        if self._left:
            self.later(self.plan.every_ms, self._burst)

    def _is_waiting(self, topic: str) -> bool:
        """True if this topic's store is away, or has no room: as in a program with a task per topic."""
        session: Any = self.session
        return topic in self._last and session.reliable.is_waiting(self._last[topic])

    def _publish(self, topic: str) -> None:
        session: Any = self.session

        def answered(outcome: Any) -> None:
            if outcome.error is None:
                store, first, last = outcome.value
                numbers = [(number, topic) for number in range(first, last + 1)]
                self.notebook.acknowledge(self.plan.name, session.origin, store, numbers)

        payload = f"{self.plan.name} {self._turn}".encode()
        command = PublishReliably(topic, [payload], request=self.request(answered), ms_max=60_000)
        self._last[topic] = command
        self.tell(command)


class BatchProgram(StoreProgram):
    """Publishes in batches, one after the other. What was staged counts as acknowledged once it is committed."""

    def __init__(self, world: World, host: Host, plan: Storing, notebook: Notebook) -> None:
        super().__init__(world, host, plan, notebook)
        self._left = plan.count
        self._number = 0
        self.later(plan.every_ms, self._begin)

    def _ask(self, body: Body, kind: type[Body], answered: Callable[[Any], None]) -> None:
        """Ask until there is an answer."""

        def heard(outcome: Any) -> None:
            if outcome.error is None:
                answered(outcome.value)
            else:
                self.later(AGAIN_MS, lambda: self._ask(body, kind, answered))

        self.tell(AskStores(self.request(heard), body, kind))

    def _begin(self) -> None:
        if self._left:
            self._number += 1
            self._ask(wire.FindStores(topic=self.plan.publish[0]), wire.StoresFound, self._found)

    def _found(self, found: wire.StoresFound) -> None:
        if found.stores:
            self._stage(found.stores[0])
        else:
            self.later(
                AGAIN_MS, lambda: self._ask(wire.FindStores(topic=self.plan.publish[0]), wire.StoresFound, self._found)
            )

    def _stage(self, store: wire.StoreAdvertisement) -> None:
        count = min(self._left, self.plan.at_once)
        topics = [self.plan.publish[turn % len(self.plan.publish)] for turn in range(count)]
        quality = (self.plan.name, self._number, "p")
        payloads = [f"{self.plan.name} {self._number} {turn}".encode() for turn in range(count)]
        rows: list[tuple[str, dict[str, Any] | None]] = [(topic, None) for topic in topics]

        def staged(outcome: Any) -> None:
            if outcome.error is None:
                _, first, _ = outcome.value
                self._commit(store.store, [(first + place, topic) for place, topic in enumerate(topics)])

        number = self.request(staged)  # if it fails, the check finds that too few were acknowledged
        self.tell(
            PublishReliably(topics[0], payloads, request=number, store=store, part=quality, ms_max=60_000, rows=rows)
        )

    def _commit(self, store: str, staged: list[tuple[int, str]]) -> None:
        session: Any = self.session
        secret = sha256(f"{self._world.seed}/{self.plan.name}/batches".encode()).digest()
        proof = proof_of(secret, store, self.plan.name)

        def committed(done: wire.RequestDone) -> None:
            self._left -= len(staged)
            self.notebook.acknowledge(self.plan.name, session.origin, int(store, 16), staged)
            self.later(self.plan.every_ms, self._begin)

        body = wire.CommitBatch(store, self.plan.name, self._number, [("p", len(staged))], proof=proof)
        self._ask(body, wire.RequestDone, committed)


class ReadingProgram(StoreProgram):
    """Reads with a durable subscription, and keeps its position with its results."""

    def __init__(self, world: World, host: Host, plan: Storing, notebook: Notebook) -> None:
        super().__init__(world, host, plan, notebook)
        self._subscribe()

    def _subscribe(self) -> None:
        places = self.notebook.positions.get(self.plan.name, {})
        positions = {f"{store:016x}": position for store, position in places.items()}
        self.tell(
            ReadStores(
                self.request(self._subscribed),
                self.plan.read,
                self.plan.name,
                start="first",
                positions=positions,
                window=self.plan.window,
                secret=sha256(f"{self._world.seed}/{self.plan.name}/names".encode()).digest(),
            )
        )

    def _subscribed(self, outcome: Any) -> None:
        if outcome.error is not None:
            self.later(AGAIN_MS, self._subscribe)

    def read(self, inbox: Any) -> None:
        """Take what has arrived, and note it with the position after it."""
        for one in inbox.take_all():
            store = int(one.store, 16)
            record = (store, one.position, one.origin, one.sequence)
            self.notebook.take(self.plan.name, store, [record], one.position + 1)
        if inbox.pressing and not inbox.ended:
            self.tell(TakenStored(inbox.number))
