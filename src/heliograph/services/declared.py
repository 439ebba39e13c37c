"""How a service is declared: everything that a node, both drivers and the settings need to know of it, in one value.

In:    one subclass of Service for each service, in the service's own folder; node.py has the list of them.
Out:   its machine, requests, sockets, listeners and vault; its section of the settings; its description for people.
State: none.
Not here: the list (node.py), the machines (each service's folder), what a live node does besides (live/beside.py).

Every node loads all declarations, so each imports its machine only when it builds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.machine import Address, Machine, Socket, SocketName
from heliograph.model.chance import Seed
from heliograph.model.settings import Problem
from heliograph.repository import Repository
from heliograph.trust.config import TlsConfig
from heliograph.vault import Vault
from heliograph.wire.requests import RequestTypes

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring

Opened = Mapping[SocketName, Address]  # the sockets of one service, with their addresses
ReadFile = Callable[[str, str], str]  # the key that names a file, and its path -> its text


class ServiceConfig(Protocol):
    """A section of the settings: a frozen dataclass whose keys are declared with ``setting``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def problems(self, path: str = ...) -> list[Problem]:
        """Everything wrong with it."""


@dataclass(frozen=True, slots=True)
class NoSettings:
    """For a service without settings; every broker has it."""

    def problems(self, path: str = "") -> list[Problem]:
        """Always empty."""
        return []


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a service may know of its node when it is built."""

    broker: BrokerConfig | None  # None: the service has its own process
    seed: Seed
    incarnation: int = 0
    keyring: Keyring | None = None
    local_digest: bytes = b""  # SHA-256 of the token that this machine's administrator presents
    monitored: bool = False  # the node has a monitor: events are published


Config = TypeVar("Config", bound=ServiceConfig)


class Service(ABC, Generic[Config]):
    """One kind of service. Methods that it does not override are features that it does not have."""

    name: str  # of its machine, in logs and reports, and of its section of the settings file
    config: type[Config]
    protocol: str = ""  # of the listeners whose links it takes
    without_socket: str = ""  # what to change when a socket cannot be opened; empty: the node starts without it

    # -- its machine ----------------------------------------------------------------------------------------------

    def is_wanted(self, config: Config) -> bool:
        """True if a broker with these settings should have it."""
        return True

    @abstractmethod
    def build(self, config: Config, around: Surroundings) -> Machine:
        """Build its machine. The place to import it."""

    def requests(self) -> RequestTypes[Any] | None:
        """What clients may ask it, as typed structs; None: it refuses every request. Its machine gives the same to its
        BrokerSession, which decodes them. The place to import them."""
        return None

    def sockets(self, config: Config, broker: BrokerConfig | None) -> tuple[Socket, ...]:
        """The datagram sockets that it needs."""
        return ()

    def listeners(self, config: Config) -> tuple[ListenerConfig, ...]:
        """Listeners of its own, beyond those of [[listener]]."""
        return ()

    def vault(self, config: Config) -> Vault | None:
        """Where it keeps what must survive a crash."""
        return None

    def repository(self, config: Config) -> Repository | None:
        """Where it keeps topics, searchable by their descriptions."""
        return None

    # -- its settings ---------------------------------------------------------------------------------------------

    def problems(self, config: Config, broker: BrokerConfig, tls: TlsConfig) -> list[Problem]:
        """Conflicts between its settings and others, beyond ``config.problems()``."""
        return []

    def with_files(self, config: Config, read: ReadFile) -> Config:
        """Its settings, with the content of the files that they name."""
        return config

    # -- while it runs --------------------------------------------------------------------------------------------

    def reload(self, config: Config) -> object | None:
        """The command that applies new settings; None: they need a restart."""
        return None

    def farewell(self) -> object | None:
        """The command that it gets before its broker stops or drains."""
        return None

    def describe(self, config: Config, opened: Opened) -> str:
        """For the first lines of the log: what is open and to which peers, and the option that opens more."""
        return ""


class Configured(Struct, frozen=True):
    """A service of a node, and its settings."""

    service: Service[Any]
    config: Any

    @property
    def name(self) -> str:
        """The name of its machine."""
        return self.service.name
