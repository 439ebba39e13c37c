"""A probe: measures how late datagrams come out of the relays.

In:    relays in use.
Out:   the lateness of each trip, in milliseconds.
State: its own two parties at one place, and the round trips measured so far.
Not here: the relays (relays.py).

A round trip is two trips through relays with a known delay. Any additional time is the relays' error, including the
probe's own reading and writing: so the real error is less than reported here.
"""

from __future__ import annotations

import asyncio
import socket
from struct import Struct
from time import perf_counter
from typing import cast

from heliograph.evaluation.live.relays import LOCAL, Party, Relays
from heliograph.evaluation.places import Place
from heliograph.machine import Address

EVERY_S = 0.1
BYTES = 512  # about the length of discovery messages
SAID_AT = Struct("!d")


class Probe:
    """Sends datagrams through the relays, and receives them back."""

    def __init__(self, relays: Relays, place: Place) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_ms = place.one_way_ms(place)
        self._near, self._far = relays.add(place, steady=True), relays.add(place, steady=True)
        self._sockets = [self._open(relays, party) for party in (self._near, self._far)]
        self.late_ms: list[float] = []

    def _open(self, relays: Relays, party: Party) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setblocking(False)
        opened.bind((LOCAL, 0))
        relays.locate(party, cast(Address, opened.getsockname()))
        self._loop.add_reader(opened, self._heard if party is self._near else self._echo, opened)
        return opened

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._sockets[0].sendto(SAID_AT.pack(perf_counter()).ljust(BYTES), self._far.outside)
            await asyncio.sleep(EVERY_S)

    def _echo(self, far: socket.socket) -> None:
        data, source = far.recvfrom(BYTES)
        far.sendto(data, source)

    def _heard(self, near: socket.socket) -> None:
        (said_at,) = SAID_AT.unpack_from(near.recv(BYTES))
        self.late_ms.append((perf_counter() - said_at) * 1_000 / 2 - self._delay_ms)

    def close(self) -> None:
        """End it."""
        for opened in self._sockets:
            self._loop.remove_reader(opened)
            opened.close()
