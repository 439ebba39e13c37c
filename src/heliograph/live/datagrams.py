"""Live datagrams: UDP sockets and multicast groups, opened as the owners of machines declare them.

In:    Socket specifications; datagrams that machines want sent; datagrams that arrive.
Out:   inputs of the machine that a socket belongs to: SocketOpened or SocketFailed, then what arrives.
State: open sockets, host names resolved recently, how many datagrams were not sent.
Not here: links (links.py, network.py), the content of datagrams (machines), running one machine alone (lone.py).

These are plain sockets watched by the loop: asyncio's datagram transports cannot share a multicast port between
processes or choose an interface, and a read here takes several datagrams.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from heliograph.errors import Reason
from heliograph.live.inputs import MachineInputs
from heliograph.live.links import format_address
from heliograph.machine import Address, Instant, Socket, SocketFailed, SocketName, SocketOpened
from heliograph.notes import DatagramsUnsent, SocketRefused

DATAGRAM_BYTES_MAX = 65_507  # the maximum of an IPv4 datagram
READS_PER_TURN = 64  # then other tasks of the loop get a turn
RECEIVE_BYTES = 1 << 20  # of the kernel's buffer per socket, if it allows: many answers may come at once
NAMES_MAX = 1_024  # looked up and remembered …
NAME_S = 60.0  # … for this long
WAITING_MAX = 64  # datagrams that wait for one name; the rest are dropped
NOTE_S = 1.0
IP_MULTICAST_ALL = 49  # of Linux; Python has no name for it

Name = tuple[int, str]
"""A socket family and a host name."""


class UdpSockets:
    """All datagram sockets of a driver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keep: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self.unsent = 0  # datagrams that were not sent, for any reason
        self._loop = loop
        self._keep = keep  # runs a coroutine beside the loop's own work
        self._open: dict[tuple[str, SocketName], UdpSocket] = {}
        self._closed = False
        self._found: dict[Name, tuple[str, float]] = {}  # numeric host, and until when it is valid
        self._waiting: dict[Name, list[tuple[UdpSocket, int, bytes]]] = {}
        self._noted: dict[tuple[str, Reason], tuple[int, float]] = {}  # count not noted yet, and when to note it

    async def open(self, runner: MachineInputs, spec: Socket) -> Address | None:
        """Open a socket and tell its machine; None, with a note, if it cannot be opened."""
        assert (runner.name, spec.name) not in self._open, f"two sockets of {runner.name} are called {spec.name}"
        try:
            bound = await self._bind(spec)
        except (OSError, ValueError, OverflowError) as error:
            problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
            runner.note(SocketRefused(spec.name, format_address((spec.group or spec.host, spec.port)), problem))
            runner.tell(SocketFailed(spec.name, problem))
            return None
        opened = self._open[runner.name, spec.name] = UdpSocket(self, runner, spec.name, bound)
        self._loop.add_reader(bound, opened.read)
        address = cast(Address, bound.getsockname()[:2])
        runner.tell(SocketOpened(spec.name, address))
        return address

    async def _bind(self, spec: Socket) -> socket.socket:
        host = spec.group or spec.host
        family = _family(host)
        if family is None:
            infos = await self._loop.getaddrinfo(host, spec.port, type=socket.SOCK_DGRAM)
            family, host = infos[0][0], cast(str, infos[0][4][0])
        if self._closed:
            raise OSError("the node stops")
        bound = socket.socket(family, socket.SOCK_DGRAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            if spec.group is not None:
                _share(bound)
            if family == socket.AF_INET:
                _set_multicast(bound, spec)
            bound.bind((host, spec.port))
            if spec.group is not None:
                _join(bound, spec.group, spec.interface)
        except BaseException:
            bound.close()
            raise
        return bound

    def send(self, runner: MachineInputs, datagrams: Sequence[tuple[SocketName, Address, bytes]]) -> None:
        """Send what a machine wants sent; what cannot be sent is counted and noted."""
        for name, (host, port), data in datagrams:
            opened = self._open.get((runner.name, name))
            if opened is None:
                self.note_unsent(runner, name, Reason.SOCKET_MISSING, "no socket of this name is open")
            elif len(data) > DATAGRAM_BYTES_MAX:
                self.note_unsent(runner, name, Reason.DATAGRAM_TOO_LARGE, f"{len(data)} bytes")
            else:
                self._send(opened, host, port, data)

    def _send(self, opened: UdpSocket, host: str, port: int, data: bytes) -> None:
        name = (opened.family, host)
        found = self._found.get(name)
        if found is not None and found[1] > self._loop.time():
            opened.send((found[0], port), data)
        elif _family(host) is not None:  # numeric, so there is nothing to look up; the socket refuses another family
            self._remember(name, host)
            opened.send((host, port), data)
        else:
            self._look_up(name, opened, port, data)

    def _look_up(self, name: Name, opened: UdpSocket, port: int, data: bytes) -> None:
        waiting = self._waiting.setdefault(name, [])
        if len(waiting) >= WAITING_MAX or len(self._waiting) > WAITING_MAX:
            opened.note_unsent("too many datagrams wait for host names")
            if not waiting:
                del self._waiting[name]
            return
        waiting.append((opened, port, data))
        if len(waiting) == 1:
            self._keep(self._find(name))

    async def _find(self, name: Name) -> None:
        family, host = name
        problem = ""
        try:
            infos = await self._loop.getaddrinfo(host, None, family=family, type=socket.SOCK_DGRAM)
            self._remember(name, cast(str, infos[0][4][0]))
        except (OSError, UnicodeError) as error:  # the latter: not a valid name
            problem = f"{host}: {error}"
        for opened, port, data in self._waiting.pop(name):
            if problem:
                opened.note_unsent(problem)
            else:
                opened.send((self._found[name][0], port), data)

    def _remember(self, name: Name, host: str) -> None:
        if len(self._found) >= NAMES_MAX:
            del self._found[next(iter(self._found))]
        self._found[name] = (host, self._loop.time() + NAME_S)

    def note_unsent(self, runner: MachineInputs, name: SocketName, reason: Reason, problem: str) -> None:
        """Count a datagram that was not sent. A flood of them must not become a flood of notes."""
        self.unsent += 1
        now = self._loop.time()
        count, at = self._noted.get((runner.name, reason), (0, now))
        if now < at:
            self._noted[runner.name, reason] = (count + 1, at)
        else:
            self._noted[runner.name, reason] = (0, now + NOTE_S)
            runner.note(DatagramsUnsent(name, count + 1, reason, problem))

    def close(self) -> None:
        """Close every socket."""
        self._closed = True
        for opened in self._open.values():
            opened.close(self._loop)
        self._open.clear()


class UdpSocket:
    """One open socket."""

    __slots__ = ("_buffer", "_name", "_runner", "_socket", "_sockets", "family")

    def __init__(self, sockets: UdpSockets, runner: MachineInputs, name: SocketName, bound: socket.socket) -> None:
        self.family = bound.family
        self._sockets = sockets
        self._runner = runner
        self._name = name
        self._socket = bound
        self._buffer = memoryview(bytearray(DATAGRAM_BYTES_MAX))

    def read(self) -> None:
        """Datagrams arrived: give the machine all of them, up to a limit, as one input."""
        arrived: list[tuple[Address, bytes]] = []
        for _ in range(READS_PER_TURN):
            try:
                count, source = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                break
            except OSError:
                continue  # the reply to an earlier datagram: nothing listens there
            arrived.append((source[:2], bytes(self._buffer[:count])))
        if arrived:
            self._runner.hand("datagrams", len(arrived), self._give, arrived)

    def _give(self, arrived: list[tuple[Address, bytes]], now: Instant) -> None:
        receive = self._runner.machine.receive_datagram
        for source, data in arrived:
            receive(self._name, source, data, now)

    def send(self, address: Address, data: bytes) -> None:
        """Send at once, or not at all: what the kernel does not accept now is lost, as datagrams may be."""
        try:
            self._socket.sendto(data, address)
        except (OSError, OverflowError, ValueError) as error:
            self.note_unsent(f"{format_address(address)}: {error}")

    def note_unsent(self, problem: str) -> None:
        """A datagram was not sent."""
        self._sockets.note_unsent(self._runner, self._name, Reason.DATAGRAM_UNSENT, problem)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the socket."""
        loop.remove_reader(self._socket)
        self._socket.close()


def _family(host: str) -> int | None:
    """The family of a numeric address; None if it is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):  # the latter: a zero byte, or text that the system cannot encode
            continue
        return family
    return None


def _share(bound: socket.socket) -> None:
    """Let several nodes of one computer receive a group on one port."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform != "linux":  # systems on which the first option is not enough
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _set_multicast(bound: socket.socket, spec: Socket) -> None:
    """Set how multicasts are sent. This computer receives them too, as its other nodes may be members."""
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(spec.interface))
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, spec.ttl)
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)


def _join(bound: socket.socket, group: str, interface: str) -> None:
    """Receive a group only on this interface, even if another process has joined it on others."""
    if sys.platform == "linux":
        bound.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    membership = socket.inet_aton(group) + socket.inet_aton(interface)
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
