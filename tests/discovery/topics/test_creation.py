"""Creating topics: what directories sign, what creators accept, what is left over when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.creation import OwnTopic, Renewal, TopicCreation, TopicWithdrawal
from heliograph.discovery.topics.finder import TopicFinder
from heliograph.discovery.topics.listing import (
    Creation,
    Descriptors,
    Synopsis,
    advertised,
    check_creation,
    decode_creation,
    encode_creation,
    id_of,
)
from heliograph.discovery.topics.messages import Advertise, Created, TopicKind, TopicQuery
from heliograph.discovery.topics.owners import OwnTopics
from heliograph.discovery.topics.statements import Statements
from heliograph.discovery.topics.watches import Watches
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.model.identity import Role
from heliograph.repository import TopicEntry, TopicQuestion
from heliograph.sim.loop import SECOND
from heliograph.sim.topic_party import Restore
from heliograph.trust import envelope
from tests.discovery.topics.stage import WALL_NS, TopicStage, a_creation, keyring_of, with_id

LISTING = Descriptors(path="plant/hall-3", text="temperature", keywords=["sensor"], properties={"floor": 3})


@pytest.mark.req("T1")
@pytest.mark.req("T6")
@pytest.mark.req("T7")
def test_a_topic_is_created_signed_countersigned_stored_and_found_from_another_broker() -> None:
    stage = TopicStage(brokers=3)
    created = stage.create()
    assert created.error is None
    own: OwnTopic = created.result
    assert own.topic == f"Topics/{own.advertisement.uuid}/temperature"
    assert (own.advertisement.creator, own.directory, own.stored_by) == ("alice", "tdn-1", ("tdn-1",))
    assert [name for name, _ in created.steps] == ["locate", "create", "advertise"]
    id, other = own.advertisement.id, stage.create().result.advertisement
    assert (id[6] >> 4, id[8] >> 6) == (8, 2), "version and variant: the rest is a hash of creator and nonce"
    assert own.advertisement.id == id_of("alice", own.advertisement.nonce) != id_of("bob", own.advertisement.nonce)
    assert other.id != own.advertisement.id
    finder = stage.search("bob", TopicQuery(topics=[own.advertisement.id]))
    [found] = finder.take()
    assert found.advertisement == own.advertisement
    assert found.owner(stage.machine("bob").statements, WALL_NS).identity.entity == "alice"
    assert finder.result.directories == ("tdn-1",)


@pytest.mark.req("T6")
def test_a_directory_keeps_nothing_of_a_creation_that_was_not_advertised() -> None:
    stage = TopicStage(losses={TopicKind.ADVERTISE: 1.0})
    created = stage.create(timeout_ms=3_000)
    assert created.error is not None
    assert created.error.reason is Reason.ADVERTISEMENT_UNSTORED  # type: ignore[attr-defined]
    assert stage.machine("tdn-1").report("overview")["topics"] == 0
    assert stage.search("bob").result.topics == 0


@pytest.mark.req("T3")
@pytest.mark.parametrize(
    ("synopsis", "ends"),
    [
        (Synopsis("string", "a/b"), "/a/b"),
        (Synopsis("integer", "42"), "/42"),
        (Synopsis("tags", "class=stock,price=9"), "/class=stock,price=9"),
        (Synopsis("properties", "price"), ""),
        (Synopsis("xml", "<x/>"), ""),
    ],
)
def test_each_synopsis_stands_where_subscriptions_read_it(synopsis: Synopsis, ends: str) -> None:
    made = advertised(a_creation(synopsis=synopsis), bytes(16), "tdn-1", 1, 1, 2)
    assert made.synopsis.topic == f"Topics/{made.uuid}{ends}"


@pytest.mark.req("T2")
@pytest.mark.parametrize(
    ("creation", "reason"),
    [
        (a_creation(synopsis=Synopsis("integer", "many")), Reason.SYNOPSIS_INVALID),
        (a_creation(synopsis=Synopsis("string", "a/#")), Reason.SYNOPSIS_INVALID),
        (a_creation(synopsis=Synopsis("klingon")), Reason.SYNOPSIS_INVALID),
        (a_creation(descriptors=Descriptors(path="a//b")), Reason.DESCRIPTORS_INVALID),
        (a_creation(descriptors=Descriptors(text="x" * 70_000)), Reason.DESCRIPTORS_OVER_LIMIT),
        (a_creation(descriptors=Descriptors(document="<a>")), Reason.DOCUMENT_INVALID),
        (
            a_creation(descriptors=Descriptors(document='<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')),
            Reason.DOCUMENT_INVALID,
        ),
        (a_creation("not an entity"), Reason.DESCRIPTORS_INVALID),
    ],
)
def test_a_creation_that_makes_no_sense_is_refused_before_it_is_sent(creation: Creation, reason: Reason) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_creation(creation)
    assert caught.value.reason is reason
    with pytest.raises(UsageError):
        TopicCreation(Statements(keyring_of("alice")), creation, b"")


@pytest.mark.req("T6")
def test_nobody_creates_a_topic_in_the_name_of_another() -> None:
    stage = TopicStage()
    created = stage.create("bob", a_creation("alice"), timeout_ms=3_000)
    assert created.error is not None
    assert "owner_other" in str(created.error)
    assert stage.counts()["owner_other"] == 1


@pytest.mark.req("T6")
def test_a_uuid_is_the_directorys_and_no_two_are_equal() -> None:
    stage = TopicStage()
    ids = {stage.create().result.advertisement.id for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.req("T5")
def test_the_first_directory_that_answers_is_taken_and_a_named_one_where_one_is_named() -> None:
    both = {"tdn-1": TopicDirectoryConfig(), "tdn-2": TopicDirectoryConfig()}
    stage = TopicStage(brokers=2, directories=both)
    assert stage.create("alice", directory="tdn-1").result.directory == "tdn-1"
    assert stage.create("alice", directory="tdn-2").result.directory == "tdn-2"
    finder = stage.search("bob", directories=("tdn-1", "tdn-2"))
    assert sorted(finder.result.directories) == ["tdn-1", "tdn-2"]
    assert len(finder.take()) == 2, "each was stored by both, and is found once"


@pytest.mark.req("T4")
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (TopicDirectoryConfig(institutions=("IU",)), "topic_unwanted"),
        (TopicDirectoryConfig(creators=("carol", "s-*")), "topic_unwanted"),
        (TopicDirectoryConfig(spaces=("plant",)), "topic_unwanted"),
        (TopicDirectoryConfig(where="floor > 5"), "topic_unwanted"),
        (TopicDirectoryConfig(signers=("tdn-9",)), "signer_unwanted"),
        (TopicDirectoryConfig(topics_max=1, topics_per_owner_max=1), None),
    ],
)
def test_each_directory_stores_by_its_own_policy(policy: TopicDirectoryConfig, reason: str | None) -> None:
    stage = TopicStage(directories={"tdn-1": TopicDirectoryConfig(), "tdn-2": policy})
    created = stage.create(directory="tdn-1")
    assert created.result.directory == "tdn-1"
    stage.run(1)
    counts = stage.counts("tdn-2")
    if reason is None:
        assert counts["stored"] == 1
        assert stage.create(directory="tdn-1").error is None
        stage.run(1)
        assert stage.counts("tdn-2")["topics_over_quota"] == 1
    else:
        assert counts[reason] >= 1
        assert "stored" not in counts


@pytest.mark.req("T4")
def test_a_directory_that_answers_some_entities_stays_silent_to_others() -> None:
    stage = TopicStage(directories={"tdn-1": TopicDirectoryConfig(answers=("alice",))})
    assert stage.create("alice").error is None
    assert stage.search("bob", timeout_ms=700, owners=False).error is not None
    assert stage.counts()["discovery_denied"] >= 1


@pytest.mark.req("T9")
def test_owners_renew_and_withdraw_and_others_cannot() -> None:
    stage = TopicStage()
    own: OwnTopic = stage.create(creation=a_creation(lifetime_s=60)).result
    message = messages.unpack(own.record)
    signed = messages.decode_body(Advertise, envelope.decode(message.body).payload).advertisement
    renewal = Renewal(signed, message.chains, 7_200)
    stolen = stage.finish(stage.begin("bob", lambda say, seed: TopicCreation(say, renewal, seed, timeout_ms=3_000)))
    assert "owner_other" in str(stolen.error)
    renewed = stage.finish(stage.begin("alice", lambda say, seed: TopicCreation(say, renewal, seed))).result
    assert (renewed.advertisement.id, renewed.advertisement.nonce) == (own.advertisement.id, own.advertisement.nonce)
    assert renewed.advertisement.expires_ms > own.advertisement.expires_ms
    stage.run(70)
    assert stage.search("bob").result.topics == 1, "the first lifetime is over, the second is not"
    id = own.advertisement.id
    taken = stage.finish(stage.begin("bob", lambda say, seed: TopicWithdrawal(say, id, seed, timeout_ms=2_000)))
    assert taken.error is not None
    assert stage.finish(stage.begin("alice", lambda say, seed: TopicWithdrawal(say, id, seed))).result == "tdn-1"
    assert stage.search("bob").result.topics == 0


@pytest.mark.req("T9")
def test_an_expired_topic_is_not_found_and_is_removed() -> None:
    stage = TopicStage()
    stage.create(creation=a_creation(lifetime_s=5))
    assert stage.search("bob").result.topics == 1
    stage.run(8)
    assert stage.search("bob").result.topics == 0
    assert stage.machine("tdn-1").report("overview")["topics"] == 0


@pytest.mark.req("T9")
def test_an_advertisement_lives_no_longer_than_the_certificates_that_signed_it() -> None:
    stage = TopicStage()
    own: OwnTopic = stage.create(creation=a_creation(lifetime_s=10 * 365 * 86_400)).result
    statements = Statements(keyring_of("tdn-1", Role.DIRECTORY))
    holder = statements.keyring.learn(messages.unpack(own.record).chains[1], WALL_NS)
    assert own.advertisement.expires_ms <= holder.ends * 1_000


@pytest.mark.req("T7")
def test_a_creator_refuses_what_a_lying_directory_signed() -> None:
    """The directory signs something else than was asked for, or a UUID of its choice, or signs without being one."""
    alice = Statements(keyring_of("alice"))
    for role, creation, chosen in (
        (Role.DIRECTORY, a_creation(space="other"), b""),
        (Role.DIRECTORY, a_creation(), bytes(6) + b"\x80\0" + b"\x80" + bytes(7)),
        (Role.CLIENT, a_creation(), b""),
    ):
        liar = Statements(keyring_of("tdn-9", role))
        conversation = TopicCreation(alice, a_creation(), b"seed", timeout_ms=5_000)
        conversation.start(WALL_NS, 0)
        locate = messages.decode_body(
            messages.Locate, envelope.decode(messages.unpack(conversation.outgoing.pop()[1]).body).payload
        )
        me = liar.keyring.learn(alice.keyring.own.chain, WALL_NS)  # type: ignore[union-attr]
        conversation.hear(liar.write(messages.Located(locate.id, "tdn-9"), me), 1)
        if role is Role.CLIENT:
            assert "role_missing" in conversation.refusals[0]
            continue
        _, sent = conversation.outgoing.pop()
        create = liar.body(liar.read(sent, WALL_NS), messages.Create)
        now_ms = WALL_NS // 1_000_000
        made = advertised(creation, bytes(16), "tdn-9", now_ms, now_ms, now_ms + 9_000)
        forged = liar.sign_advertisement(with_id(made, chosen) if chosen else made)
        conversation.hear(liar.write(Created(create.id, forged), me), 2)
        assert conversation.is_over
        assert "creation_failed" in str(conversation.error)
        assert ("topic_id_unbound" in str(conversation.error)) == bool(chosen)


@pytest.mark.req("T10")
def test_without_a_directory_owners_that_are_present_answer() -> None:
    stage = TopicStage(brokers=2)
    own = stage.create().result
    stage.world.crash(stage.world.hosts["tdn-1"])
    finder = stage.search("bob", timeout_ms=5_000)
    [found] = finder.take()
    assert found.advertisement == own.advertisement
    assert (finder.result.directories, finder.result.owners, found.told_by) == ((), ("alice",), "alice")


@pytest.mark.req("T10")
def test_an_owner_in_a_new_session_answers_for_the_topics_of_the_last_one() -> None:
    stage = TopicStage(brokers=2)
    own = stage.create(creation=a_creation(lifetime_s=30)).result
    other = stage.create("bob").result
    alice = stage.world.hosts["alice"]
    stage.world.crash(alice)
    stage.world.start(alice)
    stage.run(1)
    stage.world.crash(stage.world.hosts["tdn-1"])
    alice.tell(alice.seat("party"), Restore((own.record, other.record, b"no record")))
    finder = stage.search("bob", timeout_ms=5_000)
    assert [(one.advertisement, one.told_by) for one in finder.take()] == [(own.advertisement, "alice")]
    stage.run(30)
    late = stage.search("bob", timeout_ms=5_000)
    assert late.take() == [], "its life is over"


@pytest.mark.req("T10")
def test_of_two_versions_of_a_kept_topic_the_newer_one_counts() -> None:
    stage = TopicStage()
    old: OwnTopic = stage.create(creation=a_creation(lifetime_s=60)).result
    message = messages.unpack(old.record)
    signed = messages.decode_body(Advertise, envelope.decode(message.body).payload).advertisement
    renewal = Renewal(signed, message.chains, 7_200)
    new = stage.finish(stage.begin("alice", lambda say, seed: TopicCreation(say, renewal, seed))).result
    own = OwnTopics(stage.machine("alice").statements)
    for record in (new.record, old.record):
        assert own.restore(record, WALL_NS) == old.advertisement.id
    kept = own.get(old.advertisement.id)
    assert kept is not None
    assert kept.advertisement == new.advertisement
    with pytest.raises(ProtocolError, match="owner_other"):
        OwnTopics(stage.machine("bob").statements).restore(new.record, WALL_NS)


@pytest.mark.req("T10")
def test_with_nobody_at_all_a_search_and_a_creation_fail_with_a_reason() -> None:
    stage = TopicStage(directories={})
    assert stage.search("bob", timeout_ms=3_000).error.reason is Reason.DIRECTORIES_MISSING  # type: ignore[union-attr]
    assert stage.create(timeout_ms=2_000).error.reason is Reason.DIRECTORIES_MISSING  # type: ignore[union-attr]


@pytest.mark.req("T8")
def test_a_standing_search_hears_what_appears_changes_and_goes() -> None:
    stage = TopicStage(brokers=2)
    query = TopicQuery("sql", "floor = 3")
    watch = stage.begin("bob", lambda say, seed: TopicFinder(say, query, seed, watch=True))
    assert isinstance(watch, TopicFinder)
    stage.run(1)
    own: OwnTopic = stage.create(creation=a_creation(lifetime_s=30)).result
    stage.create(creation=a_creation(descriptors=Descriptors(properties={"floor": 4})))
    stage.run(1)
    assert [found.change for found in watch.take()] == ["appeared"]
    message = messages.unpack(own.record)
    signed = messages.decode_body(Advertise, envelope.decode(message.body).payload).advertisement
    renewal = Renewal(signed, message.chains, 50)
    stage.finish(stage.begin("alice", lambda say, seed: TopicCreation(say, renewal, seed)))
    stage.run(1)
    assert [found.change for found in watch.take()] == ["changed"]
    stage.run(55)
    assert [found.change for found in watch.take()] == ["gone"], "the watch was renewed meanwhile, and it expired"


@pytest.mark.req("T8")
@pytest.mark.req("T12")
def test_a_restricted_topic_is_found_by_its_readers_only() -> None:
    stage = TopicStage(entities=("alice", "bob", "carol"))
    stage.create(creation=a_creation(readers=["carol"]))
    assert stage.search("bob").result.topics == 0
    assert stage.search("carol").result.topics == 1
    assert stage.search("alice").result.topics == 1, "its owner"


@pytest.mark.req("T8")
@pytest.mark.req("T12")
@pytest.mark.parametrize("query", [TopicQuery("sql", "floor = 3"), TopicQuery("keywords", "temperature")])
def test_a_standing_search_is_told_of_restricted_topics_only_if_its_asker_reads_them(query: TopicQuery) -> None:
    """With an index (sql) and without one (keywords)."""
    stage = TopicStage(entities=("alice", "bob", "carol"))
    asked = {
        entity: stage.begin(entity, lambda say, seed: TopicFinder(say, query, seed, watch=True))
        for entity in ("alice", "bob", "carol")
    }
    stage.run(1)
    stage.create(creation=a_creation(readers=["carol"]))
    stage.create(creation=a_creation())
    stage.run(1)
    told = {entity: watch.take() for entity, watch in asked.items() if isinstance(watch, TopicFinder)}
    assert {entity: len(found) for entity, found in told.items()} == {"alice": 2, "bob": 1, "carol": 2}


@pytest.mark.req("T8")
@pytest.mark.req("T12")
@pytest.mark.parametrize(("language", "text"), [("sql", "floor = 3"), ("keywords", "temperature"), ("", "")])
def test_a_change_concerns_the_standing_searches_of_those_who_may_see_it(language: str, text: str) -> None:
    """So no query is run on what its asker may not see, not even to find out that nothing has to be told."""
    watches = Watches(10, 10)
    entry = TopicEntry(
        id=bytes(16),
        owner="alice",
        readers=("carol",),
        words="temperature",
        properties={"floor": 3},
        created_ms=1,
        issued_ms=1,
        expires_ms=2,
    )
    for entity, granted in (("alice", ()), ("bob", ()), ("carol", ()), ("dora", (bytes(16),)), ("erin", (b"x" * 16,))):
        question = TopicQuestion(language=language, text=text, asker=entity, granted=granted)
        ring = keyring_of(entity)
        assert ring.own is not None
        watches.add(b"1", ring.learn(ring.own.chain, WALL_NS), question, {}, SECOND)
    assert [watch.asker.identity.entity for watch in watches.concerned(entry)] == ["alice", "carol", "dora"]


REFUSED: dict[str, Any] = {
    "not a number": {"descriptors": Descriptors(properties={"x": float("nan")})},
    "infinity": {"descriptors": Descriptors(properties={"x": float("-inf")})},
    "a number of 65 bits": {"descriptors": Descriptors(properties={"x": 1 << 64})},
    "NUL in a property": {"descriptors": Descriptors(properties={"x": "a\0b"})},
    "NUL in the name of a property": {"descriptors": Descriptors(properties={"a\0b": 1})},
    "NUL in a keyword": {"descriptors": Descriptors(keywords=["a\0b"])},
    "NUL in the text": {"descriptors": Descriptors(text="a\0b")},
    "NUL in the path": {"descriptors": Descriptors(path="a\0b")},
    "NUL in the institution": {"institution": "a\0b"},
    "NUL in the space": {"space": "a\0b"},
    "NUL in a reader": {"readers": ["a\0b"]},
}


@pytest.mark.req("O6", "T7")
@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
def test_what_not_every_repository_can_keep_is_refused_by_client_and_directory_alike(fields: dict[str, Any]) -> None:
    creation = a_creation(**fields)
    with pytest.raises(UsageError, match="descriptors_invalid"):
        TopicCreation(Statements(keyring_of("alice")), creation, bytes(32))
    if creation.descriptors.properties.get("x") != 1 << 64:  # which no client can encode
        with pytest.raises(ProtocolError) as caught:
            decode_creation(encode_creation(creation))
        assert caught.value.reason is Reason.DESCRIPTORS_INVALID


@pytest.mark.req("O6", "T8")
def test_a_search_with_nul_is_answered_with_its_reason() -> None:
    stage = TopicStage()
    finder = stage.search("bob", TopicQuery("keywords", "hall\0three"))
    assert finder.error is not None
    assert finder.error.reason is Reason.QUERY_INVALID
    assert stage.counts()["query_invalid"] == 1
