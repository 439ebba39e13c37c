"""Answers of a directory: topics of several owners in one page, and more topics than its first page has."""

from __future__ import annotations

import pytest

from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.messages import TopicKind, TopicMessage, TopicQuery, pack
from heliograph.discovery.topics.topic_searches import FOUND_AT_FIRST, _items
from heliograph.repository import TopicEntry
from tests.discovery.topics.stage import TopicStage, a_creation


def an_entry(number: int, *chains: bytes) -> TopicEntry:
    record = pack(TopicMessage(TopicKind.ADVERTISE, 1, chains, b"signed by %d" % number))
    return TopicEntry(id=bytes([number]) * 16, owner="o", created_ms=0, issued_ms=0, expires_ms=0, record=record)


@pytest.mark.req("T8")
def test_a_page_has_each_topic_as_its_owner_signed_it_and_each_chain_once() -> None:
    ways = [(b"alice", b"tdn"), (b"alice", b"tdn"), (b"bob", b"tdn"), (b"alice",), (), (), (b"alice", b"tdn")]
    chains: dict[bytes, None] = {}
    items = _items([an_entry(number, *way) for number, way in enumerate(ways)], "changed", chains)
    assert [item.advertise for item in items] == [b"signed by %d" % number for number in range(len(ways))]
    assert {item.change for item in items} == {"changed"}
    assert list(chains) == [b"alice", b"tdn", b"bob"]


@pytest.mark.req("T8", "T13")
@pytest.mark.parametrize("newest_first", [False, True])
def test_topics_beyond_the_first_page_are_found_once(newest_first: bool) -> None:
    stage = TopicStage(entities=("alice", "bob", "carol"))
    made = FOUND_AT_FIRST + 4
    for number in range(made):
        assert stage.create("alice" if number % 2 else "carol", a_creation("alice" if number % 2 else "carol")).result
    for count, expected in ((made, made), (FOUND_AT_FIRST, FOUND_AT_FIRST), (made - 1, made - 1), (100, made)):
        finder = stage.search(query=TopicQuery("keywords", "temperature", newest_first=newest_first), count=count)
        found = finder.take()
        assert len({topic.advertisement.id for topic in found}) == len(found) == expected
        assert finder.result.refused == {}
        assert bool(finder.result.left_out) == (count < made)


@pytest.mark.req("T8", "T13")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("watch", [False, True])
def test_a_page_that_is_lost_is_asked_for_again(seed: int, watch: bool) -> None:
    losses = {TopicKind.FOUND: 0.0}
    stage = TopicStage(seed=seed, losses=losses)
    made = FOUND_AT_FIRST + 4
    for _ in range(made):
        assert stage.create().result
    losses[TopicKind.FOUND] = 0.6
    query = TopicQuery("keywords", "temperature")
    finder = stage.begin("bob", lambda say, seed: TopicFinder(say, query, seed, watch=watch, timeout_ms=20_000))
    assert isinstance(finder, TopicFinder)
    stage.finish(finder, 25)
    assert len(finder.take()) == made
    assert stage.machine("tdn-1").report("overview")["watches"] == watch, "what it began anew left nothing behind"
    assert watch or finder.result.left_out == ()
