"""Delaying relays: they add wide-area delays to loopback.

In:    parties, each at a place; their datagrams, sent to the relay sockets of others; links, dialled to a relay.
Out:   the same bytes, delayed according to the distance between the places.
State: one UDP socket per party; one listener per relayed link, and bytes in transit.
Not here: which parties there are (stage.py), how far places are from each other (places.py), how exact this is
          (probe.py).

A party is reached at the address of its relay socket, and its own datagrams leave from there, so receivers can answer
without knowing its real address, as behind an open NAT. Bytes of a link never overtake each other. Opening a link takes
no time here; the experiments open links only during preparation.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import cast

from heliograph.evaluation.places import Place
from heliograph.machine import Address

LOCAL = "127.0.0.1"
DATAGRAM_BYTES_MAX = 65_507
READS_PER_TURN = 64  # then other tasks on the loop run
READ_BYTES = 65_536
APART_S = 1e-6  # keeps bytes of a link in order that are due at once


@dataclass(slots=True, eq=False)
class Party:
    """A process at a place."""

    place: Place
    outside: Address  # where other parties reach it
    bound: socket.socket
    steady: bool = False  # the delay of its datagrams is constant
    inside: Address | None = None  # its real address; until that is known, it receives nothing


class Relays:
    """All relays of one experiment, on the current loop."""

    def __init__(self, jitter_ms: float, random: Random) -> None:
        self._loop = asyncio.get_running_loop()
        self._jitter_ms = jitter_ms
        self._random = random
        self._parties: list[Party] = []
        self._by_inside: dict[Address, Party] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.passed_on = 0
        self.strangers = 0  # datagrams of unknown senders, dropped

    def delay_s(self, source: Party, sink: Party) -> float:
        """The delay of the next bytes from one to the other."""
        jitter_ms = 0.0 if source.steady or sink.steady else self._jitter_ms * self._random.random()
        return (source.place.one_way_ms(sink.place) + jitter_ms) / 1_000

    def forget_strangers(self) -> None:
        """Count datagrams of unknown senders from 0 again."""
        self.strangers = 0

    # Datagrams.

    def add(self, place: Place, *, steady: bool = False) -> Party:
        """Another party at this place."""
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bound.setblocking(False)
        bound.bind((LOCAL, 0))
        party = Party(place, cast(Address, bound.getsockname()), bound, steady)
        self._parties.append(party)
        self._loop.add_reader(bound, self._read, party)
        return party

    def locate(self, party: Party, inside: Address) -> None:
        """Set the real address of a party."""
        if party.inside is not None:
            self._by_inside.pop(party.inside, None)
        party.inside = inside
        self._by_inside[inside] = party

    def _read(self, sink: Party) -> None:
        for _ in range(READS_PER_TURN):
            try:
                data, address = sink.bound.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error for an earlier datagram: nothing listens there
            source = self._by_inside.get(address)
            if source is None:
                self.strangers += 1
            else:
                self._loop.call_later(self.delay_s(source, sink), self._pass_on, source, sink, data)

    def _pass_on(self, source: Party, sink: Party, data: bytes) -> None:
        if sink.inside is None or source.bound.fileno() < 0:
            return
        try:
            source.bound.sendto(data, sink.inside)
            self.passed_on += 1
        except OSError:
            pass  # lost, as datagrams may be

    # Links.

    async def link(self, source: Party, sink: Party, where: Callable[[], Address | None]) -> Address:
        """An address that leads one party to another's listener; while that is unknown, dials are hung up."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                address = where()
                if address is not None:
                    await self._join(reader, writer, address, source, sink)
            except OSError:
                pass  # either end has closed, and so both are
            finally:
                writer.close()

        def start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(accept(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(start, LOCAL, 0)
        self._servers.append(server)
        return cast(Address, server.sockets[0].getsockname())

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address, source: Party, sink: Party
    ) -> None:
        there, back = await asyncio.open_connection(*address)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(reader, back, lambda: self.delay_s(source, sink)))
                ways.create_task(self._carry(there, writer, lambda: self.delay_s(sink, source)))
        except* OSError:
            pass
        finally:
            back.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: Callable[[], float]
    ) -> None:
        """One direction of a link, until its source hangs up. Bytes that arrive within one delay are in transit."""
        due = 0.0
        while data := await reader.read(READ_BYTES):
            due = max(due + APART_S, self._loop.time() + delay_s())
            self._loop.call_at(due, self._write, writer, data)
            await writer.drain()
        await asyncio.sleep(max(0.0, due - self._loop.time()) + delay_s())
        writer.close()

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.is_closing():
            writer.write(data)
            self.passed_on += 1

    # The end.

    async def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for party in self._parties:
            self._loop.remove_reader(party.bound)
            party.bound.close()
