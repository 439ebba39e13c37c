"""Which incarnations are believed, and how a broker outbids what others state about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.machine import Timers
from heliograph.timekeeping.incarnations import (
    AHEAD_MS_MAX,
    CONTESTED_NS,
    EARLIEST_MS,
    RENEW_NS,
    WAIT_MS_MAX,
    WAITING_MAX,
    Incarnations,
    Outbidding,
)

pytestmark = pytest.mark.req("N4", "N18")
MS = 1_000_000
WALL_MS = EARLIEST_MS + 10_000_000
Asked = list[tuple[int, list[str]]]


def an_instance(wall_ms: int | None = WALL_MS, now: int = 0) -> tuple[Incarnations[str], Timers, Asked]:
    timers = Timers()
    asked: Asked = []
    incarnations: Incarnations[str] = Incarnations(timers, lambda who, items, now: asked.append((who, items)))
    if wall_ms is not None:
        incarnations.clock(wall_ms * MS, now)
    return incarnations, timers, asked


@given(st.integers(0, 2 * EARLIEST_MS), st.integers(0, 10**18), st.integers(MS, 10**15))
def test_whatever_is_believed_can_be_outbid_a_millisecond_later(wall_ms: int, now: int, later: int) -> None:
    """Also by a clock that is not set, and after any time."""
    incarnations, _, _ = an_instance(wall_ms, now)
    highest = incarnations.highest(now)
    assert not incarnations.refuses(highest, 1, "x", now)
    assert incarnations.refuses(highest + 1, 1, "x", now)
    assert not incarnations.refuses(highest + later // MS, 1, "x", now + later)


@pytest.mark.parametrize("wall_ms", [None, 0, EARLIEST_MS - 1, EARLIEST_MS, WALL_MS])
def test_a_broker_whose_clock_is_not_set_believes_those_whose_clocks_are(wall_ms: int | None) -> None:
    incarnations, _, _ = an_instance(wall_ms)
    years_ms = 365 * 86_400_000
    assert not incarnations.refuses(EARLIEST_MS + 5 * years_ms, 1, "x", 0)
    assert incarnations.refuses(EARLIEST_MS + 11 * years_ms, 1, "x", 0)


def test_what_is_a_little_ahead_is_asked_for_once_it_can_be_believed_and_the_rest_never() -> None:
    incarnations, timers, asked = an_instance()
    highest = incarnations.highest(0)
    for item, beyond in (("late", 500), ("soon", 20), ("day", WAIT_MS_MAX), ("never", WAIT_MS_MAX + 1)):
        assert incarnations.refuses(highest + beyond, 7, item, 0)
    for at_ms in (19, 20, 499, 500, WAIT_MS_MAX - 1, WAIT_MS_MAX, 10 * WAIT_MS_MAX):
        timers.run(at_ms * MS)
    assert asked == [(7, ["soon"]), (7, ["late"]), (7, ["day"])]
    assert timers.next() is None


def test_a_clock_that_is_set_back_delays_the_question() -> None:
    incarnations, timers, asked = an_instance()
    assert incarnations.refuses(incarnations.highest(0) + 10, 7, "x", 0)
    incarnations.clock((WALL_MS - 1_000) * MS, 0)
    timers.run(10 * MS)
    assert asked == []
    timers.run(1_010 * MS)
    assert asked == [(7, ["x"])]


def test_one_neighbour_fills_its_own_room_and_what_is_gone_is_forgotten() -> None:
    incarnations, timers, asked = an_instance()
    ahead = incarnations.highest(0) + 5
    for number in range(WAITING_MAX + 10):
        assert incarnations.refuses(ahead, 1, f"lie {number}", 0)
    assert incarnations.refuses(ahead, 2, "truth", 0)
    assert incarnations.refuses(ahead, 3, "gone", 0)
    incarnations.forget(3)
    timers.run(5 * MS)
    assert [(who, len(items)) for who, items in asked] == [(1, WAITING_MAX), (2, 1)]


def test_a_broker_raises_its_incarnation_at_once_then_once_a_second_and_says_when_it_has_to_again() -> None:
    timers = Timers()
    raised: list[tuple[int, bool]] = []
    outbidding = Outbidding(timers, lambda newest, again, now: raised.append((newest, again)))
    outbidding.hear((5, 1), (5, 1), 0)
    assert raised == []
    for newest in (6, 9, 8):
        outbidding.hear((newest, 0), (5, 1), 10)
    assert raised == [(6, False)]
    timers.run(10 + RENEW_NS)
    assert raised == [(6, False), (9, True)]
    outbidding.hear((20, 0), (10, 1), 10 + RENEW_NS + CONTESTED_NS)
    assert raised[2:] == [(20, False)]
    assert AHEAD_MS_MAX > WAIT_MS_MAX
