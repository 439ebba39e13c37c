"""Slots are shared out so that those who know the same never take the same one; news about ourselves is paced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.routing.pace import WAIT_NS, WAIT_NS_MAX, Pace
from heliograph.broker.routing.slots import shared_out
from heliograph.wire.broker_bodies import MEMBERS_MAX, Member

pytestmark = pytest.mark.req("N4")


def members(claims: list[tuple[int, int]]) -> list[Member]:
    return [Member(n + 1, f"b{n}", "c", slot, 0, life, 1, {}) for n, (slot, life) in enumerate(claims)]


@given(st.lists(st.tuples(st.integers(0, MEMBERS_MAX - 1), st.integers(1, 3)), min_size=1, max_size=100))
def test_slots_are_given_once_and_all_of_them_before_anybody_goes_without(claims: list[tuple[int, int]]) -> None:
    cluster = members(claims)
    slots = shared_out(cluster)
    given_out = [slot for slot in slots.values() if slot is not None]
    assert len(given_out) == len(set(given_out)) == min(len(cluster), MEMBERS_MAX)
    assert slots == shared_out(cluster[::-1]), "whatever the order in which they became known"
    oldest = min(cluster, key=lambda member: (member.incarnation, member.broker))
    assert slots[oldest.broker] == oldest.slot


def test_the_first_news_goes_at_once_and_the_more_there_is_the_longer_it_waits() -> None:
    pace = Pace()
    now, waits = 1_000, []
    for _ in range(6):
        pace.told(now)
        waits.append(pace.next_at - now)
        now = pace.next_at
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (WAIT_NS, WAIT_NS_MAX)
    now += 2 * WAIT_NS_MAX
    pace.told(now)
    assert pace.next_at == now + WAIT_NS, "after a quiet time as at the beginning"
