"""The tables of a topic repository, and how jobs use them: the same for SQLite and PostgreSQL.

In:    jobs (repository.py); a Database that runs statements.
Out:   KeptTopics and FoundTopics.
State: none beyond the database's.
Not here: connections and transactions (topic_sqlite.py, topic_postgres.py), conditions as SQL (topic_conditions.py).

A query first reads the few columns that its language needs; only matching entries are fetched in full. A record whose
checksum is wrong is put aside in a separate table, which keeps the newest within a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import msgspec

from heliograph.discovery.topics.queries import CONDITIONS, Matcher, words_of
from heliograph.errors import Reason
from heliograph.live.vaults.topic_conditions import FEW, Clause, of_meta, of_properties
from heliograph.matching.condition import Event
from heliograph.matching.languages.literals import Needed, needed
from heliograph.repository import (
    CHANGES_AT_ONCE_MAX,
    EVERYBODY,
    ID_VERSION,
    AskTopics,
    FoundTopics,
    KeepTopics,
    KeptTopics,
    TopicEntry,
    TopicQuestion,
)

FETCHED_AT_ONCE = 500  # a database accepts this many parameters
FIRST_ROWS_MIN, FIRST_ROWS_MAX = 32, 256  # read first, or as many as are wanted; then twice as many, and so on
DOCUMENTS_AT_ONCE = 1_024  # of at most 64 KiB each
DAMAGED_MAX = 1_000  # records put aside: enough to find out what happened; beyond it the oldest are dropped …
DAMAGED_BYTES_MAX = 16 << 20  # … and beyond this
_COLUMNS = (
    "id, owner, institution, space, path, created_ms, issued_ms, expires_ms, readers, words, joined, properties,"
    " checksum, record, document"
)
PROPERTY_INDEXES = (
    "CREATE INDEX property_number ON property (name, number_value, topic, is_open)",
    "CREATE INDEX property_text ON property (name, text_value, topic, is_open)",
)
PROPERTY_OPENED = (  # of tables that an older version made, before their indexes are made again
    "UPDATE property SET is_open = 1 WHERE topic IN (SELECT number FROM topic WHERE is_open = 1)",
    "DROP INDEX property_number",
    "DROP INDEX property_text",
)
_READ = {  # the columns that a language reads, beside the number
    "": "''",
    "string": "t.words",
    "keywords": "t.words",
    "regex": "t.joined",
    "xpath": "t.document",
    "xquery": "t.document",
}
_properties = msgspec.json.Decoder(dict[str, str | int | float | bool])


class Source(NamedTuple):
    """Where a query begins to look."""

    sql: str  # what follows FROM, with the topics as ``t``
    clause: Clause
    number: str = "t.number"  # the number of a topic, where it is read in order


class TopicDatabase(Protocol):
    """What these tables need of a back end."""

    damaged_order: str  # the column that numbers what was put aside

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for each value; returns its rows."""
        ...

    def full_text(self, words: Sequence[str], *, phrase: bool) -> Source:
        """Finds the entries with these words."""
        ...

    def containing(self, pieces: Needed, after: int) -> Source | None:
        """Finds the entries whose description has, of each of these alternatives, at least one piece.

        None if most of those after this number do: then it is cheaper to read all.
        """
        ...

    def index_texts(self, number: int, words: str, joined: str) -> None:
        """An entry was added."""
        ...

    def drop_texts(self, number: int, words: str, joined: str) -> None:
        """An entry is removed."""
        ...


