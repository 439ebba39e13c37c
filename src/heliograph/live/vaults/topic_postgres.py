"""A topic repository in a schema of PostgreSQL, for deployments that outgrow one machine. Needs no contrib extensions.

In:    a database's address, a name; jobs.
Out:   the schema heliograph_NAME; VaultErrors with a readable text.
State: the connection.
Not here: tables and their meaning (topic_tables.py), the thread (live/repositories.py), vaults (postgres.py).

Full text is an array of words with a GIN index; whether the words of a string are consecutive is left to the exact
test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, sql

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.topic_conditions import Clause
from heliograph.live.vaults.topic_tables import PROPERTY_INDEXES, PROPERTY_OPENED, Source, TopicTables
from heliograph.matching.languages.literals import Needed
from heliograph.model.places import without_password
from heliograph.repository import AskTopics, FoundTopics, KeepTopics, KeptTopics, Repository

CONNECT_S = 5
_STATEMENTS = (
    """CREATE TABLE topic (number BIGSERIAL PRIMARY KEY, id BYTEA NOT NULL UNIQUE, owner TEXT NOT NULL,
    institution TEXT NOT NULL, space TEXT COLLATE "C" NOT NULL, path TEXT NOT NULL, created_ms BIGINT NOT NULL,
    issued_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL, is_open INTEGER NOT NULL, readers TEXT NOT NULL,
    checksum BIGINT NOT NULL, properties TEXT NOT NULL, joined TEXT NOT NULL, words TEXT NOT NULL,
    record BYTEA NOT NULL, document BYTEA NOT NULL,
    has_document INTEGER GENERATED ALWAYS AS (CASE WHEN length(document) > 0 THEN 1 ELSE 0 END) STORED,
    word_list TEXT[] NOT NULL DEFAULT '{}')""",
    "CREATE INDEX topic_owner ON topic (owner)",
    "CREATE INDEX topic_space ON topic (space)",
    "CREATE INDEX topic_institution ON topic (institution)",
    "CREATE INDEX topic_expiry ON topic (expires_ms)",
    "CREATE INDEX topic_creation ON topic (created_ms)",
    "CREATE INDEX topic_document ON topic (number) WHERE has_document = 1",
    "CREATE INDEX topic_words ON topic USING GIN (word_list)",
    """CREATE TABLE property (topic BIGINT NOT NULL, name TEXT NOT NULL, number_value DOUBLE PRECISION,
    text_value TEXT COLLATE "C", is_open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (topic, name))""",
    *PROPERTY_INDEXES,
    "CREATE TABLE reader (entity TEXT NOT NULL, topic BIGINT NOT NULL, PRIMARY KEY (entity, topic))",
    "CREATE INDEX reader_topic ON reader (topic)",
    "CREATE TABLE damaged (id BYTEA, record BYTEA, number BIGSERIAL)",
    "CREATE TABLE tally (topics BIGINT NOT NULL)",
    "INSERT INTO tally VALUES (0)",
)
_REASONS: tuple[tuple[type[psycopg.Error], Reason], ...] = (
    (errors.DiskFull, Reason.VAULT_FULL),
    (errors.DataCorrupted, Reason.VAULT_DAMAGED),
    (errors.ReadOnlySqlTransaction, Reason.VAULT_READ_ONLY),
    (errors.InsufficientPrivilege, Reason.VAULT_READ_ONLY),
    (errors.InvalidCatalogName, Reason.VAULT_MISSING),
)
# What a job contains, not the state of the server; ProgramLimitExceeded: a text is too long for an index.
_OF_CONTENT = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)


class PostgresTopics:
    """One schema. A broken connection is made again for the next job."""

    damaged_order = "number"

    def __init__(self, repository: Repository) -> None:
        self._place = repository.place
        self._schema = f"heliograph_{repository.name}"
        self._connection: psycopg.Connection[Any] | None = None
        self._tables = TopicTables(self)
        self.narrowed = False  # the server's own files are not our business

    def open(self) -> tuple[int, int]:
        """Create the schema if it does not exist, and lock it. Returns the numbers of topics and of those put aside."""
        self.close()
        try:
            self._connection = psycopg.connect(self._place, autocommit=True, connect_timeout=CONNECT_S)
        except psycopg.Error as error:
            raise self._told(error) from None
        ((locked,),) = self.query("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (self._schema,))
        if not locked:
            raise VaultError(Reason.VAULT_LOCKED, f"schema {self._schema}: another directory uses it")
        schema = sql.Identifier(self._schema).as_string()
        self.query(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self.query("SELECT set_config('search_path', ?, false)", (schema,))
        if not self.query("SELECT to_regclass('tally') IS NOT NULL")[0][0]:
            self.query("BEGIN")
            for statement in _STATEMENTS:
                self.query(statement)
            self.query("COMMIT")
        self._upgrade()
        return self._tables.count(), int(self.query("SELECT COUNT(*) FROM damaged")[0][0])

    def _upgrade(self) -> None:
        """Note with each property whether its topic is open, which older versions did not."""
        here = "table_schema = ? AND table_name = 'property' AND column_name = 'is_open'"
        if self.query(f"SELECT 1 FROM information_schema.columns WHERE {here}", (self._schema,)):
            return
        self.query("BEGIN")
        self.query("ALTER TABLE property ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0")
        for statement in (*PROPERTY_OPENED, *PROPERTY_INDEXES):
            self.query(statement)
        self.query("COMMIT")

    def close(self) -> None:
        """Release the schema."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def keep(self, jobs: Sequence[KeepTopics]) -> list[KeptTopics]:
        """Keep all of them in one transaction, on a new connection if the old one broke."""
        if self._connection is None or self._connection.closed:
            self.open()
        try:
            self.query("BEGIN")
            done = [self._tables.keep(job) for job in jobs]
            self.query("COMMIT")
        except VaultError:
            if self._connection is not None and not self._connection.closed:
                self.query("ROLLBACK")
            raise
        return done

    def ask(self, job: AskTopics) -> FoundTopics:
        """The next slice; damaged entries are put aside."""
        if self._connection is None or self._connection.closed:
            self.open()
        found, damaged = self._tables.ask(job)
        for number in damaged:
            self.query("BEGIN")
            self._tables.put_aside(number)
            self.query("COMMIT")
        return found

    def check(self) -> list[str]:
        """PostgreSQL checks its checksums whenever it reads a page."""
        return []

    # What topic_tables.py needs.

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        assert self._connection is not None, "the repository is not open"
        plain: Any = statement.replace("%", "%%").replace("?", "%s")
        try:
            done = self._connection.execute(plain, values)
            return [] if done.description is None else done.fetchall()
        except psycopg.Error as error:
            raise self._told(error) from None

    def full_text(self, words: Sequence[str], *, phrase: bool) -> Source:
        """A clause for all of the words; the exact test checks whether they are consecutive."""
        return Source("topic t", Clause("t.word_list @> ?", (list(words),)))

    def containing(self, pieces: Needed, after: int) -> Source | None:
        """Every description is read, but only those with the pieces leave the database."""
        either = [" OR ".join("strpos(t.joined, ?) > 0" for _ in some) for some in pieces]
        sql = " AND ".join(f"({one})" for one in either)
        return Source("topic t", Clause(sql, tuple(piece for some in pieces for piece in some)))

    def index_texts(self, number: int, words: str, joined: str) -> None:
        """An entry was added."""
        self.query("UPDATE topic SET word_list = ? WHERE number = ?", (sorted(set(words.split())), number))

    def drop_texts(self, number: int, words: str, joined: str) -> None:
        """Nothing to do: the words are removed with the entry."""

    def _told(self, error: psycopg.Error) -> VaultError:
        reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.VAULT_FAILED)
        said = without_password(str(error) or repr(error), self._place)
        problem = f"schema {self._schema}: {said.splitlines()[0]}"
        return VaultError(reason, problem, is_content=isinstance(error, _OF_CONTENT))
