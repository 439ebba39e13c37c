"""Settings of a topic directory (TDN).

In:    values of the right type.
Out:   TopicDirectoryConfig, a frozen config.
State: none.
Not here: reading the settings file (config/), what the directory does with them (directory.py, policy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from heliograph.discovery.brokers.config import ADDRESSES, HOST_HERE, address_problems
from heliograph.errors import ConditionError
from heliograph.model.settings import FREE_PORT, PORT_MAX, Problem, check, fixed, setting, wrong

TDN = "tdn"
TDN_PORT = 4720
_TEXTS = "texts"


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsConfig:
    """The service that checks grants to created topics. Brokers without tls.authority do not run it."""

    enabled: bool = setting(True, "let owners of topics grant rights at this broker", reloads=False)

    def problems(self, path: str = "rights") -> list[Problem]:
        """Everything wrong with it."""
        return check(self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDirectoryConfig:
    """A topic directory (TDN), in a process of its own (`heliograph tdn run`) or in a broker's.

    Its id is the entity of its certificate, which has the role directory.
    """

    enabled: bool = setting(
        False, "run a topic directory in this broker's process; `heliograph tdn run` needs no switch", reloads=False
    )
    host: str = setting("127.0.0.1", "the address for administrators' questions", allowed=HOST_HERE, reloads=False)
    port: int = setting(
        TDN_PORT, "the TCP port for administrators' questions", least=0, most=PORT_MAX, note=FREE_PORT, reloads=False
    )
    links: tuple[str, ...] = setting(
        (), "brokers to which the directory links, the first that answers", allowed=ADDRESSES
    )
    links_secure: bool = setting(True, "dial these with TLS and the certificate of [tls]", reloads=False)
    place: str = setting(
        "heliograph-topics",
        "where topics are kept: a folder for SQLite, or postgresql://user@host/database",
        allowed="a path, or a PostgreSQL address",
        reloads=False,
        is_place=True,
    )
    creates: bool = setting(True, "sign new topics; without it the directory only stores and finds them")
    institutions: tuple[str, ...] = setting((), "store only topics of these institutions", allowed=_TEXTS)
    creators: tuple[str, ...] = setting(
        (), "store only topics of these entities", allowed="entity ids, or prefixes such as sensor-*"
    )
    spaces: tuple[str, ...] = setting((), "store only topics of these topic spaces, or below them", allowed=_TEXTS)
    where: str = setting("", "store only topics whose properties meet this SQL selector", allowed="an SQL selector")
    signers: tuple[str, ...] = setting(
        (), "store only what these directories signed; itself is always trusted", allowed="entity ids of directories"
    )
    answers: tuple[str, ...] = setting(
        (), "answer only these entities", allowed="entity ids, or prefixes such as sensor-*; none: everybody"
    )
    topics_max: int = setting(2_000_000, "how many topics are kept", least=1)
    topics_per_owner_max: int = setting(10_000, "how many topics of one owner are kept", least=1)
    lifetime_s_max: int = setting(365 * 86_400, "how long a topic that it signs may live", least=1)
    searches_max: int = setting(256, "how many searches are under way at once", least=1)
    watches_max: int = setting(4_096, "how many standing searches there are at once", least=1)
    watches_per_entity_max: int = setting(
        64, "how many standing searches of one entity; each costs a message for each change", least=1
    )
    rows_per_search_max: int = setting(2_000_000, "how many topics one search may look at", least=1)
    rate_per_s: float = 500.0  # messages accepted from one entity …
    burst: int = 2_000  # … and as a burst
    entities_max: int = 8_192  # entities whose rate is tracked
    local_digest: bytes = b""  # SHA-256 of the token with which this machine's administrator asks for reports

    def as_far_as_reloadable(self, started: TopicDirectoryConfig) -> TopicDirectoryConfig:
        """These settings, except those that stay as they were at the start."""
        return replace(self, **fixed(started))

    def problems(self, path: str = TDN) -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path) + address_problems(f"{path}.links", self.links)
        if self.where:
            from heliograph.matching.languages import compile

            try:
                compile("sql", self.where)
            except ConditionError as error:
                found.append(wrong(f"{path}.where", self.where, error.detail))
        return found
