"""The driver's own work: pipes, alarms, jobs, dials, stopping, and what happens when a machine crashes."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

from heliograph.broker.broker import Broker
from heliograph.broker.commands import LoadSettings
from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.errors import ConfigError, Reason, UsageError
from heliograph.live.jobs import JOBS_MAX
from heliograph.live.loop import Driver
from heliograph.machine import Dial, Peer
from heliograph.node import Pipe
from heliograph.notes import Note, ReloadFailed, ServiceLost, WorkFailed
from heliograph.vault import Append, Read
from tests.conftest import Caught
from tests.live.machines import LOCAL, LOOPS, Echo, Fragile, Gate, Recorder, driving, until

pytestmark = [pytest.mark.live, pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])]


class Chatter(Recorder):
    """At a pipe: counts down with the machine at the other end."""

    def attach(self, link: int, peer: Peer, now: int) -> None:
        super().attach(link, peer, now)
        self.outbox.writes.append((link, [b"5", b"5"]))

    def receive(self, link: int, data: bytes, now: int) -> None:
        super().receive(link, data, now)
        if data != b"0":
            self.outbox.writes.append((link, [b"%d" % (int(data) - 1)]))


def test_a_pipe_keeps_the_order_of_what_two_machines_tell_each_other(run: Any) -> None:
    async def main() -> None:
        one, other = Chatter(), Chatter()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        assert one.peers == {1: Peer("pipe", "service")}
        assert other.peers == {2: Peer("pipe", "broker")}
        assert one.received == {1: b"554433221100"}
        assert other.received == {2: b"554433221100"}
        await driver.stop()

    run(main())


def test_what_failed_for_one_peer_is_logged_with_the_last_inputs_and_the_node_goes_on(run: Any) -> None:
    class Careful(Recorder):
        def attach(self, link: int, peer: Peer, now: int) -> None:
            self.outbox.note(WorkFailed("frame", "TypeError", link, "alice", 0, "somewhere"))

    async def main() -> None:
        heard: list[Note] = []
        driver = Driver(
            {"broker": Careful(), "service": Recorder()},
            [Pipe("broker", "service")],
            heard=lambda machine, note: heard.append(note),
        )
        driver.start()
        assert [note for note in heard if isinstance(note, WorkFailed) and "attach 1 0" in note.inputs]
        assert driver.failure is None
        await driver.stop()

    run(main())


def test_bytes_pass_a_pipe_by_reference(run: Any) -> None:
    class Keeper(Recorder):
        def receive(self, link: int, data: bytes, now: int) -> None:
            self.kept = data

    async def main() -> None:
        one, other = Recorder(), Keeper()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        frame = bytes(1000)
        driver.tell("broker", lambda m: m.outbox.writes.append((1, [frame])))
        assert other.kept is frame
        await driver.stop()

    run(main())


def test_what_a_shortcut_writes_to_a_pipe_is_received_at_once_and_not_with_the_next_input(run: Any) -> None:
    class Short(Recorder):
        def shortcut(self, link: int, data: bytes, now: int) -> tuple[int, bytes]:
            return 1, data

    async def main() -> None:
        one, other = Short(), Recorder()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        _, writer = await asyncio.open_connection(*await driver.listen("broker", LOCAL))
        writer.write(b"alone")
        await until(lambda: other.received[2] or driver.work)
        assert other.received == {2: b"alone"}
        writer.close()
        await driver.stop()

    run(main())


def holding(link: int, held: bool) -> Any:
    return lambda m: m.outbox.holds.append((link, held))


def writing(link: int, data: bytes) -> Any:
    return lambda m: m.outbox.writes.append((link, [data]))


@pytest.mark.req("N15")
@pytest.mark.parametrize("reader", ["broker", "service"])
def test_a_pipe_that_is_held_keeps_what_is_written_and_presses_the_writer_if_it_is_much(run: Any, reader: str) -> None:
    async def main() -> None:
        machines = {"broker": Recorder(), "service": Recorder()}
        writer = "service" if reader == "broker" else "broker"
        reads, writes = (1, 2) if reader == "broker" else (2, 1)
        driver = Driver(machines, [Pipe("broker", "service")])
        driver.start()
        driver.tell(reader, holding(reads, True))
        pieces = [bytes([number]) * (1 << 18) for number in range(6)]
        for piece in pieces[:4]:
            driver.tell(writer, writing(writes, piece))
        assert machines[reader].received == {reads: b""}
        assert machines[writer].pressed == []
        driver.tell(writer, writing(writes, pieces[4]))
        assert machines[writer].pressed == [(writes, True)]
        driver.tell(reader, holding(reads, False))
        driver.tell(writer, writing(writes, pieces[5]))
        assert machines[reader].received == {reads: b"".join(pieces)}
        assert machines[writer].pressed == [(writes, True), (writes, False)]
        await driver.stop()

    run(main())


def test_a_machine_that_holds_a_pipe_again_and_again_gets_everything_in_order(run: Any) -> None:
    class Sipper(Recorder):
        def receive(self, link: int, data: bytes, now: int) -> None:
            super().receive(link, data, now)
            self.outbox.holds.append((link, True))

    async def main() -> None:
        one, other = Recorder(), Sipper()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        for number in range(5):
            driver.tell("broker", writing(1, b"%d" % number))
            assert other.received == {2: b"0"}
        for number in range(1, 5):
            driver.tell("service", holding(2, False))
            assert other.received == {2: b"01234"[: number + 1]}
        await driver.stop()

    run(main())


def test_what_is_written_while_a_pipe_is_emptied_comes_after_what_waited(run: Any) -> None:
    class Answering(Recorder):
        def receive(self, link: int, data: bytes, now: int) -> None:
            super().receive(link, data, now)
            self.outbox.writes.append((link, [b"3"]))

    async def main() -> None:
        one, other = Answering(), Recorder()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        driver.tell("service", holding(2, True))
        for number in range(3):
            driver.tell("broker", writing(1, b"%d" % number))
        driver.tell("service", lambda m: (writing(2, b"go")(m), holding(2, False)(m)))
        assert other.received == {2: b"0123"}
        await driver.stop()

    run(main())


def test_what_waits_in_a_pipe_is_received_before_its_end_but_not_by_the_machine_that_ends_it(run: Any) -> None:
    async def main() -> None:
        for ends in ("broker", "service"):
            one, other = Recorder(), Recorder()
            driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
            driver.start()
            driver.tell("service", holding(2, True))
            driver.tell("broker", writing(1, b"last"))
            link = 1 if ends == "broker" else 2
            driver.tell(ends, lambda m, link=link: m.outbox.hang_up(link, Reason.STOPPING))
            assert other.received == {2: b"last" if ends == "broker" else b""}
            assert len(one.detached) == len(other.detached) == 1
            await driver.stop()

    run(main())


def test_machines_that_never_stop_talking_do_not_starve_the_loop(run: Any) -> None:
    async def main() -> None:
        one, other = Echo(), Echo()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        driver.tell("broker", lambda m: m.outbox.writes.append((1, [b""])))
        await asyncio.sleep(0.02)
        assert driver.failure is None
        await driver.stop()

    run(main())


def test_a_pipe_that_is_hung_up_ends_at_both_ends_after_what_was_written(run: Any) -> None:
    def leave(machine: Recorder) -> None:
        machine.outbox.writes.append((2, [b"last"]))
        machine.outbox.hang_up(2, Reason.GOODBYE)

    async def main() -> None:
        one, other = Recorder(), Recorder()
        driver = Driver({"broker": one, "service": other}, [Pipe("broker", "service")])
        driver.start()
        driver.tell("service", leave)
        driver.tell("broker", lambda m: m.outbox.writes.append((1, [b"too late"])))
        assert one.received == {1: b"last"}
        assert (one.detached, other.detached) == ({1: Reason.CLOSED}, {2: Reason.GOODBYE})
        await driver.stop()

    run(main())


def test_a_machine_is_told_the_wall_time_at_the_start(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        before = time.time_ns()
        async with driving(machine, None):
            assert before <= machine.walls[0] <= time.time_ns()

    run(main())


def test_an_alarm_rings_not_before_its_time_and_moves(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            wanted = time.monotonic_ns() + 30_000_000
            driver.tell("m", lambda m: setattr(m, "wake_at", wanted + 60_000_000_000))
            driver.tell("m", lambda m: setattr(m, "wake_at", wanted))  # earlier
            await until(lambda: machine.woken)
            assert machine.woken[0] >= wanted

            later = time.monotonic_ns() + 40_000_000
            driver.tell("m", lambda m: setattr(m, "wake_at", later - 30_000_000))
            driver.tell("m", lambda m: setattr(m, "wake_at", later))
            await until(lambda: len(machine.woken) == 2)
            assert machine.woken[1] >= later

            driver.tell("m", lambda m: setattr(m, "wake_at", 0))  # at once
            await until(lambda: len(machine.woken) == 3)

            driver.tell("m", lambda m: setattr(m, "wake_at", time.monotonic_ns() + 5_000_000))
            driver.tell("m", lambda m: setattr(m, "wake_at", None))
            await asyncio.sleep(0.02)
            assert len(machine.woken) == 3

    run(main())


def test_a_job_is_done_or_failed_by_its_ticket(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            driver.tell("m", lambda m: m.outbox.job(Gate(b"result")))
            await until(lambda: machine.results == [(1, b"result")])
            driver.tell("m", lambda m: m.outbox.job(Gate(ValueError("no"))))
            await until(lambda: machine.results[1:] == [(2, Reason.JOB_FAILED)])

    run(main())


def test_more_jobs_than_the_limit_fail_at_once_and_the_rest_are_done(run: Any) -> None:
    def ask(machine: Recorder) -> None:
        for _ in range(JOBS_MAX + 10):
            machine.outbox.job(Gate(True))

    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            driver.tell("m", ask)
            await until(lambda: len(machine.results) == JOBS_MAX + 10)
            results = dict(machine.results)
            assert [results[ticket] for ticket in range(1, JOBS_MAX + 1)] == [True] * JOBS_MAX
            assert {results[JOBS_MAX + extra] for extra in range(1, 11)} == {Reason.REQUESTS_OVER_LIMIT}

    run(main())


@pytest.mark.req("O5")
def test_settings_are_loaded_for_a_machine_that_asks_and_problems_are_noted(run: Any) -> None:
    answers: list[Any] = [BrokerConfig(name="anew"), ConfigError(["limits.links_max = 0: must be above 0"])]
    notes: list[Any] = []

    def load() -> BrokerConfig:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        machine = Recorder()
        settings = {"load_settings": load, "heard": lambda name, note: notes.append((name, note))}
        async with driving(machine, None, **settings) as (driver, _):
            for _ in range(2):
                driver.tell("m", lambda m: m.outbox.job(LoadSettings()))
                asked = len(machine.results) + 1
                await until(lambda asked=asked: len(machine.results) == asked)
        assert machine.results == [(1, BrokerConfig(name="anew")), (2, Reason.CONFIG_INVALID)]
        assert notes == [("m", ReloadFailed(["limits.links_max = 0: must be above 0"]))]

    run(main())


def test_a_node_without_settings_fails_a_reload(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            driver.tell("m", lambda m: m.outbox.job(LoadSettings()))
            await until(lambda: machine.results == [(1, Reason.CONFIG_INVALID)])

    run(main())


def test_without_a_vault_or_a_socket_the_machine_is_told_or_it_is_counted(run: Any) -> None:
    def ask(machine: Recorder) -> None:
        machine.outbox.commit([Append("log", b"record", 1, 0, 0)])
        machine.outbox.read(Read("log"))
        machine.outbox.datagrams.append(("udp", ("127.0.0.1", 9), b"x"))

    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            driver.tell("m", ask)
            assert machine.results == []
            await until(lambda: machine.results == [(1, Reason.VAULT_MISSING), (2, Reason.VAULT_MISSING)])
            assert driver.datagrams.unsent == 1

    run(main())


@pytest.mark.req("N14")
def test_a_dial_ends_in_an_attach_with_its_ticket(run: Any) -> None:
    async def main() -> None:
        machine, echo = Recorder(), Echo()
        async with driving(echo) as (_, address), driving(machine, None) as (driver, _):
            driver.tell("m", lambda m: m.outbox.dial(Dial(*address)))
            await until(lambda: machine.peers)
            assert machine.peers[1] == Peer("tcp", f"127.0.0.1:{address[1]}", ticket=1)
            driver.tell("m", lambda m: m.outbox.writes.append((1, [b"hel", b"lo"])))
            await until(lambda: machine.received == {1: b"hello"})
            assert machine.results == []

    run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "x" * 300, "bad host\x00"])
def test_a_dial_that_finds_nobody_fails_once(run: Any, host: str) -> None:
    async def main() -> None:
        machine = Recorder()
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
            port = closed.getsockname()[1]
            async with driving(machine, None) as (driver, _):
                driver.tell("m", lambda m: m.outbox.dial(Dial(host, port)))
                await until(lambda: machine.results)
                assert machine.results == [(1, Reason.DIAL_FAILED)]
                assert machine.peers == {}

    run(main())


def test_a_secure_dial_without_settings_for_tls_fails(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, None) as (driver, _):
            driver.tell("m", lambda m: m.outbox.dial(Dial("127.0.0.1", 1, secure=True)))
            await until(lambda: machine.results == [(1, Reason.TLS_FAILED)])

    run(main())


def test_notes_and_ends_of_work_are_heard_with_the_machines_name(run: Any) -> None:
    heard: list[Any] = []

    async def main() -> None:
        machine = Recorder()
        settings = {"heard": lambda *a: heard.append(a), "carried": lambda name: heard.append((name, "carried"))}
        async with driving(machine, None, **settings) as (driver, _):
            heard.clear()
            driver.tell("m", lambda m: m.outbox.note(ServiceLost("x")))
            assert heard == [("m", ServiceLost("x")), ("m", "carried")]

    run(main())


def test_a_command_given_while_effects_are_carried_out_comes_after_them(run: Any) -> None:
    async def main() -> None:
        machine, echo = Recorder(), Echo()
        told = []

        def carried(name: str) -> None:
            if machine.peers and not told:
                told.append(1)
                driver.tell("m", lambda m: m.outbox.writes.append((1, [b"second"])))

        async with driving(echo) as (_, address), driving(machine, None, carried=carried) as (driver, _):
            driver.tell("m", lambda m: m.outbox.dial(Dial(*address)))
            await until(lambda: machine.received.get(1) == b"second")

    run(main())


def test_a_command_that_makes_no_sense_is_raised_to_its_giver_only(run: Any) -> None:
    async def main() -> None:
        async with driving(Recorder(), None) as (driver, _):
            with pytest.raises(UsageError):
                driver.tell("m", None)
            assert driver.failure is None
            assert driver.report("m", "how are you") == "how are you"

    run(main())


def test_a_machine_that_has_finished_sets_stopped(run: Any) -> None:
    async def main() -> None:
        async with driving(Recorder(), None) as (driver, _):
            assert not driver.stopped.is_set()
            driver.tell("m", lambda m: setattr(m.outbox, "stop", True))
            assert driver.stopped.is_set()

    run(main())


def test_stopping_ends_links_and_listeners_and_flushes_what_was_written(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            idle = socket.create_connection(address)
            await until(lambda: len(machine.peers) == 2)
            driver.tell("m", lambda m: m.outbox.writes.append((1, [bytes(3 << 20), b"end"])))
            read = asyncio.create_task(reader.read())
            await driver.stop()
            assert (await read)[-3:] == b"end"
            assert machine.detached == {1: Reason.STOPPING, 2: Reason.STOPPING}
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            idle.close()
            writer.close()

    run(main())


def test_stopping_does_not_wait_for_ever_for_a_peer_that_reads_nothing(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine) as (driver, address):
            lazy = socket.create_connection(address)
            await until(lambda: machine.peers)
            driver.tell("m", lambda m: m.outbox.writes.append((1, [bytes(64 << 20)])))
            await asyncio.wait_for(driver.stop(), 60)
            assert machine.detached == {1: Reason.STOPPING}
            lazy.close()

    run(main())


@pytest.mark.req("O6")
def test_a_machine_that_crashes_ends_the_driver_with_its_last_inputs(run: Any) -> None:
    crashes: list[Any] = []

    async def main() -> None:
        machine = Fragile()
        async with driving(machine, crashed=lambda *a: crashes.append(a)) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"crash")
            await asyncio.wait_for(driver.stopped.wait(), 60)
            assert await reader.read() == b""
            assert isinstance(driver.failure, AssertionError)
            assert crashes == [("m", driver.failure)]
            assert list(driver.inputs)[-2:] == [("attach", 1, 0), ("receive", 1, 5)]
            driver.tell("m", lambda m: m.outbox.note(ServiceLost("x")))  # dropped: nobody talks to it any more
            assert machine.outbox.notes == []
            writer.close()

    run(main())


@pytest.mark.req("O6")
def test_a_shortcut_that_raises_costs_its_peer_the_link_and_nobody_elses(run: Any, caught: Caught) -> None:
    caught.expect()

    async def main() -> None:
        listener = ListenerConfig(name="main", host="127.0.0.1", port=0)
        broker: Any = Broker(BrokerConfig(listeners=(listener,)), seed=1, incarnation=1)

        def planted(link: int, data: bytes, now: int) -> None:
            assert data != b"poison", "planted"

        broker.shortcut = planted
        async with driving(broker, listener) as (driver, address):
            other, other_writer = await asyncio.open_connection(*address)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"poison")
            assert b"internal_error" in await asyncio.wait_for(reader.read(), 60)
            assert driver.failure is None
            assert not other.at_eof()
            writer.close()
            other_writer.close()

    run(main())
    assert len(caught.places) == 1


def test_a_crash_nobody_listens_for_is_told_on_standard_error(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with driving(Fragile()) as (driver, address):
            _, writer = await asyncio.open_connection(*address)
            writer.write(b"secret crash")
            await asyncio.wait_for(driver.stopped.wait(), 60)
            writer.close()

    run(main())
    told = capsys.readouterr().err
    assert "m crashed" in told
    assert "receive 1 12" in told
    assert "AssertionError" in told
    assert "secret" not in told


def test_a_crash_of_a_service_is_not_blamed_on_the_broker(run: Any) -> None:
    crashes: list[str] = []

    async def main() -> None:
        machines = {"broker": Recorder(), "service": Fragile()}
        driver = Driver(machines, [Pipe("broker", "service")], crashed=lambda name, _: crashes.append(name))
        driver.start()
        driver.tell("broker", lambda m: m.outbox.writes.append((1, [b"crash"])))
        assert crashes == ["service"]
        assert driver.stopped.is_set()
        await driver.stop()

    run(main())


@pytest.mark.req("O6")
def test_a_port_in_use_is_told_in_words(run: Any) -> None:
    async def main() -> None:
        async with driving(Recorder()) as (driver, address):
            with pytest.raises(
                OSError, match=rf"127\.0\.0\.1:{address[1]} is in use by another process; .* listener main"
            ):
                await driver.listen("m", ListenerConfig(port=address[1]))

    run(main())


def test_an_address_that_is_not_ours_is_told_in_words(run: Any) -> None:
    async def main() -> None:
        async with driving(Recorder(), None) as (driver, _):
            with pytest.raises(OSError, match="no address of this machine"):
                await driver.listen("m", ListenerConfig(host="192.0.2.1", port=0))
            with pytest.raises(OSError, match="no address of this machine"):
                await driver.listen("m", ListenerConfig(host="no-such-host.invalid", port=0))

    run(main())


def test_port_0_by_name_gives_one_port_that_is_reported(run: Any) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, ListenerConfig(host="localhost", port=0)) as (_, address):
            assert address[1] != 0
            _, writer = await asyncio.open_connection(*address)
            await until(lambda: machine.peers)
            writer.close()

    run(main())
    assert LOCAL.port == 0
