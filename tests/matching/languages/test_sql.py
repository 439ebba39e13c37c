"""SQL selectors: three-valued logic, what goes into the box, and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConditionError, Reason
from heliograph.matching.condition import Event
from heliograph.matching.conditions import covers, matches
from heliograph.matching.languages import compile
from tests.examples import examples
from tests.matching.languages.attempts import check_attempt


def event(**headers: Any) -> Event:
    return Event(b"t", json.dumps(headers).encode(), b"")


def selects(text: str, **headers: Any) -> bool:
    return matches(compile("sql", text), event(**headers))


@pytest.mark.req("N9")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("disk > 120 AND system = 'linux'", "disk > 120 and system = 'linux'"),
        ("(120 < disk) and not not (system like 'lin%')", "disk > 120 and system prefix 'lin'"),
        ("age BETWEEN 15 AND 19", "age >= 15 and age <= 19"),
        ("country IN ('UK')", "country = 'UK'"),
        ("name LIKE 'abc'", "name = 'abc'"),
        ("name LIKE 'a!%%' ESCAPE '!'", "name prefix 'a%'"),
        ("name LIKE '%'", "name prefix ''"),
        ("prop IS NOT NULL", "prop present"),
        ("NOT prop IS NULL", "prop present"),
        ("flag", "flag = true"),
        ("NOT flag", "flag = false"),
        ("disk > 60 * 2 + -5", "disk > 115"),
        ("TRUE", "true"),
        ("a = 1 AND FALSE", "false"),
        ("a > 3 AND a < 2", "false"),
        ("a < TRUE", "false"),
    ],
)
def test_a_selector_that_is_a_box_has_no_residue(text: str, plain: str) -> None:
    condition = compile("sql", text)
    assert (condition.language, condition.text, condition.residue) == ("predicates", plain, None)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("a > 5 AND b + 1 > c", "a > 5 and b present and c present"),
        ("color IN ('blue', 'green')", "color >= 'blue' and color <= 'green'"),
        ("a = 3 OR a BETWEEN 7 AND 9", "a >= 3 and a <= 9"),
        ("a = 3 OR b = 4", "true"),
        ("a = 3 AND b = 1 OR a = 'x' AND b = 2", "a present and b >= 1 and b <= 2"),
        ("name LIKE 'ab%c_'", "name prefix 'ab'"),
        ("NOT a > 5", "a present"),
        ("a IS NULL AND b = 1", "b = 1"),
        ("NOT (a IS NULL OR b > 5)", "a present and b present"),
    ],
)
def test_the_box_of_a_selector_holds_what_it_can(text: str, box: str) -> None:
    condition = compile("sql", text)
    assert condition.residue is not None
    assert condition.box == compile("predicates", box).box


@pytest.mark.parametrize(
    ("text", "headers", "wanted"),
    [
        ("a = 1 OR b = 2", {"b": 2}, True),  # unknown OR true
        ("a = 1 AND b = 2", {"b": 2}, False),
        ("NOT (a = 1)", {}, False),  # NOT unknown is unknown
        ("NOT (a = 1 AND b = 2)", {"b": 3}, True),  # NOT (unknown AND false)
        ("a <> 1", {}, False),
        ("a IS NULL", {}, True),
        ("a IS NULL", {"a": None}, True),
        ("a IS NULL", {"a": [1]}, False),  # present, if nothing else
        ("a = 1 OR a <> 1 OR a < 5", {"a": [1]}, False),
        ("a > 5", {"a": "9"}, False),  # no like kinds: false
        ("NOT (a > 5)", {"a": "9"}, True),
        ("a <> 5", {"a": "9"}, False),
        ("NOT a IN (1, 2)", {"a": 3}, True),
        ("a NOT IN ('x')", {}, False),
        ("a LIKE 'x'", {"a": 3}, False),
        ("a NOT LIKE '_%'", {"a": ""}, True),
        ("a LIKE '12_3'", {"a": "12e3"}, True),
        ("a LIKE '12%3'", {"a": "12\n3"}, True),
        ("a LIKE '%a%b%'", {"a": "xxaxxbxx"}, True),
        ("a LIKE '%A%'", {"a": "a"}, False),  # case counts
        ("a / 2 = 2", {"a": 5}, True),  # integers
        ("a / 2.0 = 2.5", {"a": 5}, True),
        ("a / 2 = -2", {"a": -5}, True),  # toward zero
        ("a / 0 IS NULL", {"a": 5}, True),
        ("a * 2 > 0", {"a": 2**62}, True),  # beyond 64 bits it is a float
        ("a + 1 IS NULL", {"a": "x"}, True),
        ("a + 1 IS NULL", {"a": 2**64}, True),
        ("-a = 3", {"a": -3}, True),
        ("a = 1", {"a": True}, False),
        ("a = b", {"a": 1, "b": 1.0}, True),
        ("a = b", {"a": 2**53 + 1, "b": 2.0**53}, False),  # exact
        ("a < 'b'", {"a": "a"}, True),
        ("open BETWEEN 09:30 AND 17:00", {"open": 36_000}, True),
        ("JMSType = 'x'", {}, False),
        ("JMSType = 'x'", {"JMSType": "x"}, True),  # an ordinary name
    ],
)
def test_a_selector_has_three_values(text: str, headers: dict[str, Any], wanted: bool) -> None:
    assert selects(text, **headers) is wanted


@pytest.mark.parametrize(
    ("text", "position", "told"),
    [
        ("", 0, "expected a value, a name or '('"),
        ("a >", 3, "expected a value, a name or '('"),
        ("a = 1 b = 2", 6, "expected AND, OR or the end"),
        ("(a = 1", 6, "expected ')'"),
        ("a = 1)", 5, "expected AND, OR or the end"),
        ("a + 1", 0, "expected a condition, but this is a value"),
        ("a = 1 AND 5", 10, "expected a condition, but this is a value"),
        ("5 OR a", 2, "the text before OR is not a condition"),
        ("NOT 5", 4, "expected a condition, but this is a value"),
        ("(a = 1) = 2", 0, "a condition cannot be compared"),
        ("a = (b = 1)", 4, "a condition cannot be compared"),
        ("a + 'x' > 1", 4, "only numbers are added"),
        ("-'x' = a", 1, "only numbers are added"),
        ("a NOT = 3", 6, "expected BETWEEN, IN or LIKE"),
        ("a IN 3", 5, "expected '('"),
        ("a IN (b)", 6, "expected a number"),
        ("a LIKE b", 7, "a pattern in single quotes"),
        ("a LIKE 'x' ESCAPE 'yy'", 18, "ESCAPE takes one character"),
        ("a LIKE 'x!' ESCAPE '!'", 7, "the escape character must be followed by"),
        ("a IS 3", 5, "expected 'null'"),
        ("a = 'x", 4, "that ends"),
        ("a ~ 'x'", 2, "expected AND, OR or the end"),
    ],
)
def test_an_error_points_at_the_character(text: str, position: int, told: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("sql", text)
    assert told in raised.value.problem
    assert raised.value.position == position


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 and " * 10_000 + "a = 1",
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "(" * 51 + "a = 1" + ")" * 51,
        " OR ".join(f"a LIKE '%{number}%_'" for number in range(33)),
        f"a LIKE '%_{'%a_' * 200}'",
        " AND ".join(f"a{number} > 1" for number in range(300)),
    ],
)
def test_a_selector_is_bounded(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("sql", text)
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT


def test_what_is_allowed_is_read() -> None:
    deep = "(" * 50 + "a = 1" + ")" * 50
    long = " OR ".join("a = 1" for _ in range(256))
    signs = "- " * 1_020 + "1 = a"
    nots = "NOT " * 1_020 + "a = 1"
    sums = "a" + " + a" * 510 + " > 5"
    for text in (deep, long, signs, nots, sums):
        compile("sql", text)


def test_a_selector_with_more_conjuncts_is_covered() -> None:
    wide = compile("sql", "a > 5 AND (b = 1 OR c = 2)")
    narrow = compile("sql", "(c = 2 OR b = 1) AND a > 7 AND d = 3 AND x + y > 2")
    assert covers(wide, narrow)
    assert not covers(narrow, wide)
    assert covers(compile("predicates", "a > 5"), narrow)
    assert not covers(wide, compile("predicates", "a > 7 and b = 1")), "what a residue implies is not worked out"


def test_order_and_case_and_blanks_do_not_matter() -> None:
    texts = (
        "x+y > 2 and (b = 1 or c LIKE '%z')",
        "(c like '%z' OR b=1) AND x + y>2",
        "(x + y) > 2 AND (b = 1 OR c LIKE '%z')",
    )
    assert len({compile("sql", text) for text in texts}) == 1


WORDS = ["a", "b", "1", "2.5", "'x'", "'%_'", "(", ")", "+", "-", "*", "/", "=", "<>", "<", ",", "TRUE", "NULL"]
WORDS += ["AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "ESCAPE"]


@examples(200)
@given(st.text(max_size=50) | st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    check_attempt("sql", text, event(a=1, b="x"))


def test_a_selector_has_a_bounded_number_of_words() -> None:
    assert compile("sql", "+".join(["a"] * 511) + " = 1").residue is not None
    with pytest.raises(ConditionError, match="at most 1024 words") as raised:
        compile("sql", "+".join(["a"] * 512) + " = 1")
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT
