"""Live datagrams: sockets and groups on loopback, and what happens to what cannot be sent."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from benchmarks.ports import free_port
from heliograph.errors import Reason
from heliograph.live.datagrams import READS_PER_TURN, WAITING_MAX
from heliograph.live.lone import MACHINE, run_alone, running
from heliograph.machine import Socket, SocketOpened
from heliograph.notes import DatagramsUnsent, Note, SocketRefused
from tests.live.machines import LOOPS, Recorder, until

pytestmark = [pytest.mark.live, pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])]

GROUP = "239.255.71.99"
UDP = Socket(name="udp")


class Mirror(Recorder):
    """Sends every datagram back by the socket that it came in on."""

    def receive_datagram(self, socket: str, source: tuple[str, int], data: bytes, now: int) -> None:
        super().receive_datagram(socket, source, data, now)
        self.outbox.datagrams.append((socket, source, data))


def send(driver: Any, name: str, to: tuple[str, int], *datagrams: bytes) -> None:
    driver.tell(MACHINE, lambda m: m.outbox.datagrams.extend((name, to, data) for data in datagrams))


@pytest.mark.req("N14")
def test_a_datagram_and_its_answer_travel_between_two_machines(run: Any) -> None:
    async def main() -> None:
        one, other = Recorder(), Mirror()
        async with running(one, [UDP]) as driver, running(other, [UDP]):
            send(driver, "udp", other.sockets["udp"], b"hello", b"")
            await until(lambda: len(one.datagrams) == 2)
        assert one.datagrams == [("udp", other.sockets["udp"], b"hello"), ("udp", other.sockets["udp"], b"")]
        assert [source for _, source, _ in other.datagrams] == [one.sockets["udp"]] * 2
        assert one.sockets["udp"][0] == "127.0.0.1"

    run(main())


def test_an_answer_leaves_by_the_socket_that_the_question_came_in_on(run: Any) -> None:
    async def main() -> None:
        one, other = Recorder(), Mirror()
        async with running(one, [UDP]) as driver, running(other, [Socket(name="a"), Socket(name="b")]):
            for name in ("a", "b"):
                send(driver, "udp", other.sockets[name], name.encode())
            await until(lambda: len(one.datagrams) == 2)
        assert sorted(one.datagrams) == sorted(("udp", other.sockets[name], name.encode()) for name in ("a", "b"))

    run(main())


@pytest.mark.req("N14")
def test_several_machines_on_one_port_hear_a_multicast_that_any_socket_sends(run: Any) -> None:
    async def main() -> None:
        port = free_port()
        group = Socket(name="lan", port=port, group=GROUP)
        members = [Mirror(), Mirror(), Mirror()]
        asker = Recorder()
        async with (
            running(members[0], [group]),
            running(members[1], [UDP, group]),
            running(members[2], [group]),
            running(asker, [UDP]) as driver,
        ):
            assert members[0].sockets == {"lan": (GROUP, port)}
            send(driver, "udp", (GROUP, port), b"anyone?")
            await until(lambda: len(asker.datagrams) == 3)
        for member in members:
            assert member.datagrams == [("lan", asker.sockets["udp"], b"anyone?")]

    run(main())


def test_another_group_on_the_same_port_is_not_heard(run: Any) -> None:
    async def main() -> None:
        port = free_port()
        one, other, asker = Recorder(), Recorder(), Recorder()
        async with (
            running(one, [Socket(name="lan", port=port, group=GROUP)]),
            running(other, [Socket(name="lan", port=port, group="239.255.71.98")]),
            running(asker, [UDP]) as driver,
        ):
            send(driver, "udp", ("239.255.71.98", port), b"for the other")
            send(driver, "udp", (GROUP, port), b"for the one")
            await until(lambda: one.datagrams and other.datagrams)
        assert [data for *_, data in one.datagrams] == [b"for the one"]
        assert [data for *_, data in other.datagrams] == [b"for the other"]

    run(main())


@pytest.mark.parametrize(
    "bad",
    [
        Socket(name="bad", group="239.255.71.99", interface="203.0.113.9"),  # no interface of this computer
        Socket(name="bad", group="10.1.2.3"),  # no group
        Socket(name="bad", group="nonsense"),
        Socket(name="bad", host="203.0.113.9"),
        Socket(name="bad", port=70_000),
    ],
    ids=lambda bad: f"{bad.group or bad.host}:{bad.port}",
)
def test_a_socket_that_cannot_be_had_is_a_warning_and_the_machine_goes_on(run: Any, bad: Socket) -> None:
    async def main() -> None:
        notes: list[Note] = []
        machine = Recorder()
        async with running(machine, [bad, UDP], heard=lambda _, note: notes.append(note)) as driver:
            send(driver, "bad", ("127.0.0.1", 9), b"x")
            assert driver.failure is None
        assert machine.problems["bad"]
        assert machine.sockets.keys() == {"udp"}
        refused, unsent = notes
        assert isinstance(refused, SocketRefused)
        assert refused.level == "warning"
        assert isinstance(unsent, DatagramsUnsent)
        assert unsent.reason is Reason.SOCKET_MISSING

    run(main())


def test_a_port_that_is_in_use_belongs_to_whoever_had_it_first(run: Any) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with running(first, [UDP]), running(second, [Socket(name="udp", port=first.sockets["udp"][1])]):
            pass
        assert "udp" in second.problems

    run(main())


@pytest.mark.parametrize(
    ("to", "data", "reason"),
    [
        (("127.0.0.1", 9), bytes(65_508), Reason.DATAGRAM_TOO_LARGE),
        (("203.0.113.9", 9), b"x", Reason.DATAGRAM_UNSENT),  # bound to loopback: nothing leaves this computer
        (("::1", 9), b"x", Reason.DATAGRAM_UNSENT),
        (("127.0.0.1", 70_000), b"x", Reason.DATAGRAM_UNSENT),
        (("127.0.0.1", -1), b"x", Reason.DATAGRAM_UNSENT),
        (("no such host", 9), b"x", Reason.DATAGRAM_UNSENT),
        (("", 9), b"x", Reason.DATAGRAM_UNSENT),
        (("a..b", 9), b"x", Reason.DATAGRAM_UNSENT),
        (("nul\0", 9), b"x", Reason.DATAGRAM_UNSENT),
    ],
)
def test_what_cannot_be_sent_is_noted_and_hurts_nobody(
    run: Any, to: tuple[str, int], data: bytes, reason: Reason
) -> None:
    async def main() -> None:
        notes: list[Note] = []
        machine = Recorder()
        async with running(machine, [UDP], heard=lambda _, note: notes.append(note)) as driver:
            send(driver, "udp", to, data)
            send(driver, "udp", machine.sockets["udp"], b"to itself")
            await until(lambda: machine.datagrams and notes)
            assert driver.failure is None
            assert driver.datagrams.unsent == 1
        assert [note.reason for note in notes if isinstance(note, DatagramsUnsent)] == [reason]

    run(main())


def test_a_flood_of_failures_is_counted_in_full_and_noted_once_a_second(run: Any) -> None:
    async def main() -> None:
        notes: list[Note] = []
        async with running(Recorder(), [UDP], heard=lambda _, note: notes.append(note)) as driver:
            send(driver, "udp", ("203.0.113.9", 9), *[b"x"] * 500)
            assert driver.datagrams.unsent == 500
        assert len(notes) < 5

    run(main())


def test_nobody_at_the_other_end_is_no_reason_to_stop_hearing(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with running(machine, [UDP]) as driver:
            for _ in range(3):
                send(driver, "udp", ("127.0.0.1", free_port()), b"x")
                await asyncio.sleep(0.01)
            send(driver, "udp", machine.sockets["udp"], b"to itself")
            await until(lambda: machine.datagrams)

    run(main())


def test_host_names_are_looked_up_beside_the_loop(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with running(machine, [UDP]) as driver:
            port = machine.sockets["udp"][1]
            send(driver, "udp", ("localhost", port), b"one", b"two")
            assert machine.datagrams == []
            await until(lambda: len(machine.datagrams) == 2)
            send(driver, "udp", ("localhost", port), *[b"more"] * (WAITING_MAX * 2))  # known by now: none waits
            await until(lambda: len(machine.datagrams) == 2 + WAITING_MAX * 2)
            assert driver.datagrams.unsent == 0

    run(main())


def test_one_turn_reads_several_datagrams_and_no_more_than_its_share(run: Any) -> None:
    async def main() -> None:
        turns: list[int] = []
        machine = Recorder()

        def carried(_: str) -> None:
            turns.append(len(machine.datagrams))

        count = 3 * READS_PER_TURN
        async with running(machine, [UDP], carried=carried) as driver:
            turns.clear()
            send(driver, "udp", machine.sockets["udp"], *[b"%d" % number for number in range(count)])
            await until(lambda: len(machine.datagrams) == count)
        shares = [after - before for before, after in zip([0, *turns], turns, strict=False)]
        assert max(shares) <= READS_PER_TURN
        assert len([share for share in shares if share]) < count

    run(main())


class Asker(Recorder):
    """Asks as soon as it has a socket, and stops when it is answered."""

    def __init__(self, whom: tuple[str, int]) -> None:
        super().__init__()
        self.whom = whom

    def tell(self, command: Any, now: int) -> None:
        super().tell(command, now)
        if isinstance(command, SocketOpened):
            self.outbox.datagrams.append((command.name, self.whom, b"?"))

    def receive_datagram(self, socket: str, source: tuple[str, int], data: bytes, now: int) -> None:
        super().receive_datagram(socket, source, data, now)
        self.outbox.stop = True


def test_a_lone_machine_runs_until_it_says_stop(run: Any) -> None:
    async def main() -> None:
        other = Mirror()
        async with running(other, [UDP]):
            asker = Asker(other.sockets["udp"])
            await asyncio.wait_for(run_alone(asker, [UDP]), 10)
        assert [data for *_, data in asker.datagrams] == [b"?"]

    run(main())


def test_what_a_lone_machine_crashes_with_is_raised_to_its_owner(run: Any, capsys: Any) -> None:
    class Fragile(Asker):
        def receive_datagram(self, *_: Any) -> None:
            raise AssertionError("our own fault")

    async def main() -> None:
        other = Mirror()
        async with running(other, [UDP]):
            with pytest.raises(AssertionError, match="our own fault"):
                await asyncio.wait_for(run_alone(Fragile(other.sockets["udp"]), [UDP]), 10)

    run(main())


def test_a_cancelled_lone_machine_leaves_no_socket_open(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        task = asyncio.create_task(run_alone(machine, [UDP]))
        await until(lambda: machine.sockets)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(machine.sockets["udp"])

    run(main())
