"""The loop: what is due comes in order, and running stops where it is told to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.sim.clock import EPOCH_NS, WallClock
from heliograph.sim.loop import SECOND, Loop


@given(st.lists(st.integers(0, 50)))
def test_calls_come_in_order_of_their_instants_and_equal_ones_in_the_order_asked_for(instants: list[int]) -> None:
    loop, seen = Loop(), []
    for number, instant in enumerate(instants):
        loop.at(instant, lambda subject, at: seen.append((at, subject)), number)

    loop.run(50)

    assert seen == sorted((instant, number) for number, instant in enumerate(instants))


def test_running_includes_its_last_instant_and_what_that_instant_still_asks_for() -> None:
    loop, seen = Loop(), []
    loop.at(10, lambda _, at: loop.at(at, lambda _, at: seen.append(at), None), None)
    loop.at(11, lambda _, at: seen.append(at), None)

    loop.run(10)

    assert seen == [10]
    assert loop.now == 10
    loop.run(20)
    assert seen == [10, 11]
    assert loop.now == 20


def test_a_wall_clock_is_off_by_its_offset_drift_and_steps() -> None:
    clock = WallClock(offset_ns=5, drift_ppm=-100)

    assert clock.wall_ns(0) == EPOCH_NS + 5
    assert clock.wall_ns(10 * SECOND) == EPOCH_NS + 5 + 10 * SECOND - 1_000_000
    clock.step(-SECOND)
    assert clock.wall_ns(0) == EPOCH_NS + 5 - SECOND
