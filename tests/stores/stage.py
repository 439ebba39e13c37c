"""A small simulated network with stores, for tests: three brokers, some with a store, publishers and readers.

In:    a seed, which brokers have which stores.
Out:   the world, its hosts and the notebook.
State: the world's.
Not here: claims (test_*.py).
"""

from __future__ import annotations

from typing import Any

from heliograph import node
from heliograph.broker.config import DEFAULT_PORT, AccessConfig, BrokerConfig, LinkConfig, NetworkConfig
from heliograph.node import Node
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.reader import DurableReader
from heliograph.sim.storing.store_user import StoreUser
from heliograph.sim.world import HostSettings, World
from heliograph.stores.config import StoreConfig

CALM = NetworkSettings(delay_ms=1, jitter_ms=0, split=0, join=0)


class Stage:
    """A world with stores."""

    def __init__(self, seed: int = 1, *, network: NetworkSettings = CALM, hosts: HostSettings | None = None) -> None:
        self.world = World(seed, network=network, hosts=hosts or HostSettings(disk_ms=2))
        self.seed = seed
        self.notebook = Notebook()
        self.brokers: list[str] = []
        self._lives = 0

    def broker(
        self,
        name: str,
        *links: str,
        store: StoreConfig | None = None,
        access: AccessConfig | None = None,
        cluster: str = "main",
    ) -> Host:
        """A broker, linked to others, perhaps with a store."""
        linked = tuple(LinkConfig(host=other) for other in links)
        network = NetworkConfig(key=b"k" * 32, links=linked, cluster=cluster)
        config = BrokerConfig(name=name, network=network, access=access or AccessConfig())
        services: list[object] = [] if store is None else [store]

        def build(incarnation: int) -> Node:
            self._lives += 1
            seed = self.seed * 1_000 + self._lives
            return node.build(config, seed=seed, incarnation=self._lives, services=services)

        host = self.world.add(name, build)
        self.world.listen(host, (name, DEFAULT_PORT), "main", node.BROKER)
        self.world.start(host)
        self.brokers.append(name)
        return host

    def party(self, make: Any, name: str, *brokers: str, **options: Any) -> Host:
        """A publisher or reader that uses these brokers, the first one first."""
        addresses = [(broker, DEFAULT_PORT) for broker in brokers]

        def build(incarnation: int) -> Node:
            machine: StoreUser = make(name, addresses, self.seed, self.notebook, **options)
            return Node(name=name, machines={name: machine}, pipes=(), listeners={})

        host = self.world.add(name, build)
        self.world.start(host)
        return host

    def publisher(self, name: str, *brokers: str, **options: Any) -> Host:
        """A publisher of reliable publications."""
        return self.party(ReliablePublisher, name, *brokers, **options)

    def reader(self, name: str, *brokers: str, **options: Any) -> Host:
        """A durable subscriber."""
        return self.party(DurableReader, name, *brokers, **options)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.loop.now + int(seconds * SECOND))

    def report(self, broker: str) -> dict[str, Any]:
        """What the store of a broker says of itself."""
        report: dict[str, Any] = self.world.hosts[broker].seat("store").machine.report("overview")
        return report


def sequences(notebook: Notebook, reader: str, origin: int) -> list[int]:
    """The numbers of one publisher that a reader got, in its order."""
    return [record[3] for record in notebook.read.get(reader, []) if record[2] == origin]
