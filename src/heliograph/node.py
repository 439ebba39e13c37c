"""A node: one broker with its services in one process, built by one function for the live and the simulated world.

In:    a BrokerConfig, the settings of its services, a seed and an incarnation number.
Out:   Node: machines by name, the pipes that join them, the machine for the links of each listener, and the datagram
       sockets and vault of each machine; SERVICES, the list of all services.
State: none here; each machine has its own.
Not here: running it (live/node.py, sim/world.py), what a service is (services/declared.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from heliograph.broker.config import PROTOCOL, BrokerConfig, ListenerConfig
from heliograph.discovery.brokers.config import DIRECTORY as DIRECTORY
from heliograph.discovery.brokers.config import RESPONDER
from heliograph.discovery.brokers.services import DIRECTORY_SERVICE, RESPONDER_SERVICE
from heliograph.discovery.resources.declaration import RESOURCES_SERVICE
from heliograph.discovery.topics.services import RIGHTS_SERVICE, TOPIC_DIRECTORY_SERVICE
from heliograph.machine import Machine, Socket
from heliograph.model.chance import Seed
from heliograph.repository import Repository
from heliograph.services.admin import ADMIN_SERVICE
from heliograph.services.declared import Configured, NoSettings, Service, Surroundings
from heliograph.services.monitor import MONITOR_SERVICE, MonitorConfig
from heliograph.stores.services import STORE_SERVICE, STORES_SERVICE
from heliograph.timekeeping.sntp import SOCKET as TIME_SOCKET
from heliograph.vault import Vault

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

BROKER = "broker"
DISCOVERY = RESPONDER

# Every service that a node can have. A new service is a folder of its own, and a line here.
SERVICES: tuple[Service[Any], ...] = (
    ADMIN_SERVICE,
    RESPONDER_SERVICE,
    DIRECTORY_SERVICE,
    RESOURCES_SERVICE,
    TOPIC_DIRECTORY_SERVICE,
    RIGHTS_SERVICE,
    MONITOR_SERVICE,
    STORES_SERVICE,
    STORE_SERVICE,
)


class Pipe(Struct, frozen=True):
    """An in-process link between the broker and a service. Both sides see an attach with transport "pipe"."""

    broker: str
    service: str


class Node(Struct, frozen=True):
    """What a driver needs to run one process."""

    name: str
    machines: dict[str, Machine]
    pipes: tuple[Pipe, ...]
    listeners: dict[str, str]  # listener name -> the machine that its links belong to
    sockets: Mapping[str, tuple[Socket, ...]] = field(default_factory=dict)  # machine -> its datagram sockets
    vaults: Mapping[str, Vault] = field(default_factory=dict)  # machine -> its vault
    services: tuple[Configured, ...] = ()
    repositories: Mapping[str, Repository] = field(default_factory=dict)  # machine -> its repository

    @property
    def service_listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners of its services, in addition to those of [[listener]]."""
        return tuple(each for one in self.services for each in one.service.listeners(one.config))


def build(
    config: BrokerConfig,
    *,
    seed: Seed,
    incarnation: int,
    services: Iterable[object] = (),
    keyring: Keyring | None = None,
) -> Node:
    """A broker with its services: those without settings, such as admin, and those whose settings are given."""
    from heliograph.broker.broker import Broker  # imported late: the settings need the list above, but no broker

    services = tuple(services)
    around = Surroundings(
        broker=config,
        seed=seed,
        incarnation=incarnation,
        keyring=keyring,
        local_digest=config.local_digest,
        monitored=any(isinstance(each, MonitorConfig) for each in services),
    )
    broker = Broker(config, seed=seed, incarnation=incarnation)
    return _joined(config.name, broker, configured((NoSettings(), *services)), around)


def build_alone(name: str, config: object, *, seed: Seed, keyring: Keyring | None = None, digest: bytes = b"") -> Node:
    """A service in a process of its own."""
    around = Surroundings(broker=None, seed=seed, keyring=keyring, local_digest=digest)
    return _joined(name, None, configured((config,)), around)


def configured(configs: Iterable[object]) -> tuple[Configured, ...]:
    """The services that these settings belong to, in the order of the list."""
    given = {type(config): config for config in configs}
    found = tuple(Configured(service, given[service.config]) for service in SERVICES if service.config in given)
    assert given.keys() <= {each.service.config for each in found}, "settings of a service that is not in the list"
    return found


def _joined(name: str, broker: Machine | None, services: tuple[Configured, ...], around: Surroundings) -> Node:
    machines: dict[str, Machine] = {} if broker is None else {BROKER: broker}
    takers: dict[str, str] = {PROTOCOL: BROKER}
    sockets: dict[str, tuple[Socket, ...]] = {}
    vaults: dict[str, Vault] = {}
    repositories: dict[str, Repository] = {}
    listeners: tuple[ListenerConfig, ...] = ()
    if around.broker is not None:
        listeners = around.broker.listeners
        if around.broker.time.servers:
            sockets[BROKER] = (_time_socket(around.broker),)
    for service, config in ((each.service, each.config) for each in services):
        machines[service.name] = service.build(config, around)
        listeners += service.listeners(config)
        takers[service.protocol] = service.name
        if opened := service.sockets(config, around.broker):
            sockets[service.name] = opened
        vault = service.vault(config)
        if vault is not None:
            vaults[service.name] = vault
        repository = service.repository(config)
        if repository is not None:
            repositories[service.name] = repository
    return Node(
        name=name,
        machines=machines,
        pipes=tuple(Pipe(BROKER, each.name) for each in services if broker is not None),
        listeners={listener.name: takers[listener.protocol] for listener in listeners},
        sockets=sockets,
        vaults=vaults,
        services=services,
        repositories=repositories,
    )


def _time_socket(config: BrokerConfig) -> Socket:
    """The socket for NTP servers. A server elsewhere opens it to the network; only answers to requests are read."""
    return Socket(name=TIME_SOCKET, host="127.0.0.1" if config.time.is_local else "0.0.0.0")  # noqa: S104 see above
