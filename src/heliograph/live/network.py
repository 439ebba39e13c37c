"""The live network: all links of a driver, and how they come to be: listeners, dials, TLS handshakes, pipes.

In:    what machines want of the network; peers that dial in.
Out:   links, attached to the machine they belong to; an outlet per link for what machines write.
State: links by number, listeners, dials and handshakes under way.
Not here: what happens on a link (links.py), contexts and certificates (tls.py), the order of work (loop.py).
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from heliograph.broker.config import ListenerConfig
from heliograph.errors import Reason
from heliograph.live.links import FLUSH_S, LINGER_S, End, Link, Outlet, PipeEnd, format_address
from heliograph.live.tls import TlsContexts, explain, reason_of
from heliograph.machine import Address, Dial, LinkId, Ticket
from heliograph.notes import PeerRefused

if TYPE_CHECKING:
    from heliograph.live.loop import Driver, Runner

LINGER_STOP_S = 0.05  # how long peers may take to hang up themselves when the whole node stops
HANDSHAKE_S = 2.0  # TLS
HANDSHAKES_MAX = 1_024  # under way at once; beyond it a new link is cut at once
DIAL_S = 5.0
BACKLOG = 1_024


class Network:
    """All links of a driver."""

    def __init__(self, driver: Driver, tls: TlsContexts | None) -> None:
        self.driver = driver
        self.tls = tls
        self.outlets: dict[LinkId, Outlet] = {}
        self._ends: dict[LinkId, End] = {}
        self._sockets: dict[Link, None] = {}  # until their transport is gone
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes = 0
        self._next: LinkId = 1
        self._closing = False
        self._empty = asyncio.Event()

    def add(self, end: End, outlet: Outlet) -> LinkId:
        """Number a link."""
        number = self._next
        self._next = number + 1
        self._ends[number] = end
        self.outlets[number] = outlet
        if isinstance(end, Link):
            self._sockets[end] = None
        return number

    def silence(self, link: Link) -> None:
        """Nothing more is written to this link."""
        self.outlets.pop(link.number, None)

    def forget(self, number: LinkId) -> None:
        """A pipe's end is gone."""
        self.outlets.pop(number, None)
        self._ends.pop(number, None)

    def remove(self, link: Link) -> None:
        """A socket is gone."""
        self.forget(link.number)
        self._sockets.pop(link, None)
        if not self._sockets:
            self._empty.set()

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
        if listener.secure and (self.tls is None or self.tls.server is None):
            raise OSError(errno.EINVAL, f"listener {listener.name} is secure but has no certificate")
        loop = self.driver.loop
        try:
            found = await loop.getaddrinfo(
                listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            hosts = [str(info[4][0]) for info in found]
            if listener.port == 0:
                del hosts[1:]  # each would get a port of its own
            factory = self._guarded(runner, listener) if listener.secure else self._plain(runner, listener)
            server = await loop.create_server(factory, hosts, listener.port, backlog=BACKLOG)
        except OSError as error:
            raise OSError(error.errno, explain_listen(listener, error)) from error
        self._servers.append(server)
        return cast(Address, server.sockets[0].getsockname()[:2])

    def _plain(self, runner: Runner, listener: ListenerConfig) -> Callable[[], Link]:
        return lambda: Link(runner, self, listener=listener.name)

    def _guarded(self, runner: Runner, listener: ListenerConfig) -> Callable[[], Guard]:
        return lambda: Guard(runner, self, listener)

    def guard(self, transport: asyncio.Transport, runner: Runner, listener: ListenerConfig) -> None:
        """A peer dialled in to a TLS listener: it becomes a link once its handshake is good."""
        if self._handshakes >= HANDSHAKES_MAX or self._closing:
            transport.abort()
            return
        self._keep(self._shake_hands(transport, runner, listener))

    async def _shake_hands(self, transport: asyncio.Transport, runner: Runner, listener: ListenerConfig) -> None:
        assert self.tls is not None
        assert self.tls.server is not None
        link = Link(runner, self, listener=listener.name)
        address = format_address(transport.get_extra_info("peername"))
        self._handshakes += 1
        try:
            secured = await self.driver.loop.start_tls(
                transport,
                link,
                self.tls.server,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=FLUSH_S,
            )
        except (OSError, EOFError) as error:  # what start_tls raises when the peer is at fault
            transport.abort()
            runner.note(PeerRefused(0, reason_of(error), f"{address} on listener {listener.name}: {explain(error)}"))
        else:
            if secured is None:  # closed while the handshake ended
                transport.abort()
            else:
                link.connection_made(secured)
        finally:
            self._handshakes -= 1

    def dial(self, runner: Runner, ticket: Ticket, dial: Dial) -> None:
        """Open a link; it ends in attach or in failed."""
        if self._closing:
            runner.fail_soon(ticket, Reason.STOPPING)
        else:
            self._keep(self._dial(runner, ticket, dial))

    async def _dial(self, runner: Runner, ticket: Ticket, dial: Dial) -> None:
        link = Link(runner, self, ticket=ticket)
        settings: dict[str, Any] = {}
        if dial.secure:
            if self.tls is None or self.tls.client is None:
                runner.failed(ticket, Reason.TLS_FAILED)
                return
            settings = {"ssl": self.tls.client, "server_hostname": dial.server_name or dial.host}
            settings |= {"ssl_handshake_timeout": DIAL_S, "ssl_shutdown_timeout": FLUSH_S}
        try:
            async with asyncio.timeout(DIAL_S):
                await self.driver.loop.create_connection(lambda: link, dial.host, dial.port, **settings)
        except (OSError, EOFError, ValueError, OverflowError) as error:  # the last two: no such host name, no such port
            if not link.is_attached:
                reason = reason_of(error, Reason.DIAL_FAILED)
                runner.failed(ticket, Reason.TIME_OUT if reason is Reason.HANDSHAKE_TOO_SLOW else reason)

    def _keep(self, work: Any) -> None:
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
        for link in list(self._sockets):
            link.abort()


class Guard(asyncio.BufferedProtocol):
    """Stands at a TLS listener until the handshake takes over the transport."""

    def __init__(self, runner: Runner, network: Network, listener: ListenerConfig) -> None:
        self._runner = runner
        self._network = network
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer dialled in."""
        cast(asyncio.Transport, transport).pause_reading()  # its first bytes are the handshake's
        self._network.guard(cast(asyncio.Transport, transport), self._runner, self._listener)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Never used: the handshake begins before the first read."""
        return memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        """Never called, as above."""


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
