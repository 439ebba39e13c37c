"""Simulated datagrams: sockets and multicast groups of hosts, over a network that loses, repeats, delays and reorders.

In:    Socket specifications of nodes; datagrams that machines want sent; effects of faults.
Out:   inputs of the machine that a socket belongs to: SocketOpened or SocketFailed, then what arrives.
State: open sockets by address and by group, present losses due to faults.
Not here: links (network.py), when a host handles a datagram (host.py), when faults strike (faults.py).

A host has one address, its name: ``host`` and ``interface`` of a Socket make no difference here. A multicast reaches
the members of its group on the sender's LAN; the scenario names the hosts of each LAN. Partitions of hosts stop
datagrams too: they are lost, not delayed as on a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random

from heliograph.errors import Reason
from heliograph.machine import Address, Instant, Socket, SocketFailed, SocketName, SocketOpened
from heliograph.notes import DatagramsUnsent, SocketRefused
from heliograph.sim.distances import Distances
from heliograph.sim.inputs import HostInputs
from heliograph.sim.journal import Journal
from heliograph.sim.loop import MICROSECOND, MILLISECOND, Loop
from heliograph.sim.network import SimulatedNetwork
from heliograph.sim.seat import Seat

HEADS_BYTES = 28  # of IP and UDP, in every datagram
MTU_BYTES_MIN, MTU_BYTES_MAX = 576, 65_535
WAITING_MAX = 256  # datagrams that a socket keeps for a busy machine; more are lost, as in a kernel's buffer
PORT_FREE = 40_000  # the first port that is given to a socket that asks for any
LOCAL_NS = 10 * MICROSECOND  # within a host

Sending = tuple[SocketName, Address, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatagramSettings:
    """How datagrams travel without faults; they are delayed as links are."""

    loss: float = 0.0  # probability that one is lost
    duplicate: float = 0.0  # … that it arrives twice
    reorder: float = 0.0  # … that it takes a detour, and others overtake it
    detour_ms: float = 5.0  # the maximum delay of a detour
    mtu_bytes: int = 1_500  # the largest packet; there are no fragments
    lans: dict[str, tuple[str, ...]] = field(default_factory=dict)  # hosts of each; all other hosts form one more

    def problems(self, path: str = "datagrams") -> list[str]:
        """All problems with these settings."""
        found = []
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                found.append(f"{path}.{name} = {getattr(self, name)}: a probability is between 0 and 1")
        if not 0 <= self.detour_ms <= 60_000:
            found.append(f"{path}.detour_ms = {self.detour_ms}: must be between 0 and 60000")
        if not MTU_BYTES_MIN <= self.mtu_bytes <= MTU_BYTES_MAX:
            found.append(f"{path}.mtu_bytes = {self.mtu_bytes}: must be between {MTU_BYTES_MIN} and {MTU_BYTES_MAX}")
        return found


class SimulatedSocket:
    """One open socket."""

    __slots__ = ("host", "name", "port", "seat", "ttl", "waiting")

    def __init__(self, host: HostInputs, seat: Seat, spec: Socket, port: int) -> None:
        self.host = host
        self.seat = seat
        self.name = spec.name
        self.port = port
        self.ttl = spec.ttl
        self.waiting = 0  # arrived, but not handled yet

    @property
    def address(self) -> Address:
        """The source address of its datagrams."""
        return self.host.name, self.port

    def deliver(self, detail: tuple[Address, bytes], now: Instant) -> None:
        """Give a datagram that arrived to the machine."""
        self.waiting -= 1
        self.seat.touch().receive_datagram(self.name, *detail, now)


class SimulatedDatagrams:
    """All datagram sockets of a world."""

    def __init__(
        self,
        settings: DatagramSettings,
        distances: Distances,
        network: SimulatedNetwork,
        loop: Loop,
        journal: Journal,
        random: Random,
    ) -> None:
        self.sent = self.lost = 0
        self._settings = settings
        self._distances = distances
        self._network = network  # partitions stop datagrams too
        self._loop = loop
        self._journal = journal
        self._draw = random.random
        self._bytes_max = settings.mtu_bytes - HEADS_BYTES
        self._open: dict[tuple[Seat, SocketName], SimulatedSocket] = {}
        self._at: dict[Address, SimulatedSocket] = {}
        self._groups: dict[Address, list[SimulatedSocket]] = {}
        self._lans: dict[str, str] = {}  # host -> its LAN, once asked for
        self._losses: list[tuple[str, str, float]] = []  # from, to, share: additional losses by faults

    # Sockets.

    def open(self, host: HostInputs, seat: Seat, spec: Socket) -> None:
        """Open a socket and tell its machine."""
        port = spec.port or self._free_port(host)
        if spec.group is None and (host.name, port) in self._at:
            problem = "Address already in use"
            self._journal.write("note", host.name, SocketRefused(spec.name, f"{host.name}:{port}", problem))
            host.tell(seat, SocketFailed(spec.name, problem))
            return
        socket = self._open[seat, spec.name] = SimulatedSocket(host, seat, spec, port)
        if spec.group is None:
            self._at[socket.address] = socket
            host.tell(seat, SocketOpened(spec.name, socket.address))
        else:
            self._groups.setdefault((spec.group, port), []).append(socket)
            host.tell(seat, SocketOpened(spec.name, (spec.group, port)))

    def _free_port(self, host: HostInputs) -> int:
        port = PORT_FREE
        while (host.name, port) in self._at:
            port += 1
        return port

    def close(self, host: HostInputs) -> None:
        """A host ends, with its sockets."""
        self._open = {key: socket for key, socket in self._open.items() if socket.host is not host}
        self._at = {address: socket for address, socket in self._at.items() if socket.host is not host}
        for members in self._groups.values():
            members[:] = [socket for socket in members if socket.host is not host]

    # Datagrams.

    def send(self, host: HostInputs, seat: Seat, datagrams: Sequence[Sending], instant: int) -> None:
        """Send the datagrams of a machine."""
        for name, address, data in datagrams:
            socket = self._open.get((seat, name))
            if socket is None:
                self._drop(host, name, Reason.SOCKET_MISSING, len(data))
            elif len(data) > self._bytes_max:
                self._drop(host, name, Reason.DATAGRAM_TOO_LARGE, len(data))
            else:
                self.sent += 1
                for target in self._targets(socket, address):
                    self._travel(socket, target, data, instant)

    def _drop(self, host: HostInputs, name: SocketName, reason: Reason, size: int) -> None:
        self._journal.write("datagram_dropped", host.name, name, reason.word, size)
        self._journal.write("note", host.name, DatagramsUnsent(name, 1, reason, f"{size} bytes"))

    def _targets(self, socket: SimulatedSocket, address: Address) -> list[SimulatedSocket]:
        """The sockets that receive it. Without any, the datagram is lost."""
        if address in self._groups:
            here = socket.host.name
            members = self._groups[address]
            if socket.ttl:
                return [member for member in members if self._lan(member.host.name) == self._lan(here)]
            return [member for member in members if member.host.name == here]
        target = self._at.get(address)
        return [] if target is None else [target]

    def _lan(self, host: str) -> str:
        lan = self._lans.get(host)
        if lan is None:
            fitting = (
                name
                for name, patterns in self._settings.lans.items()
                if any(fnmatchcase(host, pattern) for pattern in patterns)
            )
            lan = self._lans[host] = next(fitting, "")
        return lan

    def _travel(self, socket: SimulatedSocket, target: SimulatedSocket, data: bytes, instant: int) -> None:
        """Draw the fate of a datagram on its way to one target."""
        loop, draw, settings = self._loop, self._draw, self._settings
        here, there = socket.host.name, target.host.name
        arrives = (socket.address, target, data)
        if here == there:
            loop.at(instant + LOCAL_NS, self._arrive, arrives)
            return
        if draw() < self._loss(here, there):
            self._lose(here, there, data)
            return
        for _ in range(2 if draw() < settings.duplicate else 1):
            delay = self._distances.delay_ns(here, there) + int(self._distances.jitter_ns * draw())
            if draw() < settings.reorder:
                delay += int(settings.detour_ms * MILLISECOND * draw())
            loop.at(instant + delay + 1, self._arrive, arrives)

    def _loss(self, here: str, there: str) -> float:
        kept = 1.0 - self._settings.loss
        for source, sink, share in self._losses:
            if fnmatchcase(here, source) and fnmatchcase(there, sink):
                kept *= 1.0 - share
        return 1.0 - kept

    def _arrive(self, arriving: tuple[Address, SimulatedSocket, bytes], _instant: int) -> None:
        source, target, data = arriving
        host = target.host
        if self._network.blocked.get((source[0], host.name)) or target.waiting >= WAITING_MAX:
            self._lose(source[0], host.name, data)
        elif not target.seat.gone:
            target.waiting += 1
            host.offer(SimulatedSocket.deliver, target, (source, data))

    def _lose(self, here: str, there: str, data: bytes) -> None:
        self.lost += 1
        self._journal.write("datagram_lost", here, there, data)

    # Called by faults.

    def worsen(self, source: str, sink: str, share: float) -> None:
        """From now on, lose this share of datagrams between matching hosts, in addition to other losses."""
        self._losses.append((source, sink, share))

    def better(self, source: str, sink: str, share: float) -> None:
        """End that."""
        self._losses.remove((source, sink, share))
