"""Broker settings. Every default works; every limit has its reason beside it.

In:    values of the right type.
Out:   frozen configs, each with ``problems()``: everything wrong with it, by key.
State: none.
Not here: what settings are (model/settings.py), reading TOML and the environment (config/), certificates (live/tls.py).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from string import ascii_letters, digits

from heliograph.broker.routing.config import DEFAULT_PORT as DEFAULT_PORT
from heliograph.broker.routing.config import LinkConfig as LinkConfig
from heliograph.broker.routing.config import NetworkConfig as NetworkConfig
from heliograph.model.hosts import is_loopback
from heliograph.model.identity import Role, entity_is_valid
from heliograph.model.settings import (
    FREE_PORT,
    PLAIN_NAME,
    PORT_MAX,
    Problem,
    check,
    has_wrong,
    restart_needed,
    setting,
    wrong,
)
from heliograph.model.topics import filter_fault
from heliograph.trust.tokens import TokenRecord as TokenRecord
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

PROTOCOL = "heliograph"  # the protocol of a broker's own listeners
HOST_LETTERS = frozenset(ascii_letters + digits + ".-:")
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 what listening on all addresses is called
LOOPBACK = ("127.0.0.1", "::1", "localhost")
AUTH = ("none", "token", "certificate", "any")
VERBS = ("publish", "subscribe", "ask")
EFFECTS = ("allow", "deny")
NTP_PORT = 123
SERVERS_MAX = 16
NAME_FAULT = f"{PLAIN_NAME} only"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One address on which peers may dial in."""

    name: str = setting(
        "main",
        "the listener's name in logs, problems and variable names",
        allowed=f"{PLAIN_NAME}; each listener its own",
        reloads=False,
    )
    protocol: str = PROTOCOL  # the protocol that peers use there; it says which machine takes their links
    host: str = setting(
        "127.0.0.1",
        "the address to listen on; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        allowed="an address or host name of this machine",
        reloads=False,
    )
    port: int = setting(
        DEFAULT_PORT, "the TCP port to listen on", least=0, most=PORT_MAX, note=FREE_PORT, reloads=False
    )
    secure: bool = setting(False, "speak TLS 1.3; needs tls.certificate and tls.key", reloads=False)
    auth: str = setting(
        "none",
        "what a peer must show: nothing, a token, a certificate (mutual TLS), or any one of the two",
        choices=AUTH,
        note="certificate and any need secure = true",
        reloads=False,
    )
    announce: str = setting(
        "",
        "where other brokers, and clients that they send, find this listener; without it, its own address or, where "
        "that is 0.0.0.0 or ::, the address from which this machine reaches others",
        allowed="an address or host name, without a port",
        reloads=False,
    )
    allow_open: bool = setting(
        False,
        "anyone who reaches this address may use it, on purpose; needed for auth = none beyond this machine",
        reloads=False,
    )

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    def problems(self, path: str = "listener") -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        if not entity_is_valid(self.name):
            found.append(wrong(f"{path}.name", self.name, NAME_FAULT))
        if not set(self.announce) <= HOST_LETTERS:
            found.append(wrong(f"{path}.announce", self.announce, "must be an address or host name, without a port"))
        secure = f"{path}.secure"
        if self.auth in ("certificate", "any") and not self.secure:
            said = f" = {self.auth!r} needs {secure} = true: certificates are shown in TLS"
            found.append(Problem(f"{path}.auth", said, (secure,)))
        if not self.is_local and not self.secure and self.auth == "token":
            found.append(Problem(path, f": tokens would cross the network in clear text; set {secure} = true"))
        if not self.is_local and self.auth == "none" and not self.allow_open:
            said = (
                f" = {self.host!r} with {path}.auth = 'none': anyone could use it from other machines; set "
                f"{path}.auth to token, certificate or any, or {path}.allow_open = true (--allow-open) if that is meant"
            )
            found.append(Problem(f"{path}.host", said, (f"{path}.auth", f"{path}.allow_open")))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """How much a broker accepts before it refuses more."""

    links_max: int = setting(16_384, "how many links at once", least=1)
    links_unproven_max: int = setting(
        1_024,
        "how many links may be in their handshake at once; if more come, addresses that have most of them lose some",
        least=1,
    )
    links_per_source_max: int = setting(
        16_384,
        "how many links without a token or certificate one address may have; an IPv6 address counts as its /64",
        least=1,
    )
    handshake_ms: int = setting(2_000, "how long a new link has until its HELLO is complete", least=1)
    handshake_bytes: int = setting(16_384, "how much a link may send before it is welcomed", least=1)
    payload_bytes_max: int = setting(
        PAYLOAD_BYTES_MAX,
        "the largest payload of a publication",
        least=1,
        most=PAYLOAD_BYTES_MAX,
        note="that is what a frame carries",
    )
    subscriptions_max: int = setting(1_000_000, "how many subscriptions in all", least=1)
    subscriptions_per_link_max: int = setting(100_000, "how many subscriptions one link may have", least=1)
    queue_bytes_max: int = setting(  # beyond the driver's own buffer
        8 << 20, "how much waits for one slow link before its policy acts", least=1
    )
    queue_frames_max: int = setting(
        65_536, "how many publications wait for one slow link before its policy acts", least=1
    )
    hold_bytes: int = setting(
        1 << 20,
        "a queue this long holds publishers that opted in",
        allowed="above 0 and not above limits.queue_bytes_max",
        least=1,
    )
    hold_ms_max: int = setting(
        10_000, "a consumer that holds others and takes nothing for this long loses its link", least=1
    )
    keep_alive_ms_min: int = setting(
        1_000,
        "the shortest keep-alive a client may ask for",
        allowed="above 0 and not above limits.keep_alive_ms_max",
        least=1,
    )
    keep_alive_ms_max: int = setting(120_000, "the longest keep-alive a client may ask for", least=1)
    routes_max: int = setting(  # about 150 bytes each
        262_144, "how many topics' routes are remembered per access profile", least=1
    )
    origins_max: int = setting(131_072, "how many publisher sessions are remembered to drop duplicates", least=1)
    origin_horizon_ms: int = setting(
        120_000, "how long a publisher session is remembered after its last link ended", least=1
    )
    gaps_max: int = setting(1_024, "how many missing sequence spans are remembered per publisher session", least=1)
    drain_grace_ms: int = setting(10_000, "how long clients have to leave when the broker drains", least=1)

    def problems(self, path: str = "limits") -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        for low, high in (("hold_bytes", "queue_bytes_max"), ("keep_alive_ms_min", "keep_alive_ms_max")):
            if getattr(self, low) > getattr(self, high):
                other = f"{path}.{high}"
                found.append(Problem(f"{path}.{low}", f" must not be above {other}", (other,)))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConfig:
    """One line of the access list; the first line that fits decides."""

    effect: str = setting(MISSING, "what the rule does; the first matching rule decides", choices=EFFECTS)
    verbs: tuple[str, ...] = setting(
        VERBS[:2], "the actions to which the rule applies", allowed="any of " + ", ".join(VERBS)
    )
    topics: tuple[str, ...] = setting(
        ("#",),
        "the topic filters of the rule; {entity} is replaced by the peer's entity id. For ask: service names",
        allowed="topic filters, with + and # as wildcards",
    )
    who: tuple[str, ...] = setting(
        ("*",),
        "the peers to which the rule applies",
        allowed="*, an entity id, a prefix such as sensor-*, or role:" + "|".join(Role),
    )

    def problems(self, path: str) -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        found += [
            has_wrong(f"{path}.verbs", verb, f"must be of {', '.join(VERBS)}")
            for verb in self.verbs
            if verb not in VERBS
        ]
        for topic in self.topics:
            fault = filter_fault(topic.replace("{entity}", "entity").encode())
            if fault is not None:
                found.append(has_wrong(f"{path}.topics", topic, fault))
        for who in self.who:
            if who.startswith("role:") and who[5:] not in list(Role):
                found.append(has_wrong(f"{path}.who", who, f"the roles are {', '.join(Role)}"))
            elif not who.startswith("role:") and not entity_is_valid(who.removesuffix("*") or "x"):
                fault = "not an entity id, a prefix ending in '*', or 'role:…'"
                found.append(has_wrong(f"{path}.who", who, fault))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Which peers may publish, subscribe and ask. System topics are for admins and brokers unless a rule says
    otherwise."""

    rules: tuple[RuleConfig, ...] = ()
    default: str = setting("allow", "what happens on ordinary topics that no rule matches", choices=EFFECTS)

    def problems(self, path: str = "access") -> list[Problem]:
        """Everything wrong with it."""
        rules = enumerate(self.rules)
        found = [problem for number, rule in rules for problem in rule.problems(f"{path}.rules[{number}]")]
        return found + check(self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """When a broker counts as overloaded, and asks some of its clients to move to others."""

    shed: bool = setting(True, "ask some clients to move to other brokers while this one is overloaded")
    cpu_permille_high: int = setting(  # smoothed over about five seconds: a broker has one thread
        850,
        "the broker is overloaded while it uses more of one core than this, smoothed",
        allowed="above load.cpu_permille_low, at most 1000",
    )
    cpu_permille_low: int = setting(
        600,
        "below this it asks no more clients to move, and takes clients that other brokers asked to move",
        allowed="above 0 and below load.cpu_permille_high",
    )
    links_permille_high: int = setting(  # of limits.links_max, or of what descriptors allow
        900,
        "the same for client sessions, as a part of limits.links_max",
        allowed="above load.links_permille_low, at most 1000",
    )
    links_permille_low: int = setting(
        800, "the same, for ending it", allowed="above 0 and below load.links_permille_high"
    )
    overloaded_s: int = setting(  # a short burst is not an overload
        10, "how long the broker must be overloaded before it asks anyone", least=1, most=86_400
    )
    rest_s: int = setting(
        300, "a session that was asked to move, or has moved, is not asked again for this long", least=1, most=86_400
    )

    def problems(self, path: str = "load") -> list[Problem]:
        """Everything wrong with it."""
        found = []
        for what in ("cpu_permille", "links_permille"):
            low, high = getattr(self, f"{what}_low"), getattr(self, f"{what}_high")
            if not 0 < low < high <= 1_000:
                other = f"{path}.{what}_high"
                said = f" = {low} must be above 0 and below {other}, at most 1000"
                found.append(Problem(f"{path}.{what}_low", said, (other,)))
        return found + check(self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConfig:
    """Where network time comes from."""

    servers: tuple[str, ...] = setting(
        (),
        "NTP servers to ask for the time; without any, brokers agree on the clock of one of them",
        allowed=f"each HOST or HOST:PORT, IPv4 or a name; at most {SERVERS_MAX}",
        reloads=False,
    )
    poll_s: int = setting(  # public servers do not want to be asked more often
        64, "how often NTP servers are asked", least=16, most=3_600, reloads=False
    )

    def problems(self, path: str = "time") -> list[Problem]:
        """Everything wrong with it."""
        found = []
        key = f"{path}.servers"
        for number, server in enumerate(self.servers):
            host, port = _address(server)
            if not host or host != host.strip() or not 0 < port <= PORT_MAX:
                found.append(wrong(f"{key}[{number}]", server, "must be HOST or HOST:PORT, IPv4 or a name", key))
        if len(self.servers) > SERVERS_MAX:
            found.append(Problem(key, f" has {len(self.servers)}: at most {SERVERS_MAX} are asked"))
        return found + check(self, path)

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
    """All settings of one broker."""

    name: str = setting(
        "broker", "the broker's name in logs, reports and its welcome", allowed=PLAIN_NAME, reloads=False
    )
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    load: LoadConfig = field(default_factory=LoadConfig)
    time: TimeConfig = field(default_factory=TimeConfig)
    tokens: tuple[TokenRecord, ...] = ()
    local_digest: bytes = b""  # SHA-256 of the token that this machine's administrator finds beside the process

    def problems(self) -> list[Problem]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.name) else [wrong("broker.name", self.name, NAME_FAULT)]
        names = [listener.name for listener in self.listeners]
        for number, listener in enumerate(self.listeners):
            found += listener.problems(self.listener_path(number))
            if names.count(listener.name) > 1:
                found.append(Problem(f"listener.{listener.name}", ": two listeners have this name"))
        sections = (self.limits, self.access, self.network, self.load, self.time)
        return found + [problem for section in sections for problem in section.problems()]

    def restart_needed(self, started: BrokerConfig) -> list[str]:
        """The settings that differ from those at the start and cannot change while the broker runs."""
        found = restart_needed(self, started, "broker")
        if self.listeners != started.listeners:
            found.append("listener")
        found += restart_needed(self.network, started.network, "network")
        return found + restart_needed(self.time, started.time, "time")

    def listener_path(self, number: int) -> str:
        """How problems refer to a listener: by its name if it has a valid one, else by its number."""
        name = self.listeners[number].name
        return f"listener.{name}" if entity_is_valid(name) else f"listener[{number}]"
