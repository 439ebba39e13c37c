"""Links on real sockets: ends of every kind, pressure, and that nobody else is harmed."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.live.links import DISCARD_BYTES_MAX, FLUSH_S, PRESS_BYTES
from tests.live.machines import LOOPS, Echo, Recorder, driving, until

pytestmark = [pytest.mark.live, pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])]


def hang_up(link: int, reason: Reason = Reason.GOODBYE) -> Any:
    return lambda machine: machine.outbox.hang_up(link, reason)


def write(link: int, *frames: bytes) -> Any:
    return lambda machine: machine.outbox.writes.append((link, list(frames)))


@pytest.mark.req("N14")
def test_bytes_come_back_in_order_over_tcp(run: Any) -> None:
    sent = b"".join(struct.pack("<I", number) for number in range(100_000))

    async def main() -> None:
        async with driving(Echo()) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            writer.close()

    run(main())


def test_a_link_knows_its_peer_and_sends_without_delay(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            _, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            ours = writer.get_extra_info("sockname")
            peer = machine.peers[1]
            assert (peer.transport, peer.listener, peer.identity, peer.ticket) == ("tcp", "main", None, None)
            assert peer.address == f"127.0.0.1:{ours[1]}"
            transport = driver.network.links._ends[1]._transport
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert option != 0
            writer.close()

    run(main())


def test_a_peer_that_closes_is_detached_once_as_closed(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            _, writer = await asyncio.open_connection(*address)
            writer.close()
            await until(lambda: machine.detached)
            assert machine.detached == {1: Reason.CLOSED}
            await until(lambda: not driver.network.links._sockets)
            assert driver.failure is None

    run(main())


def test_a_half_closed_link_still_gets_its_answer(run: Any) -> None:
    async def main() -> None:
        machine = Echo()
        async with driving(machine) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"question")
            writer.write_eof()
            assert await reader.read() == b"question"
            assert machine.detached == {1: Reason.CLOSED}

    run(main())


def test_a_half_closed_link_that_reads_nothing_ends_after_the_flushing_time(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            peer = socket.create_connection(address)
            await until(lambda: machine.peers)
            driver.tell("m", write(1, bytes(32 << 20)))
            peer.shutdown(socket.SHUT_WR)
            await until(lambda: machine.detached)
            await until(lambda: not driver.network.links._sockets, FLUSH_S + 60)
            peer.close()

    run(main())


@pytest.mark.req("O6")
def test_a_reset_link_is_detached_as_reset_and_nobody_else_is_harmed(run: Any) -> None:
    async def main() -> None:
        machine = Echo()
        async with driving(machine) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            bad = socket.create_connection(address)
            bad.sendall(b"x")
            await until(lambda: machine.received.get(2))
            bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            bad.close()
            await until(lambda: machine.detached)
            assert machine.detached == {2: Reason.RESET}
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            writer.close()

    run(main())


def test_a_hangup_flushes_first_and_is_detached_with_its_own_reason(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            driver.tell("m", write(1, b"a" * 500_000, b"goodbye"))
            driver.tell("m", hang_up(1, Reason.SILENT))
            assert await reader.read() == b"a" * 500_000 + b"goodbye"
            writer.close()
            await until(lambda: machine.detached)
            assert machine.detached == {1: Reason.SILENT}

    run(main())


@pytest.mark.req("O6")
def test_a_peer_that_is_still_sending_reads_the_last_frame_of_a_hangup(run: Any) -> None:
    """Closing a socket with unread input resets the link; the reason would be lost at the peer."""

    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            writer.write(bytes(1 << 20))
            driver.tell("m", write(1, b"goodbye"))
            driver.tell("m", hang_up(1))
            assert await reader.read() == b"goodbye"
            writer.close()
            await until(lambda: machine.detached)
            assert machine.detached == {1: Reason.GOODBYE}

    run(main())


def test_what_arrives_after_a_hangup_is_dropped_and_bounded(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            _, writer = await asyncio.open_connection(*address)
            writer.write(b"before")
            await until(lambda: machine.received.get(1) == b"before")
            driver.tell("m", hang_up(1))
            writer.write(bytes(4 * DISCARD_BYTES_MAX))
            await until(lambda: machine.detached)
            assert machine.received == {1: b"before"}
            assert machine.detached == {1: Reason.GOODBYE}
            writer.transport.abort()

    run(main())


def test_a_peer_that_never_hangs_up_itself_is_gone_soon_after_our_hangup(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            peer = socket.create_connection(address)
            await until(lambda: machine.peers)
            driver.tell("m", hang_up(1))
            await until(lambda: machine.detached)
            assert not driver.network.links._sockets
            peer.close()

    run(main())


def test_a_link_that_is_refused_while_it_attaches_ends(run: Any) -> None:
    class Full(Recorder):
        def attach(self, link: int, peer: Any, now: int) -> None:
            super().attach(link, peer, now)
            self.outbox.writes.append((link, [b"full"]))
            self.outbox.hang_up(link, Reason.LINKS_OVER_LIMIT)

    async def main() -> None:
        machine = Full()
        async with driving(machine) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b"full"
            writer.close()
            await until(lambda: machine.detached)
            assert machine.detached == {1: Reason.LINKS_OVER_LIMIT}

    run(main())


@pytest.mark.req("O6")
def test_peers_do_not_get_the_last_descriptors_of_a_process(run: Any) -> None:
    async def main() -> None:
        machine = Echo()
        heard: list[Any] = []
        async with driving(machine, heard=lambda name, note: heard.append(note)) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"1")
            assert await reader.readexactly(1) == b"1"
            room, driver.network.links.peers_max = driver.network.links.peers_max, 0
            turned_away, other = await asyncio.open_connection(*address)
            with suppress(ConnectionResetError):
                assert await turned_away.read() == b""
            await until(lambda: heard)
            assert heard[0].reason is Reason.LINKS_OVER_LIMIT
            assert "ulimit -n" in heard[0].detail
            other.close()
            writer.write(b"2")
            assert await reader.readexactly(1) == b"2"
            driver.network.links.peers_max = room
            late_reader, late_writer = await asyncio.open_connection(*address)
            late_writer.write(b"3")
            assert await late_reader.readexactly(1) == b"3"
            assert list(machine.peers) == [1, 2]
            writer.close()
            late_writer.close()

    run(main())


@pytest.mark.req("O6")
def test_a_link_that_only_waits_for_its_peer_to_hear_the_end_gives_its_descriptor_to_a_newcomer(run: Any) -> None:
    async def main() -> None:
        machine = Echo()
        async with driving(machine) as (driver, address):
            _, ended = await asyncio.open_connection(*address)
            await until(lambda: 1 in machine.peers)
            driver.tell("m", hang_up(1))
            room, driver.network.links.peers_max = driver.network.links.peers_max, 0
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await until(lambda: machine.detached == {1: Reason.GOODBYE})
            driver.network.links.peers_max = room
            ended.close()
            writer.close()

    run(main())


@pytest.mark.req("N15")
def test_a_reader_that_never_reads_presses_its_own_link_only(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            lazy = socket.create_connection(address)
            await until(lambda: 1 in machine.peers)
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: 2 in machine.peers)
            chunk = bytes(PRESS_BYTES)
            for _ in range(64):
                if machine.pressed:
                    break
                driver.tell("m", write(1, chunk))
                await asyncio.sleep(0)
            assert machine.pressed == [(1, True)]
            driver.tell("m", write(2, b"unharmed"))
            assert await reader.readexactly(8) == b"unharmed"
            lazy.setblocking(False)
            while machine.pressed == [(1, True)]:
                await asyncio.get_running_loop().sock_recv(lazy, 1 << 20)
            assert machine.pressed == [(1, True), (1, False)]
            lazy.close()
            writer.close()

    run(main())


@pytest.mark.req("N15")
def test_a_held_link_is_not_read_until_it_is_let_go(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            _, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            for held in (True, True):  # saying it twice does no harm
                driver.tell("m", lambda m, held=held: m.outbox.holds.append((1, held)))
            writer.write(bytes(4 << 20))
            await asyncio.sleep(0.05)
            assert len(machine.received[1]) == 0
            driver.tell("m", lambda m: m.outbox.holds.append((1, False)))
            await until(lambda: len(machine.received[1]) == 4 << 20)
            driver.tell("m", lambda m: m.outbox.holds.append((99, True)))  # a link that is long gone
            writer.close()

    run(main())


def test_a_held_link_can_be_hung_up(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            driver.tell("m", lambda m: m.outbox.holds.append((1, True)))
            writer.write(b"unread")
            driver.tell("m", write(1, b"bye"))
            driver.tell("m", hang_up(1, Reason.STOPPING))
            assert await reader.read() == b"bye"
            writer.close()
            await until(lambda: machine.detached)
            assert machine.detached == {1: Reason.STOPPING}

    run(main())


def test_writes_to_a_link_that_is_gone_are_dropped(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            driver.tell("m", hang_up(1))
            driver.tell("m", write(1, b"late"))
            driver.tell("m", hang_up(1, Reason.SILENT))
            assert await reader.read() == b""
            writer.close()
            await until(lambda: machine.detached)
            driver.tell("m", write(1, b"later"))
            assert driver.failure is None

    run(main())
