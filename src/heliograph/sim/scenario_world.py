"""The world of a scenario: its brokers, clients, faults and checkers, built from a scenario and a seed.

In:    a Scenario, a seed.
Out:   ScenarioWorld: the world, ready to run.
State: none beyond the world's.
Not here: running it and reporting the result (run.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

from heliograph.broker.config import DEFAULT_PORT
from heliograph.client.commands import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.discovery.topics.config import TDN
from heliograph.model.identity import Identity, Role
from heliograph.node import Node
from heliograph.notes import Note, PublicationsLost, SessionRestored
from heliograph.sim.checkers import CHECKERS, Checker, Maps, Order, Ways
from heliograph.sim.faults import Faults
from heliograph.sim.flows import Flow
from heliograph.sim.host import Host
from heliograph.sim.network import End
from heliograph.sim.resourcing.cast import ResourceCast
from heliograph.sim.scenario import Scenario
from heliograph.sim.storing.cast import StoreCast
from heliograph.sim.topics.cast import TopicCast
from heliograph.sim.wiring import Wiring
from heliograph.sim.workloads import Program
from heliograph.sim.world import World
from heliograph.timekeeping.clock import shown
from heliograph.topology.scenario_network import ClientPlan, client_names, filled, home, with_generated

SESSION = "session"


class ScenarioWorld:
    """Everything that one run needs."""

    def __init__(self, scenario: Scenario, seed: int, *, keep_journal: bool = False) -> None:
        self.world = World(
            seed,
            network=scenario.network,
            hosts=scenario.hosts,
            datagrams=scenario.datagrams,
            flows=self._flow,
            keep_journal=keep_journal,
        )
        topology = with_generated(scenario.topology, self.world.random("topology"))
        self.scenario = scenario = replace(scenario, topology=topology)
        names = scenario.checks.names
        if topology.links and Maps.name not in names:
            names = (Maps.name, *names)  # it tells others when the network is settled
        self.checkers: list[Checker] = [CHECKERS[name](scenario, self.world.journal, self.ask) for name in names]
        self.world.journal.watch("note", self._on_note)
        self._clients = [name for group, plan in topology.clients.items() for name in client_names(group, plan)]
        self.wiring = Wiring(self.world, topology, scenario.resources, has_rights=scenario.topics is not None)
        self.programs = self._programs()
        self.cast = StoreCast(self.world, scenario.storing)
        self.resource_cast = ResourceCast(
            self.world, scenario.resource, scenario.discovery, scenario.scenario.duration_s
        )
        head = scenario.scenario
        self.topic_cast = TopicCast(self.world, scenario.topic_tables, head.duration_s, head.settle_s)
        self.faults = Faults(self.world, scenario.fault, scenario.scenario.duration_s, self.wiring)

    def ask(self, host: str, question: str) -> Any:
        """A report of a host's first machine (the broker, or the session); None while it is not running."""
        asked = self.world.hosts[host]
        if question == "repository":  # what is on its disk, whether it runs or not
            return self.world.workers.repository(host, TDN).uuids
        if not asked.up:
            return None
        if question.startswith("resources "):
            return asked.seat("resources").machine.report(question.partition(" ")[2])
        report = asked.seats[0].machine.report(question)
        if question == "time" and report["time_ns"] is not None:  # as of now, so that nodes can be compared
            report["time_ns"], report["error_ns"] = shown(report, self.world.loop.now + asked.shift)
        return report

    def _flow(self, end: End) -> Flow | None:
        """A record of the publications on a link from or to a broker, if a checker asks for it."""
        names, brokers = self.scenario.checks.names, self.scenario.topology.brokers
        tells = frozenset(kind for checker, kind in ((Ways, "carried"), (Order, "reached")) if checker.name in names)
        source, target = end.host, end.far.host
        if not tells or not (source.name in brokers or target.name in brokers):
            return None
        return Flow(
            self.world.journal,
            self._clients,
            (source.name, target.name, self.world.hosts[source.name].incarnation, end.far.link),
            is_between_brokers=source.name in brokers and target.name in brokers,
            tells=tells,
        )

    def _programs(self) -> list[Program]:
        clients = self.scenario.topology.clients
        names = self._clients
        programs = []
        for group, plan in clients.items():
            workloads = [workload for workload in self.scenario.workload if workload.client == group]
            for number, name in enumerate(client_names(group, plan), 1):
                host = self._add_client(name, number, plan)
                duration_s = self.scenario.scenario.duration_s
                programs.append(Program(self.world, host, plan, workloads, names, duration_s))
        return programs

    def _add_client(self, name: str, number: int, plan: ClientPlan) -> Host:
        topology = self.scenario.topology
        broker = home(topology, plan, number)
        secure = topology.brokers[broker].auth == "certificate"
        config = ClientConfig(
            targets=(Target(host=broker, port=DEFAULT_PORT, secure=secure),),
            name=name,
            hold=plan.hold,
            keep_alive_ms=plan.keep_alive_ms,
        )
        identity = None
        if secure:
            roles = tuple(Role(role) for role in plan.roles)
            identity = Identity(filled(plan.entity, number, 0), roles, proof="certificate")
        return self.world.add(name, partial(self._session, name, config), identity=identity)

    def _session(self, name: str, config: ClientConfig, incarnation: int) -> Node:
        """A client's node: each incarnation is a new session with its own secret."""
        secret = sha256(f"{self.world.seed}/{name}/{incarnation}".encode()).digest()
        session = Session(config, secret=secret, seed=int.from_bytes(secret[:8], "little"))
        return Node(name=name, machines={SESSION: session}, pipes=(), listeners={})

    def _on_note(self, who: str, note: Note) -> None:
        """Writes what sessions observe to the journal."""
        if isinstance(note, SessionRestored):
            self.world.journal.write("restored", who)
        elif isinstance(note, PublicationsLost):
            self.world.journal.write("lost", who, note.where, note.frames)
