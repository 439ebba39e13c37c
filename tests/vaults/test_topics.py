"""Topic repositories: every back end answers as the one in memory does.

In:    entries and questions, drawn and written down.
Out:   claims that SQLite, PostgreSQL and memory keep and find the same.
State: none.
Not here: the machine that asks (tests/discovery/topics).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.discovery.topics.queries import words_of
from heliograph.errors import ProtocolError, Reason
from heliograph.live.repositories import _carry_out
from heliograph.live.vaults import topic_conditions, topic_sqlite, topic_tables
from heliograph.live.vaults.topic_sqlite import SqliteTopics
from heliograph.repository import AskTopics, KeepTopics, Repository, TopicEntry, TopicQuestion
from heliograph.sim.repositories import MemoryRepository
from tests.trust.parties import outcome

NAMES = ("colour", "size", "heavy", "owner")


def an_entry(number: int, **fields: Any) -> TopicEntry:
    text = fields.pop("text", f"topic {number}")
    made: dict[str, Any] = {
        "id": number.to_bytes(16, "big"),
        "owner": "alice",
        "created_ms": 1_000 + number,
        "issued_ms": 1_000 + number,
        "expires_ms": 10_000,
        "words": " ".join(words_of(text)),
        "joined": text,
        "record": f"record {number}".encode(),
    }
    return TopicEntry(**made | fields)


class Memory:
    """The twin, with the face of a back end."""

    def __init__(self) -> None:
        self._memory = MemoryRepository()

    def keep(self, jobs: list[KeepTopics]) -> list[Any]:
        return [self._memory.keep(job) for job in jobs]

    def ask(self, job: AskTopics) -> Any:
        return self._memory.ask(job)

    def close(self) -> None:
        pass


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any
    if request.param == "memory":
        made = Memory()
    elif request.param == "sqlite":
        made = SqliteTopics(Repository(name="t", place=str(tmp_path)))
        made.open()
    else:
        from heliograph.live.vaults.topic_postgres import PostgresTopics

        server = request.getfixturevalue("postgres")
        made = PostgresTopics(Repository(name=f"t{abs(hash(str(tmp_path))) % 10**9}", place=server.url))
        made.open()
    yield made
    made.close()


def numbers(subject: Any, question: TopicQuestion, **more: Any) -> list[int]:
    found = subject.ask(AskTopics(question, **more))
    return [int.from_bytes(entry.id, "big") for entry in found.entries]


def keep(subject: Any, *entries: TopicEntry, **more: Any) -> Any:
    return subject.keep([KeepTopics(entries, **more)])[0]


DOCUMENT = b"<m><disk>%d</disk></m>"


def filled(subject: Any) -> None:
    keep(
        subject,
        an_entry(1, text="the red room", properties={"colour": "red", "size": 3}, path="plant/hall-1"),
        an_entry(2, text="the room red", properties={"colour": "red", "size": 7.5, "heavy": True}),
        an_entry(3, text="green door", properties={"colour": "green", "size": 9}, document=DOCUMENT % 200),
        an_entry(4, owner="bob", readers=("carol",), text="secret red", properties={"colour": "red"}, space="a/b"),
        an_entry(5, text="old red", expires_ms=500, institution="IU", space="a", document=DOCUMENT % 20),
    )


@pytest.mark.req("T8")
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("", "", [1, 2, 3, 5]),
        ("string", "Red Room", [1]),
        ("keywords", "room red", [1, 2]),
        ("regex", "^(the|green) (r|d)oo[rm]", [2, 3]),
        ("sql", "colour = 'red' AND size > 3", [2]),
        ("sql", "colour = 'green' OR heavy", [2, 3]),
        ("sql", "NOT (size < 5)", [2, 3]),
        ("sql", "colour LIKE 'gr%' AND size BETWEEN 9 AND 10", [3]),
        ("sql", "size IS NULL", [5]),
        ("predicates", "size >= 7 and colour = 'red'", [2]),
        ("xpath", "disk > 100", [3]),
        ("tags", "colour=red", [1, 2]),
    ],
)
def test_every_language_finds_what_it_should(subject: Any, language: str, text: str, expected: list[int]) -> None:
    filled(subject)
    assert numbers(subject, TopicQuestion(language=language, text=text, asker="dan")) == expected


@pytest.mark.req("T12")
def test_only_owners_readers_and_holders_of_grants_find_what_is_restricted(subject: Any) -> None:
    filled(subject)
    asked = {"language": "keywords", "text": "secret"}
    assert numbers(subject, TopicQuestion(**asked, asker="dan")) == []
    for asker in ("bob", "carol"):
        assert numbers(subject, TopicQuestion(**asked, asker=asker)) == [4]
    assert numbers(subject, TopicQuestion(**asked, asker="dan", granted=((4).to_bytes(16, "big"),))) == [4]
    assert numbers(subject, TopicQuestion(**asked, sees_all=True)) == [4]


@pytest.mark.req("T8")
@pytest.mark.req("T14")
def test_times_owners_spaces_and_ids_narrow_a_question(subject: Any) -> None:
    filled(subject)
    for fields, expected in (
        ({"expires_from_ms": 501}, [1, 2, 3, 4]),
        ({"created_from_ms": 1_002, "created_until_ms": 1_003}, [2, 3]),
        ({"owner": "bob"}, [4]),
        ({"institution": "IU"}, [5]),
        ({"space": "a"}, [4, 5]),
        ({"space": "a/b"}, [4]),
        ({"ids": ((2).to_bytes(16, "big"),)}, [2]),
        ({"expires_until_ms": 600}, [5]),
    ):
        assert numbers(subject, TopicQuestion(sees_all=True, **fields)) == expected  # type: ignore[arg-type]
    assert numbers(subject, TopicQuestion(sees_all=True, newest_first=True), count=2) == [5, 4]


@pytest.mark.req("T9")
def test_newer_replaces_older_owners_forget_and_what_expired_goes(subject: Any) -> None:
    filled(subject)
    assert keep(subject, an_entry(1, issued_ms=2_000, text="new")).outcomes == ("changed",)
    assert keep(subject, an_entry(1, issued_ms=1_500)).outcomes == (Reason.TOPIC_OLDER,)
    assert keep(subject, an_entry(1, issued_ms=3_000, owner="eve")).outcomes == (Reason.OWNER_OTHER,)
    assert numbers(subject, TopicQuestion(language="keywords", text="red room", sees_all=True)) == [2]
    one = (1).to_bytes(16, "big")
    assert keep(subject, forgotten=((one, "eve"),)).forgotten == ()
    assert [entry.id for entry in keep(subject, forgotten=((one, "alice"),)).forgotten] == [one]
    assert [entry.owner for entry in keep(subject, expired_ms=600).forgotten] == ["alice"]
    assert numbers(subject, TopicQuestion(sees_all=True)) == [2, 3, 4]


@pytest.mark.req("T4")
def test_quotas_hold_per_owner_and_in_all(subject: Any) -> None:
    job = {"per_owner_max": 2, "topics_max": 3}
    assert keep(subject, an_entry(1), an_entry(2), an_entry(3), **job).outcomes[2] is Reason.TOPICS_OVER_QUOTA
    assert keep(subject, an_entry(1, issued_ms=9_000), **job).outcomes == ("changed",)
    assert keep(subject, an_entry(4, owner="bob"), an_entry(5, owner="carol"), **job).outcomes == (
        "appeared",
        Reason.TOPICS_OVER_QUOTA,
    )


def test_a_long_answer_comes_in_slices_and_nothing_is_missed_or_told_twice(subject: Any) -> None:
    keep(subject, *(an_entry(number, text="red" if number % 3 else "green") for number in range(1, 60)))
    for question in (
        TopicQuestion(language="regex", text="red", sees_all=True),
        TopicQuestion(language="keywords", text="red", sees_all=True, newest_first=True),
    ):
        found, after = [], 0
        while after is not None:
            answer = subject.ask(AskTopics(question, after, 7, 10))
            found += [int.from_bytes(entry.id, "big") for entry in answer.entries]
            after = answer.next
        expected = [number for number in range(1, 60) if number % 3]
        assert found == (expected[::-1] if question.newest_first else expected)


def test_questions_without_sense_are_refused(subject: Any) -> None:
    for language, text in (("sql", "a ="), ("regex", "("), ("keywords", "!"), ("klingon", "x"), ("xpath", "//[")):
        with pytest.raises(ProtocolError) as caught:
            numbers(subject, TopicQuestion(language=language, text=text))
        assert caught.value.reason is Reason.QUERY_INVALID


values = st.one_of(st.integers(-3, 3), st.floats(-2, 2), st.sampled_from(["red", "green", "true", ""]), st.booleans())
bags = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
leaf = st.sampled_from(
    ["size = 1", "size > 0", "size <= 2.5", "colour = 'red'", "colour <> 'red'", "heavy", "NOT heavy", "size IS NULL"]
    + ["colour LIKE 'r%'", "colour IN ('red', 'green')", "size BETWEEN 0 AND 2", "colour IS NOT NULL", "1 < size"]
    + ["size + 1 > 2", "owner = TRUE", "size = '1'", "colour NOT LIKE '%d'"]
)
selectors = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=5,
)


@given(st.lists(bags, min_size=1, max_size=12), st.lists(selectors, min_size=1, max_size=5))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_sql_over_properties_means_in_sqlite_what_it_means_for_events(bags: list[Any], texts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        sqlite, memory = SqliteTopics(Repository(name="t", place=folder)), Memory()
        sqlite.open()
        entries = tuple(an_entry(number, properties=bag) for number, bag in enumerate(bags, 1))
        for one in (sqlite, memory):
            keep(one, *entries)
        for text in texts:
            question = TopicQuestion(language="sql", text=text, sees_all=True)
            assert numbers(sqlite, question) == numbers(memory, question), text
        sqlite.close()


QUESTIONS: list[dict[str, Any]] = [
    {"language": "sql", "text": "colour = 'red' AND size > 3"},
    {"language": "sql", "text": "3 = size AND colour <> 'blue'"},
    {"language": "sql", "text": "heavy = TRUE AND colour = 'red'"},
    {"language": "sql", "text": "colour = 'red' OR size = 2"},
    {"language": "predicates", "text": "colour = 'red' and size >= 2"},
    {"space": "plant"},
    {"space": "plant/hall", "institution": "works", "language": "sql", "text": "colour = 'red'"},
    {"institution": "works", "newest_first": True},
]


@pytest.mark.req("T8")
@pytest.mark.parametrize("few", [0, 5, 1_000])
def test_how_a_database_looks_for_topics_does_not_change_what_it_finds(
    subject: Any, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bound of 0 nothing is looked up first, with 1,000 everything is."""
    for module in (topic_conditions, topic_tables):
        monkeypatch.setattr(module, "FEW", few)
    made = [
        an_entry(
            number,
            space=("plant", "plant/hall", "plants", "")[number % 4],
            institution=("works", "")[number // 2 % 2],
            properties={"colour": ("red", "blue")[number % 3 % 2], "size": number % 5, "heavy": number % 7 > 2},
        )
        for number in range(60)
    ]
    twin = Memory()
    for one in (subject, twin):
        one.keep([KeepTopics(tuple(made))])
    for question in QUESTIONS:
        asked = TopicQuestion(**{"language": "", "text": "", "asker": "bob", "expires_from_ms": 1} | question)
        found = [_in_slices(one, asked) for one in (subject, twin)]
        assert found[0] == found[1] != [], question


def _in_slices(subject: Any, question: TopicQuestion) -> list[bytes]:
    found: list[bytes] = []
    after: int | None = 0
    while after is not None:
        slice = subject.ask(AskTopics(question, after, 7))
        found += [entry.id for entry in slice.entries]
        after = slice.next
    return found


@pytest.mark.req("T6")
def test_topics_with_a_uuid_of_another_version_are_removed_and_others_are_not(subject: Any) -> None:
    versions = (0x4F, 0x80, 0x8F, 0x7F, 0x90, 0x00)
    keep(subject, *(an_entry(n, id=bytes([n] * 6) + bytes([v]) + bytes(9)) for n, v in enumerate(versions, 1)))
    kept = keep(subject, outdated=True)
    assert (kept.topics, sorted(entry.id[0] for entry in kept.forgotten)) == (2, [1, 4, 5, 6])
    assert keep(subject, outdated=True).forgotten == ()
    found = subject.ask(AskTopics(TopicQuestion(sees_all=True)))
    assert ([entry.id[0] for entry in found.entries], found.damaged) == ([2, 3], ())


def test_a_corrupted_entry_is_put_aside_and_reported(tmp_path: Path) -> None:
    subject = SqliteTopics(Repository(name="t", place=str(tmp_path)))
    subject.open()
    filled(subject)
    subject.query("UPDATE topic SET record = x'00' WHERE owner = 'bob'")
    found = subject.ask(AskTopics(TopicQuestion(sees_all=True)))
    assert [int.from_bytes(id, "big") for id in found.damaged] == [4]
    assert len(found.entries) == 4
    subject.close()
    assert subject.open() == (4, 1)
    subject.close()


TEXTS = (
    "plant/hall-99/pressure\nkind=pressure",
    "plant/hall-9/flow\nsays \"abc\" 'def'",
    "Plant/HALL-99/Pressure",
    "größe-99\npreßure",
    "pre\nssure",
    "pressure " * 600 + "end",  # too long for the index
    "x" * 5_000,
    "",
)
EXPRESSIONS = [
    "hall-99/pressure",
    "hall-9.?/(pressure|flow)",
    "(?i)hall-99",
    "pressure (pressure )+end",
    '"abc" .def',
    "e-99$",
    "pre.?ssure",
    "no such thing",
    "(flow|größe-)",
    "pre(ssu)?r",
    "x{9}",
    "abcdefghijklmnopqrstuvwxyz|" * 15 + "hall",
    "-?".join(["hal"] * 40) + "|says",
    "",
]


@pytest.mark.req("T8")
def test_a_regular_expression_finds_the_same_with_and_without_an_index(subject: Any) -> None:
    keep(subject, *(an_entry(number, text=text) for number, text in enumerate(TEXTS, 1)))
    keep(subject, an_entry(1, text="replaced", issued_ms=5_000), an_entry(9, text=TEXTS[0]))
    twin = Memory()
    keep(twin, an_entry(1, text="replaced"), *(an_entry(n, text=text) for n, text in enumerate(TEXTS, 1) if n > 1))
    keep(twin, an_entry(9, text=TEXTS[0]))
    for text in EXPRESSIONS:
        question = TopicQuestion(language="regex", text=text, sees_all=True)
        assert numbers(subject, question) == numbers(twin, question), text
        assert _in_slices(subject, question) == _in_slices(twin, question), text


@given(
    st.lists(st.text(st.sampled_from('ab-é\n\0"'), max_size=12), min_size=1, max_size=8),
    st.lists(st.text(st.sampled_from('ab-é".*+?|()'), max_size=9), min_size=1, max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_an_index_of_trigrams_hides_no_match(texts: list[str], expressions: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        sqlite, memory = SqliteTopics(Repository(name="t", place=folder)), Memory()
        sqlite.open()
        for one in (sqlite, memory):
            keep(one, *(an_entry(number, text=text) for number, text in enumerate(texts, 1)))
        for text in (*expressions, "bab", "a-b|ba", "aab+a"):
            question = TopicQuestion(language="regex", text=text, sees_all=True)
            assert outcome(numbers, sqlite, question) == outcome(numbers, memory, question), text
        sqlite.close()


def test_a_file_of_an_older_version_gets_its_index_when_it_is_opened(tmp_path: Path) -> None:
    subject = SqliteTopics(Repository(name="t", place=str(tmp_path)))
    subject.open()
    filled(subject)
    subject.query("DROP TABLE trigrams")
    without_openness(subject)
    subject.query("PRAGMA user_version = 1")
    for _ in range(2):
        subject.close()
        assert subject.open() == (5, 0)
        assert opened(subject) == [1, 2, 3]
        assert numbers(subject, TopicQuestion(language="regex", text="red room|door", sees_all=True)) == [1, 3]
    keep(subject, forgotten=(((1).to_bytes(16, "big"), "alice"),))
    assert numbers(subject, TopicQuestion(language="regex", text="red room|door", sees_all=True)) == [3]
    assert subject.check() == []
    subject.close()


def test_a_schema_of_an_older_version_learns_which_topics_are_open(postgres: Any) -> None:
    from heliograph.live.vaults.topic_postgres import PostgresTopics

    subject = PostgresTopics(Repository(name="older", place=postgres.url))
    subject.open()
    filled(subject)
    without_openness(subject)
    for _ in range(2):
        subject.close()
        assert subject.open() == (5, 0)
        assert opened(subject) == [1, 2, 3]
    subject.close()


def without_openness(subject: Any) -> None:
    """As versions before 3 made it."""
    for kind in ("number", "text"):
        subject.query(f"DROP INDEX property_{kind}")
    subject.query("ALTER TABLE property DROP COLUMN is_open")
    for kind in ("number", "text"):
        subject.query(f"CREATE INDEX property_{kind} ON property (name, {kind}_value, topic)")


def opened(subject: Any) -> list[int]:
    """The numbers of the topics whose properties count as those of open ones."""
    sql = "SELECT DISTINCT t.id FROM property p JOIN topic t ON t.number = p.topic WHERE p.is_open = 1 ORDER BY t.id"
    return [int.from_bytes(bytes(id), "big") for (id,) in subject.query(sql)]


def test_pieces_that_most_topics_have_are_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_sqlite, "SAMPLE", 8)
    subject = SqliteTopics(Repository(name="t", place=str(tmp_path)))
    subject.open()
    keep(subject, *(an_entry(number, text=f"hall {number}" if number % 2 else "door") for number in range(100, 200)))
    assert subject.containing((("hall",),), 0) is None
    assert subject.containing((("hall",),), 95) is not None  # few are left
    question = TopicQuestion(language="regex", text="hall 1.[1-3]", sees_all=True)
    assert [int.from_bytes(id, "big") % 10 for id in _in_slices(subject, question)] == [1, 3] * 10
    subject.close()


# -- what not every database can keep -----------------------------------------------------------------------------


@pytest.mark.req("O6", "T8")
@pytest.mark.parametrize("field", ["text", "owner", "institution", "space"])
def test_a_query_with_nul_is_invalid_at_every_back_end(subject: Any, field: str) -> None:
    filled(subject)
    question = TopicQuestion(**{"language": "keywords", "text": "red", field: "red\0room"})
    assert outcome(lambda: subject.ask(AskTopics(question))) == Reason.QUERY_INVALID


@pytest.mark.req("O6", "T8")
def test_what_a_database_refuses_in_one_change_fails_no_other_of_its_group(subject: Any) -> None:
    if isinstance(subject, Memory):
        return  # it refuses nothing
    good, other = an_entry(1), an_entry(3, owner="bob")
    bad = an_entry(2, text="a\0b", properties={"x": "\0"}) if not isinstance(subject, SqliteTopics) else unkept(2)
    jobs: list[Any] = [KeepTopics((one,)) for one in (good, bad, other)] + [KeepTopics(expired_ms=1)]
    answers = _carry_out(subject, list(enumerate(jobs)))
    assert [ticket for ticket, _ in answers] == [0, 1, 2, 3]
    assert answers[1][1] is Reason.VAULT_FAILED
    assert [result.outcomes for _, result in answers if not isinstance(result, Reason)] == [
        ("appeared",),
        ("appeared",),
        (),
    ]
    assert numbers(subject, TopicQuestion(asker="bob")) == [1, 3]


def unkept(number: int) -> TopicEntry:
    """An entry that SQLite refuses: a column without a value."""
    missing: Any = None
    return an_entry(number, path=missing)


@pytest.mark.req("O6", "T8")
def test_what_is_put_aside_as_damaged_is_bounded_in_number_and_bytes(
    subject: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(subject, Memory):
        return  # nothing is damaged there
    monkeypatch.setattr(topic_tables, "DAMAGED_MAX", 3)
    monkeypatch.setattr(topic_tables, "DAMAGED_BYTES_MAX", 25_000)
    for number in range(1, 7):
        size = 10_000 if number > 4 else 10
        keep(subject, an_entry(number, record=bytes([number]) * size))
        subject.query("UPDATE topic SET checksum = 0 WHERE id = ?", (number.to_bytes(16, "big"),))
        numbers(subject, TopicQuestion())
        kept = [
            bytes(row[0])[0] for row in subject.query(f"SELECT record FROM damaged ORDER BY {subject.damaged_order}")
        ]
        assert kept == list(range(max(1, number - 2), number + 1))
    keep(subject, an_entry(9, record=b"\t" * 10_000))
    subject.query("UPDATE topic SET checksum = 0")
    numbers(subject, TopicQuestion())
    assert [bytes(row[0])[0] for row in subject.query("SELECT record FROM damaged")] == [6, 9]


class Recording(SqliteTopics):
    """Writes down the statements that it runs."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository)
        self.statements: list[str] = []

    def query(self, sql: str, values: Any = ()) -> list[Any]:
        self.statements.append(sql)
        return super().query(sql, values)


@pytest.mark.req("T12")
@pytest.mark.parametrize(
    "question",
    [
        TopicQuestion(asker="bob", space="secret", created_from_ms=99_999),
        TopicQuestion(asker="bob", institution="IU"),
        TopicQuestion(asker="bob", language="sql", text="colour = 'red'"),
        TopicQuestion(asker="bob", language="predicates", text="colour = 'red' and size > 3"),
    ],
)
def test_how_a_search_is_carried_out_does_not_tell_of_hidden_topics(
    question: TopicQuestion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another way is faster from so many topics on: who had almost as many could see by the time that one came."""
    monkeypatch.setattr(topic_conditions, "FEW", 4)
    monkeypatch.setattr(topic_tables, "FEW", 4)
    subject = Recording(Repository(name="t", place=str(tmp_path)))
    subject.open()
    like: dict[str, Any] = {"space": "secret", "institution": "IU", "properties": {"colour": "red", "size": 5}}

    def ways(*more: TopicEntry) -> list[str]:
        keep(subject, *more)
        subject.statements.clear()
        numbers(subject, question)
        return [each for each in subject.statements if "WHERE" in each]

    mine = ways(*(an_entry(number, owner="bob", **like) for number in range(1, 4)))
    assert mine == ways(an_entry(4, readers=("alice",), **like))
    assert mine != ways(*(an_entry(number, **like) for number in range(5, 8)))
    subject.close()
