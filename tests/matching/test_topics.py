"""Topic tables against the plain definition of a match."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from heliograph.matching.topics import TopicSet, TopicTable
from heliograph.model.topics import covers, filter_fault, is_system, matches, overlaps, topic_fault
from tests.examples import examples

levels = st.sampled_from(["a", "b", "c", "System", "é"])
topics = st.lists(levels, min_size=1, max_size=4).map(lambda parts: "/".join(parts).encode())
wild_levels = st.sampled_from(["a", "b", "c", "System", "+"])
filters = st.tuples(st.lists(wild_levels, max_size=4), st.booleans()).map(
    lambda parts: "/".join([*parts[0], "#"] if parts[1] or not parts[0] else parts[0]).encode()
)
every_topic = [
    "/".join(parts).encode()
    for parts in (
        [[a] for a in "abz"]
        + [[a, b] for a in ("a", "b", "System") for b in "abz"]
        + [[a, b, c] for a in ("a", "b", "System", "z") for b in "abz" for c in "abz"]
    )
]


@pytest.mark.req("N9")
@given(st.lists(st.tuples(filters, st.integers(0, 5)), max_size=30), st.data())
def test_a_table_finds_what_the_plain_definition_finds(entries: list[tuple[bytes, int]], data: st.DataObject) -> None:
    table: TopicTable[int] = TopicTable()
    kept: dict[tuple[bytes, int], None] = {}
    for entry in entries:
        if data.draw(st.booleans()) or not kept:
            table.add(*entry)
            kept[entry] = None
        else:
            gone = data.draw(st.sampled_from(list(kept)))
            table.remove(*gone)
            del kept[gone]
    for topic in every_topic:
        expected = sorted(value for pattern, value in kept if matches(pattern, topic))
        assert sorted(table.match(topic)) == expected
    assert len(table) == len(kept)


@given(filters)
def test_an_emptied_table_keeps_no_branches(pattern: bytes) -> None:
    table: TopicTable[str] = TopicTable()
    table.add(pattern, "x")
    table.remove(pattern, "x")
    table.remove(pattern, "x")
    assert len(table) == 0
    assert table._root.is_bare
    assert not table._exact


@given(st.lists(topics, max_size=30), filters)
def test_a_set_of_topics_knows_which_of_them_a_filter_matches(kept: list[bytes], pattern: bytes) -> None:
    topic_set = TopicSet()
    for topic in kept:
        topic_set.add(topic)
    for topic in kept[::3]:
        topic_set.discard(topic)
    left = {topic for topic in kept if topic not in kept[::3]}
    found = topic_set.matching(pattern, 10_000)
    assert found is not None
    assert sorted(found) == sorted(topic for topic in left if matches(pattern, topic))


def test_a_set_gives_up_when_a_filter_touches_too_much() -> None:
    topic_set = TopicSet()
    for number in range(100):
        topic_set.add(b"a/%d" % number)
    assert topic_set.matching(b"a/+", 50) is None
    assert topic_set.matching(b"a/7", 50) == [b"a/7"]


@examples(150)
@given(filters, filters)
def test_a_covering_filter_matches_all_that_the_covered_one_matches(one: bytes, other: bytes) -> None:
    assume(covers(one, other))
    assert all(matches(one, topic) for topic in every_topic if matches(other, topic))


@examples(150)
@given(filters, filters)
def test_filters_with_a_topic_in_common_overlap(one: bytes, other: bytes) -> None:
    assume(any(matches(one, topic) and matches(other, topic) for topic in every_topic))
    assert overlaps(one, other)
    assert overlaps(other, one)


@pytest.mark.req("O8")
def test_wildcards_at_the_first_level_do_not_see_system_topics() -> None:
    assert not matches(b"#", b"System/links")
    assert not matches(b"+/links", b"System/links")
    assert matches(b"System/#", b"System/links")
    assert is_system(b"Services/x")
    assert not is_system(b"Servicesx/x")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (b"", "empty"),
        (b"a//b", "empty level"),
        (b"/a", "empty level"),
        (b"a/", "empty level"),
        (b"a/\x00", "control"),
        (b"a/\xff", "UTF-8"),
        (b"a" * 1025, "1025 bytes"),
        (b"/".join([b"a"] * 33), "levels"),
        (b"a/+", "wildcards"),
        (b"a#", "wildcards"),
    ],
)
def test_a_bad_topic_is_told_what_is_wrong(name: bytes, fault: str) -> None:
    found = topic_fault(name)
    assert found is not None
    assert fault in found


@pytest.mark.parametrize(
    ("pattern", "good"),
    [
        (b"a/#", True),
        (b"#", True),
        (b"+/+", True),
        (b"a/#/b", False),
        (b"a#", False),
        (b"a+/b", False),
        (b"a/b#", False),
    ],
)
def test_filters_are_checked(pattern: bytes, good: bool) -> None:
    assert (filter_fault(pattern) is None) is good


@example(b"a/b", True)
@example(b"\xff", False)
@given(st.binary(max_size=40), st.none())
def test_any_bytes_are_judged_and_what_is_a_topic_is_a_filter_of_itself(name: bytes, good: bool | None) -> None:
    is_topic = topic_fault(name) is None
    assert good is None or is_topic is good
    plain = not set(name) & set(b"+#")
    assert is_topic == (plain and filter_fault(name) is None), "a topic is a filter without wildcards"
    assert not is_topic or matches(name, name)
