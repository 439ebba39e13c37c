"""The services of broker discovery in a node: the responder of a broker, and a directory (BDN).

In:    their settings.
Out:   RESPONDER_SERVICE and DIRECTORY_SERVICE, for the list of node.py.
State: none.
Not here: their machines (responder.py, directory.py), looking up names and sampling usage (live/beside.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, ListenerConfig
from heliograph.discovery.brokers.config import (
    DIRECTORY,
    GROUP_SOCKET,
    RESPONDER,
    SOCKET,
    DirectoryConfig,
    ResponderConfig,
    far_addresses,
    written,
)
from heliograph.machine import Machine, Socket
from heliograph.model.hosts import is_loopback
from heliograph.model.settings import Problem
from heliograph.services.declared import Opened, ReadFile, Service, Surroundings
from heliograph.trust.config import TlsConfig
from heliograph.wire.requests import RequestTypes

_SIGNED = "needs tls.authority, which signed the requesters' certificates"


class ResponderService(Service[ResponderConfig]):
    """Answers searches for a broker, and advertises its broker."""

    name = RESPONDER
    config = ResponderConfig
    without_socket = "choose another UDP port with discovery.port, or switch discovery.enabled off (--no-discovery)"

    def is_wanted(self, config: ResponderConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: ResponderConfig, around: Surroundings) -> Machine:
        """A responder for the broker of this node."""
        from heliograph.discovery.brokers.responder import Responder

        assert around.broker is not None
        return Responder(
            config,
            around.broker.name,
            seed=around.seed,
            incarnation=around.incarnation,
            keyring=around.keyring,
            monitored=around.monitored,
        )

    def requests(self) -> RequestTypes[Any]:
        """For chains of certificates, in the form of discovery messages."""
        from heliograph.discovery.brokers.messages import REQUESTS

        return REQUESTS

    def sockets(self, config: ResponderConfig, broker: BrokerConfig | None) -> tuple[Socket, ...]:
        """Its own, by default on the first listener's port; and the group's if it uses one."""
        port = config.port
        if port is None:
            port = DEFAULT_PORT if broker is None else broker.listeners[0].port
        own = Socket(name=SOCKET, host=config.host, port=port)
        group = config.multicast
        if not group.enabled:
            return (own,)
        interface = group.interface or config.host
        return own, Socket(name=GROUP_SOCKET, port=group.port, group=group.group, interface=interface)

    def problems(self, config: ResponderConfig, broker: BrokerConfig, tls: TlsConfig) -> list[Problem]:
        """Unreachable directories, and a policy without an authority."""
        found = []
        far = far_addresses(config.directories)
        if config.enabled and far and is_loopback(config.host):
            said = (
                f" has {far[0]!r}, but discovery.host = {config.host!r} reaches this machine only; "
                "set discovery.host to an address of the network, or use discovery.directory_links"
            )
            found.append(Problem("discovery.directories", said, ("discovery.host", "discovery.directory_links")))
        if config.policy == "credential" and not tls.authority:
            found.append(Problem("discovery.policy", f" = 'credential' {_SIGNED}", ("tls.authority",)))
        return found

    def farewell(self) -> object:
        """Its broker must no longer be found."""
        from heliograph.discovery.brokers.advertisement import Withdraw

        return Withdraw()

    def describe(self, config: ResponderConfig, opened: Opened) -> str:
        """Which requesters can find the broker."""
        ways = [f"UDP {written(opened[SOCKET])}"]
        more = ["discovery.host"] if is_loopback(config.host) else []
        group, interface = opened.get(GROUP_SOCKET), config.multicast.interface
        if group is not None:
            where = "loopback only" if is_loopback(interface) else f"by {interface}"
            ways.append(f"multicast {written(group)} ({where})")
        if group is not None and is_loopback(interface):
            more.append("discovery.multicast_interface")
        hint = f"\nto open that to the network: {' and '.join(more)}" if more else ""
        return f"found by {' and '.join(ways)}{hint}"


class DirectoryService(Service[DirectoryConfig]):
    """A broker directory, in a broker's process or in its own."""

    name = DIRECTORY
    config = DirectoryConfig
    protocol = DIRECTORY
    without_socket = "choose another port with bdn.port"

    def is_wanted(self, config: DirectoryConfig) -> bool:
        """True if it is enabled."""
        return config.enabled

    def build(self, config: DirectoryConfig, around: Surroundings) -> Machine:
        """A directory that accepts this machine's administrator."""
        from heliograph.discovery.brokers.directory import Directory

        if around.local_digest:
            config = replace(config, local_digest=around.local_digest)
        return Directory(config, seed=around.seed, keyring=around.keyring)

    def sockets(self, config: DirectoryConfig, broker: BrokerConfig | None) -> tuple[Socket, ...]:
        """The socket for requests and pings."""
        return (Socket(name=SOCKET, host=config.host, port=config.port),)

    def listeners(self, config: DirectoryConfig) -> tuple[ListenerConfig, ...]:
        """For requesters and brokers by TCP. Any party may dial; each message is authenticated by itself."""
        listener = ListenerConfig(
            name=DIRECTORY, protocol=DIRECTORY, host=config.host, port=config.port, allow_open=True
        )
        return (listener,)

    def problems(self, config: DirectoryConfig, broker: BrokerConfig, tls: TlsConfig) -> list[Problem]:
        """Missing certificates, and a token that others could read."""
        found = []
        if config.private and not tls.authority:
            found.append(Problem("bdn.private", f" = true {_SIGNED}", ("tls.authority",)))
        if config.links_secure and not tls.is_complete:
            others = ("tls.certificate", "tls.key", "tls.authority")
            said = " = true needs tls.certificate, tls.key and tls.authority"
            found.append(Problem("bdn.links_secure", said, others))
        if config.enabled and any(listener.name == DIRECTORY for listener in broker.listeners):
            said = " = 'bdn': the listener of the directory in this process is called so; choose another"
            found.append(Problem("listener.bdn.name", said))
        far = far_addresses(config.links)
        if config.token_file and far and not config.links_secure:
            said = f" has {far[0]!r}: the token would cross the network in clear; set bdn.links_secure"
            found.append(Problem("bdn.links", said, ("bdn.links_secure",)))
        return found

    def with_files(self, config: DirectoryConfig, read: ReadFile) -> DirectoryConfig:
        """With the token that it presents to brokers."""
        if not config.token_file:
            return config
        return replace(config, token=read("bdn.token_file", config.token_file).strip())

    def reload(self, config: DirectoryConfig) -> object:
        """Filters, links and limits."""
        from heliograph.discovery.brokers.directory import ReloadDirectory

        return ReloadDirectory(config)

    def describe(self, config: DirectoryConfig, opened: Opened) -> str:
        """What a directory opens, and to which parties."""
        address = opened[SOCKET]
        reach = "this machine only" if is_loopback(config.host) else "the network"
        asks = "signed requests only" if config.private else "open to all requesters"
        text = f"open on {written(address)} (directory, UDP and TCP, {reach}, {asks})"
        if is_loopback(config.host):
            text += f"\nto open it to the network: heliograph bdn run --listen 0.0.0.0:{address[1]}, or bdn.host"
        return text


RESPONDER_SERVICE = ResponderService()
DIRECTORY_SERVICE = DirectoryService()
