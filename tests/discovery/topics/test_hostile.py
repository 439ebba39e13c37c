"""Hostile input at a topic directory: each attack is refused with a counted reason, and nobody else is harmed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.change_teller import TOLD_AT_ONCE, ChangeTeller
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.directory import TICK_NS, TopicDirectory
from heliograph.discovery.topics.listing import Descriptors, advertised, decode_advertisement, decode_creation
from heliograph.discovery.topics.messages import Advertise, Create, Locate, Search, TopicKind, TopicMessage, TopicQuery
from heliograph.discovery.topics.queries import Matcher, entry_of
from heliograph.discovery.topics.statements import Statements
from heliograph.discovery.topics.watches import Watch
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Peer, Timers
from heliograph.model.identity import Role
from heliograph.model.publication import Publication
from heliograph.notes import Note, TopicsDamaged, TopicsOutdated
from heliograph.repository import AskTopics, KeepTopics, RepositoryOpened, SiftDocuments, Sifted, TopicQuestion
from heliograph.sim import repositories
from heliograph.sim.repositories import MemoryRepository, outcome_of
from heliograph.trust.keyring import Keyring
from heliograph.wire.frames import Kind, control
from tests.discovery.topics.stage import WALL_NS, a_creation, keyring_of, with_id
from tests.trust.parties import garbled

WALL_MS = WALL_NS // 1_000_000


class Bench:
    """A directory alone, on a pipe, with a repository in memory: bytes in, counted reasons out."""

    def __init__(self, config: TopicDirectoryConfig | None = None) -> None:
        self.sifting: list[int] = []  # tickets of XQuery, which runs in a process of its own
        self.directory = TopicDirectory(
            config or TopicDirectoryConfig(), seed=1, keyring=keyring_of("tdn-1", Role.DIRECTORY)
        )
        self.repository = MemoryRepository()
        self.directory.clock(WALL_NS, 0)
        self.directory.attach(1, Peer("pipe", "broker"), 0)
        self.directory.receive(1, control(Kind.WELCOME, 0, b"{}"), 0)
        self.directory.tell(RepositoryOpened(0, 0), 0)
        self.sequence = 0
        self.now = 0
        self.answers = 0
        self.sent: list[bytes] = []  # what it wrote after each input

    def hear(self, payload: bytes, now: int = 0) -> dict[str, int]:
        """What a publication changes in the counts."""
        before = dict(self.counts())
        self.sequence += 1
        self.directory._heard(Publication("x", payload, 1, self.sequence, b""), now or self.now)
        self.settle()
        return {name: count - before.get(name, 0) for name, count in self.counts().items() if count != before.get(name)}

    def settle(self) -> list[Note]:
        """Answers the directory until it asks nothing more; its notes."""
        noted: list[Note] = []
        for _ in range(1_000):
            effects = self.directory.take()
            self.answers += len(effects.writes)
            self.sent.append(b"".join(b"".join(frames) for _, frames in effects.writes))
            noted += effects.notes
            if not effects.jobs:
                if effects.wake_at is None or effects.wake_at > self.now:
                    break
                self.directory.wake(self.now)
            for ticket, job in effects.jobs:
                if isinstance(job, SiftDocuments):
                    self.sifting.append(ticket)
                    continue
                outcome = outcome_of(self.repository, job)  # type: ignore[arg-type]
                if isinstance(outcome, Reason):
                    self.directory.failed(ticket, outcome, self.now)
                else:
                    self.directory.done(ticket, outcome, self.now)
        return noted

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.directory.report("overview")["counts"]
        return counts


def says(entity: str, role: Role = Role.CLIENT) -> Statements:
    return Statements(keyring_of(entity, role))


def an_id(number: int = 1) -> bytes:
    return number.to_bytes(16, "big")


def signed_by_directory(
    creation: Any = None, *, id: bytes = b"", nonce: bytes = an_id(7), role: Role = Role.DIRECTORY, **more: int
) -> bytes:
    times = {"created_ms": WALL_MS, "issued_ms": WALL_MS, "expires_ms": WALL_MS + 60_000} | more
    signer = says("tdn-1", role)
    made = advertised(
        creation or a_creation(), nonce, "tdn-1", times["created_ms"], times["issued_ms"], times["expires_ms"]
    )
    return signer.sign_advertisement(with_id(made, id) if id else made)


def advertise(
    entity: str, advertisement: bytes, *, id: bytes = an_id(), issued_ms: int = WALL_MS, role: Role = Role.DIRECTORY
) -> bytes:
    signer = keyring_of("tdn-1", role).own
    assert signer is not None
    return says(entity).write(Advertise(id, issued_ms, advertisement), chains=(signer.chain,))


FINE = advertise("alice", signed_by_directory(), id=an_id(99))
OURS = advertised(a_creation(), an_id(7), "tdn-1", WALL_MS, WALL_MS, WALL_MS + 60_000)


def unsigned() -> bytes:
    body = messages.encode_body(Locate(an_id(), WALL_MS))
    return messages.pack(TopicMessage(TopicKind.LOCATE, 0, (), body))


def stranger() -> bytes:
    from heliograph.trust.chains import Authorities
    from heliograph.trust.keyring import Own
    from tests.trust.parties import AUTHORITY, CLIENT

    rival = Keyring(Authorities.from_pem(AUTHORITY.certificate), Own.from_pem(CLIENT.certificate, CLIENT.key))
    return Statements(rival).write(Locate(an_id(), WALL_MS))


ATTACKS: list[tuple[str, Callable[[], bytes], str]] = [
    ("a message that nobody signed", unsigned, "credential_missing"),
    ("a certificate of another authority", stranger, "certificate_untrusted"),
    ("an advertisement of another's topic", lambda: advertise("bob", signed_by_directory()), "owner_other"),
    (
        "an advertisement that no directory signed",
        lambda: advertise("alice", signed_by_directory(role=Role.CLIENT), role=Role.CLIENT),
        "signer_no_directory",
    ),
    (
        "an expired advertisement",
        lambda: advertise("alice", signed_by_directory(expires_ms=WALL_MS - 1)),
        "topic_expired",
    ),
    (
        "an advertisement of alice's UUID that a directory signed for bob",
        lambda: advertise("bob", signed_by_directory(a_creation("bob"), id=OURS.id)),
        "topic_id_unbound",
    ),
    (
        "an advertisement with a random UUID, of version 4",
        lambda: advertise("alice", signed_by_directory(id=bytes.fromhex("75a5f5d228bd4fa8b1213fe126faea40"))),
        "topic_id_unbound",
    ),
    ("an old statement", lambda: advertise("alice", signed_by_directory(), issued_ms=WALL_MS - 60_000), "stale"),
    (
        "a statement of the future",
        lambda: advertise("alice", signed_by_directory(), issued_ms=WALL_MS + 60_000),
        "stale",
    ),
    (
        "a creation for somebody else",
        lambda: says("bob").write(Create(an_id(), WALL_MS, a_creation("alice"))),
        "owner_other",
    ),
    ("an answer of a directory", lambda: says("bob").write(messages.Located(an_id(), "tdn-1")), "kind_unexpected"),
    ("another's seal", lambda: says("bob").write(Locate(an_id(), WALL_MS), _holder("alice")), "seal_broken"),
]


def _holder(entity: str) -> Any:
    ring = keyring_of(entity)
    assert ring.own is not None
    return ring.learn(ring.own.chain, WALL_NS)


@pytest.mark.req("T7")
@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("attack", "reason"), [(make, reason) for _, make, reason in ATTACKS], ids=[a[0] for a in ATTACKS]
)
def test_each_attack_is_refused_and_counted(attack: Callable[[], bytes], reason: str) -> None:
    bench = Bench()
    assert bench.hear(attack()) == {reason: 1}
    assert len(bench.repository) == 0
    assert bench.hear(FINE) == {"stored": 1}, "others are served as before"


def test_a_replay_is_refused_also_after_it_was_withdrawn() -> None:
    bench = Bench()
    assert bench.hear(FINE) == {"stored": 1}
    assert bench.hear(FINE) == {"replayed": 1}
    bench.hear(says("alice").write(messages.WithdrawTopic(an_id(2), WALL_MS, OURS.id)))
    assert len(bench.repository) == 0
    assert bench.hear(FINE) == {"replayed": 1}
    assert bench.hear(FINE, now=31_000_000_000)["stale"] == 1


@pytest.mark.req("T6", "O6")
def test_stored_topics_with_a_random_uuid_are_removed_at_the_start_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "CHANGES_AT_ONCE_MAX", 2)
    bench = Bench()
    bench.hear(FINE)
    old = [entry_of(with_id(OURS, bytes([n] * 6) + b"\x4f\xa8" + bytes([0xB0] * 8)), b"old") for n in range(5)]
    bench.repository.keep(KeepTopics(tuple(old)))
    bench.directory.tell(RepositoryOpened(6, 0), 0)
    noted = bench.settle()
    assert [entry.id for entry in bench.repository.ask(AskTopics(TopicQuestion(sees_all=True))).entries] == [OURS.id]
    assert bench.counts()["outdated"] == 5
    assert [note.count for note in noted if isinstance(note, TopicsOutdated)] == [2, 2, 1]
    assert not any(isinstance(note, TopicsDamaged) for note in noted)


@given(garbled(FINE))
@settings(max_examples=150, deadline=None)
def test_whatever_is_changed_in_a_message_nothing_false_is_stored(data: bytes) -> None:
    bench = Bench()
    counted = bench.hear(data)
    if counted != {"stored": 1}:
        assert sum(counted.values()) == 1
        assert len(bench.repository) == 0
    else:
        assert data == FINE


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_bodies_of_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_advertisement, decode_creation, messages.unpack):
        with contextlib.suppress(ProtocolError):
            read(data)  # type: ignore[operator]


HOSTILE = {
    "nested quantifiers": ("regex", "(a{500}){500}"),
    "a pattern that is none": ("regex", "("),
    "10,000 ORs": ("sql", " OR ".join(["a = 1"] * 10_000)),
    "deep parentheses": ("sql", "(" * 300 + "a = 1" + ")" * 300),
    "a value instead of a condition": ("sql", "1 + 1"),
    "SQL of a database": ("sql", "1=1; DROP TABLE topic"),
    "a cubic XPath": ("xpath", "//*" * 200),
    "a function that reads files": ("xpath", "document('/etc/passwd')"),
    "no words": ("keywords", "!!"),
    "too many words": ("keywords", "word " * 1_000),
    "a language that nobody speaks": ("klingon", "nuqneH"),
}


@pytest.mark.req("T8")
@pytest.mark.parametrize(("language", "text"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_query_is_answered_with_a_reason_and_costs_nothing(language: str, text: str) -> None:
    bench = Bench()
    bench.hear(FINE)
    answers = bench.answers
    if len(text) > 8_192:
        assert bench.hear(says("bob").write(Search(an_id(3), WALL_MS, TopicQuery(language, text[:9_000])))) == {
            "body_malformed": 1
        }
        return
    bench.hear(says("bob").write(Search(an_id(3), WALL_MS, TopicQuery(language, text))))
    assert bench.answers == answers + 1
    assert bench.directory.report("overview")["searches_under_way"] == 0


def test_an_expensive_xpath_gives_up_on_a_document_and_not_on_the_search() -> None:
    bench = Bench()
    document = "<a>" + "<b><c/></b>" * 300 + "</a>"
    creation = a_creation(descriptors=Descriptors(document=document))
    bench.hear(advertise("alice", signed_by_directory(creation)))
    assert len(bench.repository) == 1
    query = TopicQuery("xpath", "count(//*[count(//*[count(//*) > 0]) > 0]) > 0")
    bench.hear(says("bob").write(Search(an_id(3), WALL_MS, query)))
    assert bench.directory.report("overview")["searches_under_way"] == 0


def test_a_flood_of_one_entity_is_cut_and_others_are_served() -> None:
    bench = Bench(TopicDirectoryConfig(burst=20, rate_per_s=0.001))
    bob = says("bob")
    total: dict[str, int] = {}
    for number in range(40):
        for name, count in bench.hear(bob.write(Locate(an_id(number), WALL_MS))).items():
            total[name] = total.get(name, 0) + count
    assert total == {"located": 20, "rate_over_limit": 20}
    assert bench.hear(says("alice").write(Locate(an_id(1), WALL_MS))) == {"located": 1}


def test_searches_under_way_are_bounded() -> None:
    bench = Bench(TopicDirectoryConfig(searches_max=2))
    bob = says("bob")
    for number in range(3):
        bench.sequence += 1
        message = bob.write(Search(an_id(number), WALL_MS, TopicQuery()))
        bench.directory._heard(Publication("x", message, 1, bench.sequence, b""), 0)
    jobs = [job for _, job in bench.directory.take().jobs if isinstance(job, AskTopics)]
    assert len(jobs) == 2
    assert bench.directory.report("overview")["searches_under_way"] == 2


@pytest.mark.req("O6")
def test_one_entity_does_not_take_the_places_for_standing_searches_from_others() -> None:
    bench = Bench(TopicDirectoryConfig(watches_max=8))

    def watches(entity: str, *numbers: int) -> int:
        """How many of these were refused."""
        wanted = (Search(an_id(number), WALL_MS, TopicQuery("keywords", "hall"), watch_ms=60_000) for number in numbers)
        party = says(entity)
        return sum(bench.hear(party.write(search)).get("searches_over_limit", 0) for search in wanted)

    assert watches("bob", *range(1, 12)) == 3
    assert watches("alice", 21, 22) == 0
    assert bench.directory.report("overview")["watches"] == 8
    assert watches("bob", 31) == 1, "who has the most of all gets no place from others"


EVERYTHING = TopicQuery("predicates", "true")


@pytest.mark.req("O6")
def test_an_entity_has_few_standing_searches_also_if_nobody_else_wants_places() -> None:
    bench = Bench()
    bob, few = says("bob"), TopicDirectoryConfig().watches_per_entity_max
    for number in range(few):
        assert "searches_over_limit" not in bench.hear(
            bob.write(Search(an_id(number), WALL_MS, EVERYTHING, watch_ms=1))
        )
    one_more = bob.write(Search(an_id(1_000), WALL_MS, EVERYTHING, watch_ms=60_000))
    assert bench.hear(one_more)["searches_over_limit"] == 1
    renewed = bob.write(Search(an_id(1_001), WALL_MS, EVERYTHING, watch_ms=60_000, watch=an_id(0)))
    assert "searches_over_limit" not in bench.hear(renewed)
    carols = says("carol").write(Search(an_id(1_002), WALL_MS, EVERYTHING, watch_ms=60_000))
    assert "searches_over_limit" not in bench.hear(carols)
    assert bench.directory.report("overview")["watches"] == few + 1
    bench.directory.wake(2 * TICK_NS)
    bench.settle()
    assert "searches_over_limit" not in bench.hear(bob.write(Search(an_id(1_003), WALL_MS, EVERYTHING, watch_ms=1)))


@pytest.mark.req("O6")
def test_a_change_is_told_to_a_few_standing_searches_at_once_and_the_entities_take_turns() -> None:
    bench = Bench()
    for entity, numbers in (("bob", range(40)), ("carol", range(40, 41))):
        for number in numbers:
            bench.hear(says(entity).write(Search(an_id(number), WALL_MS, EVERYTHING, watch_ms=60_000)))
    bench.sent.clear()
    bench.hear(FINE)
    told = [(sent.count(b"Entity/bob"), sent.count(b"Entity/carol")) for sent in bench.sent]
    told = [one for one in told if any(one)]
    assert told[0] == (TOLD_AT_ONCE - 1, 1), "carol does not wait for all that bob is told"
    assert max(map(sum, told)) == TOLD_AT_ONCE
    assert tuple(map(sum, zip(*told, strict=True))) == (40, 1)


@pytest.mark.req("O6")
def test_changes_that_wait_are_bounded_and_one_entity_leaves_places_to_others() -> None:
    known = says("bob"), says("carol")
    holders = [party.keyring.learn(party.keyring.own.chain, WALL_NS) for party in known if party.keyring.own]
    bobs, carols = (Watch(an_id(), one, TopicQuestion(), {}, Matcher(TopicQuestion()), None, 1) for one in holders)
    entry, timers, told = entry_of(OURS, b""), Timers(), list[str]()
    teller = ChangeTeller(timers, lambda watch, entry, change, now: told.append(change), waiting_max=8)
    assert [teller.add(bobs, entry, str(number), 0) for number in range(10)] == [True] * 8 + [False] * 2
    assert [teller.add(carols, entry, "hers", 0) for _ in range(5)] == [True] * 4 + [False]
    while timers.next() == 0:
        timers.run(0)
    assert [change for change in told if change != "hers"] == [str(number) for number in range(8)]
    assert len(teller) == 0


def test_a_query_that_is_killed_is_told_and_counted_and_one_entity_cannot_keep_the_process_busy() -> None:
    bench = Bench()
    bench.hear(advertise("alice", signed_by_directory(a_creation(descriptors=Descriptors(document="<a/>")))))
    bob = says("bob")
    endless = TopicQuery("xquery", "declare function local:f($n) { local:f($n + 1) }; local:f(1)")
    for number in (1, 2):
        assert bench.hear(bob.write(Search(an_id(number), WALL_MS, endless))) == {"searches": 1}
    assert bench.hear(bob.write(Search(an_id(3), WALL_MS, endless)))["searches_over_limit"] == 1
    assert bench.hear(says("carol").write(Search(an_id(4), WALL_MS, endless))) == {"searches": 1}
    assert len(bench.sifting) == 3
    for ticket in bench.sifting:
        bench.directory.failed(ticket, Reason.QUERY_OVER_TIME, bench.now)
    bench.settle()
    assert bench.counts()["query_over_time"] == 3
    assert bench.directory.report("overview")["searches_under_way"] == 0
    assert bench.hear(bob.write(Search(an_id(5), WALL_MS, endless))) == {"searches": 1}


def with_document(number: int) -> bytes:
    creation = a_creation(descriptors=Descriptors(document=f"<a>{number}</a>"))
    return advertise("alice", signed_by_directory(creation, nonce=an_id(100 + number)), id=an_id(200 + number))


def watch(number: int) -> Search:
    return Search(an_id(number), WALL_MS, TopicQuery("xquery", "/a > 1"), watch_ms=60_000)


@pytest.mark.req("T10")
def test_a_standing_search_by_xquery_is_told_of_what_its_query_accepts() -> None:
    bench = Bench()
    bench.hear(says("bob").write(watch(1)))
    told = bench.answers
    for number in (1, 2):
        bench.hear(with_document(number))
    assert len(bench.sifting) == 2
    told = bench.answers
    for ticket, numbers in zip(bench.sifting, ((), (0,)), strict=True):
        bench.directory.done(ticket, Sifted(numbers), bench.now)
    bench.settle()
    assert bench.answers == told + 1


@pytest.mark.req("T10", "O6")
def test_standing_searches_by_xquery_are_few_and_one_that_takes_too_long_ends() -> None:
    bench = Bench()
    bob = says("bob")
    for number in (1, 2):
        bench.hear(bob.write(watch(number)))
    assert bench.hear(bob.write(watch(3)))["searches_over_limit"] == 1
    assert bench.directory.report("overview")["watches"] == 2
    bench.hear(with_document(1))
    for ticket in bench.sifting:
        bench.directory.failed(ticket, Reason.QUERY_OVER_TIME, bench.now)
    bench.settle()
    assert bench.directory.report("overview")["watches"] == 0
    assert bench.counts()["query_over_time"] == 4, "twice by the repository, twice by the watches"
