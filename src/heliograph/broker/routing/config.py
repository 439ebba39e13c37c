"""Routing settings: which other brokers a broker is linked to, and how it watches them.

In:    values of the right type.
Out:   frozen configs; ``problems()``, ``link_problems()`` and ``link_fault()`` say what is wrong with them, by key.
State: none.
Not here: what settings are (model/settings.py), all other settings of a broker (broker/config.py).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field

from heliograph.model.identity import NETWORK_RULE, entity_is_valid, network_is_valid
from heliograph.model.settings import PLAIN_NAME, PORT_MAX, Problem, check, setting, wrong

DEFAULT_PORT = 4717


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Another broker's address, to which a link is kept."""

    host: str = setting(MISSING, "another broker, to which a link is kept", allowed="an address or host name")
    port: int = setting(DEFAULT_PORT, "the other broker's port", least=1, most=PORT_MAX)
    secure: bool = setting(
        False, "dial it with TLS 1.3; with tls.certificate, brokers prove themselves without a network key"
    )

    @property
    def address(self) -> str:
        """The address as people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def problems(self, path: str) -> list[Problem]:
        """Everything wrong with it."""
        found = [] if self.host.strip() else [wrong(f"{path}.host", self.host, "must be an address or host name")]
        return found + check(self, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """The settings of a broker in a network."""

    name: str = setting(
        "",
        "the network to which this broker belongs; brokers of other networks do not link to it, and clients ask for it "
        "by this name",
        allowed="empty (a network without a name), or " + NETWORK_RULE,
        reloads=False,
    )
    cluster: str = setting(
        "main",
        "the group of brokers to which this one belongs; brokers of a cluster know each other in full",
        allowed=PLAIN_NAME,
        reloads=False,
    )
    slot: int | None = setting(
        None,
        "the broker's place in its cluster; without one, a free place is taken and agreed on with the others",
        least=0,
        most=63,
        note="each broker of a cluster needs its own",
        reloads=False,
    )
    key_file: str = setting(
        "",
        "the network key, made by `heliograph network key`: brokers that have it accept each other",
        allowed="a path, relative to the settings file; readable by its owner only",
        is_file=True,
    )
    key: bytes = field(default=b"", repr=False)  # the content of the file, for brokers without certificates
    join: bool = setting(
        False,
        "look for another broker by broker discovery, link to it, and look again when no link is left",
        note="needs network.key_file or certificates",
        reloads=False,
    )
    certified: bool = False  # it has a certificate, a key and an authority, which prove it on secure links
    dials_secure: bool = False  # [tls] has some settings, without which no secure link is dialled
    links: tuple[LinkConfig, ...] = ()
    heartbeat_ms: int = setting(500, "how often brokers send a heartbeat on a link", allowed="above 0")
    suspect_ms: int = setting(
        2_000,
        "a linked broker that is silent for this long is suspected, and paths around it are taken",
        allowed="above network.heartbeat_ms",
    )
    dead_ms: int = setting(
        10_000, "a linked broker that is silent for this long loses its link", allowed="above network.suspect_ms"
    )
    forget_ms: int = setting(
        60_000,
        "brokers that are out of reach for this long are forgotten",
        allowed="above network.dead_ms",
    )
    interests_max: int = setting(
        10_000,
        "how many filters a broker or a cluster advertises, and as many that only listen; beyond it they are widened",
        least=16,
        reloads=False,
    )

    def problems(self, path: str = "network") -> list[Problem]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.cluster) else [wrong(f"{path}.cluster", self.cluster, "not a plain name")]
        if self.name and not network_is_valid(self.name):
            found.append(wrong(f"{path}.name", self.name, NETWORK_RULE))
        found += check(self, path)
        if not 0 < self.heartbeat_ms < self.suspect_ms < self.dead_ms:
            keys = (f"{path}.heartbeat_ms", f"{path}.suspect_ms", f"{path}.dead_ms")
            said = ": heartbeat_ms must be below suspect_ms, and suspect_ms below dead_ms"
            found.append(Problem(path, said, keys))
        if self.forget_ms <= self.dead_ms:
            found.append(wrong(f"{path}.forget_ms", self.forget_ms, "must be above dead_ms", f"{path}.dead_ms"))
        return found

    def link_problems(self, path: str = "network") -> list[Problem]:
        """Everything wrong with the links to keep. Each reason is given once, for the first link that has it."""
        found: list[Problem] = []
        known: dict[tuple[str, int], None] = {}
        faults: dict[str, str] = {}
        for number, link in enumerate(self.links):
            key = f"{path}.links[{number}]"
            found += link.problems(key)
            if (link.host, link.port) in known:
                found.append(Problem(key, f": there is a link to {link.host}:{link.port} already"))
            known[link.host, link.port] = None
            fault = self.link_fault(link, keyed=bool(self.key_file or self.key))
            if fault is not None:
                faults.setdefault(fault, f"{key}.host")
        return found + [Problem(key, f": {fault}") for fault, key in faults.items()]

    def link_fault(self, link: LinkConfig, *, keyed: bool) -> str | None:
        """Why a link to this address could never come up; None if it could."""
        if not keyed and not (link.secure and self.certified):
            return (
                "brokers prove themselves to each other; set network.key_file (`heliograph network key` makes it), "
                "or secure = true with tls.certificate, tls.key and tls.authority"
            )
        if link.secure and not self.dials_secure:
            return "a secure link needs tls.authority, which signed the other broker's certificate"
        return None
