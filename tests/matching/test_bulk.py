"""Bulk matching finds what brokers find, one publication at a time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching.boxes.batch import BatchIndex, NumberColumn, ValueColumn, WordColumn
from heliograph.matching.boxes.box import box, matches
from heliograph.matching.bulk import BulkMatcher
from heliograph.matching.condition import Event
from heliograph.matching.conditions import matches as fits
from heliograph.matching.languages import compile
from heliograph.model.predicates import Op, Predicate
from heliograph.model.topics import matches as topic_matches

NAMES = ("a", "b", "c")
numbers = st.integers(-3, 3) | st.sampled_from([0.5, -1.5, 2.0**53, 2**53 + 1, 1e300])
texts = st.sampled_from(["", "x", "xy", "y", "é"])
values = numbers | texts | st.booleans()
ORDERED = (Op.EQUAL, Op.UNEQUAL, Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST)


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Predicate(name, Op.PRESENT, True)
    if kind == 1:
        return Predicate(name, draw(st.sampled_from(ORDERED[:2])), draw(st.booleans()))
    if kind == 2:
        return Predicate(name, draw(st.sampled_from((*ORDERED, Op.PREFIX))), draw(texts))
    return Predicate(name, draw(st.sampled_from(ORDERED)), draw(numbers))


conjunctions = st.lists(predicates(), max_size=4).map(tuple)
events = st.dictionaries(st.sampled_from(NAMES), values | st.just(float("inf")) | st.just([1]))


@pytest.mark.req("S4")
@given(st.lists(conjunctions, max_size=70), st.lists(events, max_size=8))
def test_the_batch_index_finds_the_boxes_in_which_events_lie(stored: list, seen: list) -> None:
    index = BatchIndex([box(conjunction) for conjunction in stored])
    columns = {name: ValueColumn([event.get(name) for event in seen]) for name in NAMES}
    found = index.match(columns, len(seen))
    expected = [
        (event, place)
        for event, attributes in enumerate(seen)
        for place, conjunction in enumerate(stored)
        if matches(conjunction, attributes)
    ]
    assert list(zip(*map(np.ndarray.tolist, found), strict=True)) == expected


@given(st.lists(conjunctions, max_size=20), st.lists(st.none() | st.floats() | st.integers(-5, 5).map(float)))
def test_columns_of_numbers_and_of_words_mean_the_same_as_plain_values(stored: list, seen: list) -> None:
    index = BatchIndex([box(conjunction) for conjunction in stored])
    plain = {"a": ValueColumn(seen), "b": ValueColumn(["x"] * len(seen))}
    present = np.array([value is not None for value in seen], bool)
    quick = {
        "a": NumberColumn(np.array([0.0 if value is None else value for value in seen], np.float64), present),
        "b": WordColumn(np.zeros(len(seen), np.int64), ["x"]),
    }
    for one, other in zip(index.match(plain, len(seen)), index.match(quick, len(seen)), strict=True):
        assert one.tolist() == other.tolist()


def test_many_bounds_make_an_attribute_coarse_and_the_answer_stays_exact() -> None:
    stored = [box((Predicate("a", Op.ABOVE, n / 7), Predicate("a", Op.BELOW, n / 7 + 3))) for n in range(5_000)]
    values = np.linspace(-2, 720, 333)
    found, places = BatchIndex(stored).match({"a": NumberColumn(values, np.ones(333, bool))}, 333)
    expected = [(e, n) for e, value in enumerate(values) for n in range(5_000) if n / 7 < value < n / 7 + 3]
    assert list(zip(found.tolist(), places.tolist(), strict=True)) == expected


CONDITIONS = (
    None, ("predicates", "a > 1"), ("predicates", "a > 1 and b = 'x'"), ("predicates", "b prefix 'x'"),
    ("sql", "a > 1 OR b = 'y'"), ("sql", "b LIKE 'x%'"), ("regex", "b ~ 'x+'"), ("tags", "x=1"), ("integer", "7"),
)  # fmt: skip
FILTERS = (b"#", b"t/+", b"t/#", b"t/1", b"u", b"System/#")
TOPICS = (b"t", b"t/1", b"t/2", b"u", b"7", b"x=1", b"System/a")


@pytest.mark.req("S4")
@given(
    st.lists(st.tuples(st.sampled_from(FILTERS), st.sampled_from(CONDITIONS)), max_size=30),
    st.lists(st.tuples(st.sampled_from(TOPICS), st.dictionaries(st.sampled_from(NAMES), numbers | texts)), max_size=12),
)
def test_subscriptions_over_the_past_find_what_they_would_have_been_sent(wanted: list, past: list) -> None:
    subscriptions = []
    for pattern, text in wanted:
        try:
            subscriptions.append((pattern, compile(*text) if text else None))
        except Exception:  # a text that this language does not take
            continue
    seen = [Event(topic, msgspec.json.encode(headers), b"<x/>") for topic, headers in past]
    topics = list(dict.fromkeys(event.topic for event in seen))
    codes = np.array([topics.index(event.topic) for event in seen], np.int64)

    found, places = BulkMatcher(subscriptions).match(topics, codes, seen.__getitem__)

    expected = [
        (number, place)
        for number, event in enumerate(seen)
        for place, (pattern, condition) in enumerate(subscriptions)
        if topic_matches(pattern, event.topic) and (condition is None or fits(condition, event))
    ]
    assert list(zip(found.tolist(), places.tolist(), strict=True)) == expected
