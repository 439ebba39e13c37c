"""Client settings: where the brokers are and how patient a session is. Every default works.

In:    values, or addresses as people write them.
Out:   frozen Target and ClientConfig; ``check`` raises UsageError with everything that is wrong.
State: none.
Not here: the environment, token files and certificates (live/connect.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address

from heliograph.broker.config import DEFAULT_PORT
from heliograph.errors import UsageError
from heliograph.model.hosts import is_loopback
from heliograph.model.identity import NETWORK_RULE, entity_is_valid, network_is_valid

PLAIN, SECURE = "heliograph", "heliographs"
NAME_LENGTH_MAX = 256
TOKEN_LENGTH_MAX = 4_096  # a Hello must fit the broker's handshake budget
PORT_MAX = 65_535
KEEP_ALIVE_MS = 20_000  # the silence after which either end pings; three of them end the link
REQUEST_MS_MAX = 10_000
OUTGOING_BYTES_MAX = 8 << 20
NS_PER_MS = 1_000_000  # settings are in milliseconds, machines count in nanoseconds

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?/?\Z")


def stays_here(address: str) -> bool:
    """False if a link to this peer, ``host:port``, certainly leaves this machine. Names were checked as targets."""
    try:
        return ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker's address as a program names it."""

    host: str
    port: int
    secure: bool = False
    server_name: str | None = None  # the name in the expected certificate, if it is not ``host``

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SECURE if self.secure else PLAIN}://{host}:{self.port}"


def parse_target(address: str, server_name: str | None = None) -> Target:
    """``heliograph://host:port`` as a Target; scheme and port may be left out."""
    if not isinstance(address, str):
        raise UsageError(f"{address!r} is not an address: write {PLAIN}://host:port, as text")
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = PLAIN, address
    if scheme not in (PLAIN, SECURE):
        raise UsageError(f"{address!r}: addresses are written {PLAIN}://host:port, or {SECURE}://host:port for TLS")
    if "@" in rest:
        raise UsageError("an address has no room for secrets: give entity and token (or token_file) instead")
    parts = _ADDRESS.match(rest)
    port = int(parts["port"] or DEFAULT_PORT) if parts is not None else 0
    if parts is None or not 0 < port <= PORT_MAX:
        raise UsageError(f"{address!r} is not an address: write {PLAIN}://host:port")
    return Target(host=parts["v6"] or parts["name"], port=port, secure=scheme == SECURE, server_name=server_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a session behaves; every default works."""

    targets: tuple[Target, ...]
    network: str | None = None  # brokers of other networks are ignored; None: any network
    name: str = ""
    entity: str = ""
    token: str = field(default="", repr=False)
    hold: bool = False  # accept being held back by slow consumers
    keep_alive_ms: int = KEEP_ALIVE_MS
    dial_ms_max: int = 5_000  # for the dial, and again for the handshake
    request_ms_max: int = REQUEST_MS_MAX
    retry_ms: int = 50  # first pause after a lost link; doubled up to the maximum, with jitter
    retry_ms_max: int = 5_000
    give_up_ms: int | None = None  # the session ends after this long without a broker; None: it tries for ever
    outgoing_bytes_max: int = OUTGOING_BYTES_MAX  # published and not yet confirmed by the broker
    requests_max: int = 65_536  # awaited at the same time
    reliable_window: int = 10_000  # reliable publications that a store has not acknowledged yet

    def check(self) -> None:
        """Raise UsageError with everything that is wrong."""
        found = [] if self.targets else ["there is no address to connect to"]
        for name in (
            "keep_alive_ms",
            "dial_ms_max",
            "request_ms_max",
            "retry_ms",
            "outgoing_bytes_max",
            "requests_max",
            "reliable_window",
        ):
            if getattr(self, name) <= 0:
                found.append(f"{name} must be above 0")
        if self.retry_ms_max < self.retry_ms:
            found.append("retry_ms_max must not be below retry_ms")
        if self.give_up_ms is not None and self.give_up_ms <= 0:
            found.append("give_up_ms must be above 0, or None to try for ever")
        if len(self.name) > NAME_LENGTH_MAX:
            found.append(f"a name has at most {NAME_LENGTH_MAX} characters")
        if self.network and not network_is_valid(self.network):
            found.append(f"{self.network!r} is not the name of a network: {NETWORK_RULE}")
        found += self._credential_problems()
        if found:
            raise UsageError("; ".join(found))

    def _credential_problems(self) -> list[str]:
        found = []
        if self.entity and not entity_is_valid(self.entity):
            found.append(f"{self.entity!r} is not an entity id: letters, digits and . _ @ - only")
        if not self.token:
            return found
        if len(self.token) > TOKEN_LENGTH_MAX:
            found.append(f"a token has at most {TOKEN_LENGTH_MAX} characters")
        for target in self.targets:
            if not target.secure and not is_loopback(target.host):
                found.append(
                    f"the token would cross the network to {target} in clear text: use {SECURE}://{target.host}:{target.port}"
                )
        return found
