"""Hosts: turns, timers, jobs, pauses, crashes, clocks; and the contract, which the world checks as it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from heliograph.broker.commands import LoadSettings
from heliograph.errors import Reason
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.loop import SECOND
from heliograph.sim.world import HostSettings, MachineError, World
from heliograph.vault import Append, Read
from tests.sim.machines import CALM, STEADY, Recorder, a_link, add, dial, hang_up, it, run, tell, write


def a_host(hosts: HostSettings = STEADY) -> tuple[World, Any]:
    world = World(1, network=CALM, hosts=hosts)
    host = add(world, "only")
    run(world, 0.1)
    return world, host


# Time.


def test_a_machine_is_woken_when_it_asked_for_it() -> None:
    world, host = a_host()
    fired: list[int] = []
    tell(world, host, lambda machine, now: machine.timers.set("later", now + 3 * SECOND, fired.append))
    asked = it(host).nows[-1]
    run(world, 2.9)
    assert not fired
    run(world, 0.2)

    assert fired == [asked + 3 * SECOND + host.service_ns]
    assert len(it(host).of("wake")) == 1


def test_an_alarm_that_was_moved_or_cancelled_does_not_ring_at_its_old_instant() -> None:
    world, host = a_host()
    fired: list[int] = []
    tell(world, host, lambda machine, now: machine.timers.set("it", now + SECOND, fired.append))
    tell(world, host, lambda machine, now: machine.timers.set("it", now + 5 * SECOND, fired.append))
    run(world, 4)
    assert not fired
    tell(world, host, lambda machine, now: machine.timers.cancel("it"))
    run(world, 4)
    assert not fired


def test_time_never_goes_back_and_every_node_has_its_own() -> None:
    world, left, right = a_link()
    for _ in range(20):
        write(world, left, b"x")
        write(world, right, b"y")
        run(world, 0.01)

    for host in (left, right):
        assert it(host).nows == sorted(it(host).nows)
    assert left.shift != right.shift


def test_wall_clocks_are_told_at_the_start_regularly_and_when_they_step() -> None:
    world, host = a_host(HostSettings(clock_skew_ms=1_000))
    (first,) = it(host).walls
    assert abs(first - EPOCH_NS) <= 1.2 * SECOND
    run(world, 25)
    assert len(it(host).walls) == 3

    before = world.loop.now
    world.step_clock(host, -3_600 * SECOND)
    stepped = it(host).walls[-1]
    assert len(it(host).walls) == 4
    assert stepped < EPOCH_NS + before - 3_590 * SECOND


@pytest.mark.req("O7")
def test_how_many_inputs_precede_a_take_is_drawn_from_the_seed() -> None:
    takes: list[int] = []

    class Counting(Recorder):
        since = 0

        def receive(self, link: int, data: bytes, now: int) -> None:
            super().receive(link, data, now)
            self.since += 1

        def take(self) -> Any:
            takes.append(self.since)
            self.since = 0
            return super().take()

    world = World(3, network=CALM, hosts=HostSettings(inputs_per_take_max=5))
    right, left = add(world, "right", Counting, listens=True), add(world, "left")
    dial(world, left, "right")
    world.pause(right)
    for _ in range(60):
        write(world, left, b"x")
        run(world, 0.001)
    takes.clear()
    world.go_on(right)
    run(world, 1)

    assert sum(takes) == 60
    assert {1, 2, 3, 4, 5} <= set(takes)
    assert max(takes) == 5


def test_an_input_costs_its_host_the_service_time() -> None:
    world, left, right = a_link(hosts=HostSettings(service_us=1_000, inputs_per_take_max=1))
    for _ in range(10):
        write(world, left, b"x")
    run(world, 1)
    arrivals = [now for now, what in zip(it(right).nows, it(right).inputs, strict=True) if what[0] == "receive"]

    assert 500_000 <= right.service_ns <= 1_500_000
    assert all(later - earlier >= right.service_ns for earlier, later in pairwise(arrivals))


# Promises.


@dataclass
class Work:
    call: Callable[[], Any]

    def run(self) -> Any:
        return self.call()


def test_a_job_ends_in_done_or_failed_after_a_while() -> None:
    world, host = a_host(HostSettings(job_ms=50, inputs_per_take_max=1))
    tell(world, host, lambda machine, now: machine.outbox.job(Work(lambda: 42)))
    tell(world, host, lambda machine, now: machine.outbox.job(Work(lambda: 1 // 0)))
    run(world, 0.000_01)
    assert not it(host).of("done")
    run(world, 0.1)

    assert it(host).of("done") == [("done", 1, 42)]
    assert it(host).of("failed") == [("failed", 2, Reason.JOB_FAILED)]


def test_settings_are_loaded_from_the_host() -> None:
    world, host = a_host()
    host.settings = "as configured"
    tell(world, host, lambda machine, now: machine.outbox.job(LoadSettings()))
    run(world, 1)

    assert it(host).of("done") == [("done", 1, "as configured")]


def test_without_a_vault_or_a_socket_the_machine_is_told_or_it_is_counted() -> None:
    world, host = a_host()

    def ask(machine: Recorder, now: int) -> None:
        machine.outbox.commit([Append("log", b"record", 1, 0, 0)])
        machine.outbox.read(Read("log"))
        machine.outbox.datagrams.append(("main", ("there", 1), b"hello"))

    tell(world, host, ask)
    run(world, 1)

    assert it(host).of("failed") == [("failed", 1, Reason.VAULT_MISSING), ("failed", 2, Reason.VAULT_MISSING)]
    assert world.journal.counts["datagram_dropped"] == 1


# What happens to hosts.


def test_a_paused_host_handles_nothing_and_loses_nothing() -> None:
    world, left, right = a_link()
    world.pause(right)
    write(world, left, b"waits")
    run(world, 5)
    assert not it(right).of("receive")

    world.go_on(right)
    run(world, 0.1)
    assert it(right).chunks == [b"waits"]


def test_overlapping_pauses_end_with_the_last() -> None:
    world, left, right = a_link()
    world.pause(right)
    world.pause(right)
    write(world, left, b"waits")
    world.go_on(right)
    run(world, 1)
    assert not it(right).of("receive")
    world.go_on(right)
    run(world, 1)
    assert it(right).chunks == [b"waits"]


@pytest.mark.req("O7")
def test_a_crash_loses_a_suffix_of_what_was_in_flight_and_resets_the_peer() -> None:
    sizes = []
    for keep in (0.0, 0.5, 1.0):
        world, left, right = a_link()
        write(world, left, b"0123456789")
        run(world, 0.0005)
        world.crash(left, keep)
        run(world, 1)
        arrived = b"".join(it(right).chunks)
        assert b"0123456789".startswith(arrived)
        assert it(right).of("detach") == [("detach", it(right).link, Reason.RESET)]
        sizes.append(len(arrived))

    assert sizes == [0, 5, 10]


def test_a_restarted_host_has_new_machines_and_knows_no_old_link() -> None:
    world, left, right = a_link()
    old = it(left)
    world.crash(left)
    write(world, right, b"for the dead")
    run(world, 1)
    world.start(left)
    run(world, 1)

    assert left.incarnation == 2
    assert it(left) is not old
    assert not old.of("detach")
    assert [what[0] for what in it(left).inputs] == ["clock"]


def test_timers_and_jobs_of_a_crashed_host_do_not_reach_the_new_one() -> None:
    world, host = a_host(HostSettings(job_ms=2_000, inputs_per_take_max=1))
    tell(world, host, lambda machine, now: machine.outbox.job(Work(lambda: 42)))
    tell(world, host, lambda machine, now: machine.timers.set("it", now + SECOND, lambda _: None))
    run(world, 0.000_1)
    world.crash(host)
    world.start(host)
    run(world, 5)

    assert [what[0] for what in it(host).inputs] == ["clock"]


def test_after_a_power_cut_the_peer_hears_nothing_until_it_writes_to_the_host_that_is_back() -> None:
    world, left, right = a_link()
    world.crash(left, silent=True)
    write(world, right, b"anybody there?")
    run(world, 5)
    assert not it(right).of("detach")

    world.start(left)
    write(world, right, b"and now?")
    run(world, 1)
    assert it(right).of("detach") == [("detach", it(right).link, Reason.RESET)]


def test_a_machine_that_stops_ends_its_host_after_its_last_words() -> None:
    world, left, right = a_link()

    def stop(machine: Recorder, now: int) -> None:
        machine.outbox.writes.append((machine.link, [b"bye"]))
        machine.outbox.stop = True

    tell(world, left, stop)
    run(world, 1)

    assert not left.up
    assert it(right).chunks == [b"bye"]
    assert it(right).of("detach") == [("detach", it(right).link, Reason.CLOSED)]


# The contract.


def faulty(command: Callable[[Any, int], None]) -> str:
    world, left, _ = a_link()
    world.loop.at(world.loop.now, lambda _, __: tell(world, left, command), None)
    with pytest.raises(MachineError) as caught:
        run(world, 1)
    assert caught.value.host == "left"
    return str(caught.value)


def test_an_exception_of_a_machine_ends_the_run_with_its_host_and_step() -> None:
    assert "ZeroDivisionError" in faulty(lambda machine, now: 1 // 0)


def test_a_write_to_an_unknown_link_is_caught() -> None:
    assert "writes to link 99, which does not exist" in faulty(
        lambda machine, now: machine.outbox.writes.append((99, [b"x"]))
    )


def test_a_write_after_a_hangup_is_caught() -> None:
    world, left, _ = a_link()
    hang_up(world, left)
    world.loop.at(world.loop.now, lambda _, __: write(world, left, b"x"), None)
    with pytest.raises(MachineError, match="writes to link 1, which it hung up"):
        run(world, 0.000_2)


def test_a_write_after_detach_is_caught() -> None:
    world, left, right = a_link()
    hang_up(world, right)
    run(world, 1)
    assert it(left).of("detach")
    world.loop.at(world.loop.now, lambda _, __: write(world, left, b"x"), None)
    with pytest.raises(MachineError, match="writes to link 1, which does not exist"):
        run(world, 1)


def test_a_write_asked_for_before_a_detach_in_the_same_turn_is_no_fault() -> None:
    world, left, right = a_link(hosts=HostSettings(inputs_per_take_max=50))
    world.pause(left)
    for _ in range(20):
        write(world, left, b"x")
    hang_up(world, right)
    run(world, 1)
    world.go_on(left)
    run(world, 1)

    assert len(it(left).of("detach")) == 1


def test_a_second_hangup_is_caught() -> None:
    def twice(machine: Recorder, now: int) -> None:
        machine.outbox.hang_up(machine.link, Reason.GOODBYE)
        machine.outbox.hang_up(machine.link, Reason.GOODBYE)

    assert "hangs up link 1, which it hung up" in faulty(twice)


def test_a_ticket_used_twice_is_caught() -> None:
    def twice(machine: Recorder, now: int) -> None:
        machine.outbox.jobs += [(7, Work(int)), (7, Work(int))]

    assert "uses ticket 7 twice" in faulty(twice)


def test_a_machine_that_wants_to_be_woken_at_once_for_ever_is_caught() -> None:
    def spin(machine: Recorder, now: int) -> None:
        def again(now: int) -> None:
            machine.timers.set("spin", now, again)

        again(now)

    assert "again and again" in faulty(spin)
