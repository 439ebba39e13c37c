"""Duplicate detection against a plain set of numbers."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.broker.routing.seen import NS_PER_MS, Origins, Seen


@pytest.mark.req("N6")
@given(st.lists(st.integers(0, 60), max_size=80))
@example([5, 4, 4])  # the last of a gap
@example([5, 0, 0])  # its first
@example([5, 2, 2, 1, 3, 1, 3])  # one within, then both halves
def test_a_number_is_new_once_whatever_comes_first(numbers: list[int]) -> None:
    seen = Seen(1, gaps_max=1_000)
    known: set[int] = set()
    for number in numbers:
        assert seen.admit(number) is (number not in known)
        known.add(number)
    assert seen.accepted == len(known)
    assert seen.accepted + seen.duplicates == len(numbers)


@pytest.mark.req("N6")
@given(st.lists(st.integers(0, 200), max_size=120), st.integers(1, 4))
def test_with_few_gaps_it_errs_toward_loss_and_never_toward_a_duplicate(numbers: list[int], gaps_max: int) -> None:
    seen = Seen(1, gaps_max=gaps_max)
    admitted = [number for number in numbers if seen.admit(number)]
    assert len(admitted) == len(set(admitted))
    assert len(seen.gaps) <= gaps_max
    assert seen.gaps == sorted(seen.gaps)
    missed = [n for n in set(numbers) if n not in admitted]
    assert not missed or seen.gaps_closed


def test_the_largest_numbers_work() -> None:
    seen = Seen(1, gaps_max=4)
    assert seen.admit((1 << 64) - 1)
    assert not seen.admit((1 << 64) - 1)
    assert seen.admit(0)
    assert seen.admit((1 << 64) - 2)


def test_an_origin_is_remembered_for_its_horizon_and_then_forgotten() -> None:
    origins = Origins(origins_max=10, horizon_ms=1_000, gaps_max=4)
    assert origins.use(7, now=0).admit(1)
    origins.rest(7, now=0)
    assert not origins.use(7, now=900 * NS_PER_MS).admit(1)
    origins.rest(7, now=900 * NS_PER_MS)
    origins.use(8, now=2_000 * NS_PER_MS)
    assert len(origins) == 1
    assert origins.use(7, now=2_000 * NS_PER_MS).admit(1)


def test_a_full_table_forgets_the_longest_idle_origin_and_says_so() -> None:
    origins = Origins(origins_max=2, horizon_ms=1_000, gaps_max=4)
    for origin in (1, 2):
        origins.use(origin, now=0)
        origins.rest(origin, now=origin)
    origins.use(3, now=5)
    assert len(origins) == 2
    assert origins.forgotten == 1
    assert [seen.origin for seen in origins] == [2, 3]


def test_what_was_counted_stays_counted_when_its_origin_is_forgotten() -> None:
    origins = Origins(origins_max=2, horizon_ms=1_000, gaps_max=4)
    told = []
    for origin in range(1, 6):
        for sequence in (1, 3, 2, 2):
            origins.use(origin, now=origin).admit(sequence)
        origins.rest(origin, now=origin)
        told.append(origins.counts())
    assert len(origins) == 2
    assert told == [(3 * count, count, count) for count in range(1, 6)]


def test_a_publisher_of_which_only_every_other_number_comes_here_costs_little_memory() -> None:
    seen = Seen(1, 1_024)
    for sequence in range(0, 10_000, 2):
        assert seen.admit(sequence)
    assert len(seen.gaps) == 1_024
    assert sys.getsizeof(seen._firsts) + sys.getsizeof(seen._lasts) < 24 * 1_024
