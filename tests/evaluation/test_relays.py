"""Delaying relays: what goes through them comes late, in order, and from where it can be answered."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from heliograph.evaluation.live.probe import Probe
from heliograph.evaluation.live.relays import LOCAL, Party, Relays
from heliograph.evaluation.places import SITES
from heliograph.machine import Address

pytestmark = pytest.mark.live

URBANA, TALLAHASSEE = SITES["urbana"], SITES["tallahassee"]
ONE_WAY_S = URBANA.one_way_ms(TALLAHASSEE) / 1_000
PATIENCE_S = 60.0


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    return run


@asynccontextmanager
async def relaying(jitter_ms: float = 0.0) -> AsyncIterator[Relays]:
    relays = Relays(jitter_ms, Random(1))
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield relays
    finally:
        await relays.close()


def opened() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((LOCAL, 0))
    return made


def somebody(relays: Relays, party: Party) -> socket.socket:
    made = opened()
    relays.locate(party, made.getsockname())
    return made


async def heard(at: socket.socket) -> tuple[bytes, Address]:
    return await asyncio.get_running_loop().sock_recvfrom(at, 100)


@on_a_loop
async def test_a_datagram_comes_late_and_can_be_answered_where_it_came_from() -> None:
    loop = asyncio.get_running_loop()
    async with relaying() as relays:
        near, far = relays.add(URBANA), relays.add(TALLAHASSEE)
        with somebody(relays, near) as here, somebody(relays, far) as there:
            said_at = loop.time()
            here.sendto(b"question", far.outside)
            question, source = await heard(there)
            assert loop.time() - said_at >= ONE_WAY_S
            there.sendto(b"answer", source)
            answer, answered_by = await heard(here)
            assert loop.time() - said_at >= 2 * ONE_WAY_S
    assert (question, source) == (b"question", near.outside)
    assert (answer, answered_by) == (b"answer", far.outside)
    assert relays.passed_on == 2


@on_a_loop
async def test_datagrams_of_strangers_and_for_nobody_are_dropped() -> None:
    async with relaying() as relays:
        nobody, party = relays.add(URBANA), relays.add(URBANA)
        with somebody(relays, party) as here, opened() as stranger:
            stranger.sendto(b"hello", party.outside)
            here.sendto(b"is anybody there?", nobody.outside)
            with somebody(relays, relays.add(URBANA)) as friend:
                friend.sendto(b"hello", party.outside)
                assert (await heard(here))[0] == b"hello"
    assert (relays.strangers, relays.passed_on) == (1, 1)


@on_a_loop
async def test_a_party_that_moved_is_heard_and_reached_where_it_is_now() -> None:
    async with relaying() as relays:
        mover, friend = relays.add(URBANA), relays.add(URBANA)
        with somebody(relays, mover) as old, somebody(relays, mover) as new, somebody(relays, friend) as there:
            old.sendto(b"from nowhere", friend.outside)
            new.sendto(b"from here", friend.outside)
            data, source = await heard(there)
            there.sendto(b"welcome", source)
            assert (await heard(new))[0] == b"welcome"
    assert data == b"from here"
    assert relays.strangers == 1


@on_a_loop
async def test_bytes_of_a_link_come_late_and_in_order_and_so_does_its_end() -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    begun = loop.create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(1)
        begun.set_result(loop.time())
        ended.set_result(data + await reader.read())
        writer.close()

    async with relaying(jitter_ms=5.0) as relays:
        near, far = relays.add(URBANA), relays.add(TALLAHASSEE)
        server = await asyncio.start_server(listen, LOCAL, 0)
        there = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(*await relays.link(near, far, lambda: there))
        said_at = loop.time()
        for number in range(50):
            writer.write(b"%d," % number)
            await asyncio.sleep(0.001)
        writer.close()
        assert await ended == b"".join(b"%d," % number for number in range(50))
        assert await begun - said_at >= ONE_WAY_S
        server.close()


@on_a_loop
async def test_a_link_to_nobody_is_hung_up_and_none_is_taken_after_the_end() -> None:
    async with relaying() as relays:
        address = await relays.link(relays.add(URBANA), relays.add(URBANA), lambda: None)
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(*address)


@on_a_loop
async def test_a_probe_tells_how_late_the_relays_are() -> None:
    async with relaying(jitter_ms=50.0) as relays:
        probe = Probe(relays, URBANA)
        probing = asyncio.create_task(probe.run())
        while len(probe.late_ms) < 2:
            await asyncio.sleep(0.01)
        for _ in range(100):
            time.sleep(0.3)  # the loop stands still: what it should have passed on is late
            for _ in range(3):  # turns, too few for a whole round trip
                await asyncio.sleep(0)
            if max(probe.late_ms) > 100:
                break
        probing.cancel()
        probe.close()
    assert min(probe.late_ms) >= 0  # never before its time; what jitter adds to others is no error
    assert max(probe.late_ms) > 100
