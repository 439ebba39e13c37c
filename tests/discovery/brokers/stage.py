"""A simulated world with brokers, directories and somebody who looks for a broker.

In:    how many there are, how far they are, what goes wrong.
Out:   the SearchResult of a search, and the machines, to be asked for reports.
State: one World.
Not here: any judgement (the tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from heliograph.broker.commands import Listening
from heliograph.broker.config import DEFAULT_PORT, AccessConfig, BrokerConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import (
    DIRECTORY_PORT,
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
)
from heliograph.discovery.brokers.messages import DiscoveryRequest, Message, MessageKind
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.discovery.brokers.status import UsageSample
from heliograph.machine import Instant, Socket
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, Node, build, build_alone
from heliograph.sim.datagrams import DatagramSettings
from heliograph.sim.distances import Distance, NetworkSettings
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.world import HostSettings, World
from heliograph.trust.keyring import Keyring
from tests.sim.machines import add, heard, send

NO_MULTICAST = MulticastConfig(enabled=False)
GIB = 1 << 30


@dataclass(frozen=True)
class Plan:
    """A broker of the world."""

    name: str
    near_ms: float = 5.0  # one way, to whoever searches
    links: tuple[str, ...] = ()
    responder: ResponderConfig = ResponderConfig()  # noqa: RUF009 - frozen
    usage: UsageSample = UsageSample(100, 8 * GIB, 2 * GIB)  # noqa: RUF009 - frozen
    keyring: Keyring | None = None
    access: AccessConfig = AccessConfig()  # noqa: RUF009 - frozen
    network: str = ""


class Stage:
    """The world; ``client`` is the host that searches."""

    def __init__(
        self,
        plans: Sequence[Plan],
        *,
        seed: int = 1,
        directories: Sequence[DirectoryConfig] = (),
        directory_ms: Mapping[str, float] | None = None,
        far_ms: float = 20.0,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        skew_ms: float = 1.0,
        settle_s: float = 3.0,
        keyring: Keyring | None = None,
    ) -> None:
        distances = [Distance(target=f"client* > {plan.name}", delay_ms=plan.near_ms) for plan in plans]
        distances += [Distance(target=f"{plan.name} > client*", delay_ms=plan.near_ms) for plan in plans]
        for name, near_ms in (directory_ms or {}).items():  # one way, to whoever searches
            distances += [Distance(target=f"client* > {name}", delay_ms=near_ms)]
            distances += [Distance(target=f"{name} > client*", delay_ms=near_ms)]
        self.world = World(
            seed,
            network=NetworkSettings(delay_ms=far_ms, jitter_ms=0.1, split=0, join=0, distance=tuple(distances)),
            hosts=HostSettings(clock_skew_ms=skew_ms, clock_drift_ppm=0),
            datagrams=DatagramSettings(loss=loss, duplicate=duplicate, reorder=reorder),
        )
        self.seed = seed
        self.clients = 0
        for config in directories:
            self._add_directory(config, keyring)
        for plan in plans:
            self.add_broker(plan)
        self.run(settle_s)

    def add_broker(self, plan: Plan) -> None:
        """One more broker."""
        config = BrokerConfig(
            name=plan.name,
            listeners=(ListenerConfig(host=plan.name, allow_open=True),),
            access=plan.access,
            network=NetworkConfig(
                name=plan.network, key=b"k" * 32, links=tuple(LinkConfig(host=other) for other in plan.links)
            ),
        )
        responder = replace(plan.responder, host=plan.name)

        seed = self.world.random(f"broker/{plan.name}").getrandbits(60)

        def make(incarnation: int) -> Node:
            return build(
                config,
                seed=seed + incarnation,
                incarnation=incarnation,
                services=[responder],
                keyring=plan.keyring,
            )

        host = self.world.add(plan.name, make)
        self.world.listen(host, (plan.name, DEFAULT_PORT), "main", BROKER)
        host.call_at_start(lambda: self._tell_all(host, plan))
        self.world.start(host)

    def _tell_all(self, host: Host, plan: Plan) -> None:
        host.tell(host.seat(BROKER), Listening((f"heliograph://{plan.name}:{DEFAULT_PORT}",)))
        host.tell(host.seat(DISCOVERY), plan.usage)

    def _add_directory(self, config: DirectoryConfig, keyring: Keyring | None) -> None:
        host = self.world.add(config.name, lambda _: build_alone(config.name, config, seed=self.seed, keyring=keyring))
        self.world.listen(host, (config.name, DIRECTORY_PORT), DIRECTORY, DIRECTORY)
        self.world.start(host)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.loop.now + int(seconds * SECOND))

    def search(
        self,
        config: DiscoveryConfig,
        *,
        remembered: tuple[Remembered, ...] = (),
        keyring: Keyring | None = None,
        sealed: bool = False,
        directory_chain: bytes = b"",
        wait: bool = True,
    ) -> BrokerSearch:
        """Somebody new looks for a broker, until it has found one or has given up."""
        self.clients += 1
        name = f"client{self.clients}"
        search = BrokerSearch(
            config,
            seed=self.seed * 1_000 + self.clients,
            remembered=remembered,
            keyring=keyring,
            sealed=sealed,
            directory_chain=directory_chain,
        )
        sockets = {"search": BrokerSearch.sockets(config, name, name)}
        node = Node(name=name, machines={"search": search}, pipes=(), listeners={}, sockets=sockets)
        host = self.world.add(name, lambda _: node)
        self.world.start(host)
        while wait and search.result is None:
            self.run(0.05)
        return search

    def find(self, config: DiscoveryConfig, **more: Any) -> SearchResult:
        """The same, and its result."""
        result = self.search(config, **more).result
        assert result is not None
        return result

    def stranger(self, name: str = "client-raw") -> Stranger:
        """A host that sends whatever a test wants."""
        return Stranger(self, add(self.world, name, sockets=(Socket(name="raw", host=name, port=999),)))

    def block(self, source: str, sink: str) -> None:
        """From now on nothing comes from there to here by datagram or new link."""
        for one in [name for name in self.world.hosts if fnmatchcase(name, source)]:
            for other in [name for name in self.world.hosts if fnmatchcase(name, sink)]:
                self.world.network.blocked[one, other] = 1

    def responder(self, name: str) -> dict[str, Any]:
        """What a broker's responder reports."""
        report: dict[str, Any] = self.world.hosts[name].seat(DISCOVERY).machine.report("overview")
        return report

    def directory(self, name: str, question: str = "overview") -> Any:
        """What a directory reports."""
        return self.world.hosts[name].seat(DIRECTORY).machine.report(question)

    @property
    def now(self) -> Instant:
        """The time of the world."""
        return self.world.loop.now


class Stranger:
    """Somebody who speaks in bytes."""

    def __init__(self, stage: Stage, host: Host) -> None:
        self._stage = stage
        self.host = host
        self.address = (host.name, 999)

    def send(self, to: tuple[str, int], *datagrams: bytes, wait_s: float = 0.3) -> list[Message]:
        """Say this, and hear what comes back meanwhile."""
        before = len(heard(self.host))
        send(self._stage.world, self.host, "raw", to, *datagrams)
        self._stage.run(wait_s)
        return [messages.unpack(data) for data in heard(self.host)[before:]]

    def cookie(self, to: tuple[str, int], request: DiscoveryRequest) -> bytes:
        """The cookie that a party wants to see with this request."""
        (challenge,) = self.send(to, messages.write(request))
        assert challenge.kind is MessageKind.CHALLENGE
        return challenge.cookie


def star(count: int, responder: ResponderConfig | None = None, **more: Any) -> list[Plan]:
    """Brokers that are all linked to the first; each is farther from the client than the one before."""
    responder = responder or ResponderConfig()
    return [
        Plan(f"b{number}", 5.0 + 5 * number, ("b0",) if number else (), responder, **more) for number in range(count)
    ]
