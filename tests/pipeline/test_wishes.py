"""Wishes: equal requests have equal keys, and blocks are what covering makes of them."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.matching.boxes.box import box, covers
from heliograph.matching.similarity import Forest
from heliograph.pipeline.wishes import NEVER, Coverers, Wish, from_key, key_of, maximal
from tests.matching.box_oracle import boxes

wishes = boxes.map(box).filter(lambda found: found is not None).map(lambda found: Wish(b"a/#", found, frozenset()))


def test_equal_requests_have_one_key() -> None:
    assert key_of("t", "predicates", "a > 1 and a > 2") == key_of("t", "predicates", "a > 2")
    assert key_of("t", "predicates", "a >= 2") == key_of("t", "predicates", "a >= 2.0")
    assert key_of("+/#", "", "") == key_of("#", "", "")
    assert key_of("t", "predicates", "a > 1") != key_of("u", "predicates", "a > 1")
    assert key_of("t", "predicates", "a > 1 and a < 0") == NEVER
    assert key_of("t", "predicates", "a >") is None


@given(wishes)
def test_a_key_says_all_of_a_wish(wish: Wish) -> None:
    assert from_key(wish.key).key == wish.key
    assert from_key(wish.key).box == wish.box


@given(st.lists(wishes, max_size=20))
def test_maximal_wishes_are_those_that_no_other_covers(found: list[Wish]) -> None:
    found = list({wish.key: wish for wish in found}.values())
    expected = [
        place
        for place, wish in enumerate(found)
        if not any(_covers(other, wish) for number, other in enumerate(found) if number != place)
    ]
    assert maximal(found) == expected


@given(wishes, wishes, st.integers(0, 2))
def test_only_a_wish_with_fewer_tokens_can_cover(wide: Wish, narrow: Wish, level: int) -> None:
    assume(_covers(wide, narrow))
    assert set(wide.tokens(level)) <= set(narrow.tokens(level))


def test_a_forest_joins_blocks() -> None:
    forest = Forest()
    for one, other in ((5, 7), (1, 2), (7, 2), (9, 9)):
        forest.join(one, other)
    assert {forest.find(number) for number in (1, 2, 5, 7)} == {1}
    assert sorted(forest.edges()) == [(2, 1), (5, 1), (7, 1)]


def _covers(wide: Wish, narrow: Wish) -> bool:
    kept = Coverers()
    kept.add(0, wide)
    return next(kept.covering(narrow), None) is not None


def test_the_oracle_agrees_with_the_brokers_covering() -> None:
    from heliograph.matching.languages import compile

    one, other = compile("predicates", "a > 1"), compile("predicates", "a > 2")
    assert covers(one.box, other.box)
    assert from_key(key_of("t", "predicates", "a > 1") or b"").filter == b"t"
