"""Links of the load generator: plain or TLS sockets, with the same calls for both.

In:    an address, and a CA file where the link is secure.
Out:   connected links: blocking while they shake hands, non-blocking under load.
State: the socket.
Not here: protocols (peers/), when to read and write (flow.py).
"""

from __future__ import annotations

import socket
import ssl

READ_BYTES = 1 << 18


class LinkEndedError(Exception):
    """The other side closed a link that should have stayed."""


class Link:
    """One connection to a broker."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 10.0) -> None:
        self.socket: socket.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.secure = False

    def upgrade(self, ca_file: str) -> None:
        """Go on in TLS, with a server that this CA vouches for."""
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.secure = True

    def fileno(self) -> int:
        """For epoll."""
        return self.socket.fileno()

    def send_all(self, data: bytes) -> None:
        """Blocking; for handshakes."""
        self.socket.sendall(data)

    def receive_exactly(self, count: int) -> bytes:
        """Blocking; for handshakes."""
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise LinkEndedError(f"the broker closed the link after {data!r}")
            data += more
        return data

    def receive_until(self, end: bytes) -> bytes:
        """Blocking, byte by byte; for handshakes in lines."""
        data = b""
        while not data.endswith(end):
            data += self.receive_exactly(1)
        return data

    def loaded(self) -> None:
        """The handshake is over: from now on nothing blocks."""
        self.socket.setblocking(False)

    def send(self, data: memoryview) -> int | None:
        """How much the kernel took; None if it takes nothing now."""
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return None

    def receive_into(self, buffer: memoryview) -> int | None:
        """How much was read; None if nothing is there."""
        try:
            count = self.socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        if count == 0:
            raise LinkEndedError("the broker closed a link under load")
        return count

    def close(self) -> None:
        """End it."""
        self.socket.close()
