"""A peer that sends TLS records without data, which cost a broker much more than they cost the peer.

Python's ssl cannot ask for key updates, so OpenSSL is called directly.
"""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliograph.broker.config import ListenerConfig
from heliograph.errors import Reason
from heliograph.live.tls import TlsContexts, server_context
from heliograph.model.identity import Role
from tests.live.certificates import Authority
from tests.live.machines import LOOPS, Recorder, driving, until

pytestmark = pytest.mark.live
SECURE = ListenerConfig(port=0, secure=True)
UPDATE_BYTES = 27


class KeyUpdater:
    """A TLS client that sends data and key updates."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._library = ctypes.CDLL(_ssl.__file__)
        self._function("TLS_client_method", ctypes.c_void_p)
        new_context = self._function("SSL_CTX_new", ctypes.c_void_p, ctypes.c_void_p)
        self._context = new_context(self._library.TLS_client_method())
        self._session = self._function("SSL_new", ctypes.c_void_p, ctypes.c_void_p)(self._context)
        self._socket = socket.create_connection(address)
        self._function("SSL_set_fd", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(self._session, self._socket.fileno())
        assert self._function("SSL_connect", ctypes.c_int, ctypes.c_void_p)(self._session) == 1
        self._update = self._function("SSL_key_update", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        self._send = self._function("SSL_do_handshake", ctypes.c_int, ctypes.c_void_p)
        self._write = self._function("SSL_write", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)

    def _function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        function: Any = getattr(self._library, name)
        function.restype, function.argtypes = result, arguments
        return function  # type: ignore[no-any-return]

    def update(self, count: int) -> None:
        """Send so many key updates; each asks for one in return."""
        for _ in range(count):
            if self._update(self._session, 1) != 1 or self._send(self._session) != 1:
                return  # the peer has ended the link

    def write(self, data: bytes) -> None:
        assert self._write(self._session, data, len(data)) == len(data)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server(tmp_path: Path) -> TlsContexts:
    if not hasattr(ctypes.CDLL(_ssl.__file__), "SSL_key_update"):
        pytest.skip("this Python has its OpenSSL built in, so its functions cannot be called")
    return TlsContexts(
        server_context(Authority(tmp_path).files("broker", roles=[Role.BROKER]), require_certificate=False)
    )


@pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])
@pytest.mark.req("O6", "O10")
def test_a_peer_that_floods_key_updates_loses_its_link_and_others_are_heard(run: Any, server: TlsContexts) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, SECURE, tls=server) as (_, address):
            other = await asyncio.to_thread(KeyUpdater, address)
            flooder = await asyncio.to_thread(KeyUpdater, address)
            await until(lambda: 2 in machine.peers)
            await asyncio.to_thread(flooder.update, 5_000)
            await until(lambda: machine.detached.get(2) is Reason.TLS_FAILED)
            other.write(b"still here")
            await until(lambda: machine.received.get(1) == b"still here")
            assert machine.detached == {2: Reason.TLS_FAILED}
            flooder.close()
            other.close()

    run(main())


@pytest.mark.parametrize("size", [1, 100, 1 << 14, 1 << 20])
@pytest.mark.req("O6")
def test_data_of_any_size_and_key_updates_now_and_then_are_heard(size: int, server: TlsContexts) -> None:
    """Data pays for one update for every 432 bytes; a link may have about a thousand beyond that."""
    rounds = 400 if size < 1 << 20 else 4

    def speak(address: tuple[str, int]) -> KeyUpdater:
        peer = KeyUpdater(address)
        for _ in range(rounds):
            peer.write(b"x" * size)
            peer.update(2)
        return peer

    async def main() -> None:
        machine = Recorder()
        async with driving(machine, SECURE, tls=server) as (_, address):
            peer = await asyncio.to_thread(speak, address)
            await until(lambda: len(machine.received[1]) == rounds * size)
            assert machine.detached == {}
            peer.close()

    asyncio.run(main())
