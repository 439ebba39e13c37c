"""Freshness: a statement counts once, whatever clocks do and however many come."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.trust.freshness import ID_BYTES, Freshness
from tests.trust.parties import outcome, refused

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
WINDOW = 10 * SECOND
HOUR = 3_600 * SECOND
ALICE, BOB = b"a" * 32, b"b" * 32


def id_of(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


@pytest.mark.req("B17")
def test_a_statement_counts_once() -> None:
    fresh = Freshness(WINDOW)
    fresh.accept(ALICE, id_of(1), NOW, NOW)
    assert refused(fresh.accept, ALICE, id_of(1), NOW, NOW) is Reason.REPLAYED
    assert refused(fresh.accept, ALICE, id_of(1), NOW, NOW + WINDOW) is Reason.REPLAYED
    assert refused(fresh.accept, ALICE, id_of(1), NOW, NOW + WINDOW + 1) is Reason.STALE
    assert refused(fresh.accept, ALICE, id_of(1), NOW + 1, NOW) is Reason.REPLAYED  # signed anew with the same id


@pytest.mark.req("B17")
@pytest.mark.parametrize("off", [-WINDOW - 1, WINDOW + 1, -HOUR, HOUR, -(10**30), 10**4_000])
def test_a_statement_from_outside_the_window_is_stale(off: int) -> None:
    fresh = Freshness(WINDOW)
    assert refused(fresh.accept, ALICE, id_of(1), NOW + off, NOW) is Reason.STALE
    assert len(fresh) == 0


@pytest.mark.parametrize("off", [-WINDOW, 0, WINDOW])
def test_clocks_may_differ_by_the_window(off: int) -> None:
    fresh = Freshness(WINDOW)
    fresh.accept(ALICE, id_of(1), NOW + off, NOW)
    assert len(fresh) == 1


def test_nobody_uses_up_the_ids_of_another() -> None:
    fresh = Freshness(WINDOW)
    fresh.accept(ALICE, id_of(1), NOW, NOW)
    fresh.accept(BOB, id_of(1), NOW, NOW)


@pytest.mark.parametrize("id", [b"", b"short", bytes(ID_BYTES + 1)])
def test_an_id_is_a_uuid(id: bytes) -> None:
    assert refused(Freshness(WINDOW).accept, ALICE, id, NOW, NOW) is Reason.BODY_MALFORMED


def test_a_clock_that_steps_forth_and_back_lets_nothing_in_twice() -> None:
    fresh = Freshness(WINDOW)
    fresh.accept(ALICE, id_of(1), NOW, NOW)
    fresh.accept(ALICE, id_of(2), NOW + HOUR, NOW + HOUR)
    assert refused(fresh.accept, ALICE, id_of(1), NOW, NOW) is Reason.REPLAYED
    fresh.accept(ALICE, id_of(3), NOW + 1, NOW + 1)  # and what is new is taken after the step back
    assert refused(fresh.accept, ALICE, id_of(2), NOW + HOUR, NOW + HOUR) is Reason.REPLAYED


def test_a_flood_makes_the_window_shorter_and_lets_nothing_in_twice() -> None:
    fresh = Freshness(WINDOW, ids_max=3)
    for number in range(5):
        fresh.accept(ALICE, id_of(number), NOW + number, NOW)
    assert len(fresh) == 3
    assert refused(fresh.accept, ALICE, id_of(0), NOW, NOW) is Reason.STALE
    assert refused(fresh.accept, ALICE, id_of(1), NOW + 1, NOW) is Reason.STALE
    assert refused(fresh.accept, ALICE, id_of(2), NOW + 2, NOW) is Reason.REPLAYED
    fresh.accept(BOB, id_of(9), NOW + 2, NOW)  # newer than what was forgotten


@pytest.mark.req("O6")
def test_a_flood_of_one_signer_stamped_in_the_future_keeps_no_other_out() -> None:
    fresh = Freshness(WINDOW, ids_max=100)
    fresh.accept(ALICE, id_of(0), NOW, NOW)
    for number in range(1_000):
        fresh.accept(BOB, id_of(number), NOW + WINDOW - 1_000 + number, NOW)
    assert len(fresh) == 100
    for number in range(1, 50):
        fresh.accept(ALICE, id_of(number), NOW - number, NOW)
    assert [refused(fresh.accept, ALICE, id_of(number), NOW - number, NOW) for number in (0, 49)] == (
        [Reason.REPLAYED] * 2
    )
    assert refused(fresh.accept, BOB, id_of(7), NOW, NOW) is Reason.STALE


@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.sampled_from("abcdefg"), st.integers(0, 9), st.integers(-15, 15), st.integers(-40, 40)),
        max_size=60,
    ),
)
def test_no_statement_is_ever_accepted_twice(ids_max: int, arrivals: list[tuple[str, int, int, int]]) -> None:
    """A statement is an id with its timestamp; it may come at any time, and clocks may go anywhere."""
    fresh = Freshness(10, ids_max)
    accepted: Counter[tuple[str, int, int]] = Counter()
    for signer, number, stamp, now in arrivals:
        reason = outcome(fresh.accept, signer.encode() * 32, id_of(number), stamp, now)
        assert reason in (None, Reason.STALE, Reason.REPLAYED)
        accepted[signer, number, stamp] += reason is None
    assert len(fresh) <= ids_max
    assert all(times <= 1 for times in accepted.values())
