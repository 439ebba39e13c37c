"""Wiring: which brokers should be linked, as operators would configure them; links come and go while the world runs.

In:    the links of a topology; then links to add and remove, brokers to rename.
Out:   orders to running brokers; settings for those that start; entries "linked" and "unlinked" in the journal.
State: the pairs, and the present name of each host's broker.
Not here: when that happens (faults.py), whether the brokers' maps agree with it (checkers/maps.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from heliograph.broker.commands import Listening, Reload
from heliograph.broker.config import (
    DEFAULT_PORT,
    BrokerConfig,
    LinkConfig,
    ListenerConfig,
    NetworkConfig,
    TimeConfig,
)
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.topics.config import RightsConfig
from heliograph.model.identity import Identity, Role
from heliograph.node import BROKER, Node, build
from heliograph.sim.clock import WallClock
from heliograph.sim.host import Host
from heliograph.sim.loop import MILLISECOND
from heliograph.sim.timeserver import SOCKETS, TimeServer
from heliograph.sim.topics.authority import keyring_of_party
from heliograph.sim.world import World
from heliograph.topology.scenario_network import BrokerPlan, Pair, ScenarioTopology
from heliograph.wire.frames import service

POLL_S = 16  # how often brokers ask NTP servers: scenarios are short
ORDER = 1 << 40  # the number of our orders, above those of the admin service, whose pipe carries them


class Wiring:
    """The brokers of a world, and the links that they should have: the first of a pair dials the second."""

    def __init__(
        self,
        world: World,
        topology: ScenarioTopology,
        resources: ResourcesConfig | None = None,
        *,
        has_rights: bool = False,
    ) -> None:
        self._resources = resources
        self._has_rights = has_rights  # each broker has the service that checks grants to topics
        self.pairs: dict[Pair, None] = dict.fromkeys(topology.links)
        self._world = world
        self._topology = topology
        self._names = dict.fromkeys(topology.brokers, 1)  # host -> how many names its broker has had
        for name, time_plan in topology.time_servers.items():
            self._add_server(name, int(time_plan.wrong_ms * MILLISECOND))
        for name, plan in topology.brokers.items():
            self._add(name, plan)

    def _add_server(self, name: str, wrong_ns: int) -> None:
        build = partial(Node, name=name, pipes=(), listeners={}, sockets={"server": SOCKETS})
        wall = WallClock(wrong_ns)  # its clock is right, or as wrong as the scenario sets
        host = self._world.add(name, lambda _: build(machines={"server": TimeServer()}), wall=wall)
        self._world.start(host)

    def _add(self, name: str, plan: BrokerPlan) -> None:
        world = self._world
        seed = world.random(f"broker/{name}").getrandbits(63)
        secure = self._is_secure(name)
        identity = Identity(name, (Role.BROKER,), "certificate") if secure else None
        host = world.add(name, lambda _: self._build(host, plan, seed), identity=identity)
        world.listen(host, (name, DEFAULT_PORT), "main", BROKER, secure)
        if self.pairs:
            host.call_at_start(lambda: host.tell(host.seat(BROKER), Listening((f"{name}:{DEFAULT_PORT}",))))
        world.start(host)

    def _build(self, host: Host, plan: BrokerPlan, seed: int) -> Node:
        """A broker with its present settings. As in live, its incarnation is the time on its clock, right or wrong."""
        config = self._config(host.name, plan)
        host.configure(Reload(config))
        incarnation = host.wall.wall_ns(self._world.loop.now) // MILLISECOND
        services: list[object] = [] if plan.store is None else [replace(plan.store, enabled=True, name=host.name)]
        if self._resources is not None:
            services.append(self._resources)
        keyring = None
        if self._has_rights:
            services.append(RightsConfig())
            keyring = keyring_of_party(host.name, Role.BROKER, f"{self._world.seed}/{host.incarnation}")
        return build(config, seed=seed + host.incarnation, incarnation=incarnation, services=services, keyring=keyring)

    def _config(self, host: str, plan: BrokerPlan) -> BrokerConfig:
        secure = self._is_secure(host)
        topology = self._topology
        names = self._names[host]
        return BrokerConfig(
            name=host if names == 1 else f"{host}.{names}",
            listeners=(ListenerConfig(host=host, secure=secure, auth=plan.auth),),
            limits=plan.limits,
            access=plan.access,
            load=plan.load,
            network=NetworkConfig(
                name=plan.network,
                cluster=plan.cluster,
                slot=plan.slot,
                key=topology.key.encode(),
                links=tuple(
                    LinkConfig(host=other, secure=self._is_secure(other)) for one, other in self.pairs if one == host
                ),
                heartbeat_ms=topology.heartbeat_ms,
                suspect_ms=topology.suspect_ms,
                dead_ms=topology.dead_ms,
                forget_ms=topology.forget_ms,
            ),
            time=TimeConfig(
                servers=tuple(name for name, plan in topology.time_servers.items() if fnmatchcase(host, plan.brokers)),
                poll_s=POLL_S,
            ),
        )

    def _is_secure(self, host: str) -> bool:
        return self._topology.brokers[host].auth == "certificate"

    def rename(self, host: Host) -> None:
        """The next broker started on this host has another name."""
        self._names[host.name] += 1

    def pair(self, one: str, other: str) -> Pair | None:
        """The link between two hosts, with its dialling side first."""
        return next((pair for pair in ((one, other), (other, one)) if pair in self.pairs), None)

    def add(self, pair: Pair) -> None:
        """The operator of the first adds a link to the second."""
        self.pairs[pair] = None
        self._world.journal.write("linked", *pair)
        self._order(pair[0], {"do": "link", "host": pair[1], "port": DEFAULT_PORT, "secure": self._is_secure(pair[1])})

    def remove(self, pair: Pair) -> None:
        """The operator removes that link."""
        del self.pairs[pair]
        self._world.journal.write("unlinked", *pair)
        self._order(pair[0], {"do": "unlink", "host": pair[1], "port": DEFAULT_PORT})

    def _order(self, name: str, order: dict[str, Any]) -> None:
        """Give a broker an order, as its admin service would; one that is down reads its settings when it starts."""
        host = self._world.hosts[name]
        if host.up:
            pipe = next(end for end in host.ends.values() if end.pipe and end.seat.name == BROKER)
            frame = service(b"broker", json.dumps(order).encode(), ORDER)
            self._world.network.put_through(pipe.far, frame)
