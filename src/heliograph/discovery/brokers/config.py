"""Discovery settings: data with opinions. Every default works; every limit has its reason beside it.

In:    values.
Out:   frozen configs, each with ``problems()``: everything wrong with it, in words and with the path a user typed.
State: none.
Not here: keys and certificates (trust/), looking names up in DNS and reading files (live/): addresses of datagrams are
       written as numbers, "192.0.2.1:4717", by whoever makes a config for a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from heliograph.broker.config import DEFAULT_PORT
from heliograph.discovery.brokers.messages import LIFETIME_S_MAX
from heliograph.machine import Address
from heliograph.model.identity import NETWORK_WORDS, entity_is_valid, network_is_valid

SOCKET = "discovery"  # the datagram socket of every machine here
SOCKET6 = "discovery6"  # a search's second one, where it is to ask addresses of IPv6
GROUP_SOCKET = "discovery-group"  # a responder's socket for what is sent to the multicast group
GROUP = "239.255.71.17"  # of the block that organisations use among themselves
GROUP_PORT = 4718  # not a broker's own port, which belongs to one process of a host; this one is shared by all
TTL = 1  # routers do not pass it on
DIRECTORY_PORT = 4719
POLICIES = ("open", "credential", "realm", "silent")
INJECTIONS = ("ends", "all")
TEXT_MAX = 64


def address_of(text: str) -> Address | None:
    """``host:port`` or ``[v6]:port`` as an address; None if it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    return None if ":" in host else (host, int(port))


def written(address: Address) -> str:
    """An address as people write it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_number(host: str) -> bool:
    """True for an address in numbers, False for a name that has to be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(texts: tuple[str, ...], path: str) -> list[str]:
    return [f"{path} has {text!r}: must be host:port" for text in texts if address_of(text) is None]


