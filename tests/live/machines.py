"""Small machines for the live driver's tests, and ways to run them.

In:    inputs of the driver.
Out:   what the test tells them to do.
State: a list of everything that happened.
Not here: the broker (tests/live/test_node.py runs the real one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from heliograph.broker.config import ListenerConfig
from heliograph.errors import Reason, UsageError
from heliograph.live.loop import Driver
from heliograph.live.loop import run as run_fast
from heliograph.machine import Effects, Outbox, Peer, SocketFailed, SocketOpened, TurnedAway
from heliograph.notes import PeerRefused

LOOPS: list[Callable[[Coroutine[Any, Any, Any]], Any]] = [run_fast, asyncio.run]
LOCAL = ListenerConfig(port=0)


class Recorder:
    """Writes down its inputs, does what commands say, and otherwise nothing."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.peers: dict[int, Peer] = {}
        self.received: dict[int, bytes] = {}
        self.detached: dict[int, Reason] = {}
        self.pressed: list[tuple[int, bool]] = []
        self.results: list[tuple[int, Any]] = []
        self.woken: list[int] = []
        self.walls: list[int] = []
        self.wake_at: int | None = None
        self.datagrams: list[tuple[str, tuple[str, int], bytes]] = []
        self.sockets: dict[str, tuple[str, int]] = {}
        self.problems: dict[str, str] = {}

    def attach(self, link: int, peer: Peer, now: int) -> None:
        assert link not in self.peers
        self.peers[link] = peer
        self.received[link] = b""

    def receive(self, link: int, data: bytes, now: int) -> None:
        assert link not in self.detached
        assert type(data) is bytes
        self.received[link] += data

    def receive_datagram(self, socket: str, source: tuple[str, int], data: bytes, now: int) -> None:
        assert type(data) is bytes
        self.datagrams.append((socket, source, data))

    def detach(self, link: int, reason: Reason, now: int) -> None:
        assert link not in self.detached
        self.detached[link] = reason

    def press(self, link: int, pressed: bool, now: int) -> None:
        self.pressed.append((link, pressed))

    def done(self, ticket: int, result: Any, now: int) -> None:
        self.results.append((ticket, result))

    def failed(self, ticket: int, reason: Reason, now: int) -> None:
        self.results.append((ticket, reason))

    def tell(self, command: Any, now: int) -> None:
        if command is None:
            raise UsageError("nothing to do")
        if isinstance(command, TurnedAway):
            self.outbox.note(PeerRefused(0, command.reason, command.detail))
        elif isinstance(command, SocketOpened):
            self.sockets[command.name] = command.address
        elif isinstance(command, SocketFailed):
            self.problems[command.name] = command.problem
        else:
            command(self)

    def clock(self, wall_ns: int, now: int) -> None:
        self.walls.append(wall_ns)

    def wake(self, now: int) -> None:
        self.woken.append(now)
        self.wake_at = None

    def take(self) -> Effects:
        return self.outbox.empty(self.wake_at)

    def report(self, question: str) -> Any:
        return question


class Echo(Recorder):
    """Sends everything back."""

    def receive(self, link: int, data: bytes, now: int) -> None:
        super().receive(link, data, now)
        self.outbox.writes.append((link, [data]))


class Fragile(Recorder):
    """Crashes when it hears a certain word."""

    def receive(self, link: int, data: bytes, now: int) -> None:
        super().receive(link, data, now)
        assert b"crash" not in data


class Gate:
    """A job that waits for the test, then returns or raises."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def run(self) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def driving(machine: Any, listener: ListenerConfig | None = LOCAL, **settings: Any) -> Any:
    """A driver with one machine, and the address of its listener."""
    unhandled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
    driver = Driver({"m": machine}, **settings)
    driver.start()
    address = await driver.listen("m", listener) if listener is not None else ("", 0)
    try:
        yield driver, address
    finally:
        await driver.stop()
    assert unhandled == []
