"""Covering of conditions, sound and complete on boxes, and the set of interests against its definition."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.matching import siblings
from heliograph.matching.boxes import box
from heliograph.matching.condition import Condition, Event
from heliograph.matching.conditions import covers, matches, refusal
from heliograph.matching.covering import ANYTHING, Change, ConditionedFilter, InterestSet
from heliograph.matching.languages import compile
from heliograph.matching.languages.predicates import condition
from heliograph.matching.siblings import LISTED_MAX
from heliograph.model import topics
from tests.examples import examples
from tests.matching.box_oracle import boxes, tight_conjunctions
from tests.matching.test_covering import LONG, both
from tests.matching.test_topics import filters

TEXTS = [
    *(
        ("predicates", text)
        for text in ("true", "a > 3", "a > 5", "a = 6", "a > 3 and b = 'x'", "b prefix 'x'", "a = 1 and a = 2")
    ),
    *(
        ("sql", text)
        for text in ("a > 3 OR b = 'x'", "a > 5 AND (a > 3 OR b = 'x')", "a IS NULL", "b LIKE '%x'", "a + 1 > 5")
    ),
    *(("sql", text) for text in ("a IN (4, 6)", "NOT a = 6", "b LIKE '%x' AND a > 3", "a > 3", "b = 'x' OR a > 3")),
    *(("integer", text) for text in ("1..10", "2, 4, 6", "6", "..")),
    *(("tags", text) for text in ("a", "a=6", "a=6,b=x", "b=x*")),
    *(("regex", text) for text in ("b ~ 'x'", "b ~ 'x' and topic ~ '6'", "topic ~ '6'", "a ~ '6'")),
    *(("xpath", text) for text in ("//a", "//a[b]", "in header 'b': //a")),
]
CONDITIONS = [compile(language, text) for language, text in TEXTS]
EVENTS = [
    Event(topic, json.dumps({k: v for k, v in (("a", a), ("b", b)) if v is not None}).encode(), payload)
    for topic in (b"6", b"t/4", b"a=6,b=xy")
    for a in (None, 3, 4, 6, "6", 7.5)
    for b in (None, "x", "yx", "<a/>")
    for payload in (b"<a/>", b"<a><b/></a>")
]


@pytest.mark.req("N9")
@pytest.mark.parametrize("wide", CONDITIONS, ids=[f"{one.language} {one.text}" for one in CONDITIONS])
def test_what_covers_matches_all_that_the_covered_one_matches(wide: Condition) -> None:
    covered = [narrow for narrow in CONDITIONS if covers(wide, narrow)]
    assert wide in covered
    assert [
        (narrow.text, one) for narrow in covered for one in EVENTS if matches(narrow, one) and not matches(wide, one)
    ] == []


@pytest.mark.req("N9", "R3")
@examples(100)
@given(boxes, boxes)
def test_covering_of_conditions_is_that_of_their_boxes(one: tuple, other: tuple) -> None:
    assert covers(condition(one), condition(other)) == box.covers(one, other)
    if box.covers(one, other) and box.covers(other, one) and not any("prefix" in str(p.op) for p in (*one, *other)):
        assert box.box(condition(one).box) == box.box(condition(other).box)


def test_every_condition_covers_itself_and_is_covered_by_anything() -> None:
    assert all(covers(one, one) and covers(ANYTHING, one) for one in CONDITIONS)


def test_a_refusal_names_the_test_that_failed() -> None:
    event = Event(b"t", b'{"disk": 100}', b"")
    assert refusal(compile("predicates", "disk > 120 and os = 'linux'"), event) == "disk > 120"
    assert refusal(compile("predicates", "disk > 50 and os present"), event) == "os present"
    assert refusal(compile("sql", "disk + 1 > 200"), event) == "disk + 1 > 200"
    assert refusal(compile("sql", "disk + 1 > 100"), event) is None


def oracle_covers(wide: ConditionedFilter, narrow: ConditionedFilter) -> bool:
    return topics.covers(wide.filter, narrow.filter) and covers(wide.condition, narrow.condition)


interests = st.builds(ConditionedFilter, filters, st.sampled_from(CONDITIONS) | tight_conjunctions.map(condition))


def add(reduced: InterestSet, interest: ConditionedFilter) -> Change:
    """With everything that follows from it."""
    return both(reduced.add(interest), reduced.go_on(LONG))


def remove(reduced: InterestSet, interest: ConditionedFilter) -> Change:
    """With everything that follows from it."""
    return both(reduced.remove(interest), reduced.go_on(LONG))


def follow(reduced: InterestSet, told: dict[ConditionedFilter, None], change: Change) -> None:
    came, went = change
    for root in went:
        del told[root]
    for root in came:
        assert root not in told
        told[root] = None
    assert told == reduced.roots, "what was told adds up to the roots"


@pytest.mark.req("N9", "R3")
@examples(100)
@given(st.lists(interests, max_size=20), st.data())
def test_the_roots_say_as_much_as_all_and_no_root_covers_another(
    given_: list[ConditionedFilter], data: st.DataObject
) -> None:
    reduced = InterestSet()
    kept: list[ConditionedFilter] = []
    told: dict[ConditionedFilter, None] = {}
    for interest in given_:
        if kept and data.draw(st.integers(0, 2)) == 0:
            gone = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            follow(reduced, told, remove(reduced, gone))
        else:
            kept.append(interest)
            follow(reduced, told, add(reduced, interest))
        roots = list(reduced.roots)
        assert all(any(oracle_covers(root, one) for root in roots) for one in kept)
        assert not any(oracle_covers(one, other) for one in roots for other in roots if one != other)
        assert all(root in reduced and any(oracle_covers(one, root) for one in kept) for root in roots)
        assert all(oracle_covers(reduced.coverer(one) or one, one) and one in reduced for one in kept)


def test_a_group_too_large_for_a_list_is_reduced_alike() -> None:
    reduced = InterestSet()
    single = [ConditionedFilter(b"a/b", compile("predicates", f"n = {number}")) for number in range(3 * LISTED_MAX)]
    for one in single:
        assert add(reduced, one) == ([one], [])
    wide = ConditionedFilter(b"a/#", compile("predicates", "n >= 10"))
    came, went = add(reduced, wide)
    assert came == [wide]
    assert dict.fromkeys(went) == dict.fromkeys(single[10:])
    came, went = remove(reduced, wide)
    assert dict.fromkeys(came) == dict.fromkeys(single[10:])
    assert went == [wide]
    for one in single:
        assert remove(reduced, one) == ([], [one])
    assert len(reduced) == len(reduced.roots) == 0


def test_more_attributes_than_an_index_takes_are_still_covered() -> None:
    reduced = InterestSet()
    single = [ConditionedFilter(b"a", compile("predicates", f"n{number} = 1 and m = 1")) for number in range(1_200)]
    for one in single:
        add(reduced, one)
    assert len(reduced.roots) == 1_200
    assert add(reduced, ConditionedFilter(b"a", compile("predicates", "n1199 = 1 and m = 1 and k = 2"))) == ([], [])
    came, went = add(reduced, ConditionedFilter(b"#", compile("predicates", "m > 0")))
    assert (len(came), len(went)) == (1, 1_200)


def test_identical_interests_are_shared_and_go_with_the_last() -> None:
    reduced = InterestSet()
    one = ConditionedFilter(b"a/+", compile("sql", "disk > 120 AND system = 'linux'"))
    same = ConditionedFilter(b"a/+", compile("predicates", "system = 'linux' and disk > 120.0"))
    assert add(reduced, one) == ([one], [])
    assert add(reduced, same) == ([], [])
    assert remove(reduced, one) == ([], [])
    assert remove(reduced, same) == ([], [one])


def test_removing_the_covering_interest_brings_back_what_it_covered() -> None:
    reduced = InterestSet()
    narrow = ConditionedFilter(b"a/b", compile("predicates", "disk > 200"))
    middle = ConditionedFilter(b"a/+", compile("predicates", "disk > 120"))
    wide = ConditionedFilter(b"a/#")
    for one in (narrow, middle, wide):
        add(reduced, one)
    assert list(reduced.roots) == [wide]
    assert reduced.coverer(narrow) == wide
    assert remove(reduced, wide) == ([middle], [wide])
    assert remove(reduced, middle) == ([narrow], [middle])


@pytest.mark.req("N9")
@examples(150)
@given(st.lists(interests, max_size=25), st.data())
def test_while_consequences_wait_the_roots_say_at_least_as_much_as_all(
    given_: list[ConditionedFilter], data: st.DataObject
) -> None:
    reduced = InterestSet()
    kept: list[ConditionedFilter] = []
    told: dict[ConditionedFilter, None] = {}
    for interest in given_:
        again = data.draw(st.sampled_from(given_))
        if kept and data.draw(st.integers(0, 2)) == 0:
            gone = kept.pop(data.draw(st.integers(0, len(kept) - 1)))
            follow(reduced, told, reduced.remove(gone))
        else:
            kept.append(data.draw(st.sampled_from([interest, again])))
            follow(reduced, told, reduced.add(kept[-1]))
        follow(reduced, told, reduced.go_on(data.draw(st.integers(0, 2))))
        assert all(any(oracle_covers(root, one) for root in reduced.roots) for one in kept)
        assert all(oracle_covers(reduced.coverer(one) or one, one) for one in kept)
    follow(reduced, told, reduced.go_on(LONG))
    roots = list(reduced.roots)
    assert reduced.is_settled
    assert not any(oracle_covers(one, other) for one in roots for other in roots if one != other)
    assert all(any(oracle_covers(root, one) for root in roots) for one in kept)
    for one in kept:
        follow(reduced, told, remove(reduced, one))
    assert not told


def test_what_an_interest_covered_settles_in_as_many_steps_as_it_is_given() -> None:
    reduced = InterestSet()
    single = [ConditionedFilter(b"a/%d" % number) for number in range(100)]
    for one in single:
        reduced.add(one)
    assert reduced.add(ConditionedFilter(b"#")) == ([ConditionedFilter(b"#")], [])
    assert [len(reduced.go_on(50)[1]) for _ in range(5)] == [25, 25, 25, 25, 0]  # each is found, and then hung
    assert reduced.remove(ConditionedFilter(b"#")) == ([], [])
    assert [len(came) for came, _ in (reduced.go_on(30) for _ in range(4))] == [30, 30, 30, 10]
    assert reduced.is_settled
    assert reduced.roots == dict.fromkeys(single)


@pytest.mark.req("R3")
def test_conditions_that_no_box_tells_apart_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client with many of them would keep a broker busy with each one more."""
    compared = []
    asks_less = siblings.asks_less
    monkeypatch.setattr(siblings, "asks_less", lambda *both: compared.append(both) or asks_less(*both))
    found = InterestSet()
    for number in range(500):
        add(found, ConditionedFilter(b"a", compile("sql", f"x + {number} = 1 OR y = {number}")))
        add(found, ConditionedFilter(b"a", compile("sql", f"z = 1 AND (x + {number} = 1 OR y = {number})")))
    assert len(found.roots) == 500
    compared.clear()

    for text in ("x + 700 = 1 OR y = 7", "z = 1 AND (x + 700 = 1 OR y = 700)", "z = 2 AND y = 1"):
        add(found, ConditionedFilter(b"a", compile("sql", text)))

    assert len(compared) < 10


@pytest.mark.req("N9")
def test_an_interest_that_was_removed_covers_nothing_any_more() -> None:
    wide, narrow, other = (
        ConditionedFilter(b"t", compile("sql", text))
        for text in ("b LIKE '%x'", "b LIKE '%x' AND a > 3", "b LIKE '%z'")
    )
    for count in (0, LISTED_MAX):
        reduced = InterestSet()
        for number in range(count):
            add(reduced, ConditionedFilter(b"t", compile("sql", f"b LIKE '%{number}'")))
        add(reduced, other)
        add(reduced, wide)
        assert add(reduced, narrow) == ([], [])
        remove(reduced, narrow)
        remove(reduced, wide)
        assert add(reduced, narrow) == ([narrow], [])


@pytest.mark.req("N9")
def test_when_all_that_a_root_covers_is_gone_the_root_goes_at_once() -> None:
    reduced = InterestSet()
    wide, middle, narrow = (ConditionedFilter(pattern) for pattern in (b"a/#", b"a/b/#", b"a/b/c"))
    for interest in (narrow, middle, wide):
        add(reduced, interest)
    for interest in (middle, narrow):
        assert reduced.remove(interest) == ([], [])
    assert reduced.remove(wide) == ([], [wide])
    assert reduced.is_settled
