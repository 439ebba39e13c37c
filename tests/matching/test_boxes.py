"""Conjunctions against the plain meaning of their predicates: matching, covering, intersection."""

from __future__ import annotations

import pytest
from hypothesis import example, given

from heliograph.errors import UsageError
from heliograph.matching.boxes.box import PREDICATES_MAX, box, covers, failed, intersects, matches, overlaps
from heliograph.matching.boxes.keys import FLOAT_MAX, NUMBER, after, after_prefix
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.examples import examples
from tests.matching.box_oracle import TWO_53, boxes, events, fits, holds, predicates, telling_values, texts


def where(text: str, value: object = 0) -> Conjunction:
    name, op = text.split()
    return (Predicate(name, Op(op), value),)  # type: ignore[arg-type]


Tried = dict[str, list[tuple[bool, bool]]]


def tried(one: Conjunction, other: Conjunction) -> Tried:
    """Per attribute, for each value that can tell the two apart: does the one take it, does the other."""
    near = telling_values(one, other)
    return {name: [(takes(one, name, value), takes(other, name, value)) for value in near[name]] for name in near}


def takes(conjunction: Conjunction, name: str, value: object) -> bool:
    return all(holds(predicate, value) for predicate in conjunction if predicate.attribute == name)


@pytest.mark.req("R1")
@examples(250)
@given(boxes, events)
def test_a_box_takes_the_events_that_fit_its_predicates(conjunction: Conjunction, event: dict[str, object]) -> None:
    assert matches(conjunction, event) == fits(conjunction, event)
    lost = failed(conjunction, event)
    assert (lost is None) == fits(conjunction, event)


@given(predicates)
def test_a_predicate_holds_for_the_values_around_its_constant_as_it_says(predicate: Predicate) -> None:
    for value in telling_values((predicate,))[predicate.attribute]:
        assert matches((predicate,), {predicate.attribute: value}) == holds(predicate, value), value


@pytest.mark.req("N9", "R3")
@examples(150)
@given(boxes, boxes)
def test_a_box_covers_another_exactly_if_no_event_fits_the_other_alone(one: Conjunction, other: Conjunction) -> None:
    pairs = tried(one, other)
    other_is_empty = any(not any(inside for _, inside in values) for values in pairs.values())
    alone = any(inside and not outside for values in pairs.values() for outside, inside in values)
    assert covers(one, other) == (other_is_empty or not alone)


@pytest.mark.slow
@pytest.mark.req("R1")
@examples(150)
@given(boxes, boxes)
def test_boxes_intersect_exactly_if_an_event_fits_both(one: Conjunction, other: Conjunction) -> None:
    pairs = tried(one, other)
    assert intersects(one, other) == all(any(first and second for first, second in values) for values in pairs.values())
    assert intersects(other, one) == intersects(one, other)


@pytest.mark.req("R1")
def test_integers_and_floats_compare_by_exact_value() -> None:
    assert matches(where("n >", 2.0**53), {"n": TWO_53 + 1})
    assert not matches(where("n =", 2.0**53), {"n": TWO_53 + 1})
    assert matches(where("n =", TWO_53), {"n": 2.0**53})
    assert covers(where("n >=", TWO_53 + 1), where("n >", 2.0**53))
    assert covers(where("n >", 2.0**53), where("n >=", TWO_53 + 1))
    assert after(NUMBER, TWO_53) == TWO_53 + 1
    assert after(NUMBER, 2**63 - 1) == 2.0**63
    assert after(NUMBER, FLOAT_MAX) is None


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (where("x !=", True), where("x =", False)),
        (where("x =", False), where("x !=", True)),
        (where("s prefix", "\x7f"), where("s >=", "\x7f") + where("s <", "\x80")),
        (where("s >=", "\x7f") + where("s <", "\x80"), where("s prefix", "\x7f")),
        (where("n >", 5), where("n >=", 5) + where("n !=", 5)),
        (where("n >=", 5) + where("n !=", 5), where("n >", 5)),
        (where("n present"), where("n !=", 5)),
        ((), where("n !=", 5)),
    ],
)
def test_two_ways_to_say_the_same_cover_each_other(wide: Conjunction, narrow: Conjunction) -> None:
    assert covers(wide, narrow)


@given(texts)
@example("\U0010ffff")
@example("a\ud7ff")
def test_nothing_stands_between_the_strings_of_a_prefix_and_the_next_string(prefix: str) -> None:
    following = after_prefix(prefix)
    if following is None:
        assert set(prefix) <= {"\U0010ffff"}
    else:
        assert not following.startswith(prefix)
        assert (prefix + "\U0010ffff" * 3).encode() < following.encode()


@pytest.mark.req("R1")
def test_an_advertisement_must_name_every_attribute_that_is_asked() -> None:
    offered = where("disk >", 100) + where("system =", "linux")
    assert overlaps(offered, where("disk >", 200))
    assert not overlaps(offered, where("disk >", 200) + where("memory >", 1))
    assert not overlaps(offered, where("disk <", 100))
    assert overlaps(offered, ())


@pytest.mark.req("O6")
def test_an_empty_range_never_matches_and_everything_covers_it() -> None:
    empty = where("n >", 5) + where("n <", 5)
    assert box(empty) is None
    assert not matches(empty, {"n": 5})
    assert covers(where("m =", 1), empty)
    assert not covers(empty, where("m =", 1))
    assert not intersects(empty, empty)


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("predicate", "told"),
    [
        (Predicate("n", Op.EQUAL, float("nan")), "finite"),
        (Predicate("n", Op.BELOW, float("inf")), "finite"),
        (Predicate("n", Op.BELOW, 2**63), "64-bit"),
        (Predicate("n", Op.PREFIX, 1), "prefixes"),
        (Predicate("n", Op.BELOW, True), "no order"),
        (Predicate("n", Op.EQUAL, "\ud800"), "surrogate"),
    ],
)
def test_a_predicate_that_means_nothing_is_refused_with_a_reason(predicate: Predicate, told: str) -> None:
    empty = where("n >", 5) + where("n <", 5)
    with pytest.raises(UsageError, match=told):
        box((*empty, predicate))


@pytest.mark.req("O6")
def test_a_conjunction_has_a_bound() -> None:
    many = tuple(Predicate("n", Op.UNEQUAL, number) for number in range(PREDICATES_MAX))
    assert box(many) is not None
    with pytest.raises(UsageError, match=str(PREDICATES_MAX)):
        box((*many, *many))
