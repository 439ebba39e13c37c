"""How far a durable name has acknowledged, against a set of numbers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.stores.names import NameState, Span, acknowledged

pytestmark = pytest.mark.req("N10")

Ack = tuple[int, list[Span]]
SPANS = st.tuples(st.integers(0, 20), st.integers(0, 20))


@example([(3, [(3, 5)])])  # a span that begins where everything is acknowledged
@example([(0, [(4, 6), (2, 4)]), (2, [])])
@given(st.lists(st.tuples(st.integers(0, 20), st.lists(SPANS, max_size=4)), max_size=6))
def test_spans_are_the_acknowledged_positions_joined_as_far_as_they_touch(acks: list[Ack]) -> None:
    state, done = NameState("a", 0), set[int]()
    for before, also in acks:
        state = acknowledged(state, before, also, used_ns=1)
        done |= set(range(before)) | {position for first, end in also for position in range(first, end)}
    first_missing = next(position for position in range(100) if position not in done)
    assert state.before == first_missing
    assert {position for first, end in state.also for position in range(first, end)} == done - set(range(first_missing))
    ends = [first_missing, *(edge for span in state.also for edge in span)]
    assert ends == sorted(set(ends)), "spans are in order, not empty, and none begins where another ends"
