"""A topic repository in a file of SQLite, with FTS5 for full text and for trigrams of descriptions: the default.

In:    a folder, a name; jobs.
Out:   NAME.topics, with its write-ahead log beside it; VaultErrors with a readable text.
State: the connection.
Not here: tables and their meaning (topic_tables.py), the thread (live/repositories.py), vaults (sqlite.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.private import create_private, narrow
from heliograph.live.vaults.topic_conditions import Clause
from heliograph.live.vaults.topic_tables import PROPERTY_INDEXES, PROPERTY_OPENED, Source, TopicTables
from heliograph.matching.languages.literals import Needed
from heliograph.repository import AskTopics, FoundTopics, KeepTopics, KeptTopics, Repository

APPLICATION_ID = 0x48_45_4C_54  # "HELT" in the file's head
VERSION = 3  # 1 had no trigrams, 2 did not know which properties are those of open topics
LOCK_S = 1.0
INDEXED_CHARACTERS_MAX = 4_096  # trigrams of a longer description would take long to index: it is always searched
TRIGRAMS_MAX = 16  # of one piece: they leave few enough topics
SAMPLE, DENSE = 500, 3  # if so many numbers in a row have one topic in three with these trigrams, all are read
UPGRADED_AT_ONCE = 10_000
_LONG = "\1\1\1"  # indexed instead of a long description
_TRIGRAMS = """CREATE VIRTUAL TABLE trigrams USING fts5(text, content='', detail=none, columnsize=0,
    tokenize="trigram case_sensitive 1")"""
_STATEMENTS = (
    """CREATE TABLE topic (number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, owner TEXT NOT NULL,
    institution TEXT NOT NULL, space TEXT NOT NULL, path TEXT NOT NULL, created_ms INTEGER NOT NULL,
    issued_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, is_open INTEGER NOT NULL, readers TEXT NOT NULL,
    checksum INTEGER NOT NULL, properties TEXT NOT NULL, joined TEXT NOT NULL, words TEXT NOT NULL,
    has_document INTEGER GENERATED ALWAYS AS (length(document) > 0) STORED, record BLOB NOT NULL,
    document BLOB NOT NULL)""",
    "CREATE INDEX topic_owner ON topic (owner)",
    "CREATE INDEX topic_space ON topic (space)",
    "CREATE INDEX topic_institution ON topic (institution)",
    "CREATE INDEX topic_expiry ON topic (expires_ms)",
    "CREATE INDEX topic_creation ON topic (created_ms)",
    "CREATE INDEX topic_document ON topic (number) WHERE has_document = 1",
    """CREATE TABLE property (topic INTEGER NOT NULL, name TEXT NOT NULL, number_value REAL, text_value TEXT,
    is_open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (topic, name)) WITHOUT ROWID""",
    *PROPERTY_INDEXES,
    "CREATE TABLE reader (entity TEXT NOT NULL, topic INTEGER NOT NULL, PRIMARY KEY (entity, topic)) WITHOUT ROWID",
    "CREATE INDEX reader_topic ON reader (topic)",
    "CREATE TABLE damaged (id BLOB, record BLOB)",
    "CREATE TABLE tally (topics INTEGER NOT NULL)",
    "INSERT INTO tally VALUES (0)",
    """CREATE VIRTUAL TABLE full_text USING fts5(words, content='topic', content_rowid='number',
    tokenize="unicode61 remove_diacritics 0")""",
    _TRIGRAMS,
)


class SqliteTopics:
    """One file."""

    damaged_order = "rowid"

    def __init__(self, repository: Repository) -> None:
        self.path = Path(repository.place) / f"{repository.name}.topics"
        self._connection: sqlite3.Connection | None = None
        self._tables = TopicTables(self)
        self.narrowed = False

    def open(self) -> tuple[int, int]:
        """Create the file if it does not exist, and lock it. Returns the numbers of topics and of those put aside."""
        self.close()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_private(self.path)
            self._connection = sqlite3.connect(self.path, timeout=LOCK_S, isolation_level=None)
            for pragma in (
                "locking_mode = EXCLUSIVE",
                "journal_mode = WAL",
                "synchronous = FULL",
                "cache_size = -65536",
            ):
                self.query(f"PRAGMA {pragma}")
            self.query("BEGIN IMMEDIATE")
            self._prepare()
            self.query("COMMIT")
            self.narrowed = narrow(self.path)
        except OSError as error:
            raise VaultError(Reason.VAULT_FAILED, f"{self.path.parent}: {error}") from None
        except sqlite3.Error as error:
            raise self._told(error) from None
        return self._tables.count(), int(self.query("SELECT COUNT(*) FROM damaged")[0][0])

    def _prepare(self) -> None:
        mark, version = self.query("PRAGMA application_id")[0][0], self.query("PRAGMA user_version")[0][0]
        if mark == APPLICATION_ID and version > VERSION:
            raise VaultError(Reason.VAULT_NEWER, f"{self.path}: has version {version}; known here: {VERSION}")
        if mark == APPLICATION_ID:
            if version < 2:
                self._add_trigrams()
            if version < 3:
                self._add_openness()
            return
        if mark or version or self.query("SELECT 1 FROM sqlite_master LIMIT 1"):
            raise VaultError(Reason.VAULT_FOREIGN, f"{self.path}: it is not a topic repository of Heliograph")
        for statement in _STATEMENTS:
            self.query(statement)
        self.query(f"PRAGMA application_id = {APPLICATION_ID}")
        self.query(f"PRAGMA user_version = {VERSION}")

    def _add_trigrams(self) -> None:
        """Index what an older version has stored; takes about 20 µs per topic."""
        self.query(_TRIGRAMS)
        after = 0
        sql = f"SELECT number, joined FROM topic WHERE number > ? ORDER BY number LIMIT {UPGRADED_AT_ONCE}"
        while rows := self.query(sql, (after,)):
            for number, joined in rows:
                self.query("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", (number, _indexed(joined)))
            after = rows[-1][0]

    def _add_openness(self) -> None:
        """Note with each property whether its topic is open; takes some µs per property."""
        self.query("ALTER TABLE property ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0")
        for statement in (*PROPERTY_OPENED, *PROPERTY_INDEXES):
            self.query(statement)
        self.query(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Release the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # committed data stays in the write-ahead log

    def keep(self, jobs: Sequence[KeepTopics]) -> list[KeptTopics]:
        """Keep all of them in one transaction."""
        try:
            self.query("BEGIN IMMEDIATE")
            done = [self._tables.keep(job) for job in jobs]
            self.query("COMMIT")
        except VaultError:
            if self._connection is not None and self._connection.in_transaction:
                self.query("ROLLBACK")
            raise
        return done

    def ask(self, job: AskTopics) -> FoundTopics:
        """The next slice; damaged entries are put aside. ProtocolError for a query that makes no sense."""
        found, damaged = self._tables.ask(job)
        for number in damaged:
            self.query("BEGIN IMMEDIATE")
            self._tables.put_aside(number)
            self.query("COMMIT")
        return found

    def check(self) -> list[str]:
        """Problems that SQLite finds."""
        return [row[0] for row in self.query("PRAGMA integrity_check(100)") if row[0] != "ok"]

    # What topic_tables.py needs.

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        assert self._connection is not None, "the repository is not open"
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._told(error) from None

    def full_text(self, words: Sequence[str], *, phrase: bool) -> Source:
        """The index of words first, then the topics that it finds. Words have only letters and digits."""
        wanted = f'"{" ".join(words)}"' if phrase else " ".join(f'"{word}"' for word in words)
        return _indexed_by("full_text", wanted)

    def containing(self, pieces: Needed, after: int) -> Source | None:
        """The index of trigrams first, then the topics that it finds; or those with a description that is too long."""
        either = [" OR ".join(_trigrams(piece) for piece in some) for some in pieces]
        wanted = f"({' AND '.join(f'({one})' for one in either)}) OR {_trigrams(_LONG)}"
        sample = f"SELECT rowid FROM trigrams WHERE trigrams MATCH ? AND rowid > ? ORDER BY rowid LIMIT {SAMPLE}"
        rows = self.query(sample, (wanted, after))
        is_dense = len(rows) == SAMPLE and rows[-1][0] - rows[0][0] < DENSE * SAMPLE
        return None if is_dense else _indexed_by("trigrams", wanted)

    def index_texts(self, number: int, words: str, joined: str) -> None:
        """An entry was added."""
        self.query("INSERT INTO full_text (rowid, words) VALUES (?, ?)", (number, words))
        self.query("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", (number, _indexed(joined)))

    def drop_texts(self, number: int, words: str, joined: str) -> None:
        """An entry is removed."""
        self.query("INSERT INTO full_text (full_text, rowid, words) VALUES ('delete', ?, ?)", (number, words))
        sql = "INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', ?, ?)"
        self.query(sql, (number, _indexed(joined)))

    def _told(self, error: sqlite3.Error) -> VaultError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        reasons = {
            sqlite3.SQLITE_FULL: Reason.VAULT_FULL,
            sqlite3.SQLITE_CORRUPT: Reason.VAULT_DAMAGED,
            sqlite3.SQLITE_NOTADB: Reason.VAULT_FOREIGN,
            sqlite3.SQLITE_BUSY: Reason.VAULT_LOCKED,
            sqlite3.SQLITE_LOCKED: Reason.VAULT_LOCKED,
            sqlite3.SQLITE_READONLY: Reason.VAULT_READ_ONLY,
            sqlite3.SQLITE_CANTOPEN: Reason.VAULT_READ_ONLY,
        }
        is_content = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
        reason = reasons.get(code, Reason.VAULT_FAILED)
        return VaultError(reason, f"{self.path}: {error}", is_content=is_content)


def _indexed_by(table: str, wanted: str) -> Source:
    """Topics in the order in which an FTS5 table has them, so that it is read no further than needed."""
    source = f"{table} f CROSS JOIN topic t ON t.number = f.rowid"
    return Source(source, Clause(f"f.{table} MATCH ?", (wanted,)), "f.rowid")


def _indexed(joined: str) -> str:
    """The text whose trigrams are indexed. Tokenizers of SQLite differ in what they do at a zero."""
    return joined.replace("\0", " ") if len(joined) <= INDEXED_CHARACTERS_MAX else _LONG


def _trigrams(piece: str) -> str:
    """Texts with all trigrams of a piece, as FTS5 is asked for them."""
    found = dict.fromkeys(piece[start : start + 3].replace('"', '""') for start in range(len(piece) - 2))
    quoted = [f'"{one}"' for one in found]
    return f"({' AND '.join(quoted[:TRIGRAMS_MAX])})"
