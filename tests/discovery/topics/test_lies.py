"""A topic directory that lies in a search: what it makes up is refused, counted, and silences no other directory."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.finder import SETTLE_MS, TopicFinder
from heliograph.discovery.topics.listing import advertised
from heliograph.discovery.topics.messages import Advertise, FoundItem, FoundPage, Search, TopicKind, TopicQuery
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from tests.discovery.topics.stage import WALL_NS, a_creation, keyring_of, with_id

WALL_MS = WALL_NS // NS_PER_MS
NOW = 5 * NS_PER_MS


def says(entity: str, role: Role = Role.CLIENT) -> Statements:
    return Statements(keyring_of(entity, role))


def an_item(
    number: int = 1,
    *,
    creator: str = "alice",
    countersigner: str = "alice",
    signer: Role = Role.DIRECTORY,
    expires_ms: int = WALL_MS + 60_000,
    space: str = "hall",
    id: bytes = b"",
) -> FoundItem:
    made = advertised(
        a_creation(creator, space=space), number.to_bytes(16, "big"), "tdn-1", WALL_MS, WALL_MS, expires_ms
    )
    signed = says("tdn-1", signer).sign_advertisement(with_id(made, id) if id else made)
    body = messages.encode_body(Advertise(bytes(16), WALL_MS, signed))
    return FoundItem(keyring_of(countersigner).sign(messages.domain_of(TopicKind.ADVERTISE), body))


class Asked:
    """bob's search, and directories that answer it."""

    def __init__(self, query: TopicQuery | None = None, **options: Any) -> None:
        self.finder = TopicFinder(says("bob"), query or TopicQuery(space="hall"), bytes(32), **options)
        self.finder.start(WALL_NS, 0)
        [(_, message)] = self.finder.outgoing
        directory = says("tdn-1", Role.DIRECTORY)
        self.request = directory.body(directory.read(message, WALL_NS), Search).id

    def answer(self, *items: FoundItem, by: str = "tdn-1", last: bool = True) -> None:
        own = [keyring_of("bob").own, keyring_of("alice").own, keyring_of("tdn-1", Role.CLIENT).own]
        own.append(keyring_of("tdn-1", Role.DIRECTORY).own)
        chains = tuple(one.chain for one in own if one is not None)
        bob = self.finder._statements.keyring.learn(chains[0], WALL_NS)
        page = FoundPage(self.request, by, list(items), last=last)
        self.finder.hear(says(by, Role.DIRECTORY).write(page, bob, chains), NOW)

    def finish(self) -> Any:
        self.finder.wake(NOW + SETTLE_MS * NS_PER_MS)
        assert self.finder.is_over
        return self.finder.result


ALICES = advertised(a_creation("alice"), (2).to_bytes(16, "big"), "tdn-1", WALL_MS, WALL_MS, WALL_MS).id
RANDOM = bytes.fromhex("75a5f5d228bd4fa8b1213fe126faea40")
LIES = {
    "an advertisement that no directory signed": (an_item(signer=Role.CLIENT), "signer_no_directory"),
    "an advertisement that was altered": (
        FoundItem(an_item().advertise[:-3] + b"abc"),
        "body_malformed",
    ),
    "alice's UUID, signed for another": (an_item(creator="bob", countersigner="bob", id=ALICES), "topic_id_unbound"),
    "a random UUID, of version 4": (an_item(id=RANDOM), "topic_id_unbound"),
    "an expired advertisement": (an_item(expires_ms=WALL_MS - 1), "topic_expired"),
    "another topic than was asked for": (an_item(space="elsewhere"), "topic_unwanted"),
    "no advertisement": (FoundItem(b"x" * 200), "body_malformed"),
}


@pytest.mark.req("T13")
@pytest.mark.parametrize(("lie", "reason"), LIES.values(), ids=LIES.keys())
def test_a_lie_is_refused_and_counted_and_the_truth_beside_it_is_found(lie: FoundItem, reason: str) -> None:
    asked = Asked()
    asked.answer(lie, an_item(2))
    assert [one.advertisement.nonce for one in asked.finder.take()] == [(2).to_bytes(16, "big")]
    refused = asked.finish().refused
    assert refused == {reason: 1} or (reason == "body_malformed" and sum(refused.values()) == 1)


@pytest.mark.req("T13")
def test_a_topic_in_the_name_of_an_entity_that_did_not_sign_is_told_by_its_signature() -> None:
    asked = Asked()
    asked.answer(an_item(creator="carol", countersigner="alice"))
    [found] = asked.finder.take()
    with pytest.raises(ProtocolError) as caught:
        found.owner(asked.finder._statements, WALL_NS)
    assert caught.value.reason is Reason.OWNER_OTHER


@pytest.mark.req("T13")
def test_repeated_results_count_once_and_more_than_was_asked_for_is_refused() -> None:
    asked = Asked(count=2)
    asked.answer(*[an_item(1)] * 5, last=False)
    asked.answer(*(an_item(number) for number in (2, 3, 4)))
    assert len(asked.finder.take()) == 2
    assert asked.finder.result.refused == {"topic_older": 4, "search_over_budget": 2}


@pytest.mark.req("T13")
def test_a_directory_that_claims_to_be_all_there_is_silences_no_other() -> None:
    asked = Asked()
    asked.answer(by="tdn-9")
    assert not asked.finder.is_over
    asked.answer(an_item(1))
    assert len(asked.finder.take()) == 1
    assert asked.finish().directories == ("tdn-9", "tdn-1")
    known = Asked(known=("tdn-1", "tdn-9"))
    known.answer(by="tdn-9")
    known.finder.wake(NOW + SETTLE_MS * NS_PER_MS)
    assert not known.finder.is_over, "the other one has answered before, so it is expected"


@pytest.mark.req("T13")
def test_an_answer_in_the_name_of_another_directory_is_refused() -> None:
    asked = Asked()
    page = FoundPage(asked.request, "tdn-1", [an_item(1)], last=True)
    bob = asked.finder._statements.keyring.learn(keyring_of("bob").own.chain, WALL_NS)  # type: ignore[union-attr]
    asked.finder.hear(says("tdn-9", Role.DIRECTORY).write(page, bob), NOW)
    assert asked.finder.refused == {"signer_no_directory": 1}
    assert asked.finder.take() == []


@pytest.mark.req("T13")
def test_with_enough_topics_a_search_waits_for_no_other_directory() -> None:
    asked = Asked(count=1)
    asked.answer(an_item(1))
    assert asked.finder.is_over
    assert asked.finder.is_cut
    newest = Asked(TopicQuery(space="hall", newest_first=True), count=1)
    newest.answer(an_item(1))
    assert not newest.finder.is_over, "another directory may have a newer one"


@pytest.mark.req("T13")
def test_a_search_by_xquery_that_no_directory_answers_says_why_owners_are_not_asked() -> None:
    asked = Asked(TopicQuery("xquery", "true()"), timeout_ms=2_000)
    for ms in range(100, 3_000, 100):
        asked.finder.wake(ms * NS_PER_MS)
    assert not any(topic.endswith("Owners") for topic, _ in asked.finder.outgoing)
    assert "XQuery" in str(asked.finder.error)
