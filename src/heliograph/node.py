"""A node: one broker with its services in one process, built by one function for the live and the simulated world.

In:    a BrokerConfig, what services it is to have, a seed and an incarnation number.
Out:   Node: machines by name, the pipes that join them, who answers each listener, and who has which datagram sockets
       and which vault.
State: none here; each machine has its own.
Not here: running it (live/node.py, sim/world.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig
from heliograph.discovery.brokers import responder as responders
from heliograph.discovery.brokers.config import DirectoryConfig, ResponderConfig
from heliograph.discovery.brokers.responder import Responder
from heliograph.machine import Machine, Socket
from heliograph.services.admin import Admin
from heliograph.timekeeping.sntp import SOCKET as TIME_SOCKET
from heliograph.vault import Vault

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

BROKER = "broker"
DISCOVERY = responders.NAME  # the responder of broker discovery
DIRECTORY = "bdn"  # also the name of its listener


@dataclass(frozen=True, slots=True)
class Pipe:
    """An in-process link between the broker and a service. Both sides see an attach with transport "pipe"."""

    broker: str
    service: str


@dataclass(frozen=True, slots=True)
class Node:
    """What a driver needs to run one process."""

    name: str
    machines: dict[str, Machine]
    pipes: tuple[Pipe, ...]
    listeners: dict[str, str]  # listener name -> the machine that its links belong to
    sockets: Mapping[str, tuple[Socket, ...]] = field(default_factory=dict)  # machine -> its datagram sockets
    vaults: Mapping[str, Vault] = field(default_factory=dict)  # machine -> its vault


def build(
    config: BrokerConfig,
    *,
    seed: int,
    incarnation: int,
    responder: ResponderConfig | None = None,
    directory: DirectoryConfig | None = None,
    keyring: Keyring | None = None,
) -> Node:
    """A broker with its services: always admin; a responder and a broker directory where they are wanted."""
    machines: dict[str, Machine] = {
        BROKER: Broker(config, seed=seed, incarnation=incarnation),
        "admin": Admin(),
    }
    listeners = {listener.name: BROKER for listener in config.listeners}
    sockets: dict[str, tuple[Socket, ...]] = {}
    if config.time.servers:
        sockets[BROKER] = (_time_socket(config),)
    if responder is not None and responder.enabled:
        machines[DISCOVERY] = Responder(responder, config.name, seed=seed, incarnation=incarnation, keyring=keyring)
        sockets[DISCOVERY] = Responder.sockets(responder)
    if directory is not None:
        from heliograph.discovery.brokers.directory import Directory  # late: few brokers have one

        machines[DIRECTORY] = Directory(directory, seed=seed, keyring=keyring)
        sockets[DIRECTORY] = Directory.sockets(directory)
        listeners[DIRECTORY] = DIRECTORY
    pipes = tuple(Pipe(BROKER, service) for service in machines if service != BROKER)
    return Node(name=config.name, machines=machines, pipes=pipes, listeners=listeners, sockets=sockets)


def build_directory(config: DirectoryConfig, *, seed: int, keyring: Keyring | None = None) -> Node:
    """A broker directory in a process of its own."""
    from heliograph.discovery.brokers.directory import Directory

    return Node(
        name=config.name,
        machines={DIRECTORY: Directory(config, seed=seed, keyring=keyring)},
        pipes=(),
        listeners={DIRECTORY: DIRECTORY},
        sockets={DIRECTORY: Directory.sockets(config)},
    )


def _time_socket(config: BrokerConfig) -> Socket:
    """For NTP servers. Naming one elsewhere opens this socket to the network; it hears answers to questions only."""
    return Socket(name=TIME_SOCKET, host="127.0.0.1" if config.time.is_local else "0.0.0.0")  # noqa: S104 see above
