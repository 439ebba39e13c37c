"""The door of a TLS listener: peers become links once their handshake is good.

In:    a bound socket; peers that dial in.
Out:   links; for peers that are not let in, a note with the reason.
State: handshakes under way, bounded in number and time.
Not here: contexts and what failures mean (tls.py), plain listeners (network.py), who may do what (broker/access.py).

asyncio's own TLS server keeps failed handshakes to itself, so this one accepts by hand: an operator has to see why a
peer is not let in.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Any

from heliograph.broker.config import ListenerConfig
from heliograph.live.links import FLUSH_S, SecureLink, format_address
from heliograph.live.tls import explain, reason_of
from heliograph.notes import PeerRefused

if TYPE_CHECKING:
    from heliograph.live.loop import Runner
    from heliograph.live.network import Network

HANDSHAKE_S = 2.0
HANDSHAKES_MAX = 1_024  # under way at once; beyond it a new link is cut at once
ACCEPT_PER_TURN = 64
REST_S = 0.5  # when the process has no descriptor left for another link


class SecureDoor:
    """Accepts at one socket."""

    def __init__(
        self,
        network: Network,
        runner: Runner,
        listener: ListenerConfig,
        context: ssl.SSLContext,
        bound: socket.socket,
    ) -> None:
        self._network = network
        self._runner = runner
        self._listener = listener
        self._context = context
        self._socket = bound
        self._loop = network.driver.loop
        self._closed = False
        self.handshakes = 0
        self._open()

    def close(self) -> None:
        """Let nobody in any more; links that are up stay."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _open(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_PER_TURN):
            try:
                accepted, address = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._loop.remove_reader(self._socket)  # it would be ready again at once
                    self._network.later(REST_S, self._open)
                return  # else nobody is waiting, or the one who was is gone
            accepted.setblocking(False)
            if self.handshakes < HANDSHAKES_MAX:
                self.handshakes += 1
                self._network.keep(self._shake_hands(accepted, address))
            else:
                accepted.close()

    async def _shake_hands(self, accepted: socket.socket, address: Any) -> None:
        link = SecureLink(self._runner, self._network, listener=self._listener.name)
        try:
            await self._loop.connect_accepted_socket(
                lambda: link,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=FLUSH_S,
            )
        except (OSError, EOFError) as error:  # the peer is at fault
            if not link.is_attached:
                where = f"{format_address(address)} on listener {self._listener.name}"
                self._runner.note(PeerRefused(0, reason_of(error), f"{where}: {explain(error)}"))
        finally:
            self.handshakes -= 1
