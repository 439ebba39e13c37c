"""Soft state: entries stay while they are renewed, and the table stays bounded."""

from __future__ import annotations

import pytest

from heliograph.discovery.soft_state import SoftState


@pytest.mark.req("B2")
def test_an_entry_expires_unless_it_is_renewed() -> None:
    table: SoftState[tuple[str], int] = SoftState(10)
    table.keep(("a",), 1, 5)
    table.keep(("b",), 2, 5)
    table.keep(("a",), 1, 9)
    assert table.expire(5) == [2]
    assert table.values() == [1]
    assert table.expire(9) == [1]
    assert len(table) == 0


def test_an_entry_that_was_forgotten_and_kept_again_lives_its_own_time() -> None:
    table: SoftState[tuple[str], int] = SoftState(10)
    table.keep(("a",), 1, 5)
    table.forget(("a",))
    table.keep(("a",), 2, 9)
    assert table.expire(5) == []
    assert table.get(("a",)) == 2


def test_many_renewals_cost_no_memory_and_a_full_table_says_so() -> None:
    table: SoftState[tuple[str], int] = SoftState(1)
    for time in range(1_000):
        table.keep(("a",), time, time + 5)
    assert len(table._expiries) <= 4 * len(table) + 64
    assert table.is_full
    table.limit(2)
    assert not table.is_full
    assert table.expire(2_000) == [999]
