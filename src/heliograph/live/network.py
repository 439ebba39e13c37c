"""The live network: all links of a driver, and how they come to be: listeners, dials, pipes.

In:    what machines want of the network; peers that dial in.
Out:   links, attached to the machine they belong to; an outlet per link for what machines write.
State: links by number, listeners, dials under way.
Not here: what happens on a link (links.py), TLS below it (secure.py), the order of work (loop.py).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from heliograph.broker.config import ListenerConfig
from heliograph.errors import Reason
from heliograph.live.descriptors import peers_max
from heliograph.live.links import FLUSH_S, LINGER_S, End, Link, Outlet, PipeEnd, format_address
from heliograph.live.secure import Door, SecureLayer
from heliograph.live.tls import TlsContexts, reason_of
from heliograph.machine import Address, Dial, LinkId, Ticket

if TYPE_CHECKING:
    from heliograph.live.loop import Driver, Runner

LINGER_STOP_S = 0.05  # how long peers may take to hang up themselves when the whole node stops
DIAL_S = 5.0
BACKLOG = 1_024  # dials that wait for the loop; the system drops more, and their peers try again after a second
BACKLOG_MIN = 100  # asyncio accepts as many in one go, before it can close any: with few descriptors not too many


class Network:
    """All links of a driver."""

    def __init__(self, driver: Driver, tls: TlsContexts | None) -> None:
        self.driver = driver
        self.tls = tls
        self.outlets: dict[LinkId, Outlet] = {}
        self.writes: dict[LinkId, Callable[[bytes], None]] = {}  # the same for one piece
        self._ends: dict[LinkId, End] = {}
        self._sockets: dict[Link, None] = {}  # until their transport is gone
        self._lingering: dict[Link, None] = {}  # hung up, until their peer has heard so
        self._raw: dict[SecureLayer, None] = {}  # TCP below TLS, until it is gone
        self._servers: list[asyncio.Server] = []
        self._doors: list[Door] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._next: LinkId = 1
        self._closing = False
        self.peers_max = peers_max()  # above the highest descriptor that a peer who dials in may take
        self._empty = asyncio.Event()

    def add(self, end: End, outlet: Outlet, write: Callable[[bytes], None]) -> LinkId:
        """Number a link."""
        number = self._next
        self._next = number + 1
        self._ends[number] = end
        self.outlets[number] = outlet
        self.writes[number] = write
        if isinstance(end, Link):
            self._sockets[end] = None
        return number

    def silence(self, link: Link) -> None:
        """Nothing more is written to this link."""
        self.outlets.pop(link.number, None)
        self.writes.pop(link.number, None)

    def linger(self, link: Link) -> None:
        """It was hung up, and its peer should hear why."""
        self.silence(link)
        self._lingering[link] = None

    def hurry(self) -> bool:
        """Close the link that has lingered for longest; False if there is none."""
        link = next(iter(self._lingering), None)
        if link is None:
            return False
        del self._lingering[link]
        link.abort()
        return True

    def forget(self, number: LinkId) -> None:
        """A pipe's end is gone."""
        self.outlets.pop(number, None)
        self.writes.pop(number, None)
        self._ends.pop(number, None)

    def remove(self, link: Link) -> None:
        """A socket is gone."""
        self.forget(link.number)
        self._sockets.pop(link, None)
        self._lingering.pop(link, None)
        if not self._sockets:
            self._empty.set()

    def add_raw(self, layer: SecureLayer) -> None:
        """A TCP link below TLS is up."""
        self._raw[layer] = None

    def remove_raw(self, layer: SecureLayer) -> None:
        """It is gone."""
        self._raw.pop(layer, None)

    def join(self, here: Runner, there: Runner) -> tuple[LinkId, LinkId]:
        """A pipe between two machines; the numbers of its ends."""
        one, other = PipeEnd(self, here), PipeEnd(self, there)
        one.other, other.other = other, one
        return one.number, other.number

    def hold(self, number: LinkId, held: bool) -> None:
        """Stop or resume reading a link."""
        end = self._ends.get(number)
        if end is not None:
            end.hold(held)

    def hang_up(self, number: LinkId, reason: Reason) -> None:
        """End a link."""
        end = self._ends.get(number)
        if end is not None:
            end.hang_up(reason)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it then."""
        self.driver.loop.call_later(seconds, call)

    async def listen(self, runner: Runner, listener: ListenerConfig) -> Address:
        """Open an address; the one that was really taken comes back."""
        context = None if self.tls is None else self.tls.server
        if listener.secure and context is None:
            raise OSError(errno.EINVAL, f"listener {listener.name} is secure but has no certificate")
        sockets = await self._bind(listener)
        backlog = min(BACKLOG, max(BACKLOG_MIN, self.peers_max // 8))
        for bound in sockets:
            if listener.secure and context is not None:
                accept = self._secure(runner, listener, context)
            else:
                accept = self._plain(runner, listener)
            self._servers.append(await self.driver.loop.create_server(accept, sock=bound, backlog=backlog))
        return cast(Address, sockets[0].getsockname()[:2])

    async def _bind(self, listener: ListenerConfig) -> list[socket.socket]:
        """A name may stand for several addresses. Port 0 takes the first only: each would get a port of its own."""
        sockets: list[socket.socket] = []
        try:
            infos = await self.driver.loop.getaddrinfo(
                listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, address in infos[:1] if listener.port == 0 else infos:
                bound = socket.create_server(cast(Address, address), family=family, backlog=BACKLOG)
                bound.setblocking(False)
                sockets.append(bound)
        except OSError as error:
            for bound in sockets:
                bound.close()
            raise OSError(error.errno, explain_listen(listener, error)) from error
        return sockets

    def _plain(self, runner: Runner, listener: ListenerConfig) -> Callable[[], asyncio.BaseProtocol]:
        return lambda: Link(runner, self, listener=listener.name)

    def _secure(
        self, runner: Runner, listener: ListenerConfig, context: ssl.SSLContext
    ) -> Callable[[], asyncio.BaseProtocol]:
        door = Door()
        self._doors.append(door)
        return lambda: SecureLayer(Link(runner, self, listener=listener.name), self, context, door=door)

    def dial(self, runner: Runner, ticket: Ticket, dial: Dial) -> None:
        """Open a link; it ends in attach or in failed."""
        if self._closing:
            runner.fail_soon(ticket, Reason.STOPPING)
        else:
            self.keep(self._dial(runner, ticket, dial))

    async def _dial(self, runner: Runner, ticket: Ticket, dial: Dial) -> None:
        link = Link(runner, self, ticket=ticket)
        context = None if self.tls is None else self.tls.client
        if dial.secure and context is None:
            runner.failed(ticket, Reason.TLS_FAILED)
            return
        try:
            async with asyncio.timeout(DIAL_S):
                if dial.secure and context is not None:
                    name = dial.server_name or dial.host
                    layer = SecureLayer(link, self, context, server_name=name, handshake_s=DIAL_S)
                    await self.driver.loop.create_connection(lambda: layer, dial.host, dial.port)
                    await layer.ready
                else:
                    await self.driver.loop.create_connection(lambda: link, dial.host, dial.port)
        except (OSError, EOFError, ValueError, OverflowError) as error:  # the last two: no such host name, no such port
            if not link.is_attached:
                reason = reason_of(error, Reason.DIAL_FAILED)
                runner.failed(ticket, Reason.TIME_OUT if reason is Reason.HANDSHAKE_TOO_SLOW else reason)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside the loop's own work, until it ends or the network is closed."""
        task: asyncio.Task[None] = self.driver.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End everything: flushed for at most a second, no longer than it takes."""
        self._closing = True
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        for layer in list(self._raw):
            layer.give_up()
        links = list(self._sockets)
        if not links:
            return
        self._empty.clear()
        for link in links:
            link.hang_up(Reason.STOPPING)
            self.later(LINGER_STOP_S, link.linger_over)
        try:
            async with asyncio.timeout(FLUSH_S + LINGER_S):
                await self._empty.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """End everything now."""
        self._closing = True
        for server in self._servers:
            server.close()
        for layer in list(self._raw):
            layer.abort()
        for link in list(self._sockets):
            link.abort()


def explain_listen(listener: ListenerConfig, error: OSError) -> str:
    """What is wrong with an address, and what to do about it."""
    where = format_address((listener.host, listener.port))
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process; stop it, or choose another port for listener {listener.name}"
    if error.errno == errno.EACCES:
        return f"{where} may not be opened by this user; choose a port above 1023 for listener {listener.name}"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"{where} is no address of this machine; correct the host of listener {listener.name}"
    return f"{where} cannot be opened for listener {listener.name}: {error.strerror or error}"
