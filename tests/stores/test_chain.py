"""One chain: what waits in it is in order, and costs what it is."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.stores.chain import EARLY_MAX, Chain, Verdict

pytestmark = pytest.mark.req("N11", "O6")


def a_chain(early: int = 0) -> Chain:
    """A chain with so many publications that wait for what does not come."""
    chain = Chain()
    chain.read(None)
    for number in range(early):
        assert chain.offer(10_000_001 + 2 * number, 10_000_000 + 2 * number, b"e", []) is Verdict.EARLY
    return chain


def cost(chain: Chain, count: int) -> float:
    """The seconds that the next ones of a chain need."""
    begin = process_time()
    for number in range(count):
        assert chain.offer(number + 1, number, b"n", []) is Verdict.TAKEN
        assert chain.missing in (0, 10_000_000)
    return process_time() - begin


def test_what_waits_in_a_chain_makes_the_next_ones_no_dearer() -> None:
    alone = min(cost(a_chain(), 300) for _ in range(3))
    among = min(cost(a_chain(EARLY_MAX), 300) for _ in range(3))
    assert among < 20 * alone + 0.002, f"{alone:.4f} s alone, {among:.4f} s among {EARLY_MAX} that wait"


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=60))
def test_a_chain_takes_what_follows_and_says_what_is_missing(offers: list[tuple[int, int]]) -> None:
    chain, waiting, at = a_chain(), dict[int, int](), 0
    for sequence, previous in offers:
        taken: list[tuple[int, bytes]] = []
        chain.offer(sequence, previous, b"x", taken)
        expected: list[int] = []
        if at < sequence and at < previous < sequence:
            waiting.setdefault(previous, sequence)
        elif at < sequence and previous in (0, at):
            at = sequence
            expected.append(at)
            while at in waiting:
                at = waiting.pop(at)
                expected.append(at)
            waiting = {before: number for before, number in waiting.items() if before > at}
        assert [number for number, _ in taken] == expected
        assert (chain.taken, chain.missing) == (at, min(waiting, default=0))
        assert chain.early_bytes == len(waiting)


def test_a_publication_that_names_a_later_one_as_its_predecessor_is_broken_and_nothing_goes_back() -> None:
    chain = a_chain()
    assert chain.offer(5, 10, b"x", []) is Verdict.BROKEN
    assert chain.offer(10, 0, b"x", []) is Verdict.TAKEN
    assert chain.taken == 10
