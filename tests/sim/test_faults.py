"""Faults: each kind does what its name says, on the smallest machines; and only when and where it was planned."""

from __future__ import annotations

import pytest

from heliograph.errors import Reason
from heliograph.sim.faults import Faults
from heliograph.sim.loop import SECOND
from heliograph.sim.scenario import Fault
from heliograph.sim.tamper import without_frame
from heliograph.wire.frames import Kind, control, delivery, event
from tests.sim.machines import a_link, it, run, write


def strike(fault: Fault, seed: int = 1):
    world, left, right = a_link(seed)
    world.loop.now = 0
    return world, left, right, Faults(world, (fault,), 100)


@pytest.mark.req("O7")
def test_a_stall_delays_one_direction() -> None:
    world, left, right, faults = strike(Fault(kind="stall", target="left > right", at_s=1, for_s=2))
    world.run(2 * SECOND)
    write(world, left, b"late")
    write(world, right, b"prompt")
    world.run(29 * SECOND // 10)
    assert (it(right).chunks, it(left).chunks) == ([], [b"prompt"])
    world.run(4 * SECOND)

    assert it(right).chunks == [b"late"]
    assert faults.counts == [1]


@pytest.mark.req("O7")
def test_a_partition_heals() -> None:
    world, left, right, _ = strike(Fault(kind="partition", target="right > left", at_s=1, for_s=2))
    world.run(2 * SECOND)
    write(world, right, b"late")
    world.run(29 * SECOND // 10)
    assert not it(left).chunks
    world.run(4 * SECOND)
    assert it(left).chunks == [b"late"]
    assert world.journal.counts["healed"] == 1


def test_a_reset_ends_a_link_on_both_sides() -> None:
    world, left, right, _ = strike(Fault(kind="reset", at_s=1))
    world.run(2 * SECOND)

    assert [[reason for _, _, reason in it(host).of("detach")] for host in (left, right)] == [[Reason.RESET]] * 2


@pytest.mark.parametrize("kind", ["crash", "power_cut"])
def test_a_crashed_host_is_started_again(kind: str) -> None:
    world, left, right, _ = strike(Fault(kind=kind, target="left", at_s=1, for_s=2))
    world.run(2 * SECOND)
    assert not left.up
    assert bool(it(right).of("detach")) == (kind == "crash")
    world.run(4 * SECOND)
    assert left.up
    assert left.incarnation == 2


def test_a_pause_lasts_as_long_as_it_says() -> None:
    world, left, right, _ = strike(Fault(kind="pause", target="right", at_s=1, for_s=2))
    world.run(2 * SECOND)
    write(world, left, b"x")
    world.run(29 * SECOND // 10)
    assert not it(right).chunks
    world.run(4 * SECOND)
    assert it(right).chunks == [b"x"]


def test_a_slow_host_costs_more_for_a_while() -> None:
    world, left, _, _ = strike(Fault(kind="slow", target="left", at_s=1, for_s=2, factor=9))
    usual = left.service_ns
    world.run(2 * SECOND)
    assert left.service_ns == 10 * usual
    world.run(4 * SECOND)
    assert left.service_ns == usual


def test_a_clock_steps() -> None:
    world, left, right, _ = strike(Fault(kind="clock_step", target="left", at_s=1, step_ms=-5_000))
    world.run(2 * SECOND)

    assert it(left).walls[-1] < it(left).walls[0] - 3 * SECOND
    assert len(it(right).walls) == 1


def test_a_dropped_frame_disappears_and_nothing_else() -> None:
    world, left, right, _ = strike(Fault(kind="drop_frame", target="left > right", at_s=1))
    world.run(2 * SECOND)
    frames = [control(Kind.PING, 1), event(b"a", b"one", 1, 1), event(b"a", b"two", 1, 2)]
    write(world, left, *frames)
    write(world, left, *frames)
    run(world, 1)

    assert b"".join(it(right).chunks) == frames[0] + frames[2] + b"".join(frames)
    assert world.network.frames_lost == 1


def test_only_publications_and_deliveries_are_dropped() -> None:
    ping, publication = control(Kind.PING, 1), event(b"topic", b"payload", 1, 1)
    whole = delivery(b"\1\0\0\0", len(publication), 0) + publication

    assert without_frame(ping + whole + ping) == ping + ping
    assert without_frame(ping) == ping
    assert without_frame(publication[:-1]) == publication[:-1]
    assert without_frame(b"") == b""


def test_a_fault_strikes_as_often_as_planned_and_not_after_the_end() -> None:
    plan = Fault(kind="clock_step", target="left", at_s=1, every_s=2, times=100, step_ms=1)
    world, _, _ = a_link()
    world.loop.now = 0
    faults = Faults(world, (plan,), 10)
    world.run(60 * SECOND)

    assert faults.counts == [5]


def test_probability_is_drawn_from_the_seed() -> None:
    plan = Fault(kind="clock_step", target="left", at_s=0, every_s=0.01, times=1_000, step_ms=1, probability=0.3)
    counts = []
    for seed in (1, 1, 2):
        world, _, _ = a_link(seed)
        faults = Faults(world, (plan,), 100)
        world.run(20 * SECOND)
        counts += faults.counts

    assert counts[0] == counts[1] != counts[2]
    assert 200 < counts[0] < 400


def test_a_fault_that_finds_no_target_does_not_count() -> None:
    world, _, _ = a_link()
    faults = Faults(world, (Fault(kind="crash", target="nobody"), Fault(kind="stall", target="nobody > left")), 100)
    world.run(SECOND)

    assert faults.counts == [0, 0]
