"""Settings of routing: which other brokers a broker is linked to, and how it watches them.

In:    values, typed by config.py.
Out:   frozen configs; ``problems()`` and ``link_fault()`` say what is wrong with them, in words.
State: none.
Not here: all other settings of a broker (broker/config.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heliograph.model.identity import NETWORK_WORDS, entity_is_valid, network_is_valid

DEFAULT_PORT = 4717


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """Another broker's address, to which a link is kept."""

    host: str
    port: int = DEFAULT_PORT
    secure: bool = False

    @property
    def address(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """This broker as one of many."""

    name: str = ""  # of the network; brokers of different names, or of a name and none, do not link
    cluster: str = "main"
    slot: int | None = None  # 0 to 63, its place in the cluster; None: one is taken and settled with the others
    key: bytes = field(default=b"", repr=False)  # the network key; brokers without certificates prove that they have it
    certified: bool = False  # it has a certificate, its key and an authority, and proves itself by them on secure links
    dials_secure: bool = False  # it has something of [tls], without which no secure link is dialled
    links: tuple[LinkConfig, ...] = ()
    heartbeat_ms: int = 500
    suspect_ms: int = 2_000  # silence after which ways around a neighbour are taken
    dead_ms: int = 10_000  # … and after which its link is given up
    forget_ms: int = 60_000  # what is out of reach for so long is forgotten
    interests_max: int = 10_000  # filters that a broker, or a cluster, tells; beyond it they are widened

    def problems(self, path: str = "network") -> list[str]:
        """Everything wrong with it."""
        found = [] if entity_is_valid(self.cluster) else [f"{path}.cluster = {self.cluster!r}: not a plain name"]
        if self.name and not network_is_valid(self.name):
            found.append(f"{path}.name = {self.name!r}: {NETWORK_WORDS}")
        if self.slot is not None and not 0 <= self.slot < 64:
            found.append(f"{path}.slot = {self.slot}: must be between 0 and 63")
        if not 0 < self.heartbeat_ms < self.suspect_ms < self.dead_ms:
            found.append(f"{path}: heartbeat_ms must be below suspect_ms, and suspect_ms below dead_ms")
        if self.forget_ms <= self.dead_ms:
            found.append(f"{path}.forget_ms = {self.forget_ms}: must be above dead_ms")
        if self.interests_max < 16:
            found.append(f"{path}.interests_max = {self.interests_max}: must be at least 16")
        return found

    def link_fault(self, link: LinkConfig, *, keyed: bool) -> str | None:
        """Why no broker would ever be linked at this address, whoever answers; None if one could be."""
        if not keyed and not (link.secure and self.certified):
            return (
                "brokers prove themselves to each other; set network.key_file (`heliograph network key` makes it), "
                "or secure = true with tls.certificate, tls.key and tls.authority"
            )
        if link.secure and not self.dials_secure:
            return "a secure link needs tls.authority, which signed the other broker's certificate"
        return None
