"""Summaries: a list says exactly what matches, a Bloom filter never no wrongly, and both are small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.model.topics import filter_fault, matches
from heliograph.stores.summary import (
    BLOOM_BYTES_MAX,
    LIST_BYTES_MAX,
    Block,
    FilterProbe,
    TopicSummary,
    summary_of,
)
from heliograph.vault import Run
from heliograph.wire.frames import event
from tests.examples import examples

pytestmark = pytest.mark.req("N10")
LEVELS = st.sampled_from(["a", "b", "a.b", "x$", "System", "Topics", "Ä"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map(lambda levels: "/".join(levels).encode())
FILTERS = st.tuples(st.lists(LEVELS | st.just("+"), max_size=4), st.booleans()).map(
    lambda pair: "/".join([*pair[0], *(["#"] if pair[1] or not pair[0] else [])]).encode()
)
MANY = [b"floor/%d/room/%03d" % (number % 7, number) for number in range(200)]


def run_of(topics: list[bytes], position: int = 0) -> Run:
    frames = b"".join(event(topic, b"x", 5, number + 1) for number, topic in enumerate(topics))
    return Run(position, len(topics), 1, 1, frames)


def summed(topics: list[bytes]) -> TopicSummary:
    """The summary of these, as a vault gives it back."""
    block = Block()
    assert block.add(run_of(topics, 7))
    made = block.take()
    found = summary_of(made.value(), made.next)
    assert found == made
    assert (made.first, made.next) == (7, 7 + len(topics))
    return made


@examples(200)
@given(st.lists(TOPICS, min_size=1, max_size=12), FILTERS)
def test_of_few_topics_it_says_exactly_what_a_filter_matches(topics: list[bytes], pattern: bytes) -> None:
    assert filter_fault(pattern) is None
    summary = summed(topics)
    assert summary.topics is not None
    assert sorted(summary.topics) == sorted(set(topics))
    assert summary.may_hold(FilterProbe(pattern)) == any(matches(pattern, topic) for topic in topics)


@examples(200)
@given(st.lists(TOPICS, min_size=1, max_size=12), FILTERS)
def test_of_many_topics_it_never_says_no_wrongly(topics: list[bytes], pattern: bytes) -> None:
    summary = summed([*MANY, *topics])
    assert summary.topics is None
    if any(matches(pattern, topic) for topic in [*MANY, *topics]):
        assert summary.may_hold(FilterProbe(pattern))


def test_of_many_topics_it_seldom_says_yes_wrongly() -> None:
    summary = summed([b"floor/%d/room/%d" % (number % 7, number) for number in range(2_000)])
    asked = [b"floor/%d/room/%d" % (number % 7, number) for number in range(2_000, 4_000)]
    asked += [b"roof/%d/#" % number for number in range(1_000)]
    asked += [b"floor/+/room/%d" % number for number in range(4_000, 5_000)]
    assert sum(summary.may_hold(FilterProbe(pattern)) for pattern in asked) < 0.08 * len(asked)
    for pattern in (b"floor/#", b"floor/3/#", b"floor/+/room/17", b"floor/3/room/17", b"+/+/room/+", b"#"):
        assert summary.may_hold(FilterProbe(pattern))


@pytest.mark.parametrize("count", [1, 30, 3_000, 40_000])
def test_it_has_a_bounded_size(count: int) -> None:
    topics = [b"%d/%d/%d" % (number, number, number) for number in range(count)]
    assert len(summed(topics).value()) <= max(BLOOM_BYTES_MAX, LIST_BYTES_MAX) + 9


@pytest.mark.parametrize("value", [None, b"", bytes(8), bytes(9), b"\0" * 8 + b"\7later", b"\5" + bytes(7) + b"\0a"])
def test_a_value_that_is_damaged_or_of_a_later_form_says_nothing(value: bytes | None) -> None:
    assert summary_of(value, 5) is None


def test_of_bytes_that_are_not_the_publications_of_their_run_nothing_is_known() -> None:
    block, run = Block(), run_of([b"a", b"b"])
    assert block.add(run)
    assert not block.add(Run(2, 2, 1, 1, run.data[:-1]))
    assert block.bytes == 0
    assert block.add(run_of([b"c"], 4))
    assert block.take() == TopicSummary(4, 5, b"c")


def test_a_topic_with_a_line_feed_is_not_taken_for_two() -> None:
    summary = summed([b"a\nb"])  # no broker lets it pass; a vault may hold it all the same
    assert summary.topics is None
    assert summary.may_hold(FilterProbe(b"a\nb"))