def _above_zero(config: object, path: str, *names: str) -> list[str]:
    return [f"{path}.{name} = {getattr(config, name)}: must be above 0" for name in names if getattr(config, name) <= 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastConfig:
    """The group in which brokers of a LAN are asked without a directory."""

    enabled: bool = True
    group: str = GROUP
    port: int = GROUP_PORT
    ttl: int = TTL
    interface: str = ""  # by which it is heard and asked, as a number; "": that of the machine's own socket

    @property
    def address(self) -> Address:
        """Where requests for everybody go."""
        return self.group, self.port

    def problems(self, path: str = "multicast") -> list[str]:
        """Everything wrong with it."""
        found = []
        try:
            right = ip_address(self.group).is_multicast
        except ValueError:
            right = False
        if not right:
            found.append(f"{path}.group = {self.group!r}: not a multicast address, such as {GROUP}")
        if not 0 < self.port < 65_536:
            found.append(f"{path}.port = {self.port}: must be between 1 and 65535")
        if not 0 <= self.ttl <= 255:
            found.append(f"{path}.ttl = {self.ttl}: must be between 0 (this machine) and 255")
        if self.interface and (":" in self.interface or not is_number(self.interface)):
            found.append(f"{path}.interface = {self.interface!r}: must be an IPv4 address of this machine, or 0.0.0.0")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    """What counts how much in the choice of a target set. Each quantity is a number from 0 (bad) to 1 (good)."""

    delay: float = 4.0  # the estimate; the last word has the ping
    free_memory: float = 1.0  # free / total
    total_memory: float = 0.5
    links: float = 1.0
    cpu: float = 2.0
    connections: float = 1.0

    def problems(self, path: str = "weights") -> list[str]:
        """Everything wrong with it."""
        found = [
            f"{path}.{name} = {getattr(self, name)}: must not be below 0"
            for name in self.__slots__
            if not getattr(self, name) >= 0
        ]
        if not found and not 0 < sum(getattr(self, name) for name in self.__slots__) < float("inf"):
            found.append(f"{path}: at least one weight must be above 0, and none endless")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """How somebody looks for a broker."""

    directories: tuple[str, ...] = ()  # of BDNs, asked all at once by UDP
    directory_links: tuple[str, ...] = ()  # of BDNs, asked by TCP: for networks that let no datagram out
    multicast: MulticastConfig = field(default_factory=MulticastConfig)
    brokers: tuple[str, ...] = ()  # the static list, which comes last: discovery addresses of brokers
    network: str | None = None  # only its brokers count ("": unnamed ones); None: those of whichever network
    is_choosy: bool = False  # without a network: if brokers of several ones answer, none is chosen
    is_implied: bool = False  # nobody named these directories: they are the usual ones of this computer
    group_later: bool = False  # ask the group only when no directory has led to an answer
    collect_ms_min: int = 0  # so long answers are collected at least, lest another network be overlooked
    name: str = ""  # who asks
    role: str = "client"  # or "broker": it looks for whom to link to
    transports: tuple[str, ...] = ("tcp", "tls")  # that it can use
    timeout_ms: int = 4_000  # for answers; whatever happens, all ends within twice this
    retry_ms: int = 200  # after the first request without an answer; then half as long again each time …
    retry_ms_max: int = 400  # … up to this: in lossy networks only repetition helps
    fallback_ms: int = 300  # without a good answer: when to ask the remembered brokers, and then the static list
    listed_ms: int = 4_000  # a listed broker that takes links is taken when nobody has said a word for so long
    answers_min: int = 1  # good answers before collecting may end early …
    answers_max: int = 50  # … and after which it always does; also the budget that the request carries
    patience: float = 1.0  # it ends when, for so many times as long as the last answer took, no other came
    patience_ms_min: int = 5  # … and never less, for computers that are busy
    targets_max: int = 10  # brokers that are pinged
    pings: int = 3  # of each
    ping_ms: int = 1_000  # for all of them
    tie_ratio: float = 1.08  # round-trip times so close are equal: then usage decides
    tie_us: int = 200  # … and so do times that differ by less than a loopback's own noise
    cpu_permille_max: int = 900  # above it a broker is taken only if there is no other
    memory_free_permille_min: int = 30
    remembered_s_max: int = 7 * 86_400  # a target set older than this is not asked
    weights: WeightsConfig = field(default_factory=WeightsConfig)

    def problems(self, path: str = "discovery") -> list[str]:
        """Everything wrong with it."""
        found = _addresses(self.directories, f"{path}.directories")
        found += _addresses(self.directory_links, f"{path}.directory_links")
        found += _addresses(self.brokers, f"{path}.brokers")
        found += _above_zero(
            self,
            path,
            "timeout_ms",
            "retry_ms",
            "fallback_ms",
            "listed_ms",
            "answers_min",
            "patience_ms_min",
            "pings",
            "ping_ms",
        )
        if not 1 <= self.answers_max <= 1_000 or self.answers_max < self.answers_min:
            found.append(f"{path}.answers_max = {self.answers_max}: must be from {path}.answers_min to 1000")
        if not 1 <= self.targets_max <= self.answers_max:
            found.append(f"{path}.targets_max = {self.targets_max}: must be from 1 to {path}.answers_max")
        if self.retry_ms_max < self.retry_ms:
            found.append(f"{path}.retry_ms_max must not be below {path}.retry_ms")
        if self.ping_ms > self.timeout_ms:
            found.append(f"{path}.ping_ms must not be above {path}.timeout_ms: all ends within twice that")
        if not 0 <= self.patience <= 100:
            found.append(f"{path}.patience = {self.patience}: must be between 0 and 100")
        if not 1 <= self.tie_ratio <= 100 or self.tie_us < 0:
            found.append(f"{path}: tie_ratio must be from 1 to 100 and tie_us not below 0")
        if self.name and not entity_is_valid(self.name):
            found.append(f"{path}.name = {self.name!r}: letters, digits and . _ @ - only")
        if self.network and not network_is_valid(self.network):
            found.append(f"{path}.network = {self.network!r}: {NETWORK_WORDS}")
        return found + self.multicast.problems(f"{path}.multicast") + self.weights.problems(f"{path}.weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderConfig:
    """How a broker answers those who look for one, and where it makes itself known."""

    enabled: bool = True
    host: str = "127.0.0.1"  # of the datagram socket
    port: int = DEFAULT_PORT  # UDP; 0 takes a free one
    advertise_host: str = ""  # the name that others reach this broker by; "": the address they see
    multicast: MulticastConfig = field(default_factory=MulticastConfig)
    policy: str = "open"
    realms: tuple[str, ...] = ()  # for the policy "realm": networks such as "192.0.2.0/24" that get an answer
    directories: tuple[str, ...] = ()  # of BDNs to which this broker makes itself known by UDP
    directory_links: tuple[str, ...] = ()  # … and by TCP, for networks that let no datagram out
    public: bool = True  # also on the public topic, for every directory of the network
    topics: tuple[str, ...] = ()  # and on these, that particular directories listen to
    join_private: bool = False  # make itself known to private directories that announce themselves
    directories_max: int = 16  # configured and announced
    geography: str = ""
    institution: str = ""
    lifetime_s: int = 30  # of a broker advertisement; renewed three times in that
    requests_remembered: int = 1_000  # ids; a repeat of one of them costs nothing (B7)
    sources_max: int = 4_096  # addresses whose rate is watched
    rate_per_s: float = 500.0  # datagrams of one host that are looked at: a search needs about five …
    burst: int = 1_000  # … and so many at once
    sample_ms: int = 1_000  # how often the broker's own counters are read

    def problems(self, path: str = "discovery") -> list[str]:
        """Everything wrong with it."""
        found = _addresses(self.directories, f"{path}.directories")
        found += _addresses(self.directory_links, f"{path}.directory_links")
        found += _above_zero(
            self, path, "lifetime_s", "requests_remembered", "sources_max", "rate_per_s", "burst", "sample_ms"
        )
        if not 0 <= self.port <= 65_535:
            found.append(f"{path}.port = {self.port}: must be between 0 and 65535 (0 takes a free port)")
        if self.lifetime_s > LIFETIME_S_MAX:
            found.append(f"{path}.lifetime_s = {self.lifetime_s}: directories keep a broker for {LIFETIME_S_MAX} s")
        if self.policy not in POLICIES:
            found.append(f"{path}.policy = {self.policy!r}: must be one of {', '.join(POLICIES)}")
        if self.policy == "realm" and not self.realms:
            found.append(f"{path}.policy = 'realm' needs {path}.realms: networks such as 192.0.2.0/24")
        for realm in self.realms:
            try:
                ip_network(realm)
            except ValueError as error:
                found.append(f"{path}.realms has {realm!r}: {error}")
        if len(self.directories) > self.directories_max:
            found.append(f"{path}.directories: at most {path}.directories_max = {self.directories_max}")
        for name in ("geography", "institution", "advertise_host"):
            text = getattr(self, name)
            if len(text) > TEXT_MAX or not (text.isascii() and text.isprintable()):
                found.append(f"{path}.{name}: at most {TEXT_MAX} printable ASCII characters")
        return found + self.multicast.problems(f"{path}.multicast")


FIXED = ("name", "host", "port", "topics", "links_secure")  # of a directory, until it is started again


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """A broker directory (BDN)."""

    name: str = "bdn"
    host: str = "127.0.0.1"
    port: int = DIRECTORY_PORT  # UDP, and TCP for links
    advertise: str = ""  # host:port under which brokers reach it, for relayed answers; "": they answer on a topic
    private: bool = False  # it announces itself to brokers, and passes on only requests with a credential
    links: tuple[str, ...] = ()  # brokers to which links are kept: TCP addresses
    links_secure: bool = False  # by TLS, with the driver's certificate
    links_learned_max: int = 4  # and to so many that it learned of, the nearest first
    entity: str = ""  # with a token: who this directory is to these brokers
    token: str = field(default="", repr=False)
    injection: str = "ends"  # requests go to the nearest and the farthest broker of each island, or to "all" of them
    topics: tuple[str, ...] = ()  # beyond the public one: where brokers of particular interest are heard
    geographies: tuple[str, ...] = ()  # only broker advertisements that begin so are kept; (): all
    institutions: tuple[str, ...] = ()
    brokers_max: int = 20_000
    requests_remembered: int = 1_000
    links_max: int = 1_024  # of requesters and brokers that dialled in
    link_idle_ms: int = 30_000
    sources_max: int = 4_096
    rate_per_s: float = 500.0
    burst: int = 1_000
    ping_ms: int = 10_000  # each broker's distance is measured so often …
    pings_per_s: int = 200  # … but not more than this in all
    lifetime_s: int = 60  # of an announcement; renewed three times in that
    local_digest: bytes = b""  # SHA-256 of the token with which this machine's administrator asks for reports

    def restart_needed(self, started: DirectoryConfig) -> list[str]:
        """The settings that differ from those with which it was started, and cannot change while it runs."""
        return [f"directory.{name}" for name in FIXED if getattr(self, name) != getattr(started, name)]

    def problems(self, path: str = "bdn") -> list[str]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.name) else [f"{path}.name = {self.name!r}: letters, digits and . _ @ - only"]
        found += _addresses(self.links, f"{path}.links")
        if self.private and not self.advertise:
            found.append(f"{path}.private = true needs {path}.advertise: the address that it announces to brokers")
        if self.advertise:
            found += _addresses((self.advertise,), f"{path}.advertise")
        found += _above_zero(
            self,
            path,
            *("brokers_max", "requests_remembered", "links_max", "link_idle_ms", "sources_max", "rate_per_s", "burst"),
            *("ping_ms", "pings_per_s", "lifetime_s"),
        )
        if not 0 <= self.port <= 65_535:
            found.append(f"{path}.port = {self.port}: must be between 0 and 65535 (0 takes a free port)")
        if self.injection not in INJECTIONS:
            found.append(f"{path}.injection = {self.injection!r}: must be one of {', '.join(INJECTIONS)}")
        if self.links_learned_max < 0:
            found.append(f"{path}.links_learned_max = {self.links_learned_max}: must not be below 0")
        if self.token and not self.entity:
            found.append(f"{path}.token needs {path}.entity: whose token it is")
        return found
