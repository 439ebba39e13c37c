"""Similarity: blocks are what covering connects, and the paper's example gives its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching.boxes.box import covers
from heliograph.matching.similarity import blocks, similarity, similarity_of
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.matching.box_oracle import boxes

pytestmark = pytest.mark.req("R11")


def at_least(name: str, value: int) -> Conjunction:
    return (Predicate(name, Op.AT_LEAST, value),)


def test_the_papers_example() -> None:
    assert round(similarity([4, 5, 4, 3, 4, 7], 30), 4) == 0.3815
    assert similarity([1, 1, 1], 3) == 0.0, "isolated requests count only in n"


def test_requests_with_the_papers_blocks_have_its_similarity() -> None:
    requests = [at_least(f"x{block}", n) for block, size in enumerate((4, 5, 4, 3, 4, 7)) for n in range(size)]
    requests += [at_least(f"alone{n}", 0) for n in range(3)]
    assert len(requests) == 30
    assert round(similarity_of(requests), 4) == 0.3815


def test_equal_requests_cover_each_other() -> None:
    assert blocks([at_least("x", 1), at_least("y", 1), at_least("x", 1)]) == [[0, 2]]
    assert similarity_of([]) == 0.0


@given(st.lists(boxes, max_size=12))
def test_blocks_are_what_brute_force_finds(requests: list[Conjunction]) -> None:
    label = list(range(len(requests)))
    for _ in requests:
        for one, wide in enumerate(requests):
            for other, narrow in enumerate(requests):
                if covers(wide, narrow):
                    label[one] = label[other] = min(label[one], label[other])
    expected = [[n for n, of in enumerate(label) if of == each] for each in sorted(set(label))]
    assert blocks(requests) == [block for block in expected if len(block) > 1]
