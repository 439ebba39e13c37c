"""A simulated world with brokers, topic directories and entities, all with certificates of one authority.

In:    how many there are and what goes wrong.
Out:   conversations that were carried on; the machines, to be asked for reports.
State: one World.
Not here: any judgement (the tests).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from msgspec import structs

from heliograph.broker.config import DEFAULT_PORT, AccessConfig, BrokerConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.discovery.topics.config import RightsConfig, TopicDirectoryConfig
from heliograph.discovery.topics.creation import TopicCreation
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.listing import (
    Creation,
    Descriptors,
    Synopsis,
    TopicAdvertisement,
    digest_of,
    topic_of,
)
from heliograph.discovery.topics.messages import TopicKind, TopicQuery
from heliograph.discovery.topics.statements import Statements
from heliograph.model.identity import Identity, Role
from heliograph.node import BROKER, Node, build, build_alone
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.lossy import Lossy
from heliograph.sim.topic_party import Begin, TopicParty
from heliograph.sim.world import HostSettings, World
from heliograph.trust.certificates import Pair, issue, make_authority
from heliograph.trust.chains import Authorities, load_pem
from heliograph.trust.keyring import Keyring, Own
from heliograph.trust.seeded_hpke import SimulatedSealer

NOW = datetime.fromtimestamp(EPOCH_NS // 1_000_000_000, UTC)
WALL_NS = EPOCH_NS
DRAW = random.Random(7).randbytes
AUTHORITY = make_authority("test-authority", NOW - timedelta(days=1), draw=DRAW)
AUTHORITIES = Authorities.from_pem(AUTHORITY.certificate)
Losses = Mapping[TopicKind, float]


@cache
def pair_of(entity: str, role: Role = Role.CLIENT, days: int = 90) -> Pair:
    return issue(
        AUTHORITY, entity, [role], [], NOW - timedelta(hours=1), days, draw=random.Random(f"{entity}{role}").randbytes
    )


def serial_of(entity: str, role: Role = Role.CLIENT) -> str:
    return f"{load_pem(pair_of(entity, role).certificate)[0].serial_number:X}"


def keyring_of(entity: str, role: Role = Role.CLIENT, seed: int = 1) -> Keyring:
    pair = pair_of(entity, role)
    sealer = SimulatedSealer(random.Random(f"{entity}/{seed}").randbytes)
    return Keyring(AUTHORITIES, Own.from_pem(pair.certificate, pair.key), sealer=sealer)


def a_creation(creator: str = "alice", **fields: Any) -> Creation:
    said = {"path": "plant/hall-3", "text": "temperature of hall three", "properties": {"floor": 3}}
    descriptors = fields.pop("descriptors", Descriptors(**said))
    synopsis = fields.pop("synopsis", Synopsis("string", "temperature"))
    return Creation(creator, fields.pop("lifetime_s", 3_600), descriptors=descriptors, synopsis=synopsis, **fields)


def with_id(made: TopicAdvertisement, id: bytes, **fields: Any) -> TopicAdvertisement:
    """The advertisement with a UUID that somebody chose, consistent in everything else."""
    changed = structs.replace(made, id=id, **fields)
    synopsis = structs.replace(changed.creation.synopsis, topic=topic_of(id, changed.creation.synopsis))
    return structs.replace(changed, synopsis=synopsis, digest=digest_of(changed.creation, synopsis))


class TopicStage:
    """The world."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        directories: Mapping[str, TopicDirectoryConfig] | None = None,
        entities: tuple[str, ...] = ("alice", "bob"),
        seed: int = 1,
        losses: Losses | None = None,
        delay_ms: float = 1.0,
        settle_s: float = 3.0,
    ) -> None:
        self.seed = seed
        self.losses = losses or {}
        self.world = World(
            seed,
            network=NetworkSettings(delay_ms=delay_ms, jitter_ms=0.1, split=0, join=0),
            hosts=HostSettings(clock_skew_ms=20, clock_drift_ppm=0),
        )
        self.brokers = [f"b{number}" for number in range(1, brokers + 1)]
        for number, name in enumerate(self.brokers):
            self._add_broker(name, self.brokers[number - 1 : number])
        named = directories if directories is not None else {"tdn-1": TopicDirectoryConfig()}
        for number, (name, config) in enumerate(named.items()):
            self.add_directory(name, config, self.brokers[-1 - number % brokers])
        for number, name in enumerate(entities):
            self.add_party(name, self.brokers[number % brokers])
        self.run(settle_s)

    def _add_broker(self, name: str, links: list[str]) -> None:
        config = BrokerConfig(
            name=name,
            listeners=(
                ListenerConfig(name="main", host=name, secure=True, auth="certificate"),
                ListenerConfig(name="plain", host=name, port=1, allow_open=True),
            ),
            access=AccessConfig(),
            network=NetworkConfig(key=b"k" * 32, links=tuple(LinkConfig(host=other, port=1) for other in links)),
        )
        seed = self.world.random(f"broker/{name}").getrandbits(60)
        keyring = self.broker_keyring(name)

        def make(incarnation: int) -> Node:
            return build(
                config, seed=seed + incarnation, incarnation=incarnation, services=self.services(), keyring=keyring
            )

        identity = Identity(name, (Role.BROKER,), "certificate")
        host = self.world.add(name, make, identity=identity)
        self.world.listen(host, (name, DEFAULT_PORT), "main", BROKER, secure=True)
        self.world.listen(host, (name, 1), "plain", BROKER)
        self.world.start(host)

    def services(self) -> list[Any]:
        return [RightsConfig()]

    def broker_keyring(self, name: str) -> Keyring:
        return keyring_of(name, Role.BROKER, self.seed)

    def add_directory(self, name: str, config: TopicDirectoryConfig, broker: str) -> Host:
        from dataclasses import replace

        config = replace(config, links=(f"{broker}:{DEFAULT_PORT}",))

        def make(incarnation: int) -> Node:
            seed = self.seed * 1_000 + incarnation
            node = build_alone(name, config, seed=seed, keyring=keyring_of(name, Role.DIRECTORY, self.seed))
            return self._lossy(node, name, incarnation)

        identity = Identity(name, (Role.DIRECTORY,), "certificate")
        host = self.world.add(name, make, identity=identity, serial=serial_of(name, Role.DIRECTORY))
        self.world.start(host)
        return host

    def add_party(self, name: str, broker: str) -> Host:
        def make(incarnation: int) -> Node:
            seed = sha256(f"{self.seed}/{name}/{incarnation}".encode()).digest()
            party = TopicParty(name, keyring_of(name, seed=self.seed), (broker, DEFAULT_PORT), seed)
            return self._lossy(Node(name=name, machines={"party": party}, pipes=(), listeners={}), name, incarnation)

        identity = Identity(name, (Role.CLIENT,), "certificate")
        host = self.world.add(name, make, identity=identity, serial=serial_of(name))
        self.world.start(host)
        return host

    def _lossy(self, node: Node, name: str, incarnation: int) -> Node:
        draw = self.world.random(f"losses/{name}/{incarnation}").random
        for machine in list(node.machines):
            node.machines[machine] = Lossy(node.machines[machine], self.losses, draw)  # type: ignore[assignment]
        return node

    # -- acting -----------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        self.world.run(self.world.loop.now + int(seconds * SECOND))

    def machine(self, host: str) -> Any:
        return self.world.hosts[host].seats[-1].machine

    def begin(self, entity: str, make: Callable[[Statements, bytes], TopicConversation]) -> TopicConversation:
        host = self.world.hosts[entity]
        host.tell(host.seat("party"), Begin(make))
        self.run(0.0001)
        conversation: TopicConversation = self.machine(entity).conversations[-1]
        return conversation

    def finish(self, conversation: TopicConversation, seconds: float = 20.0) -> TopicConversation:
        for _ in range(int(seconds * 50)):
            if conversation.is_over:
                break
            self.run(0.02)
        return conversation

    def create(self, entity: str = "alice", creation: Creation | None = None, **options: Any) -> TopicConversation:
        wanted = creation or a_creation(entity)
        return self.finish(self.begin(entity, lambda say, seed: TopicCreation(say, wanted, seed, **options)))

    def search(self, entity: str = "bob", query: TopicQuery | None = None, **options: Any) -> TopicFinder:
        asked = query or TopicQuery("keywords", "temperature")
        finder = self.finish(self.begin(entity, lambda say, seed: TopicFinder(say, asked, seed, **options)))
        assert isinstance(finder, TopicFinder)
        return finder

    def counts(self, directory: str = "tdn-1") -> dict[str, int]:
        counts: dict[str, int] = self.machine(directory).report("overview")["counts"]
        return counts
