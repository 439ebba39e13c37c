"""Networks: several servers of one system, linked by the means that the system has for it.

In:    a system that can be linked, names, which of them dials which, and which links can be reset.
Out:   running servers, by name, between whom publications flow.
State: the servers, and a relay for each link that can be reset.
Not here: how a system writes its links down (the systems' own files), one server (server.py).
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from benchmarks.certificates import TlsFiles
from benchmarks.peers.server import Server, relay
from benchmarks.peers.system import Startable
from benchmarks.ports import free_ports

Pair = tuple[str, str]
"""A link: who dials, and whom."""
CHAIN = ("a", "b", "c")
CHAIN_LINKS = (("a", "b"), ("b", "c"))


@dataclass(frozen=True, slots=True)
class Place:
    """One server in its network."""

    name: str
    port: int  # for clients
    links_port: int  # for other servers, where a system has two
    dials: tuple[tuple[int, int], ...]  # the same two of each server that this one dials
    key_file: Path  # a secret that all servers of the network know


class Linkable(Startable, Protocol):
    """A system whose servers can be linked."""

    def linked(self, folder: Path, place: Place) -> list[str]:
        """As ``command``, for a server with links."""
        ...


class Network:
    """Linked servers. A context manager: all of them end with the block, whatever happens."""

    def __init__(
        self,
        system: Linkable,
        names: Sequence[str],
        links: Sequence[Pair],
        on_cores: Iterable[int],
        relayed: Sequence[Pair] = (),
    ) -> None:
        self.servers: dict[str, Server] = {}
        self._system = system
        self._names = names
        self._links = links
        self._relayed = dict(zip(relayed, free_ports(len(relayed)), strict=True))
        self._relays: dict[Pair, subprocess.Popen[bytes]] = {}
        self._cores = set(on_cores)
        self._stack = ExitStack()

    @property
    def pids(self) -> list[int]:
        """All processes."""
        return [pid for server in self.servers.values() for pid in server.pids]

    def port(self, name: str) -> int:
        """Where clients dial this one."""
        return self.servers[name].port

    def reset(self, one: str, other: str) -> None:
        """Both ends of this link get a reset, and dial again as they will."""
        self._relays[one, other].send_signal(signal.SIGUSR1)

    def check_running(self) -> None:
        """Raise if one has ended."""
        for server in self.servers.values():
            server.check_running()

    def __enter__(self) -> Network:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-network-")))
            key_file = folder / "network.key"
            key_file.touch(mode=0o600)
            key_file.write_text(secrets.token_hex(32) + "\n")
            for place in places(self._names, self._links, key_file, self._relayed):
                for pair, port in self._relayed.items():
                    if pair[0] == place.name:
                        to = self.servers[pair[1]].port
                        self._relays[pair] = relay(stack, "tcp", "127.0.0.1", port, to, 0)
                member = Member(self._system, place)
                self.servers[place.name] = stack.enter_context(Server(member, self._cores, port=place.port))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class Member:
    """A system with a place: what server.py starts is one of many."""

    def __init__(self, system: Linkable, place: Place) -> None:
        self.name = system.name
        self.absent, self.version, self.connect = system.absent, system.version, system.connect
        self._system = system
        self._place = place

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """With its links; these are not secured by TLS in any system."""
        assert port == self._place.port
        assert tls is None
        return self._system.linked(folder, self._place)


def places(
    names: Sequence[str], links: Sequence[Pair], key_file: Path, relayed: Mapping[Pair, int] | None = None
) -> list[Place]:
    """Everyone's ports and whom they dial. Who is dialled comes first, so that no dial fails and is tried later."""
    through = relayed or {}
    free = [port for port in free_ports(2 * len(names) + len(through)) if port not in through.values()]
    ports = {name: (free[2 * number], free[2 * number + 1]) for number, name in enumerate(names)}
    dialled = {name: [other for one, other in links if one == name] for name in names}
    order: list[str] = []
    while len(order) < len(names):
        ready = [name for name in names if name not in order and all(other in order for other in dialled[name])]
        assert ready, "two servers that dial each other, directly or through others"
        order += ready
    return [
        Place(
            name,
            ports[name][0],
            ports[name][1],
            tuple((through.get((name, other), ports[other][0]), ports[other][1]) for other in dialled[name]),
            key_file,
        )
        for name in order
    ]
