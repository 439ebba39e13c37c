"""Settings of broker discovery as a user writes them: [discovery] for a broker, [directory] for a BDN.

In:    values of the two sections; the broker's own settings.
Out:   the configs of the machines: ResponderConfig, DirectoryConfig, and the DiscoveryConfig of a broker that joins.
State: none.
Not here: what the machines make of them (discovery/brokers/), reading values (config_sources.py), settings of clients.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from ipaddress import ip_address

from heliograph.broker.config import LOOPBACK, BrokerConfig
from heliograph.discovery.brokers.config import (
    DIRECTORY_PORT,
    GROUP,
    GROUP_PORT,
    INJECTIONS,
    POLICIES,
    TTL,
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """Whether a broker looks for another one to link to."""

    join: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySection:
    """How a broker is found. As it stands here, from this machine only."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int | None = None
    advertise_host: str = ""
    policy: str = "open"
    realms: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    directory_links: tuple[str, ...] = ()
    public: bool = True
    topics: tuple[str, ...] = ()
    join_private: bool = False
    multicast: bool = True
    multicast_group: str = GROUP
    multicast_port: int = GROUP_PORT
    multicast_ttl: int = TTL
    multicast_interface: str = "127.0.0.1"
    geography: str = ""
    institution: str = ""
    lifetime_s: int = 30
    requests_remembered: int = 1_000

    def problems(self) -> list[str]:
        """Everything wrong with it, by the names that the user typed."""
        found = self.responder(BrokerConfig()).problems("discovery")
        return [problem.replace("discovery.multicast.", "discovery.multicast_") for problem in found]

    def responder(self, broker: BrokerConfig) -> ResponderConfig:
        """For the machine. Without a port of its own it takes the number of the broker's first listener."""
        same = {field.name for field in fields(self)} & {field.name for field in fields(ResponderConfig)}
        given = {name: getattr(self, name) for name in same - {"port", "multicast"}}
        port = broker.listeners[0].port if self.port is None else self.port
        return ResponderConfig(port=port, multicast=self.group, **given)

    @property
    def group(self) -> MulticastConfig:
        """The multicast group."""
        return MulticastConfig(
            enabled=self.multicast,
            group=self.multicast_group,
            port=self.multicast_port,
            ttl=self.multicast_ttl,
            interface=self.multicast_interface,
        )

    def joining(self, broker: BrokerConfig, transports: tuple[str, ...]) -> DiscoveryConfig:
        """For the search of a broker that wants to join others."""
        return DiscoveryConfig(
            directories=self.directories,
            directory_links=self.directory_links,
            multicast=self.group,
            network=broker.network.name,
            name=broker.name,
            role="broker",
            transports=transports,
        )

    @property
    def is_local(self) -> bool:
        """True if only this machine can ask for the broker."""
        group = not self.multicast or is_loopback(self.multicast_interface)
        return group and is_loopback(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySection:
    """A broker directory, in a process of its own (`heliograph bdn run`) or in a broker's."""

    enabled: bool = False
    name: str = "bdn"
    host: str = "127.0.0.1"
    port: int = DIRECTORY_PORT
    advertise: str = ""
    private: bool = False
    geographies: tuple[str, ...] = ()
    institutions: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    injection: str = "ends"
    links: tuple[str, ...] = ()
    links_secure: bool = False
    links_learned_max: int = 4
    entity: str = ""
    token_file: str = ""
    brokers_max: int = 20_000
    requests_remembered: int = 1_000
    ping_ms: int = 10_000

    def problems(self) -> list[str]:
        """Everything wrong with it."""
        found = self.config("x" if self.token_file else "").problems("directory")
        return [problem.replace("directory.token needs", "directory.token_file needs") for problem in found]

    def config(self, token: str = "", local_digest: bytes = b"") -> DirectoryConfig:
        """For the machine."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        del given["enabled"], given["token_file"]
        return DirectoryConfig(token=token, local_digest=local_digest, **given)


def is_loopback(host: str) -> bool:
    """True if only this machine reaches that address."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


_NUMBER = "above 0"
_PORT = "0 to 65535; 0 takes a free port"
_TEXT = "at most 64 printable ASCII characters"
_ADDRESSES = "addresses as host:port"

WORDS: dict[str, tuple[str, str]] = {
    "network.join": (
        "look for another broker by broker discovery, link to it, and look again when no link is left",
        "true or false; needs network.key_file or certificates",
    ),
    "discovery.enabled": ("answer those who look for a broker", "true or false"),
    "discovery.host": (
        "where requests and pings are heard; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        "an address or host name of this machine",
    ),
    "discovery.port": ("the UDP port; without one, the number of the first listener's port", _PORT),
    "discovery.advertise_host": (
        "the name or address by which others reach this broker; without one, the address that they see",
        _TEXT,
    ),
    "discovery.policy": (
        "who gets an answer: everybody, those who prove who they are, those of certain networks, or nobody",
        ", ".join(POLICIES) + "; credential needs tls.authority, realm needs discovery.realms",
    ),
    "discovery.realms": ("the networks that get an answer, for policy = realm", "networks such as 192.0.2.0/24"),
    "discovery.directories": ("the directories (BDNs) to which the broker makes itself known", _ADDRESSES),
    "discovery.directory_links": (
        "the same, reached by TCP instead of UDP: for networks that let no datagram out",
        _ADDRESSES,
    ),
    "discovery.public": (
        "make the broker known on the public topic too, for every directory of the network",
        "true or false",
    ),
    "discovery.topics": ("more topics on which the broker makes itself known, for particular directories", "topics"),
    "discovery.join_private": (
        "make the broker known to private directories that announce themselves",
        "true or false",
    ),
    "discovery.multicast": ("hear requests that are sent to the multicast group", "true or false"),
    "discovery.multicast_group": ("the multicast group", "an IPv4 multicast address"),
    "discovery.multicast_port": ("the group's UDP port, shared by all brokers of a machine", "1 to 65535"),
    "discovery.multicast_ttl": (
        "how many networks a request that this broker sends to the group may pass",
        "0 (this machine) to 255",
    ),
    "discovery.multicast_interface": (
        "the interface on which the group is heard; 127.0.0.1: from this machine only, 0.0.0.0: as its routes say",
        "an IPv4 address of this machine, or 0.0.0.0",
    ),
    "discovery.geography": ("where the broker is, for directories that keep one region only", _TEXT),
    "discovery.institution": ("whose the broker is, for directories that keep one institution only", _TEXT),
    "discovery.lifetime_s": (
        "how long a directory knows the broker without news, at most 600; it renews three times in that",
        _NUMBER,
    ),
    "discovery.requests_remembered": ("how many request ids are remembered, so that repeats cost nothing", _NUMBER),
    "directory.enabled": (
        "run a directory in this broker's process; `heliograph bdn run` needs no switch",
        "true or false",
    ),
    "directory.name": ("the directory's name in logs and acknowledgements", "letters, digits and . _ @ -"),
    "directory.host": (
        "the address for UDP and TCP; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        "an address or host name of this machine",
    ),
    "directory.port": ("the UDP and TCP port", _PORT),
    "directory.advertise": (
        "the address under which brokers reach the directory: for announcements and relayed answers",
        "host:port; needed by private directories",
    ),
    "directory.private": (
        "pass on only requests of those who prove who they are, and announce the directory to brokers",
        "true or false; needs tls.authority and directory.advertise",
    ),
    "directory.geographies": ("keep only brokers whose geography begins with one of these", "texts"),
    "directory.institutions": ("keep only brokers whose institution begins with one of these", "texts"),
    "directory.topics": ("more topics on which brokers are heard, beyond the public one", "topics"),
    "directory.injection": (
        "to whom a request is handed: the nearest and the farthest broker of each group of linked ones, or all",
        ", ".join(INJECTIONS),
    ),
    "directory.links": ("brokers to which links are kept, to listen to their topics and to speak on them", _ADDRESSES),
    "directory.links_secure": ("dial these with TLS and the certificate of [tls]", "true or false"),
    "directory.links_learned_max": ("how many links to brokers are kept that made themselves known", "0 or more"),
    "directory.entity": ("whose token is shown to these brokers", "letters, digits and . _ @ -"),
    "directory.token_file": (
        "a file with the token that is shown to these brokers",
        "a path, relative to the settings file; needs directory.entity",
    ),
    "directory.brokers_max": ("how many brokers are kept", _NUMBER),
    "directory.requests_remembered": ("how many requests are remembered, so that repeats cost nothing", _NUMBER),
    "directory.ping_ms": ("how often each broker's distance is measured", _NUMBER),
}
