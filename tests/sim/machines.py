"""Small machines for tests of the world: they write down what they are told, and do what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from heliograph.errors import Reason
from heliograph.machine import (
    Address,
    Dial,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    Socket,
    SocketFailed,
    SocketOpened,
    Timers,
)
from heliograph.node import Node, Pipe
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.host import Host
from heliograph.sim.loop import SECOND
from heliograph.sim.world import HostSettings, World

PORT = 1
CALM = NetworkSettings(delay_ms=1, jitter_ms=0, split=0, join=0)
"""A network that only delays."""
STEADY = HostSettings(inputs_per_take_max=1)
"""Hosts that take after each input."""


class Recorder:
    """A machine that does nothing but remember."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.timers = Timers()
        self.inputs: list[tuple[Any, ...]] = []
        self.received: dict[LinkId, bytes] = {}
        self.chunks: list[bytes] = []
        self.walls: list[int] = []
        self.nows: list[Instant] = []

    def _note(self, now: Instant, *what: Any) -> None:
        self.nows.append(now)
        self.inputs.append(what)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        self._note(now, "attach", link, peer)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        self._note(now, "receive", link, data)
        self.chunks.append(data)
        self.received[link] = self.received.get(link, b"") + data

    def receive_datagram(self, socket: str, source: Any, data: bytes, now: Instant) -> None:
        self._note(now, "datagram", socket, source, data)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        self._note(now, "detach", link, reason)

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        self._note(now, "press", link, pressed)

    def done(self, ticket: int, result: Any, now: Instant) -> None:
        self._note(now, "done", ticket, result)

    def failed(self, ticket: int, reason: Reason, now: Instant) -> None:
        self._note(now, "failed", ticket, reason)

    def tell(self, command: Any, now: Instant) -> None:
        """A command of a test is a function of the machine."""
        if isinstance(command, SocketOpened | SocketFailed):
            self._note(now, "socket", command)
            return
        self._note(now, "tell")
        command(self, now)

    def clock(self, wall_ns: int, now: Instant) -> None:
        self._note(now, "clock")
        self.walls.append(wall_ns)

    def wake(self, now: Instant) -> None:
        self._note(now, "wake")
        self.timers.run(now)

    def take(self) -> Effects:
        return self.outbox.empty(self.timers.next())

    def report(self, question: str) -> Any:
        return {"inputs": len(self.inputs)}

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        """The inputs of one kind."""
        return [each for each in self.inputs if each[0] == kind]

    @property
    def link(self) -> LinkId:
        """The newest link."""
        return self.of("attach")[-1][1]


class Echo(Recorder):
    """Writes back what it receives."""

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        super().receive(link, data, now)
        self.outbox.writes.append((link, [data]))


def add(
    world: World, name: str, kind: type[Recorder] = Recorder, *, listens: bool = False, sockets: tuple[Socket, ...] = ()
) -> Host:
    """A running host with one such machine."""
    build = partial(Node, name=name, pipes=(), listeners={}, sockets={"it": sockets})
    host = world.add(name, lambda _: build(machines={"it": kind()}))
    if listens:
        world.listen(host, (name, PORT), "main", "it")
    world.start(host)
    return host


def add_pair(world: World, name: str) -> Host:
    """A running host with two machines joined by a pipe."""
    node = Node(name=name, machines={"one": Recorder(), "two": Echo()}, pipes=(Pipe("one", "two"),), listeners={})
    host = world.add(name, lambda _: node)
    world.start(host)
    return host


def it(host: Host) -> Any:
    """The machine of a host that has one."""
    return host.seats[0].machine


def tell(world: World, host: Host, command: Callable[[Any, Instant], None]) -> None:
    """Let a machine do something now."""
    host.tell(host.seats[0], command)


def dial(world: World, host: Host, to: str, port: int = PORT) -> None:
    """Let a machine dial, and wait for what becomes of it."""
    tell(world, host, lambda machine, now: machine.outbox.dial(Dial(to, port)))
    world.run(world.loop.now + SECOND // 10)


def write(world: World, host: Host, *chunks: bytes) -> None:
    """Let a machine write to its newest link."""
    tell(world, host, lambda machine, now: machine.outbox.writes.append((machine.link, list(chunks))))


def send(world: World, host: Host, socket: str, to: Address, *datagrams: bytes) -> None:
    """Let a machine send datagrams."""
    tell(world, host, lambda machine, now: machine.outbox.datagrams.extend((socket, to, data) for data in datagrams))


def heard(host: Host) -> list[bytes]:
    """The datagrams that a machine got, in order."""
    return [data for *_, data in it(host).of("datagram")]


def hang_up(world: World, host: Host, reason: Reason = Reason.GOODBYE) -> None:
    """Let a machine end its newest link."""
    tell(world, host, lambda machine, now: machine.outbox.hang_up(machine.link, reason))


def a_link(seed: int = 1, network: NetworkSettings = CALM, hosts: HostSettings = STEADY) -> tuple[World, Host, Host]:
    """A world with two recorders, ``left`` having dialled ``right``."""
    world = World(seed, network=network, hosts=hosts)
    right = add(world, "right", listens=True)
    left = add(world, "left")
    dial(world, left, "right")
    assert it(left).of("attach")
    return world, left, right


def run(world: World, seconds: float) -> None:
    """Let time pass."""
    world.run(world.loop.now + int(seconds * SECOND))
