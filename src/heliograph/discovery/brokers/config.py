"""Discovery settings. Every default works; every limit has its reason beside it.

In:    values of the right type.
Out:   frozen configs, each with ``problems()``: everything wrong with it, by key.
State: none.
Not here: what settings are (model/settings.py), keys and certificates (trust/), looking up names in DNS and reading
                    files (live/): a machine's config has numeric datagram addresses such as "192.0.2.1:4717".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

from heliograph.broker.config import NAME_FAULT
from heliograph.discovery.brokers.messages import LIFETIME_S_MAX
from heliograph.machine import Address
from heliograph.model.hosts import is_loopback
from heliograph.model.identity import NETWORK_RULE, entity_is_valid, network_is_valid
from heliograph.model.settings import (
    FREE_PORT,
    PLAIN_NAME,
    PORT_MAX,
    Problem,
    check,
    fixed,
    flat,
    has_wrong,
    restart_needed,
    setting,
    wrong,
)

RESPONDER = "discovery"  # the name of the responder and of its section
DIRECTORY = "bdn"  # the name of a directory, of its section and of its listener
SOCKET = "discovery"  # the datagram socket of every machine here
SOCKET6 = "discovery6"  # a search's second socket, if it has to ask IPv6 addresses
GROUP_SOCKET = "discovery-group"  # a responder's socket for what is sent to the multicast group
GROUP = "239.255.71.17"  # from the range for use within an organisation
GROUP_PORT = 4718  # not a broker's own port, which belongs to one process of a host; this one is shared by all
TTL = 1  # routers do not pass it on
DIRECTORY_PORT = 4719
POLICIES = ("open", "credential", "realm", "silent")
INJECTIONS = ("ends", "all")
TEXT_MAX = 64


def address_of(text: str) -> Address | None:
    """``host:port`` or ``[v6]:port`` as an address; None if it is not one."""
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
    """True for a numeric address, False for a name that has to be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def far_addresses(texts: Iterable[str]) -> list[str]:
    """The addresses that are on other machines."""
    return [text for text in texts if not is_loopback(text.rpartition(":")[0].strip("[]"))]


def address_problems(key: str, texts: Iterable[str]) -> list[Problem]:
    """The entries of a list that are not addresses."""
    return [has_wrong(key, text, "must be host:port") for text in texts if address_of(text) is None]


def _above_zero(config: object, path: str, *names: str) -> list[Problem]:
    values = ((name, getattr(config, name)) for name in names)
    return [wrong(f"{path}.{name}", value, "must be above 0") for name, value in values if value <= 0]