class TopicTables:
    """One repository's tables."""

    def __init__(self, database: TopicDatabase) -> None:
        self._db = database

    # -- changing -------------------------------------------------------------------------------------------------

    def keep(self, job: KeepTopics) -> KeptTopics:
        """Make a change, within a transaction of the caller."""
        outcomes = tuple(self._put(entry, job) for entry in job.entries)
        gone: list[int] = []
        for id, owner in job.forgotten:
            gone += [
                row[0] for row in self._db.query("SELECT number FROM topic WHERE id = ? AND owner = ?", (id, owner))
            ]
        if job.expired_ms:
            sql = f"SELECT number FROM topic WHERE expires_ms <= ? ORDER BY number LIMIT {CHANGES_AT_ONCE_MAX}"
            gone += [row[0] for row in self._db.query(sql, (job.expired_ms,))]
        if job.outdated:
            sql = f"SELECT number FROM topic WHERE substr(id, 7, 1) NOT BETWEEN ? AND ? LIMIT {CHANGES_AT_ONCE_MAX}"
            gone += [row[0] for row in self._db.query(sql, (bytes([ID_VERSION << 4]), bytes([ID_VERSION << 4 | 15])))]
        forgotten = tuple(entry for number in dict.fromkeys(gone) if (entry := self._take_out(number)) is not None)
        return KeptTopics(self.count(), outcomes, forgotten)

    def count(self) -> int:
        """How many topics there are."""
        return int(self._db.query("SELECT topics FROM tally")[0][0])

    def _put(self, entry: TopicEntry, job: KeepTopics) -> str | Reason:
        rows = self._db.query("SELECT number, owner, issued_ms FROM topic WHERE id = ?", (entry.id,))
        if not rows:
            if self.count() >= job.topics_max:
                return Reason.TOPICS_OVER_QUOTA
            if job.per_owner_max < 1 << 62:
                owned = self._db.query("SELECT COUNT(*) FROM topic WHERE owner = ?", (entry.owner,))[0][0]
                if owned >= job.per_owner_max:
                    return Reason.TOPICS_OVER_QUOTA
            self._insert(None, entry)
            return "appeared"
        number, owner, issued_ms = rows[0]
        if owner != entry.owner:
            return Reason.OWNER_OTHER
        if issued_ms > entry.issued_ms:
            return Reason.TOPIC_OLDER
        self._take_out(number)
        self._insert(number, entry)
        return "changed"

    def _insert(self, number: int | None, entry: TopicEntry) -> None:
        is_open = int(EVERYBODY in entry.readers)
        properties = msgspec.json.encode(dict(entry.properties)).decode()
        values = (
            *(entry.id, entry.owner, entry.institution, entry.space, entry.path),
            *(entry.created_ms, entry.issued_ms, entry.expires_ms, "\n".join(entry.readers)),
            *(entry.words, entry.joined, properties, _checksum(entry), entry.record, entry.document, is_open),
        )
        columns, marks = f"{_COLUMNS}, is_open", ", ".join("?" for _ in values)
        if number is None:
            sql = f"INSERT INTO topic ({columns}) VALUES ({marks}) RETURNING number"
            number = int(self._db.query(sql, values)[0][0])
        else:
            self._db.query(f"INSERT INTO topic (number, {columns}) VALUES (?, {marks})", (number, *values))
        self._db.query("UPDATE tally SET topics = topics + 1")
        self._db.index_texts(number, entry.words, entry.joined)
        for name, value in entry.properties.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            text = None if is_number else str(value).lower() if isinstance(value, bool) else value
            sql = "INSERT INTO property (topic, name, number_value, text_value, is_open) VALUES (?, ?, ?, ?, ?)"
            self._db.query(sql, (number, name, float(value) if is_number else None, text, is_open))
        for reader in dict.fromkeys(entry.readers):
            if reader != EVERYBODY:
                self._db.query("INSERT INTO reader (entity, topic) VALUES (?, ?)", (reader, number))

    def _take_out(self, number: int) -> TopicEntry | None:
        rows = self._db.query(f"SELECT {_COLUMNS} FROM topic WHERE number = ?", (number,))
        if not rows:
            return None
        entry, _ = _entry(rows[0])
        self._db.drop_texts(number, entry.words, entry.joined)
        self._db.query("DELETE FROM property WHERE topic = ?", (number,))
        self._db.query("DELETE FROM reader WHERE topic = ?", (number,))
        self._db.query("DELETE FROM topic WHERE number = ?", (number,))
        self._db.query("UPDATE tally SET topics = topics - 1")
        return entry

    def put_aside(self, number: int) -> None:
        """Move an entry that cannot be read to another table, so that it is not lost."""
        rows = self._db.query("SELECT id, record FROM topic WHERE number = ?", (number,))
        for id, record in rows:
            self._db.query("INSERT INTO damaged (id, record) VALUES (?, ?)", (id, record))
        self._take_out(number)
        self._trim_damaged()

    def _trim_damaged(self) -> None:
        order, size = self._db.damaged_order, 0
        rows = self._db.query(f"SELECT {order}, length(record) FROM damaged ORDER BY {order} DESC")
        for count, (number, length) in enumerate(rows, 1):
            size += length
            if count > DAMAGED_MAX or size > DAMAGED_BYTES_MAX:
                self._db.query(f"DELETE FROM damaged WHERE {order} <= ?", (number,))
                return

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, job: AskTopics) -> tuple[FoundTopics, list[int]]:
        """The next slice, and the numbers of damaged entries. ProtocolError for a query that makes no sense."""
        question, matcher = job.question, Matcher(job.question)
        numbers: list[int] = []
        looked_at, after = 0, job.after
        chunk = max(FIRST_ROWS_MIN, job.count) if job.count <= FIRST_ROWS_MAX else job.rows
        more, reads_documents = True, question.language in ("xpath", "xquery")
        while more and looked_at < job.rows and len(numbers) < job.count:
            asked = min(chunk, job.rows - looked_at, DOCUMENTS_AT_ONCE if reads_documents else job.rows)
            rows = self._candidates(question, after, asked)
            if question.language == "regex":
                fitting = matcher.scan([joined for _, joined in rows])
            elif question.language in CONDITIONS:
                fitting = matcher.which_events(_events(question.language, rows), job.count - len(numbers))
            elif question.language:
                fitting = matcher.which([_partly(question.language, read) for _, *read in rows])
            else:
                fitting = list(range(len(rows)))  # the database tested everything
            wanted = fitting[: job.count - len(numbers)]
            is_full = len(wanted) + len(numbers) >= job.count
            seen = wanted[-1] + 1 if is_full and wanted else len(rows)
            numbers += [rows[place][0] for place in wanted]
            looked_at += seen
            more = seen < len(rows) or len(rows) == asked
            if rows:
                after = after + seen if question.newest_first else rows[seen - 1][0]
            chunk *= 2
        entries, damaged = self._fetch(numbers)
        ids = tuple(id for id, _ in damaged)
        return FoundTopics(entries, after if more else None, looked_at, ids), [number for _, number in damaged]

    def _candidates(self, question: TopicQuestion, after: int, rows: int) -> list[Any]:
        """Numbers, in order, with the columns that the language reads."""
        source, number = "topic t", "t.number"
        clauses = of_meta(question, self._count_topics)
        if (begin := self._begin(question, after)) is not None:
            source, clause, number = begin
            clauses = [clause, *clauses]
        tested, leader = of_properties(question, self._count)
        clauses.append(tested)
        if question.language in ("xpath", "xquery"):
            clauses.append(Clause("t.has_document = 1"))
        order, offset = number, ""
        if question.newest_first:
            order, offset = "t.created_ms DESC, t.number", f" OFFSET {int(after)}"
        elif leader is not None:
            source, order = "property d CROSS JOIN topic t", "d.topic"  # SQLite reads the first one first
            clauses = [leader, Clause("t.number = d.topic AND d.topic > ?", (after,)), *clauses]
        else:
            clauses.append(Clause(f"{number} > ?", (after,)))
        read = _READ.get(question.language, "t.path, t.properties")
        where = " AND ".join(clause.sql for clause in clauses)
        sql = f"SELECT t.number, {read} FROM {source} WHERE {where} ORDER BY {order} LIMIT {int(rows)}{offset}"
        return self._db.query(sql, [value for clause in clauses for value in clause.values])

    def _begin(self, question: TopicQuestion, after: int) -> Source | None:
        """The index of texts where a search begins; None if every entry is read."""
        if question.language in ("string", "keywords"):
            return self._db.full_text(words_of(question.text), phrase=question.language == "string")
        if question.language == "regex" and (pieces := needed(question.text)):
            return self._db.containing(pieces, 0 if question.newest_first else after)
        return None

    # Only open topics count: how a search is carried out, and so how long it takes, must not tell of hidden ones.

    def _count(self, clause: Clause) -> int:
        sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM property p WHERE {clause.sql} AND p.is_open = 1 LIMIT {FEW}) AS few"
        return int(self._db.query(sql, clause.values)[0][0])

    def _count_topics(self, clause: Clause) -> int:
        sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM topic t WHERE {clause.sql} AND t.is_open = 1 LIMIT {FEW}) AS few"
        return int(self._db.query(sql, clause.values)[0][0])

    def _fetch(self, numbers: list[int]) -> tuple[tuple[TopicEntry, ...], list[tuple[bytes, int]]]:
        if not numbers:
            return (), []
        by_number: dict[int, tuple[TopicEntry, bool]] = {}
        for first in range(0, len(numbers), FETCHED_AT_ONCE):
            some = numbers[first : first + FETCHED_AT_ONCE]
            marks = ", ".join("?" for _ in some)
            rows = self._db.query(f"SELECT number, {_COLUMNS} FROM topic WHERE number IN ({marks})", some)
            by_number |= {number: _entry(row) for number, *row in rows}
        whole = [by_number[number] for number in numbers]
        damaged = [(entry.id, number) for number, (entry, good) in zip(numbers, whole, strict=True) if not good]
        return tuple(entry for entry, good in whole if good), damaged


