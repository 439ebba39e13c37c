"""The cast: topic directories and entities as a scenario lists them.

In:    the tables of a scenario about topics.
Out:   a host for each; grants handed from one entity to another, as if by mail.
State: the entities' notebooks.
Not here: what entities do (actor.py), the tables (plans.py).
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256

from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.topics.bundle import GrantBundle
from heliograph.discovery.topics.config import TDN, TopicDirectoryConfig
from heliograph.discovery.topics.messages import TopicKind
from heliograph.model.identity import Identity, Role
from heliograph.node import Node, build_alone
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.lossy import Lossy
from heliograph.sim.topics.actor import TopicActor
from heliograph.sim.topics.authority import keyring_of_party
from heliograph.sim.topics.notebook import TopicNotebook
from heliograph.sim.topics.plans import DirectoryPlan, TopicCastPlan
from heliograph.sim.topics.script import Leaked, Script
from heliograph.sim.world import World

ACTOR = "actor"
AGAIN_NS = SECOND // 2
QUIET_S = 1.0  # before the end of the run: what is published then may not arrive before it


class TopicCast:
    """All directories and entities."""

    def __init__(self, world: World, tables: TopicCastPlan, duration_s: float, settle_s: float) -> None:
        self._world = world
        self._loss = 0.0 if tables.topics is None else tables.topics.loss
        self._ends_s = duration_s
        self._notebooks = {plan.name: TopicNotebook() for plan in tables.entities}
        for directory in tables.directories:
            self._add_directory(directory)
        for plan in tables.entities:
            name = plan.name
            script = Script(
                entity=plan,
                topics=tuple(one for one in tables.topic if one.owner == name),
                grants=tuple(one for one in tables.grants if tables.grantor(one) == name),
                searches=tuple(one for one in tables.searches if one.entity == name),
                ends_s=duration_s + settle_s / 2,
                quiet_s=duration_s + settle_s - QUIET_S,
            )
            identity = Identity(name, (Role.CLIENT,), "certificate")
            world.start(world.add(name, partial(self._actor, script), identity=identity))

    def _add_directory(self, plan: DirectoryPlan) -> None:
        identity = Identity(plan.name, (Role.DIRECTORY,), "certificate")
        host = self._world.add(plan.name, partial(self._directory, plan), identity=identity)
        self._world.start(host)
        if plan.dies_s:
            self._world.loop.at(int(plan.dies_s * SECOND), self._die, host)

    def _die(self, host: Host, instant: int) -> None:
        """It ends for good; one that is down at the moment would be started again, so it is waited for."""
        if host.up:
            self._world.journal.write("died", host.name)
            self._world.crash(host)
        else:
            self._world.loop.at(instant + AGAIN_NS, self._die, host)

    def _directory(self, plan: DirectoryPlan, incarnation: int) -> Node:
        config = TopicDirectoryConfig(
            links=tuple(f"{broker}:{DEFAULT_PORT}" for broker in plan.brokers), creates=plan.creates
        )
        seed = f"{self._world.seed}/{incarnation}"
        keyring = keyring_of_party(plan.name, Role.DIRECTORY, seed)
        number = self._world.random(f"directory/{plan.name}").getrandbits(60) + incarnation
        return self._lossy(build_alone(plan.name, config, seed=number, keyring=keyring), TDN, incarnation)

    def _actor(self, script: Script, incarnation: int) -> Node:
        name = script.entity.name
        actor = TopicActor(
            script,
            keyring_of_party(name, Role.CLIENT, f"{self._world.seed}/{incarnation}"),
            tuple((broker, DEFAULT_PORT) for broker in script.entity.brokers),
            sha256(f"{self._world.seed}/{name}/{incarnation}".encode()).digest(),
            self._notebooks[name],
            self._world.journal.write,
            self._hand_over,
            self._leak,
        )
        node = Node(name=name, machines={ACTOR: actor}, pipes=(), listeners={})
        return self._lossy(node, ACTOR, incarnation)

    def _lossy(self, node: Node, machine: str, incarnation: int) -> Node:
        if self._loss:
            draw = self._world.random(f"losses/{node.name}/{incarnation}").random
            losses = dict.fromkeys(TopicKind, self._loss)
            node.machines[machine] = Lossy(node.machines[machine], losses, draw)
        return node

    def _leak(self, leaked: Leaked) -> None:
        """Everybody gets a copy of what is encrypted, whatever his rights."""
        for name in self._notebooks:
            host = self._world.hosts[name]
            if host.up:
                host.tell(host.seat(ACTOR), leaked)

    def _hand_over(self, grant: str, holder: str, bundle: GrantBundle) -> None:
        self._notebooks[holder].held[grant] = bundle
