"""Network time as a service knows it: never wronger than it says."""

from __future__ import annotations

from heliograph.timekeeping.clock import Clock, Reference, Told
from heliograph.timekeeping.told_time import WALL_ERROR_NS, ToldTime

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


def test_until_the_broker_tells_its_time_the_wall_clock_counts_with_a_large_error() -> None:
    time = ToldTime()
    time.clock(WALL, 5 * SECOND)
    assert (time.time_ns(6 * SECOND), time.error_ns(6 * SECOND)) == (WALL + SECOND, WALL_ERROR_NS)
    time.hear("nonsense")
    time.hear(Clock().report(7 * SECOND))  # a broker that knows no time yet
    assert time.time_ns(6 * SECOND) == WALL + SECOND
    assert time.error_ns(6 * SECOND) == WALL_ERROR_NS


def test_the_error_of_a_told_time_covers_what_was_told_and_the_drift_since() -> None:
    clock, time = Clock(), ToldTime()
    clock.follow(Told(Reference(7, 1), WALL, 3_000, 0, 1), 2_000, SECOND)
    time.hear(clock.report(SECOND))
    for seconds in (1, 2, 60):
        now = seconds * SECOND
        assert time.time_ns(now) == clock.time_ns(now)
        assert time.error_ns(now) >= max(clock.error_ns(now), (now - SECOND) // 10_000)


def test_a_clock_that_is_no_longer_synchronised_has_a_large_error() -> None:
    clock, time = Clock(), ToldTime()
    clock.follow(Told(Reference(7, 1), WALL, 3_000, 0, 1), 2_000, SECOND)
    late = 20_000 * SECOND  # its error is above a second
    time.hear(clock.report(late))
    assert time.error_ns(late) == WALL_ERROR_NS
