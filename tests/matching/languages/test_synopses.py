"""Integers and tags: topics read as something else than levels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConditionError
from heliograph.matching.condition import Event
from heliograph.matching.conditions import covers, matches
from heliograph.matching.languages import compile
from tests.examples import examples
from tests.matching.languages.attempts import check_attempt


def event(topic: str, /, **headers: object) -> Event:
    return Event(topic.encode(), json.dumps(headers).encode(), b"")


@pytest.mark.req("N9", "T3")
@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("42", ["42", "meters/42", "042", "a/b/42"], ["43", "42/a", "x42", "4.2", "-42", ""]),
        ("10..20", ["10", "15", "20"], ["9", "21"]),
        ("..5", ["5", "-9223372036854775808", "-1"], ["6", "9223372036854775808", "-9223372036854775809"]),
        ("7..", ["7", "9223372036854775807"], ["6", "9223372036854775808", "99999999999999999999"]),
        ("1, 4..6 ,-3", ["1", "4", "6", "-3"], ["0", "2", "3", "7", "-2"]),
        ("..", ["0", "5"], ["a"]),
    ],
)
def test_an_integer_condition_reads_the_last_level(text: str, wanted: list[str], unwanted: list[str]) -> None:
    condition = compile("integer", text)
    assert [topic for topic in wanted if not matches(condition, event(topic))] == []
    assert [topic for topic in unwanted if matches(condition, event(topic))] == []


@pytest.mark.parametrize(
    ("text", "plain"),
    [("1,2,3", "1..3"), ("5..9, 1..6", "1..9"), (" +7 .. ", "7.."), ("3,1", "1, 3"), ("1..1", "1"), ("..-1,0..", "..")],
)
def test_integer_ranges_are_merged(text: str, plain: str) -> None:
    assert compile("integer", text).text == plain
    assert compile("integer", plain) == compile("integer", text)


@pytest.mark.parametrize("text", ["", "x", "1,,2", "5..3", "1...2", "1..2..3", str(2**63), "1.5", "9" * 5000])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        compile("integer", text)


def test_ranges_cover_as_boxes_do() -> None:
    assert covers(compile("integer", "1..10"), compile("integer", "3..5"))
    assert covers(compile("integer", "1..10"), compile("integer", "3, 5"))
    assert not covers(compile("integer", "3, 5"), compile("integer", "3"))
    assert not covers(compile("integer", "3..5"), compile("integer", "1..10"))


@pytest.mark.req("N9", "T3")
@pytest.mark.parametrize(
    ("text", "topic", "headers", "wanted"),
    [
        ("class=stock", "class=stock,price=9", {}, True),
        ("class=stock, price=9", "market/price=9,class=stock", {}, True),
        ("class=stock", "class=bond", {}, False),
        ("class", "class=bond", {}, True),
        ("class=*", "class=bond", {}, True),
        ("name=AA*", "name=AAPL", {}, True),
        ("name=AA*", "name=A", {}, False),
        ("name!=AAPL", "name=IBM", {}, True),
        ("name!=AAPL", "class=stock", {}, False),
        ("owner=ann", "a/b", {"owner": "ann"}, True),
        ("level=3, ok=true", "a/b", {"level": 3, "ok": True}, True),
        ("owner=ann", "owner=bob", {"owner": "ann"}, False),  # what the topic says counts
        ("speed=1.5", "a/b", {"speed": 1.5}, False),  # a float has no single text
        ("note='a, b=c'", "a/b", {"note": "a, b=c"}, True),
        ("note=two words", "a/b", {"note": "two words"}, True),
        ("empty=''", "empty=", {}, True),
        ("a=b", "a=b=c", {}, False),
        ("a='b=c'", "a=b=c", {}, True),
    ],
)
def test_a_tag_condition_reads_pairs_and_headers(
    text: str, topic: str, headers: dict[str, object], wanted: bool
) -> None:
    condition = compile("tags", text)
    assert matches(condition, event(topic, **headers)) is wanted
    assert compile(condition.language, condition.text) == condition


def test_tags_in_any_order_are_the_same_and_fewer_cover_more() -> None:
    one, other = compile("tags", "b=2,a=1"), compile("tags", "a = 1 , b = 2")
    assert one == other
    assert covers(compile("tags", "a=1"), one)
    assert covers(compile("tags", "a"), one)
    assert covers(compile("tags", "a=1*"), one)
    assert not covers(one, compile("tags", "a=1"))
    assert compile("tags", "a=1,a=2").text == "false"


@pytest.mark.parametrize(("text", "position"), [("", 0), ("a=", 2), ("=b", 0), ("a=b,", 4), ("a!=b*", 4), ("a='b", 0)])
def test_what_is_no_pair_is_refused(text: str, position: int) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("tags", text)
    assert raised.value.position == position


@examples(150)
@given(st.sampled_from(["integer", "tags"]), st.text(alphabet="ab12 =!*',.-+$é\n", max_size=30) | st.text(max_size=30))
def test_any_text_is_read_or_refused(language: str, text: str) -> None:
    check_attempt(language, text, event("a=1,b=2", a="x"))


@given(st.binary(max_size=40), st.binary(max_size=60))
def test_a_condition_never_stumbles_over_an_event(topic: bytes, headers: bytes) -> None:
    for language, text in (("tags", "a=1"), ("integer", "1, 5"), ("predicates", "a > 3"), ("regex", "a ~ 'x'")):
        matches(compile(language, text), Event(topic, headers, b""))
