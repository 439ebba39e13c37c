"""Broker settings: data with opinions. Every default works; every limit has its reason beside it.

In:    values, typed by config.py.
Out:   frozen configs, each with ``problems()``: everything wrong with it, in words and with the path a user typed.
State: none.
Not here: reading TOML and the environment (config.py), certificates and key files (live/tls.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from string import ascii_letters, digits

from heliograph.broker.routing.settings import DEFAULT_PORT as DEFAULT_PORT
from heliograph.broker.routing.settings import LinkConfig as LinkConfig
from heliograph.broker.routing.settings import NetworkConfig as NetworkConfig
from heliograph.model.identity import Role, entity_is_valid
from heliograph.model.topics import filter_fault
from heliograph.trust.tokens import TokenRecord as TokenRecord
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

HOST_LETTERS = frozenset(ascii_letters + digits + ".-:")
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 what listening on all addresses is called
LOOPBACK = ("127.0.0.1", "::1", "localhost")
AUTH = ("none", "token", "certificate", "any")
VERBS = ("publish", "subscribe", "ask")
EFFECTS = ("allow", "deny")
NTP_PORT = 123
SERVERS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One address on which peers may dial in."""

    name: str = "main"
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    secure: bool = False  # TLS 1.3
    auth: str = "none"  # "none" (anonymous clients), "token", "certificate" (mutual TLS) or "any" of the two
    announce: str = ""  # the host that others are told instead of ``host``, which may mean "every address"
    allow_open: bool = False  # anonymous clients from other machines are meant, not an oversight

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        if self.host in LOOPBACK:
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name, even one that begins with "127."

    def problems(self, path: str = "listener") -> list[str]:
        """Everything wrong with it."""
        found = []
        if not entity_is_valid(self.name):
            found.append(f"{path}.name = {self.name!r}: letters, digits and . _ @ - only")
        if not 0 <= self.port <= 65_535:
            found.append(f"{path}.port = {self.port}: must be between 0 and 65535 (0 takes a free port)")
        if not set(self.announce) <= HOST_LETTERS:
            found.append(f"{path}.announce = {self.announce!r}: must be an address or host name, without a port")
        if self.auth not in AUTH:
            found.append(f"{path}.auth = {self.auth!r}: must be one of {', '.join(AUTH)}")
        if self.auth in ("certificate", "any") and not self.secure:
            found.append(f"{path}.auth = {self.auth!r} needs {path}.secure = true: certificates are shown in TLS")
        if not self.is_local and not self.secure and self.auth == "token":
            found.append(f"{path}: tokens would cross the network in clear text; set {path}.secure = true")
        if not self.is_local and self.auth == "none" and not self.allow_open:
            found.append(
                f"{path}.host = {self.host!r} with {path}.auth = 'none': anyone could use it from other machines; set "
                f"{path}.auth to token, certificate or any, or {path}.allow_open = true if that is meant"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """How much a broker takes on before it says no."""

    links_max: int = 16_384
    links_unproven_max: int = 1_024  # links that have not finished their handshake
    links_per_source_max: int = 16_384  # of one address, that have proven nothing: anonymous, or in their handshake
    handshake_ms: int = 2_000  # from attach to a complete Hello
    handshake_bytes: int = 16_384  # what a link may send before it is welcomed
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    subscriptions_max: int = 1_000_000
    subscriptions_per_link_max: int = 100_000
    queue_bytes_max: int = 8 << 20  # per link, beyond the driver's own buffer
    queue_frames_max: int = 65_536
    hold_bytes: int = 1 << 20  # a queue this long holds publishers that opted in
    hold_ms_max: int = 10_000  # a consumer that holds others and takes nothing for so long loses its link
    keep_alive_ms_min: int = 1_000
    keep_alive_ms_max: int = 120_000
    routes_max: int = 262_144  # cached topics per access profile: about 150 bytes each
    origins_max: int = 131_072  # publishers remembered for duplicate detection …
    origin_horizon_ms: int = 120_000  # … for so long after their last link ended
    gaps_max: int = 1_024  # missing sequence spans remembered per origin
    drain_grace_ms: int = 10_000

    def problems(self, path: str = "limits") -> list[str]:
        """Everything wrong with it."""
        found = [
            f"{path}.{name} = {getattr(self, name)}: must be above 0"
            for name in self.__slots__
            if getattr(self, name) <= 0
        ]
        if self.payload_bytes_max > PAYLOAD_BYTES_MAX:
            found.append(
                f"{path}.payload_bytes_max = {self.payload_bytes_max}: the wire carries at most {PAYLOAD_BYTES_MAX}"
            )
        if self.hold_bytes > self.queue_bytes_max:
            found.append(f"{path}.hold_bytes must not be above {path}.queue_bytes_max")
        if self.keep_alive_ms_min > self.keep_alive_ms_max:
            found.append(f"{path}.keep_alive_ms_min must not be above {path}.keep_alive_ms_max")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConfig:
    """One line of the access list; the first line that fits decides."""

    effect: str  # "allow" or "deny"
    verbs: tuple[str, ...] = VERBS[:2]
    topics: tuple[str, ...] = ("#",)  # filters; {entity} stands for the peer's entity id. For "ask": service names
    who: tuple[str, ...] = ("*",)  # "*", an entity id, a prefix such as "sensor-*", or "role:admin"

    def problems(self, path: str) -> list[str]:
        """Everything wrong with it."""
        found = []
        if self.effect not in EFFECTS:
            found.append(f"{path}.effect = {self.effect!r}: must be one of {', '.join(EFFECTS)}")
        found += [
            f"{path}.verbs has {verb!r}: must be of {', '.join(VERBS)}" for verb in self.verbs if verb not in VERBS
        ]
        for topic in self.topics:
            fault = filter_fault(topic.replace("{entity}", "entity").encode())
            if fault is not None:
                found.append(f"{path}.topics has {topic!r}: {fault}")
        for who in self.who:
            if who.startswith("role:") and who[5:] not in list(Role):
                found.append(f"{path}.who has {who!r}: the roles are {', '.join(Role)}")
            elif not who.startswith("role:") and not entity_is_valid(who.removesuffix("*") or "x"):
                found.append(f"{path}.who has {who!r}: not an entity id, a prefix ending in '*', or 'role:…'")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Who may publish, subscribe and ask for what. System topics are for admins and brokers unless a rule says so."""

    rules: tuple[RuleConfig, ...] = ()
    default: str = "allow"  # for ordinary topics that no rule fits

    def problems(self, path: str = "access") -> list[str]:
        """Everything wrong with it."""
        found = [
            problem for number, rule in enumerate(self.rules) for problem in rule.problems(f"{path}.rules[{number}]")
        ]
        if self.default not in EFFECTS:
            found.append(f"{path}.default = {self.default!r}: must be one of {', '.join(EFFECTS)}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """When a broker counts as overloaded, and asks some of its clients to move to others."""

    shed: bool = True
    cpu_permille_high: int = 850  # of one core, smoothed over about five seconds: a broker has one thread
    cpu_permille_low: int = 600  # below it, it asks nobody any more; and takes clients that others asked
    links_permille_high: int = 900  # of limits.links_max, or of what descriptors allow
    links_permille_low: int = 800
    overloaded_s: int = 10  # above a high mark for so long: a burst is no overload
    rest_s: int = 300  # whoever was asked, or came because it was asked, is left alone for so long

    def problems(self, path: str = "load") -> list[str]:
        """Everything wrong with it."""
        found = []
        for what in ("cpu_permille", "links_permille"):
            low, high = getattr(self, f"{what}_low"), getattr(self, f"{what}_high")
            if not 0 < low < high <= 1_000:
                found.append(f"{path}.{what}_low = {low} must be above 0 and below {path}.{what}_high, at most 1000")
        for name in ("overloaded_s", "rest_s"):
            if not 1 <= getattr(self, name) <= 86_400:
                found.append(f"{path}.{name} = {getattr(self, name)}: must be between 1 and 86400")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConfig:
    """Where network time comes from."""

    servers: tuple[str, ...] = ()  # NTP servers: host or host:port; none: the brokers agree on one of their own clocks
    poll_s: int = 64  # how often they are asked; public ones do not want it more often

    def problems(self, path: str = "time") -> list[str]:
        """Everything wrong with it."""
        found = []
        for number, server in enumerate(self.servers):
            host, port = _address(server)
            if not host or host != host.strip() or not 0 < port < 65_536:
                found.append(f"{path}.servers[{number}] = {server!r}: must be HOST or HOST:PORT, IPv4 or a name")
        if len(self.servers) > SERVERS_MAX:
            found.append(f"{path}.servers has {len(self.servers)}: at most {SERVERS_MAX} are asked")
        if not 16 <= self.poll_s <= 3_600:
            found.append(f"{path}.poll_s = {self.poll_s}: must be between 16 and 3600")
        return found

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The servers, each with its port."""
        return [_address(server) for server in self.servers]

    @property
    def is_local(self) -> bool:
        """True if all of them are on this machine."""
        return all(host in LOOPBACK for host, _ in self.addresses)


def _address(server: str) -> tuple[str, int]:
    host, colon, port = server.partition(":")
    if not colon:
        return host, NTP_PORT
    return (host, int(port)) if port.isascii() and port.isdigit() and len(port) < 6 else ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All that one broker needs to know."""

    name: str = "broker"
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    time: TimeConfig = field(default_factory=TimeConfig)
    tokens: tuple[TokenRecord, ...] = ()
    local_digest: bytes = b""  # SHA-256 of the token that this machine's administrator finds beside the process

    def problems(self) -> list[str]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.name) else [f"broker.name = {self.name!r}: letters, digits and . _ @ - only"]
        names = [listener.name for listener in self.listeners]
        for number, listener in enumerate(self.listeners):
            found += listener.problems(self.listener_path(number))
            if names.count(listener.name) > 1:
                found.append(f"listener.{listener.name}: two listeners have this name")
        sections = (self.limits, self.access, self.network, self.load, self.time)
        return found + [problem for section in sections for problem in section.problems()]

    def restart_needed(self, started: BrokerConfig) -> list[str]:
        """The settings that differ from those with which the broker was started, and cannot change while it runs."""
        found = [] if self.name == started.name else ["broker.name"]
        if self.listeners != started.listeners:
            found.append("listener")
        for key in ("name", "cluster", "slot", "interests_max"):
            if getattr(self.network, key) != getattr(started.network, key):
                found.append(f"network.{key}")
        return found

    def listener_path(self, number: int) -> str:
        """How a listener is called in problems: by its name where it has a good one, else by its number."""
        name = self.listeners[number].name
        return f"listener.{name}" if entity_is_valid(name) else f"listener[{number}]"
