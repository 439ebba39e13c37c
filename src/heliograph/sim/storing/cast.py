"""The cast: publishers and readers of stores as a scenario lists them.

In:    the tables [[storing]] of a scenario.
Out:   a host for each, with a notebook that all share.
State: the notebook.
Not here: what they do (publisher.py, reader.py), the tables (scenario.py).

A restarted publisher is a new one, with its own origin; a reader resumes where its notes end.
"""

from __future__ import annotations

from functools import partial

from heliograph.broker.config import DEFAULT_PORT
from heliograph.node import Node
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Storing
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.reader import DurableReader
from heliograph.sim.storing.session_programs import BatchProgram, PublishingProgram, ReadingProgram, session_node
from heliograph.sim.storing.store_user import StoreUser
from heliograph.sim.world import World


class StoreCast:
    """All users of stores."""

    def __init__(self, world: World, plans: tuple[Storing, ...]) -> None:
        self._world = world
        self.notebook = Notebook(world.journal.write)
        for plan in plans:
            host = world.add(plan.name, partial(self._build, plan))
            if plan.session:
                host.call_at_start(partial(self._program, plan, host))
            world.loop.at(int(plan.from_s * SECOND), self._start, host)

    def _start(self, host: Host, _instant: int) -> None:
        self._world.start(host)

    def _program(self, plan: Storing, host: Host) -> None:
        make = (BatchProgram if plan.batches else PublishingProgram) if plan.publish else ReadingProgram
        make(self._world, host, plan, self.notebook)

    def _build(self, plan: Storing, incarnation: int) -> Node:
        if plan.session:
            return session_node(plan, self._world.seed, incarnation)
        addresses = [(broker, DEFAULT_PORT) for broker in plan.brokers]
        machine: StoreUser
        if plan.publish:
            machine = ReliablePublisher(
                plan.name,
                addresses,
                self._world.seed * 1_000 + incarnation,
                self.notebook,
                topics=list(plan.publish),
                count=plan.count,
                window=plan.window,
                every_ms=plan.every_ms,
                at_once=plan.at_once,
            )
        else:
            machine = DurableReader(
                plan.name, addresses, self._world.seed, self.notebook, pattern=plan.read, window=plan.window
            )
        return Node(name=plan.name, machines={"user": machine}, pipes=(), listeners={})