ADDRESSES = "addresses as host:port"
HOST_HERE = "an address or host name of this machine"
_TEXT = f"at most {TEXT_MAX} printable ASCII characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastConfig:
    """The group in which brokers of a LAN are asked without a directory."""

    enabled: bool = setting(
        True, "use the multicast group: brokers hear requests there, searches ask there", reloads=False
    )
    group: str = setting(GROUP, "the multicast group", allowed="an IPv4 multicast address", reloads=False)
    port: int = setting(
        GROUP_PORT, "the group's UDP port, shared by all brokers of a machine", least=1, most=PORT_MAX, reloads=False
    )
    ttl: int = setting(
        TTL,
        "how many networks a request to the group may pass",
        allowed="0 (this machine) to 255",
        least=0,
        most=255,
        reloads=False,
    )
    interface: str = setting(  # "": that of the machine's own socket
        "127.0.0.1",
        "the interface of the group; 127.0.0.1: this machine only, 0.0.0.0: chosen by this machine's routes",
        allowed="an IPv4 address of this machine, or 0.0.0.0",
        reloads=False,
    )

    @property
    def address(self) -> Address:
        """The group to which multicast requests go."""
        return self.group, self.port

    @property
    def is_local(self) -> bool:
        """True if its datagrams never leave this machine."""
        return not self.enabled or is_loopback(self.interface)

    def problems(self, path: str = "multicast") -> list[Problem]:
        """What is wrong with it, apart from the bounds of its keys, which the enclosing config checks."""
        found = []
        try:
            right = ip_address(self.group).is_multicast
        except ValueError:
            right = False
        if not right:
            found.append(wrong(f"{path}_group", self.group, f"not a multicast address, such as {GROUP}"))
        if self.interface and (":" in self.interface or not is_number(self.interface)):
            fault = "must be an IPv4 address of this machine, or 0.0.0.0"
            found.append(wrong(f"{path}_interface", self.interface, fault))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    """The weights in the choice of a target set. Each quantity is a number from 0 (bad) to 1 (good)."""

    delay: float = 4.0  # the estimate; the ping decides
    free_memory: float = 1.0  # free / total
    total_memory: float = 0.5
    links: float = 1.0
    cpu: float = 2.0
    connections: float = 1.0

    def problems(self, path: str = "weights") -> list[Problem]:
        """Everything wrong with it."""
        values = [(name, getattr(self, name)) for name in self.__slots__]
        found = [wrong(f"{path}.{name}", value, "must not be below 0") for name, value in values if not value >= 0]
        if not found and not 0 < sum(value for _, value in values) < float("inf"):
            found.append(Problem(path, ": at least one weight must be above 0, and none endless"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """How a broker is searched."""

    directories: tuple[str, ...] = ()  # of BDNs, asked all at once by UDP
    directory_links: tuple[str, ...] = ()  # of BDNs, asked by TCP: for networks that block outgoing datagrams
    multicast: MulticastConfig = flat(MulticastConfig)
    brokers: tuple[str, ...] = ()  # the static list, which comes last: discovery addresses of brokers
    network: str | None = None  # only its brokers count ("": unnamed networks); None: brokers of any network
    is_choosy: bool = False  # without a network: if brokers of several networks answer, none is chosen
    is_implied: bool = False  # the directories were not configured: they are the usual ones of this computer
    group_later: bool = False  # ask the group only when no directory has led to an answer
    collect_ms_min: int = 0  # collect answers for at least this long, so that another network is not overlooked
    name: str = ""  # the requester's name
    role: str = "client"  # or "broker": it looks for a broker to link to
    transports: tuple[str, ...] = ("tcp", "tls")  # that it can use
    timeout_ms: int = 4_000  # for answers; the search always ends within twice this
    retry_ms: int = 200  # after the first request without an answer; then 1.5 times as long each time …
    retry_ms_max: int = 400  # … up to this: in lossy networks only repetition helps
    fallback_ms: int = 300  # without a good answer: when to ask the remembered brokers, and then the static list
    listed_ms: int = 4_000  # a listed broker that takes links is taken when no party has answered for this long
    answers_min: int = setting(1, "good answers before collecting may end early", least=1, reloads=False)
    answers_max: int = setting(  # also the budget that the request carries
        50, "answers after which collecting always ends", least=1, most=1_000, reloads=False
    )
    patience: float = 1.0  # collecting ends when no answer came for this many times as long as the last one took
    patience_ms_min: int = 5  # … and never less, for busy computers
    targets_max: int = setting(
        10, "how many of the best are pinged", allowed="1 to search.answers_max", least=1, reloads=False
    )
    pings: int = setting(3, "how often each of them is pinged", least=1, reloads=False)
    ping_ms: int = 1_000  # for all of them
    tie_ratio: float = 1.08  # round-trip times this close count as equal: then usage decides
    tie_us: int = 200  # … and so do times that differ by less than the noise of a loopback
    cpu_permille_max: int = 900  # above it a broker is taken only if there is no other
    memory_free_permille_min: int = 30
    remembered_s_max: int = 7 * 86_400  # a target set older than this is not asked
    weights: WeightsConfig = field(default_factory=WeightsConfig)

    def problems(self, path: str = "discovery") -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        for name in ("directories", "directory_links", "brokers"):
            found += address_problems(f"{path}.{name}", getattr(self, name))
        found += _above_zero(
            self, path, "timeout_ms", "retry_ms", "fallback_ms", "listed_ms", "patience_ms_min", "ping_ms"
        )
        found += count_problems(path, self.answers_min, self.answers_max, self.targets_max)
        for low, high in (("retry_ms", "retry_ms_max"), ("ping_ms", "timeout_ms")):
            if getattr(self, low) > getattr(self, high):
                found.append(Problem(f"{path}.{high}", f" must not be below {path}.{low}"))
        if not 0 <= self.patience <= 100:
            found.append(wrong(f"{path}.patience", self.patience, "must be between 0 and 100"))
        if not 1 <= self.tie_ratio <= 100 or self.tie_us < 0:
            found.append(Problem(path, ": tie_ratio must be from 1 to 100 and tie_us not below 0"))
        if self.name and not entity_is_valid(self.name):
            found.append(wrong(f"{path}.name", self.name, NAME_FAULT))
        if self.network and not network_is_valid(self.network):
            found.append(wrong(f"{path}.network", self.network, NETWORK_RULE))
        return found + self.multicast.problems(f"{path}.multicast") + self.weights.problems(f"{path}.weights")


def count_problems(path: str, answers_min: int, answers_max: int, targets_max: int) -> list[Problem]:
    """What is inconsistent among the numbers of a search."""
    found = []
    most = f"{path}.answers_max"
    if answers_max < answers_min:
        fault = f"must be from {path}.answers_min to 1000"
        found.append(wrong(most, answers_max, fault, f"{path}.answers_min"))
    if targets_max > answers_max:
        found.append(wrong(f"{path}.targets_max", targets_max, f"must be from 1 to {most}", most))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderConfig:
    """How a broker answers searches for a broker, and where it advertises itself. By default, only on this machine."""

    enabled: bool = setting(True, "answer requests for a broker", reloads=False)
    host: str = setting(
        "127.0.0.1",
        "the address for requests and pings; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        allowed=HOST_HERE,
        reloads=False,
    )
    port: int | None = setting(
        None,
        "the UDP port; without one, the number of the first listener's port",
        least=0,
        most=PORT_MAX,
        note=FREE_PORT,
        reloads=False,
    )
    advertise_host: str = setting(
        "",
        "the name or address by which others reach this broker; without one, the address that they see",
        allowed=_TEXT,
        reloads=False,
    )
    policy: str = setting(
        "open",
        "which requesters get an answer: all, those with a certificate, those of certain networks, or none",
        choices=POLICIES,
        note="credential needs tls.authority, realm needs discovery.realms",
        reloads=False,
    )
    realms: tuple[str, ...] = setting(
        (),
        "the networks that get an answer, for policy = realm",
        allowed="networks such as 192.0.2.0/24",
        reloads=False,
    )
    directories: tuple[str, ...] = setting(
        (), "the directories (BDNs) to which the broker makes itself known", allowed=ADDRESSES, reloads=False
    )
    directory_links: tuple[str, ...] = setting(
        (),
        "the same, reached by TCP instead of UDP: for networks that block UDP",
        allowed=ADDRESSES,
        reloads=False,
    )
    public: bool = setting(
        True, "make the broker known on the public topic too, for every directory of the network", reloads=False
    )
    topics: tuple[str, ...] = setting(
        (),
        "more topics on which the broker makes itself known, for particular directories",
        allowed="topics",
        reloads=False,
    )
    join_private: bool = setting(
        False, "make the broker known to private directories that announce themselves", reloads=False
    )
    multicast: MulticastConfig = flat(MulticastConfig)
    geography: str = setting(
        "", "where the broker is, for directories that keep one region only", allowed=_TEXT, reloads=False
    )
    institution: str = setting(
        "", "the broker's institution, for directories that keep only some", allowed=_TEXT, reloads=False
    )
    lifetime_s: int = setting(
        30,
        "how long a directory keeps the broker without a renewal; the broker renews three times in that time",
        least=1,
        most=LIFETIME_S_MAX,
        note="directories keep a broker no longer",
        reloads=False,
    )
    requests_remembered: int = setting(  # a repeat of one of them costs nothing (B7)
        1_000, "how many requests are remembered, so that repeats cost nothing", least=1, reloads=False
    )
    directories_max: int = 16  # configured and announced
    sources_max: int = 4_096  # addresses whose rate is watched
    rate_per_s: float = 500.0  # datagrams accepted from one host: a search needs about five …
    burst: int = 1_000  # … and this many at once
    sample_ms: int = 1_000  # how often the broker's own counters are read

    @property
    def is_local(self) -> bool:
        """True if only this machine can ask for the broker."""
        return self.multicast.is_local and is_loopback(self.host)

    def problems(self, path: str = "discovery") -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        for name in ("directories", "directory_links"):
            found += address_problems(f"{path}.{name}", getattr(self, name))
        found += _above_zero(self, path, "sources_max", "rate_per_s", "burst", "sample_ms")
        if self.policy == "realm" and not self.realms:
            realms = f"{path}.realms"
            said = f" = 'realm' needs {realms}: networks such as 192.0.2.0/24"
            found.append(Problem(f"{path}.policy", said, (realms,)))
        for realm in self.realms:
            try:
                ip_network(realm)
            except ValueError as error:
                found.append(has_wrong(f"{path}.realms", realm, str(error)))
        if len(self.directories) > self.directories_max:
            found.append(Problem(f"{path}.directories", f": at most {self.directories_max}"))
        for name in ("geography", "institution", "advertise_host"):
            text = getattr(self, name)
            if len(text) > TEXT_MAX or not (text.isascii() and text.isprintable()):
                found.append(Problem(f"{path}.{name}", f": {_TEXT}"))
        return found + self.multicast.problems(f"{path}.multicast")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """A broker directory (BDN), in a process of its own (`heliograph bdn run`) or in a broker's."""

    enabled: bool = setting(
        False, "run a directory in this broker's process; `heliograph bdn run` needs no switch", reloads=False
    )
    name: str = setting("bdn", "the directory's name in logs and acknowledgements", allowed=PLAIN_NAME, reloads=False)
    host: str = setting(
        "127.0.0.1",
        "the address for UDP and TCP; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from everywhere",
        allowed=HOST_HERE,
        reloads=False,
    )
    port: int = setting(DIRECTORY_PORT, "the UDP and TCP port", least=0, most=PORT_MAX, note=FREE_PORT, reloads=False)
    advertise: str = setting(
        "",
        "the address under which brokers reach the directory: for announcements and relayed answers",
        allowed="host:port; needed by private directories",
    )
    private: bool = setting(
        False,
        "pass on only requests of requesters with a certificate, and announce the directory to brokers",
        note="needs tls.authority and bdn.advertise",
    )
    geographies: tuple[str, ...] = setting(
        (), "keep only brokers whose geography begins with one of these", allowed="texts"
    )
    institutions: tuple[str, ...] = setting(
        (), "keep only brokers whose institution begins with one of these", allowed="texts"
    )
    topics: tuple[str, ...] = setting(
        (), "more topics on which brokers are heard, beyond the public one", allowed="topics", reloads=False
    )
    injection: str = setting(
        "ends",
        "which brokers get a request: the nearest and the farthest of each group of linked brokers, or all",
        choices=INJECTIONS,
    )
    links: tuple[str, ...] = setting(
        (), "brokers to which links are kept, to listen to their topics and to speak on them", allowed=ADDRESSES
    )
    links_secure: bool = setting(False, "dial these with TLS and the certificate of [tls]", reloads=False)
    links_learned_max: int = setting(  # the nearest first
        4, "how many links are kept to brokers that advertised themselves", least=0
    )
    entity: str = setting("", "the entity of the token that is shown to these brokers", allowed=PLAIN_NAME)
    token_file: str = setting(
        "",
        "a file with the token that is shown to these brokers",
        allowed="a path, relative to the settings file; needs bdn.entity",
        is_file=True,
    )
    token: str = field(default="", repr=False)  # the content of the file
    brokers_max: int = setting(20_000, "how many brokers are kept", least=1)
    requests_remembered: int = setting(1_000, "how many requests are remembered, so that repeats cost nothing", least=1)
    ping_ms: int = setting(10_000, "how often each broker's distance is measured", least=1)
    pings_per_s: int = 200  # in all
    links_max: int = 1_024  # of requesters and brokers that dialled in
    link_idle_ms: int = 30_000
    sources_max: int = 4_096
    rate_per_s: float = 500.0
    burst: int = 1_000
    lifetime_s: int = 60  # of an announcement; renewed three times in that
    local_digest: bytes = b""  # SHA-256 of the token with which this machine's administrator asks for reports

    def restart_needed(self, started: DirectoryConfig) -> list[str]:
        """The settings that differ from those at the start and cannot change while it runs."""
        return restart_needed(self, started, DIRECTORY)

    def as_far_as_reloadable(self, started: DirectoryConfig) -> DirectoryConfig:
        """These settings, except those that stay as they were at the start."""
        return replace(self, **fixed(started))

    def problems(self, path: str = DIRECTORY) -> list[Problem]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.name) else [wrong(f"{path}.name", self.name, NAME_FAULT)]
        found += check(self, path)
        found += address_problems(f"{path}.links", self.links)
        advertise, entity = f"{path}.advertise", f"{path}.entity"
        if self.private and not self.advertise:
            said = f" = true needs {advertise}: the address that it announces to brokers"
            found.append(Problem(f"{path}.private", said, (advertise,)))
        if self.advertise:
            found += address_problems(advertise, (self.advertise,))
        found += _above_zero(
            self, path, "links_max", "link_idle_ms", "sources_max", "rate_per_s", "burst", "pings_per_s", "lifetime_s"
        )
        if (self.token or self.token_file) and not self.entity:
            found.append(Problem(f"{path}.token_file", f" needs {entity}, the entity of the token", (entity,)))
        return found
