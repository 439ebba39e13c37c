"""Regular expressions: RE2 only, over topic, tags and text headers, within bounds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConditionError, Reason
from heliograph.matching.condition import Event
from heliograph.matching.conditions import covers, matches
from heliograph.matching.languages import compile
from heliograph.matching.languages.patterns import pattern, scanner
from tests.examples import examples
from tests.matching.languages.attempts import check_attempt


def event(topic: str, /, **headers: object) -> Event:
    return Event(topic.encode(), json.dumps(headers).encode(), b"")


@pytest.mark.req("N9")
@pytest.mark.parametrize(
    ("text", "topic", "headers", "wanted"),
    [
        ("topic ~ '^sensors/k'", "sensors/kitchen", {}, True),
        ("topic ~ '^k'", "sensors/kitchen", {}, False),
        ("topic ~ 'itch'", "sensors/kitchen", {}, True),
        ("topic !~ 'itch'", "sensors/kitchen", {}, False),
        ("owner ~ '^(ann|bob)$'", "a", {"owner": "bob"}, True),
        ("owner ~ '^(ann|bob)$'", "a", {"owner": "bobby"}, False),
        ("owner ~ 'x'", "a", {}, False),
        ("owner !~ 'x'", "a", {}, False),  # what is not there fails every test
        ("owner !~ 'x'", "a", {"owner": "ann"}, True),
        ("class ~ '^st'", "market/class=stock,price=9", {}, True),
        ("level ~ '^[0-9]+$'", "a", {"level": 12}, True),
        ("topic ~ 'a' and owner ~ 'n'", "a", {"owner": "ann"}, True),
        ("topic ~ 'b' and owner ~ 'n'", "a", {"owner": "ann"}, False),
        ("\"topic\" ~ 'x'", "a", {"topic": "x"}, True),
        ("it ~ '^it''s'", "a", {"it": "it's"}, True),
        ("word ~ '(?i)É'", "a", {"word": "é"}, True),
    ],
)
def test_a_pattern_is_searched_in_topic_tags_and_headers(
    text: str, topic: str, headers: dict[str, object], wanted: bool
) -> None:
    condition = compile("regex", text)
    assert matches(condition, event(topic, **headers)) is wanted
    assert compile(condition.language, condition.text) == condition


def test_more_patterns_are_covered_by_fewer() -> None:
    one, both = compile("regex", "a ~ 'x'"), compile("regex", "topic ~ 'y' and a ~ 'x'")
    assert covers(one, both)
    assert not covers(both, one)
    assert both == compile("regex", "a ~ 'x' AND topic ~ 'y' and a ~ 'x'")
    assert not covers(compile("regex", "a ~ 'x|y'"), one), "RE2 says nothing about inclusion: equal text only"


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("topic ~ 'a(b'", 8, Reason.CONDITION_INVALID),
        ("topic ~ '(?=a)'", 8, Reason.CONDITION_INVALID),
        ("topic ~ '(a)\\1'", 8, Reason.CONDITION_INVALID),
        ("topic ~ a", 8, Reason.CONDITION_INVALID),
        ("topic = 'a'", 6, Reason.CONDITION_INVALID),
        ("topic ~ 'a' or topic ~ 'b'", 12, Reason.CONDITION_INVALID),
        ("topic ~ '((a{100}){100}){100}'", 8, Reason.CONDITION_INVALID),
        ("topic ~ '(a{30}){30}'", 8, Reason.CONDITION_OVER_LIMIT),
        ("topic ~ '\\pL{200}'", 8, Reason.CONDITION_OVER_LIMIT),
        (f"topic ~ '{'a' * 513}'", 8, Reason.CONDITION_OVER_LIMIT),
    ],
)
def test_hostile_and_wrong_patterns_are_refused(text: str, position: int, reason: Reason) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("regex", text)
    assert (raised.value.position, raised.value.reason) == (position, reason)


def test_many_small_patterns_are_bounded_together() -> None:
    text = " and ".join(f"topic ~ '{letter}{{100}}'" for letter in "abcdef")
    with pytest.raises(ConditionError) as raised:
        compile("regex", text)
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT


def test_a_pattern_that_makes_others_backtrack_for_ever_is_answered() -> None:
    condition = compile("regex", "a ~ '^(a+a+)+$' and a ~ '(a|a)*b'")
    assert not matches(condition, event("t", a="a" * 4_000))


def test_a_text_beyond_the_bound_matches_no_pattern() -> None:
    condition = compile("regex", "a ~ 'x'")
    assert matches(condition, event("t", a="x" * 4_096))
    assert not matches(condition, event("t", a="x" * 4_097))
    assert not matches(condition, event("t", a="x" + "é" * 2_048))


@examples(150)
@given(st.text(max_size=40) | st.text(alphabet="topicab ~!'()[]{}*+?|\\.^$and0,1", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"topic ~ '{text}'"):
        check_attempt("regex", whole, event("a/b", a=text.encode("utf-8", "replace").decode()))


@given(
    st.lists(st.text("ab\n ", max_size=6), max_size=8),
    st.sampled_from(["a", "^a", "a$", "a+b", "^b*$", "[^a]", r"\ba", r"a\b", "b.a", "(?:a|b)b", r"\Aa", "^$", "a*"]),
)
def test_a_scan_of_many_texts_finds_what_a_search_of_each_finds(texts: list[str], expression: str) -> None:
    search, _ = pattern(expression)
    assert scanner(expression, 4_096)(texts) == [number for number, text in enumerate(texts) if search(text)]
