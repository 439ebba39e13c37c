"""A relay that makes a server farther away: ``python -m benchmarks.relay WAY HOST FROM TO DELAY_MS``, ended by SIGTERM.

In:    WAY "tcp": links to HOST:FROM; WAY "multicast": datagrams to the group HOST on port FROM.
Out:   the same at HOST:TO, each way DELAY_MS later; "ready" on stdout once it listens.
State: links, and one socket per asker.
Not here: what is sent; nothing else of the benchmarks is imported.

At SIGUSR1 every link is reset at both ends, as by a router that lost its state; new ones are relayed again.
A datagram that comes by multicast goes on to the group's other port; who answers is from then on the one to whom that
asker's datagrams go, as behind a NAT.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import ClassVar

LOCAL = "127.0.0.1"
IP_MULTICAST_ALL = 49  # of Linux
ASKERS_MAX = 1_024
AT_ONCE = struct.pack("ii", 1, 0)  # linger for no time: the other side gets a reset

Address = tuple[str, int]


def later(delay_s: float, call: Callable[..., object], *arguments: object) -> None:
    asyncio.get_running_loop().call_later(delay_s, call, *arguments)


# -- links ----------------------------------------------------------------------------------------------------------


class Half(asyncio.Protocol):
    """One end of a relayed link; the delay applies to what it hears."""

    ends: ClassVar[dict[Half, None]] = {}  # of all links there are

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.other: Half | None = None
        self.transport: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ends[self] = None
        for data in self.early:
            transport.write(data)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if self.delay_s:
            later(self.delay_s, self.other.say, data)
        else:
            self.other.say(data)

    def say(self, data: bytes) -> None:
        if self.transport is None:
            self.early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def reset(self) -> None:
        """End it without a word."""
        assert self.transport is not None
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.transport.abort()

    @classmethod
    def reset_all(cls) -> None:
        """Both ends of every link."""
        for end in list(cls.ends):
            end.reset()

    def connection_lost(self, error: Exception | None) -> None:
        self.ends.pop(self, None)
        if self.other is not None and self.other.transport is not None:
            later(self.delay_s, self.other.transport.close)


class Front(Half):
    """The asker's end."""

    def __init__(self, to: int, delay_s: float) -> None:
        super().__init__(delay_s)
        self._to = to
        self._dial: asyncio.Task[object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        back = self.other = Half(self.delay_s)
        back.other = self
        loop = asyncio.get_running_loop()
        self._dial = loop.create_task(loop.create_connection(lambda: back, LOCAL, self._to))


# -- datagrams ------------------------------------------------------------------------------------------------------


class Datagrams:
    """A group on one port, made farther away on another."""

    def __init__(self, group: str, listen: int, to: int, delay_s: float) -> None:
        self._far = (group, to)
        self._delay_s = delay_s
        self._askers: dict[Address, tuple[socket.socket, list[Address]]] = {}
        self._group = _socket()
        self._group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._group.bind((group, listen))
        self._group.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        member = socket.inet_aton(group) + socket.inet_aton(LOCAL)
        self._group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._front = _socket()
        self._front.bind((LOCAL, 0))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._group, self._asked, self._group, True)
        loop.add_reader(self._front, self._asked, self._front, False)

    def _asked(self, where: socket.socket, by_group: bool) -> None:
        data, asker = where.recvfrom(65_535)
        if asker not in self._askers:
            if len(self._askers) >= ASKERS_MAX:
                return
            back = _socket()
            back.bind((LOCAL, 0))
            self._askers[asker] = (back, [])
            asyncio.get_running_loop().add_reader(back, self._answered, back, asker)
        back, servers = self._askers[asker]
        for to in [self._far] if by_group else servers:
            later(self._delay_s, back.sendto, data, to)

    def _answered(self, back: socket.socket, asker: Address) -> None:
        data, server = back.recvfrom(65_535)
        servers = self._askers[asker][1]
        if server not in servers:
            servers.append(server)
        later(self._delay_s, self._front.sendto, data, asker)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOCAL))
    return made


async def main(way: str, host: str, listen: int, to: int, delay_s: float) -> None:
    """Relay until the process is ended."""
    if way == "tcp":
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, Half.reset_all)
        await asyncio.get_running_loop().create_server(lambda: Front(to, delay_s), host, listen)
    else:
        Datagrams(host, listen, to, delay_s)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]) / 1e3))
