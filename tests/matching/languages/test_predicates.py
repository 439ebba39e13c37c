"""The language of predicates, its canonical form, and errors that point at the character."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.errors import ConditionError, Reason, UsageError
from heliograph.matching.boxes import box
from heliograph.matching.condition import Event
from heliograph.matching.languages import compile
from heliograph.matching.languages.predicates import condition, from_triples
from heliograph.matching.languages.ranges import canonical, hull, write
from heliograph.model.predicates import Conjunction, Op, Predicate
from tests.examples import examples
from tests.matching.box_oracle import boxes, events, fits, telling_values
from tests.matching.languages.attempts import check_attempt


def event_around(*conjunctions: Conjunction) -> st.SearchStrategy[dict[str, object]]:
    """Events with values at and beside the constants of these, or any."""
    telling = {name: st.sampled_from([*values, None]) for name, values in telling_values(*conjunctions).items()}
    return st.fixed_dictionaries(telling) | events


@pytest.mark.req("R1")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("disk > 120 and system = 'linux'", "disk > 120 and system = 'linux'"),
        ("system='linux'  AND disk>120 And disk >= 100", "disk > 120 and system = 'linux'"),
        ("a <> 3 and b ^= 'x' and has c", "a != 3 and b prefix 'x' and c present"),
        ("a between 3 and 5.0", "a >= 3 and a <= 5"),
        ("a >= 3 and a <= 3", "a = 3"),
        ("a >= 3 and a != 3 and a != 2", "a > 3"),
        ("a present and a > 1", "a > 1"),
        ("open <= 09:30 and close > 17:00:30", "close > 61230 and open <= 34200"),
        ("a = -1e3 and b = .5 and c = + 7", "a = -1000 and b = 0.5 and c = 7"),
        ("owner = 'O''Neill' and ok = TRUE and bad != true", "bad = false and ok = true and owner = 'O''Neill'"),
        ('"a b" = 1 and "and" = 2 and "say ""hi""" present', '"a b" = 1 and "and" = 2 and "say ""hi""" present'),
        ("a prefix 'ab' and a prefix 'a' and a >= 'ab' and a < 'b'", "a prefix 'ab'"),
        ("a prefix 'ab' and a > 'abc'", "a prefix 'ab' and a > 'abc'"),
        ("a > 5 and a < 3", "false"),
        ("a = 5 and a = 'five'", "false"),
        ("a = 5 and false", "false"),
        ("true", "true"),
        ('["disk", ">", 120]', "disk > 120"),
        ('[["disk", ">", 120], ["os", "present"], ["os", "prefix", "li"]]', "disk > 120 and os prefix 'li'"),
        ("[]", "true"),
    ],
)
def test_equal_wishes_have_one_text(text: str, plain: str) -> None:
    compiled = compile("predicates", text)
    assert compiled.text == plain
    assert compiled.residue is None
    assert compile("predicates", plain) == compiled


@pytest.mark.parametrize(
    ("text", "position", "told"),
    [
        ("", 0, "expected a test such as disk > 120, but the text ends"),
        ("disk >", 6, "expected a number"),
        ("disk > 120 system = 'linux'", 11, "expected 'and' or the end, but there is \"system = 'linux'\""),
        ("disk ? 3", 5, "'?' has no meaning here"),
        ("disk = 'linux", 7, "expected a text in single quotes that ends"),
        ("disk is 3", 5, "expected one of = != < <= > >= prefix between present"),
        ("open > 25:00", 7, "a time of day is between 00:00 and 24:00"),
        ("a between 3 or 5", 12, "expected 'and'"),
        ("a prefix 3", 9, "a prefix is a text in single quotes"),
        ("a < true", 4, "neither above nor below"),
        ("a = 9223372036854775808", 4, "at most 64 bits"),
        ("a = " + "9" * 5000, 4, "at most 64 bits"),
        ("a = 1e999", 4, "beyond what a float holds"),
        ('"$t" > 3', 0, "reserved"),
        ("a = nan", 4, "expected a number"),
        ("a = -'x'", 5, "expected a number"),
        ("a = '\ud800'", 5, "surrogate"),
    ],
)
def test_an_error_points_at_the_character(text: str, position: int, told: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("predicates", text)
    assert told in raised.value.problem
    assert raised.value.position == position
    assert raised.value.reason is Reason.CONDITION_INVALID


def test_an_error_shows_the_place_with_a_caret() -> None:
    with pytest.raises(UsageError) as raised:
        compile("predicates", "disk > 120 and\tsystem ~ 'linux'")
    assert str(raised.value).splitlines() == [
        "expected one of = != < <= > >= prefix between present, but there is \"~ 'linux'\" (at character 23)",
        "  disk > 120 and system ~ 'linux'",
        "                        ^",
    ]


@pytest.mark.parametrize(
    ("triples", "told"),
    [
        ([["disk", "~", 3]], "predicate 1"),
        ([["disk", ">"]], "predicate 1"),
        ([["a", "=", 1], ["disk", "=", None]], "predicate 2"),
        ([["a", "=", 2**64]], "64 bits"),
        ([["a", "=", float("nan")]], "NaN"),
        ([["a", "<", float("inf")]], "infinities"),
        ([["a", "<", False]], "neither above nor below"),
        ([["", "=", 1]], "not empty"),
        ([["$x", "=", 1]], "reserved"),
        (["disk > 3"], "predicate 1"),
    ],
)
def test_a_bad_triple_is_named(triples: list[object], told: str) -> None:
    with pytest.raises(ConditionError, match=told):
        from_triples(triples)


@examples(150)
@given(boxes, st.data())
def test_the_canonical_form_means_the_same(conjunction: Conjunction, data: st.DataObject) -> None:
    plain = canonical(conjunction)
    event = data.draw(event_around(conjunction))
    assert fits(plain, event) == fits(conjunction, event)
    assert canonical(reversed(conjunction)) == plain == canonical(plain)
    assert compile("predicates", write(plain)).box == plain


@examples(150)
@given(st.lists(boxes, min_size=1, max_size=3), st.data())
def test_a_hull_holds_wherever_one_of_its_branches_does(branches: list[Conjunction], data: st.DataObject) -> None:
    event = data.draw(event_around(*branches))
    assume(any(fits(branch, event) for branch in branches))
    assert fits(hull(branches), event)


@given(boxes)
def test_triples_survive_json(conjunction: Conjunction) -> None:
    triples = [[one.attribute, str(one.op), one.value] for one in conjunction]
    assert canonical(from_triples(json.loads(json.dumps(triples)))) == canonical(conjunction)


def test_a_condition_has_a_bounded_number_of_predicates() -> None:
    with pytest.raises(ConditionError) as raised:
        condition(Predicate(f"a{number}", Op.PRESENT, True) for number in range(257))
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT


def test_what_nothing_satisfies_is_covered_by_everything() -> None:
    never = compile("predicates", "a > 5 and a < 3")
    assert box.covers(compile("predicates", "b = 1").box, never.box)
    assert box.box(never.box) is None


@examples(150)
@given(st.text(max_size=60) | st.text(alphabet="ab ='<>!^\"()[]{},-+0123456789.:e\\andtruehas", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    check_attempt("predicates", text, Event(b"t", b'{"a": 1}', b""))
