"""Conjunctions against the plain meaning of their predicates: matching, covering, intersection."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, example, given, settings

from heliograph.errors import UsageError
from heliograph.matching.boxes.box import PREDICATES_MAX, box, covers, failed, intersects, matches, overlaps
from heliograph.matching.boxes.keys import FLOAT_MAX, NUMBER, after, after_prefix
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.matching.box_oracle import TWO_53, boxes, events, fits, predicates, telling_values, texts


def where(text: str, value: object = 0) -> Conjunction:
    name, op = text.split()
    return (Predicate(name, Op(op), value),)  # type: ignore[arg-type]


def events_that_tell(*conjunctions: Conjunction) -> list[dict[str, object]]:
    near = telling_values(*conjunctions)
    names = list(near)
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*near.values())]


@pytest.mark.req("R1")
@settings(max_examples=500)
@given(boxes, events)
def test_a_box_takes_the_events_that_fit_its_predicates(conjunction: Conjunction, event: dict[str, object]) -> None:
    assert matches(conjunction, event) == fits(conjunction, event)
    lost = failed(conjunction, event)
    assert (lost is None) == fits(conjunction, event)


@given(predicates)
def test_a_predicate_holds_for_the_values_around_its_constant_as_it_says(predicate: Predicate) -> None:
    for event in events_that_tell((predicate,)):
        assert matches((predicate,), event) == fits((predicate,), event), event


@pytest.mark.req("N9", "R3")
@settings(max_examples=400, deadline=None)
@given(boxes, boxes)
def test_covering_and_intersection_mean_what_they_say(one: Conjunction, other: Conjunction) -> None:
    """Of one attribute each: there the values around all constants show every difference that there is."""
    one = tuple(predicate for predicate in one if predicate.attribute == "a")
    other = tuple(predicate for predicate in other if predicate.attribute == "a")
    assume(one and other)
    probes = events_that_tell(one, other)
    both = [event for event in probes if fits(one, event) and fits(other, event)]
    only_other = [event for event in probes if fits(other, event) and not fits(one, event)]
    if covers(one, other):
        assert only_other == []
    if both:
        assert intersects(one, other)
        assert intersects(other, one)
    if not intersects(one, other):
        assert both == []


@pytest.mark.req("R3")
@settings(max_examples=400, deadline=None)
@given(boxes, boxes)
def test_what_is_not_covered_has_an_event_to_show_for_it(one: Conjunction, other: Conjunction) -> None:
    probes = events_that_tell(one, other)
    shown = any(fits(other, event) and not fits(one, event) for event in probes)
    assert covers(one, other) == (not shown)


@settings(max_examples=300, deadline=None)
@given(boxes, boxes)
def test_boxes_intersect_exactly_if_an_event_fits_both(one: Conjunction, other: Conjunction) -> None:
    probes = events_that_tell(one, other)
    assert intersects(one, other) == any(fits(one, event) and fits(other, event) for event in probes)


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