def _entry(row: Sequence[Any]) -> tuple[TopicEntry, bool]:
    """A row as an entry, and whether its checksum is right."""
    (id, owner, institution, space, path, created_ms, issued_ms, expires_ms) = row[:8]
    (readers, words, joined, properties, checksum, record, document) = row[8:]
    try:
        read = _properties.decode(properties)
    except msgspec.MsgspecError:
        read, checksum = {}, -1
    entry = TopicEntry(
        id=bytes(id),
        owner=owner,
        institution=institution,
        space=space,
        path=path,
        created_ms=created_ms,
        issued_ms=issued_ms,
        expires_ms=expires_ms,
        readers=tuple(readers.split("\n")) if readers else (),
        words=words,
        joined=joined,
        properties=read,
        record=bytes(record),
        document=bytes(document),
    )
    return entry, _checksum(entry) == checksum


def _checksum(entry: TopicEntry) -> int:
    said = f"{entry.owner}\n{entry.path}\n{entry.issued_ms}\n{entry.expires_ms}\n{entry.joined}".encode()
    return crc32(entry.document, crc32(entry.record, crc32(said, crc32(entry.id))))


_NOBODY: dict[str, Any] = {"id": b"", "owner": "", "created_ms": 0, "issued_ms": 0, "expires_ms": 0}


def _events(language: str, rows: Sequence[Any]) -> Iterator[Event]:
    """Rows as events for a subscription language, one at a time: an event keeps its parsed document."""
    if language == "xpath":
        return (Event(b"", b"", bytes(document)) for _, document in rows)
    return (Event(path.encode(), properties.encode(), b"") for _, path, properties in rows)


def _partly(language: str, read: Sequence[Any]) -> TopicEntry:
    """The part of an entry that its language reads."""
    if language in ("string", "keywords"):
        return TopicEntry(**_NOBODY, words=read[0])
    if language == "xquery":
        return TopicEntry(**_NOBODY, document=bytes(read[0]))
    return TopicEntry(**_NOBODY)
