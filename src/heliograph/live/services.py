"""The services of a live node: what its settings say it is to have beside its broker.

In:    Settings, and the certificates that they name.
Out:   Services: configs for the responder, a directory and a search for brokers to join; the first log line's words.
State: none.
Not here: the machines (discovery/brokers/), opening their sockets (node.py), joining (join.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from heliograph.broker.config import ListenerConfig
from heliograph.config_discovery import is_loopback
from heliograph.config_keyring import load_keyring
from heliograph.discovery.brokers.config import (
    GROUP_SOCKET,
    SOCKET,
    DirectoryConfig,
    DiscoveryConfig,
    ResponderConfig,
    address_of,
    is_number,
)
from heliograph.live.links import format_address
from heliograph.machine import Address, SocketName
from heliograph.node import DIRECTORY, DISCOVERY

if TYPE_CHECKING:
    from heliograph.config import Settings
    from heliograph.trust.keyring import Keyring

Opened = Mapping[tuple[str, SocketName], Address]

# What to change when a machine's own socket cannot be had.
SWITCHES = {
    DISCOVERY: "choose another UDP port with discovery.port, or switch discovery.enabled off (--no-discovery)",
    DIRECTORY: "choose another port with directory.port",
}


@dataclass(frozen=True, slots=True)
class Services:
    """What a node has beside its broker. The default is a broker that nobody finds."""

    responder: ResponderConfig | None = None
    named: tuple[Address, ...] = ()  # directories of the responder that have to be looked up, now and then
    directory: DirectoryConfig | None = None
    join: DiscoveryConfig | None = None  # how the broker looks for whom to link to
    keyring: Keyring | None = None
    load_keyring: Callable[[], Keyring | None] | None = None  # reads its files anew

    @property
    def directory_listener(self) -> ListenerConfig | None:
        """Where guests dial a directory; everybody may, and what they say proves itself."""
        config = self.directory
        if config is None:
            return None
        return ListenerConfig(name=DIRECTORY, host=config.host, port=config.port, allow_open=True)

    def with_digest(self, digest: bytes) -> Services:
        """The same, with a directory that knows this machine's administrator."""
        return self if self.directory is None else replace(self, directory=replace(self.directory, local_digest=digest))


def services_of(settings: Settings) -> Services:
    """What the settings of a broker ask for. ConfigError if its certificates are not usable."""
    keyring = load_keyring(settings.tls)
    discovery, broker = settings.discovery, settings.broker
    certified = keyring is not None and keyring.own is not None and bool(settings.tls.authority)
    transports = (("tls",) if certified else ()) + (("tcp",) if broker.network.key else ())
    responder = discovery.responder(broker) if discovery.enabled else None
    addresses = [(text, address_of(text)) for text in discovery.directories]
    numbers = tuple(text for text, address in addresses if address is not None and is_number(address[0]))
    return Services(
        responder=None if responder is None else replace(responder, directories=numbers),
        named=tuple(address for text, address in addresses if address is not None and text not in numbers),
        directory=settings.directory.config(settings.directory_token) if settings.directory.enabled else None,
        join=replace(discovery.joining(broker, transports), directories=numbers) if settings.join.join else None,
        keyring=keyring,
        load_keyring=lambda: load_keyring(settings.tls),
    )


def describe_discovery(services: Services, opened: Opened) -> list[str]:
    """For the first line of the log: by whom the broker can be found, and the switch that opens more."""
    config = services.responder
    if config is None:
        return []
    words = [f"UDP {format_address(opened[DISCOVERY, SOCKET])}"]
    group = opened.get((DISCOVERY, GROUP_SOCKET))
    if group is not None:
        where = "loopback only" if is_loopback(config.multicast.interface) else f"by {config.multicast.interface}"
        words.append(f"multicast {format_address(group)} ({where})")
    more = []
    if is_loopback(config.host):
        more.append("discovery.host")
    if group is not None and is_loopback(config.multicast.interface):
        more.append("discovery.multicast_interface")
    hint = f"; to open that to the network: {' and '.join(more)}" if more else ""
    return [f"found by {' and '.join(words)}{hint}"]


def describe_directory(config: DirectoryConfig, opened: Opened) -> str:
    """What a directory opens to whom."""
    address = opened[DIRECTORY, SOCKET]
    reach = "this machine only" if is_loopback(config.host) else "the network"
    asks = "signed requests only" if config.private else "everybody may ask"
    text = f"{format_address(address)} (directory, UDP and TCP, {reach}, {asks})"
    if is_loopback(config.host):
        text += f"; to open it to the network: heliograph bdn run --listen 0.0.0.0:{address[1]}, or directory.host"
    return text
