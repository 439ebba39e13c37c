"""The live network: listeners, dials and pipes.

In:    listeners to open; dials of machines; peers that dial in.
Out:   links, attached to the machine they belong to.
State: listeners, dials under way; the links are in link_table.py.
Not here: what happens on a link (links.py), TLS below it (secure.py), the order of work (loop.py).
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

from heliograph.broker.config import ListenerConfig
from heliograph.errors import ProtocolError, Reason
from heliograph.live.inputs import MachineInputs
from heliograph.live.link_table import LinkTable
from heliograph.live.links import FLUSH_S, LINGER_S, PipeEnd, SocketLink, format_address
from heliograph.live.secure import Handshakes, SecureLayer
from heliograph.live.tls import TlsContexts, reason_of
from heliograph.machine import Address, Dial, LinkId, Ticket

LINGER_STOP_S = 0.05  # how long peers may take to hang up when the whole node stops
DIAL_S = 5.0
BACKLOG = 1_024  # dials that wait for the loop; the system drops more, and those peers try again after a second
BACKLOG_MIN = 100  # asyncio accepts this many at once before it can close any: not too many if descriptors are few


class LiveNetwork:
    """Brings up the links of a driver, and ends them all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsContexts | None) -> None:
        self.links = LinkTable(loop)
        self.tls = tls
        self._loop = loop
        self._servers: list[asyncio.Server] = []
        self._handshakes: list[Handshakes] = []  # one per secure listener
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def peers_max(self) -> int:
        """Descriptors from this number on are not for peers that dial in."""
        return self.links.peers_max

    def join(self, here: MachineInputs, there: MachineInputs) -> tuple[LinkId, LinkId]:
        """Make a pipe between two machines; returns the numbers of its ends."""
        one = PipeEnd(self.links, here)
        other = PipeEnd(self.links, there, one)
        return one.number, other.number

    async def listen(self, runner: MachineInputs, listener: ListenerConfig) -> Address:
        """Open an address; returns the actual one."""
        if listener.secure and (self.tls is None or self.tls.server is None):
            raise OSError(errno.EINVAL, f"listener {listener.name} is secure but has no certificate")
        sockets = await self._bind(listener)
        backlog = min(BACKLOG, max(BACKLOG_MIN, self.links.peers_max // 8))
        for bound in sockets:
            if listener.secure and self.tls is not None:
                accept = self._secure(runner, listener, self.tls)
            else:
                accept = self._plain(runner, listener)
            self._servers.append(await self._loop.create_server(accept, sock=bound, backlog=backlog))
        return cast(Address, sockets[0].getsockname()[:2])

    async def _bind(self, listener: ListenerConfig) -> list[socket.socket]:
        """A name may have several addresses. With port 0 only the first is used, as each would get a different port."""
        sockets: list[socket.socket] = []
        try:
            infos = await self._loop.getaddrinfo(
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

    def _plain(self, runner: MachineInputs, listener: ListenerConfig) -> Callable[[], asyncio.BaseProtocol]:
        return lambda: SocketLink(runner, self.links, listener=listener.name)

    def _secure(
        self, runner: MachineInputs, listener: ListenerConfig, tls: TlsContexts
    ) -> Callable[[], asyncio.BaseProtocol]:
        handshakes = Handshakes()
        self._handshakes.append(handshakes)

        def accept() -> SecureLayer:
            assert tls.server is not None
            link = SocketLink(runner, self.links, listener=listener.name)
            return SecureLayer(link, self.links, tls.server, handshakes=handshakes)

        return accept

    def dial(self, runner: MachineInputs, ticket: Ticket, dial: Dial) -> None:
        """Open a link; the result is attach or failed."""
        if self._closing:
            runner.fail_soon(ticket, Reason.STOPPING)
        else:
            self.keep(self._dial(runner, ticket, dial))

    async def _dial(self, runner: MachineInputs, ticket: Ticket, dial: Dial) -> None:
        link = SocketLink(runner, self.links, ticket=ticket)
        context = None if self.tls is None or not dial.secure else self.tls.dialling
        if dial.secure and context is None:
            runner.failed(ticket, Reason.TLS_FAILED)
            return
        try:
            async with asyncio.timeout(DIAL_S):
                if dial.secure and context is not None:
                    name = dial.server_name or dial.host
                    layer = SecureLayer(link, self.links, context, server_name=name, role=dial.role, handshake_s=DIAL_S)
                    await self._loop.create_connection(lambda: layer, dial.host, dial.port)
                    await layer.ready
                else:
                    await self._loop.create_connection(lambda: link, dial.host, dial.port)
        except (OSError, EOFError, ProtocolError, ValueError, OverflowError) as error:
            # ProtocolError: it is not what the dial asked for; the last two: invalid host name, invalid port
            if not link.is_attached:
                reason = reason_of(error, Reason.DIAL_FAILED)
                runner.failed(ticket, Reason.TIME_OUT if reason is Reason.HANDSHAKE_TOO_SLOW else reason)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this beside the loop's own work, until it ends or the network is closed."""
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End everything, after at most a second of flushing."""
        self._closing = True
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await self.links.close(LINGER_STOP_S, FLUSH_S + LINGER_S)

    def abort(self) -> None:
        """End everything now."""
        self._closing = True
        for server in self._servers:
            server.close()
        self.links.abort()


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
