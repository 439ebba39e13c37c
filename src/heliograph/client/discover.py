"""Discover: how a client looks for its broker, from a program or the section [search]; and which brokers it trusts.

In:    options; the result of a search.
Out:   the search's own settings (DiscoveryConfig); the targets that this client may dial.
State: none.
Not here: the search (discovery/brokers/search.py), names, files and sockets (live/discover.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from heliograph.broker.config import DEFAULT_PORT
from heliograph.client.config import PLAIN, SECURE, Target, parse_target
from heliograph.discovery.brokers.config import (
    ADDRESSES,
    DIRECTORY_PORT,
    DiscoveryConfig,
    MulticastConfig,
    WeightsConfig,
    address_of,
    address_problems,
    count_problems,
)
from heliograph.errors import UsageError
from heliograph.model.hosts import is_loopback
from heliograph.model.identity import NETWORK_RULE, network_is_valid
from heliograph.model.settings import Problem, check, has_wrong, same_as, setting, wrong

if TYPE_CHECKING:
    from heliograph.discovery.brokers.result import Finding, SearchResult

SECTION = "search"  # of the settings file
LOCAL = "127.0.0.1"
DIRECTORY_OFFSET = DIRECTORY_PORT - DEFAULT_PORT  # between the ports of a machine's broker and directory
LOCAL_TIMEOUT_MS = 300  # if every party that is asked is on this computer …
LOCAL_FALLBACK_MS = 50
LOCAL_LISTED_MS = 100  # on one computer all brokers are near: a listed one is as good as one that answers searches
TIMEOUT_MS = 4_000  # … and elsewhere
COLLECT_MS = 200  # a search without a network name must hear of every network near by, even from a busy broker
TARGETS_MAX = 16  # addresses that a session tries in turn
_option = partial(setting, reloads=False)  # a program reads its settings once
_LISTS = ("bdns", "bdn_links", "brokers", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discover:
    """How to look for a broker. By default, on this computer only."""

    network: str | None = _option(
        None,
        "the network whose brokers count; without one, brokers of several networks are an error",
        allowed="empty (a network without a name), or " + NETWORK_RULE,
    )
    bdns: tuple[str, ...] = _option(
        (),
        "the directories (BDNs) that a client asks for a broker; without any, one on this machine at its usual port",
        allowed="host:port, or a domain whose DNS names them (SRV records of _heliograph-bdn._udp)",
    )
    bdn_links: tuple[str, ...] = _option(
        (), "directories that are asked by TCP, for networks that block UDP", allowed=ADDRESSES
    )
    brokers: tuple[str, ...] = _option((), "brokers to fall back on when no other party answers", allowed=ADDRESSES)
    multicast: bool = same_as(MulticastConfig, "enabled")
    multicast_group: str = same_as(MulticastConfig, "group")
    multicast_port: int = same_as(MulticastConfig, "port")
    multicast_ttl: int = same_as(MulticastConfig, "ttl")
    multicast_interface: str = same_as(MulticastConfig, "interface")
    timeout_ms: int | None = _option(
        None,
        "how long answers are waited for if none comes; all ends within twice this. Without one 300 if only this "
        "machine is asked, else 4000",
        least=1,
    )
    answers_min: int = same_as(DiscoveryConfig, "answers_min")
    answers_max: int = same_as(DiscoveryConfig, "answers_max")
    targets_max: int = same_as(DiscoveryConfig, "targets_max")
    pings: int = same_as(DiscoveryConfig, "pings")
    weights: tuple[str, ...] = _option(
        (),
        "the weights by which the brokers to ping are chosen",
        allowed="name=number with delay, free_memory, total_memory, links, cpu or connections",
    )
    remember: bool = _option(True, "remember the best brokers on disk, and ask them when no other party answers")
    follow: bool = _option(
        True,
        "look again when the broker gets slow, after a long disconnect, and now and then; move if that is a clear gain",
    )
    look_s: int = _option(600, "how often a connected client looks for a better broker, on average", least=1)

    def __post_init__(self) -> None:
        for name in _LISTS:
            given = getattr(self, name)
            if isinstance(given, str):
                raise UsageError(f"Discover.{name} = {given!r}: give several, such as [{given!r}]")
            object.__setattr__(self, name, tuple(given))

    @property
    def names_somebody(self) -> bool:
        """True if it names parties to ask. If not, the usual ports of this computer are asked as well."""
        return bool(self.bdns or self.bdn_links or self.brokers)

    @property
    def domains(self) -> tuple[str, ...]:
        """The directories that are given as a domain, whose DNS records have their addresses."""
        return tuple(bdn for bdn in self.bdns if ":" not in bdn)

    @property
    def is_local(self) -> bool:
        """True if no party outside this computer is asked."""
        hosts = [text.rpartition(":")[0].strip("[]") for text in (*self.bdns, *self.bdn_links, *self.brokers)]
        return all(map(is_loopback, hosts)) and (not self.multicast or is_loopback(self.multicast_interface))

    @property
    def usual_timeout_ms(self) -> int:
        """The time-out if none is given."""
        return LOCAL_TIMEOUT_MS if self.is_local else TIMEOUT_MS

    def problems(self, path: str = SECTION) -> list[Problem]:
        """All problems with these options."""
        found, weights = _weights(self.weights, path)
        key = f"{path}.bdns"
        found += [has_wrong(key, one, "must be host:port or a domain") for one in self.domains if not _domain(one)]
        found += address_problems(key, [bdn for bdn in self.bdns if ":" in bdn])
        found += address_problems(f"{path}.bdn_links", self.bdn_links)
        found += address_problems(f"{path}.brokers", self.brokers)
        found += check(self, path) + count_problems(path, self.answers_min, self.answers_max, self.targets_max)
        if self.network and not network_is_valid(self.network):
            found.append(wrong(f"{path}.network", self.network, NETWORK_RULE))
        return found + self._group.problems(f"{path}.multicast") + weights.problems(f"{path}.weights")

    def check(self) -> None:
        """Raise UsageError with everything that is wrong."""
        if problems := self.problems():
            raise UsageError("; ".join(map(str, problems)))

    def config(
        self, directories: tuple[str, ...], links: tuple[str, ...], brokers: tuple[str, ...], **more: object
    ) -> DiscoveryConfig:
        """The settings of the search, with all addresses resolved."""
        return self._config(directories, links, brokers, _weights(self.weights, SECTION)[1], **more)

    def _config(
        self,
        directories: tuple[str, ...],
        links: tuple[str, ...],
        brokers: tuple[str, ...],
        weights: WeightsConfig,
        **more: object,
    ) -> DiscoveryConfig:
        timeout_ms = self.usual_timeout_ms if self.timeout_ms is None else self.timeout_ms
        usual = DiscoveryConfig()
        return DiscoveryConfig(
            network=self.network,
            is_choosy=True,
            is_implied=not self.names_somebody,
            group_later=bool(self.bdns or self.bdn_links),
            collect_ms_min=0 if self.names_somebody or self.network is not None else COLLECT_MS,
            directories=directories,
            directory_links=links,
            brokers=brokers,
            multicast=self._group,
            timeout_ms=timeout_ms,
            ping_ms=max(1, min(usual.ping_ms, timeout_ms)),
            fallback_ms=min(LOCAL_FALLBACK_MS if self.is_local else usual.fallback_ms, max(1, timeout_ms // 4)),
            listed_ms=min(LOCAL_LISTED_MS, timeout_ms) if self.is_local else timeout_ms,
            answers_min=self.answers_min,
            answers_max=self.answers_max,
            targets_max=self.targets_max,
            pings=self.pings,
            weights=weights,
            **more,  # type: ignore[arg-type]
        )

    @property
    def _group(self) -> MulticastConfig:
        return MulticastConfig(
            enabled=self.multicast,
            group=self.multicast_group,
            port=self.multicast_port,
            ttl=self.multicast_ttl,
            interface=self.multicast_interface,
        )


class Trust(Struct, frozen=True, kw_only=True):
    """The secrets that a client could lose to a false broker, and what it trusts."""

    has_token: bool = False
    vouched: bool = False  # an authority or a server name was given: TLS proves that the broker is genuine
    server_name: str | None = None


def targets_of(result: SearchResult, trust: Trust, brokers: Sequence[str] = ()) -> tuple[Target, ...]:
    """Where to dial, first choice first. ``brokers`` are those that the program named itself.

    An answer to a search proves nothing. With a token, only brokers that are proven by a certificate or named by the
    program count. With an authority, a broker that the program did not name is never dialled in clear text. A broker
    elsewhere cannot direct us to our own machine.
    """
    named = {address for text in brokers if (address := address_of(text)) is not None}
    found: dict[Target, None] = {}
    for finding in result.findings:
        found.update(dict.fromkeys(_targets(finding.urls, trust, named, is_loopback(_host(finding)))))
    if not result.findings:  # the static list, as the program wrote it: one of these brokers may still be starting
        scheme = SECURE if trust.vouched else PLAIN
        found.update(dict.fromkeys(_targets([f"{scheme}://{text}" for text in brokers], trust, named, True)))
    return tuple(found)[:TARGETS_MAX]


def _targets(urls: Iterable[str], trust: Trust, named: set[tuple[str, int]], here: bool) -> list[Target]:
    parsed = []
    for url in urls:
        try:
            parsed.append(parse_target(url, trust.server_name))
        except UsageError:  # not a valid host name
            continue
    allowed = [target for target in parsed if _allowed(target, trust, named) and (here or not is_loopback(target.host))]
    if trust.vouched or trust.has_token:
        return allowed
    return [target for target in allowed if not target.secure] or allowed  # no authority vouches for the secure ones


def _allowed(target: Target, trust: Trust, named: set[tuple[str, int]]) -> bool:
    if (target.host, target.port) in named:
        return target.secure or is_loopback(target.host) or not trust.has_token
    if trust.has_token or trust.vouched:
        return target.secure and trust.vouched
    return True


def _host(finding: Finding) -> str:
    return finding.answered_from.rpartition(":")[0].strip("[]")


def _domain(text: str) -> bool:
    labels = text.rstrip(".").split(".")
    return len(text) <= 253 and all(
        0 < len(label) < 64 and label.replace("-", "").replace("_", "").isalnum() and label.isascii()
        for label in labels
    )


def _weights(texts: Iterable[str], path: str) -> tuple[list[Problem], WeightsConfig]:
    """The usual weights, changed by texts such as ``cpu=2``."""
    key = f"{path}.weights"
    problems: list[Problem] = []
    given: dict[str, float] = {}
    known = [field.name for field in fields(WeightsConfig)]
    for text in texts:
        name, _, value = text.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            problems.append(has_wrong(key, text, "write name=number"))
    problems += [has_wrong(key, name, f"there is {', '.join(known)}") for name in given if name not in known]
    return problems, WeightsConfig(**{name: value for name, value in given.items() if name in known})
