"""A simulated stage for searches: brokers, one directory, and clients, each at a place.

In:    the place, links and answer policy of each broker.
Out:   the SearchResult of each search; the world, for counts.
State: one World.
Not here: the experiments (topologies.py, scale.py), stand-ins for brokers (standin.py).
"""

from __future__ import annotations

from dataclasses import replace

from heliograph.broker.commands import Listening
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.discovery.brokers.config import (
    DIRECTORY_PORT,
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
)
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.discovery.brokers.status import UsageSample
from heliograph.evaluation.places import JITTER_MS, Place
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, Node, build, build_alone
from heliograph.sim.datagrams import DatagramSettings
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.host import Build, Host
from heliograph.sim.loop import SECOND
from heliograph.sim.world import HostSettings, World

GIB = 1 << 30
NO_MULTICAST = MulticastConfig(enabled=False)
USAGE = UsageSample(100, 8 * GIB, 2 * GIB)  # of every broker, so that only distance counts
SERVICE_US = 100.0  # the cost of one input in a Python process, with its system calls
SKEW_MS = 10.0  # clocks kept by NTP over such distances
LOSS = 0.001  # of all datagrams
DIRECTORY_NAME = "bdn"
AT_DIRECTORY = ResponderConfig(directories=(f"{DIRECTORY_NAME}:{DIRECTORY_PORT}",), multicast=NO_MULTICAST)
BY_DIRECTORY = DiscoveryConfig(directories=(f"{DIRECTORY_NAME}:{DIRECTORY_PORT}",), multicast=NO_MULTICAST)
STEP_S = 0.05  # how often a search is checked; the times are the search's own


class SearchStage:
    """Runs searches."""

    def __init__(self, seed: int, jitter_ms: float = JITTER_MS) -> None:
        self.world = World(
            seed,
            network=NetworkSettings(delay_ms=1.0, jitter_ms=jitter_ms, split=0, join=0),
            hosts=HostSettings(service_us=SERVICE_US, clock_skew_ms=SKEW_MS),
            datagrams=DatagramSettings(loss=LOSS),
            ruler=self._one_way_ms,
        )
        self.places: dict[str, Place] = {}  # of brokers and the directory
        self._clients: dict[str, Place] = {}
        self._seed = seed
        self._searches = 0

    # Hosts.

    def add(self, name: str, place: Place, make: Build) -> Host:
        """A host, with delays to all others according to its place."""
        self.places[name] = place
        return self.world.add(name, make)

    def _one_way_ms(self, source: str, sink: str) -> float:
        return self._place(source).one_way_ms(self._place(sink))

    def _place(self, name: str) -> Place:
        return self.places.get(name) or self._clients[name]

    def add_directory(self, place: Place) -> None:
        """The directory."""
        config = DirectoryConfig(name=DIRECTORY_NAME)
        host = self.add(DIRECTORY_NAME, place, lambda _: build_alone(DIRECTORY_NAME, config, seed=self._seed))
        self.world.listen(host, (DIRECTORY_NAME, DIRECTORY_PORT), DIRECTORY, DIRECTORY)
        self.world.start(host)

    def add_broker(
        self, name: str, place: Place, links: tuple[str, ...], responder: ResponderConfig, cluster: str = "main"
    ) -> None:
        """A real broker that links to these others."""
        peers = NetworkConfig(cluster=cluster, key=b"k" * 32, links=tuple(LinkConfig(host=other) for other in links))
        listener = ListenerConfig(host=name, allow_open=True)
        config = BrokerConfig(name=name, listeners=(listener,), network=peers)
        answers = replace(responder, host=name)
        seed = self.world.random(f"broker/{name}").getrandbits(60)

        def make(incarnation: int) -> Node:
            return build(config, seed=seed, incarnation=incarnation, services=[answers])

        host = self.add(name, place, make)
        self.world.listen(host, (name, DEFAULT_PORT), listener.name, BROKER)
        self.start_broker(host)

    def start_broker(self, host: Host) -> None:
        """Start a broker, and tell it what a driver would."""
        self.world.start(host)
        host.tell(host.seat(BROKER), Listening((f"heliograph://{host.name}:{DEFAULT_PORT}",)))
        host.tell(host.seat(DISCOVERY), USAGE)

    # Searching.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.loop.now + int(seconds * SECOND))

    def search(self, place: Place, config: DiscoveryConfig) -> SearchResult:
        """A new client at this place searches for a broker."""
        self._searches += 1
        name = f"client{self._searches}"
        search = BrokerSearch(config, seed=self._seed * 1_000_003 + self._searches)
        sockets = {"search": BrokerSearch.sockets(config, name, name)}
        node = Node(name=name, machines={"search": search}, pipes=(), listeners={}, sockets=sockets)
        self._clients[name] = place
        self.world.start(self.world.add(name, lambda _: node))
        while search.result is None:
            self.run(STEP_S)
        return search.result
