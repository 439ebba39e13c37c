"""The tables of a vault, and what changes and queries mean in SQL. SQLite and PostgreSQL share all of it.

In:    changes, inside a transaction that the back end began; queries.
Out:   statements for a Database; answers.
State: rows of logs used recently, so that a commit reads nothing; forgotten when a transaction fails.
Not here: connections, transactions, locks and errors (sqlite.py, postgres.py).

There is a row per run, not per record, and each has a CRC. Per transaction, the row of a log or key is written once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.vault import (
    PAGE_MAX,
    READ_RUNS_MAX,
    TAIL_BYTES,
    TAIL_LOGS,
    TAIL_RUNS,
    TRIM_BYTES_MAX,
    TRIM_RUNS_MAX,
    Append,
    Change,
    Committed,
    Damage,
    Drop,
    Found,
    KeysRead,
    Log,
    LogsRead,
    Measure,
    Measured,
    Position,
    Put,
    Query,
    Read,
    ReadKeys,
    ReadLogs,
    Run,
    RunSize,
    RunsRead,
    TailDamage,
    Trim,
    fitting,
)

VERSION = 1  # of the tables; a vault with a higher one was written by a newer version
LOGS_KNOWN_MAX = 4_096  # rows of logs that are kept in memory between transactions
FEW_RUNS = 16  # usually more than one answer takes

# The type is BLOB in SQLite and BYTEA in PostgreSQL; the rest is common.
TABLES = (
    "CREATE TABLE logs (id BIGINT PRIMARY KEY, name BLOB NOT NULL UNIQUE, first BIGINT NOT NULL, next BIGINT NOT NULL, "
    "runs BIGINT NOT NULL, bytes BIGINT NOT NULL, last_ns BIGINT NOT NULL, crc BIGINT NOT NULL)",
    "CREATE TABLE runs (log BIGINT NOT NULL, position BIGINT NOT NULL, count BIGINT NOT NULL, "
    "first_ns BIGINT NOT NULL, last_ns BIGINT NOT NULL, reached_ns BIGINT NOT NULL, crc BIGINT NOT NULL, "
    "data BLOB NOT NULL, PRIMARY KEY (log, position))",
    "CREATE TABLE pairs (key BLOB PRIMARY KEY, crc BIGINT NOT NULL, value BLOB NOT NULL)",
)

_RUN = struct.Struct(
    "<qqqqqq"
)  # log, position, count, first_ns, last_ns, reached_ns: what a run's CRC covers beside its data
_LOG = struct.Struct("<qqqqqq")  # id, first, next, runs, bytes, last_ns: the same of a log, beside its name

_INSERT_RUN = "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT = "INSERT INTO pairs VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET crc = excluded.crc, value = excluded.value"
_PUT_LOG = (
    "INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET first = excluded.first, "
    "next = excluded.next, runs = excluded.runs, bytes = excluded.bytes, last_ns = excluded.last_ns, crc = excluded.crc"
)
_LOG_ROW = "SELECT id, name, first, next, runs, bytes, last_ns, crc FROM logs"
_RUN_ROWS = "SELECT position, count, first_ns, last_ns, reached_ns, crc, data FROM runs"


class Database(Protocol):
    """A connection. It raises only VaultErrors."""

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        ...

    def change(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row of values."""
        ...


@dataclass(slots=True)
class _Log:
    """A row of ``logs``."""

    id: int
    name: bytes
    first: Position = 0
    next: Position = 0
    runs: int = 0
    bytes: int = 0
    last_ns: int = -(1 << 63)

    def row(self) -> tuple[Any, ...]:
        numbers = (self.first, self.next, self.runs, self.bytes, self.last_ns)
        return self.id, self.name, *numbers, crc32(self.name, crc32(_LOG.pack(self.id, *numbers)))


class Tables:
    """The contents of a vault's database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, _Log] = {}
        self._changed: dict[bytes, _Log] = {}
        self._runs: list[tuple[Any, ...]] = []
        self._pairs: dict[bytes, bytes | None] = {}
        self._next_id = 0
        self._bytes_before = 0  # of all runs, before this transaction
        self.bytes = 0  # of all runs

    def load(self) -> None:
        """Read what is there."""
        (row,) = self._database.query("SELECT MAX(id), CAST(SUM(bytes) AS BIGINT) FROM logs")
        self._next_id = 1 + (row[0] or 0)
        self.bytes = self._bytes_before = row[1] or 0

    def check_tail(self) -> tuple[TailDamage, ...]:
        """Damage among the last runs of the logs that were written to last."""
        found: list[TailDamage] = []
        for row in self._database.query(f"{_LOG_ROW} ORDER BY last_ns DESC, id LIMIT ?", (TAIL_LOGS,)):
            try:
                log = _checked(row)
            except VaultError as error:
                found.append(TailDamage(repr(row[1]), 0, 0, error.problem))
                continue
            name = log.name.decode(errors="replace")
            try:
                sizes = self._database.query(
                    "SELECT position, LENGTH(data) FROM runs WHERE log = ? ORDER BY position DESC LIMIT ?",
                    (log.id, TAIL_RUNS),
                )
                count = fitting([size or 0 for _, size in sizes], TAIL_BYTES)
                start = sizes[count - 1][0] if sizes else log.first
                damaged = [each for each in self._runs_from(log, start, TAIL_BYTES) if isinstance(each, Damage)]
            except (VaultError, TypeError, ValueError) as error:
                if isinstance(error, VaultError) and error.reason is not Reason.VAULT_DAMAGED:
                    raise
                damaged = [Damage(log.first, log.next - log.first, f"cannot be checked: {error}")]
            found += [TailDamage(name, each.position, each.count, each.problem) for each in damaged]
        return tuple(found)

    def forget(self) -> None:
        """A transaction failed: forget its changes."""
        self._known.clear()
        self._changed.clear()
        self._runs.clear()
        self._pairs.clear()
        self.bytes = self._bytes_before

    # Changes, inside a transaction.

    def apply(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        """Make these changes, in order."""
        self._bytes_before = self.bytes
        done = [self._commit(changes) for changes in commits]
        self._write_runs()
        puts = [(key, crc32(value, crc32(key)), value) for key, value in self._pairs.items() if value is not None]
        self._change(_PUT, puts)
        self._change("DELETE FROM pairs WHERE key = ?", [(key,) for key, value in self._pairs.items() if value is None])
        self._pairs.clear()
        self._change(_PUT_LOG, [log.row() for log in self._changed.values()])
        self._changed.clear()
        return done

    def _change(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._database.change(sql, rows)

    def _commit(self, changes: Sequence[Change]) -> Committed:
        positions: list[Position] = []
        trimmed: list[Log] = []
        for change in changes:
            if isinstance(change, Append):
                positions.append(self._append(change))
            elif isinstance(change, Put):
                self._pairs[change.key.encode()] = change.value
            elif isinstance(change, Trim):
                trimmed.append(self._trim(change))
            elif isinstance(change, Drop):
                self._drop(change.log.encode())
            else:
                self._pairs[change.key.encode()] = None
        return Committed(tuple(positions), tuple(trimmed))

    def _append(self, change: Append) -> Position:
        name = change.log.encode()
        log = self._log(name)
        if log is None:
            log = _Log(self._next_id, name)
            self._next_id += 1
            self._remember(log)
        self._changed[name] = log
        position, data = log.next, change.data
        log.next += change.count
        log.runs += 1
        log.bytes += len(data)
        self.bytes += len(data)
        log.last_ns = reached = max(log.last_ns, change.last_ns)
        head = (log.id, position, change.count, change.first_ns, change.last_ns, reached)
        self._runs.append((*head, crc32(data, crc32(_RUN.pack(*head))), data))
        return position

    def _trim(self, change: Trim) -> Log:
        log = self._log(change.log.encode())
        if log is None:
            return Log(change.log)
        self._write_runs()
        rows = self._database.query(
            "SELECT position, LENGTH(data) FROM runs WHERE log = ? ORDER BY position LIMIT ?",
            (log.id, TRIM_RUNS_MAX + 1),
        )
        ends = [*(position for position, _ in rows[1:]), log.next]  # the end in a damaged row cannot be trusted
        gone = size = 0
        for (_, length), end in zip(rows[:TRIM_RUNS_MAX], ends, strict=False):
            length = length or 0  # damaged, if it has none
            if end > change.before or (gone and size + length > TRIM_BYTES_MAX):
                break
            gone, size = gone + 1, size + length
        if gone:
            log.first, log.runs, log.bytes = ends[gone - 1], log.runs - gone, log.bytes - size
            self.bytes -= size
            self._database.change("DELETE FROM runs WHERE log = ? AND position < ?", [(log.id, log.first)])
            self._changed[log.name] = log
        return self._describe(log)

    def _drop(self, name: bytes) -> None:
        log = self._log(name)
        if log is None:
            return
        self._write_runs()
        self._database.change("DELETE FROM runs WHERE log = ?", [(log.id,)])
        self._database.change("DELETE FROM logs WHERE id = ?", [(log.id,)])
        self.bytes -= log.bytes
        self._known.pop(name, None)
        self._changed.pop(name, None)

    def _write_runs(self) -> None:
        self._change(_INSERT_RUN, self._runs)
        self._runs.clear()

    # Logs.

    def _log(self, name: bytes) -> _Log | None:
        log = self._changed.get(name) or self._known.get(name)
        if log is None:
            rows = self._database.query(f"{_LOG_ROW} WHERE name = ?", (name,))
            if not rows:
                return None
            log = _checked(rows[0])
            self._remember(log)
        return log

    def _remember(self, log: _Log) -> None:
        if len(self._known) >= LOGS_KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[log.name] = log

    def _describe(self, log: _Log) -> Log:
        rows = self._database.query("SELECT first_ns FROM runs WHERE log = ? ORDER BY position LIMIT 1", (log.id,))
        return _log_of(log, rows[0][0] if rows else 0)

    # Queries.

    def find(self, query: Query) -> Found:
        """Answer a query."""
        try:
            if isinstance(query, Read):
                return self._read(query)
            if isinstance(query, Measure):
                return self._measure(query)
            return self._read_keys(query) if isinstance(query, ReadKeys) else self._read_logs(query)
        except (TypeError, ValueError) as error:  # a position that is not a number, a name that is not UTF-8
            raise VaultError(Reason.VAULT_DAMAGED, f"a row cannot be understood: {error}") from None

    def _read_logs(self, query: ReadLogs) -> LogsRead:
        where, values = _page("name", query.prefix, query.after)
        oldest = "(SELECT first_ns FROM runs WHERE log = logs.id ORDER BY position LIMIT 1)"
        sql = f"{_LOG_ROW.replace('crc', f'crc, COALESCE({oldest}, 0)')} WHERE {where} ORDER BY name LIMIT ?"
        rows = self._database.query(sql, (*values, query.count_max + 1))
        logs = tuple(_log_of(_checked(row[:8]), row[8]) for row in rows[: query.count_max])
        return LogsRead(logs, len(rows) > query.count_max)

    def _read_keys(self, query: ReadKeys) -> KeysRead:
        where, values = _page("key", query.prefix, query.after)
        sizes = self._database.query(
            f"SELECT key, LENGTH(key) + LENGTH(value) FROM pairs WHERE {where} ORDER BY key LIMIT ?",  # noqa: S608 ours
            (*values, PAGE_MAX + 1),
        )
        count = fitting([size for _, size in sizes[:PAGE_MAX]], query.bytes_max)
        if not count:
            return KeysRead((), more=False)
        rows = self._database.query(
            "SELECT key, crc, value FROM pairs WHERE key BETWEEN ? AND ? ORDER BY key",
            (sizes[0][0], sizes[count - 1][0]),
        )
        pairs = tuple((key.decode(), value if _is_value(key, value, crc) else None) for key, crc, value in rows)
        return KeysRead(pairs, len(sizes) > count)

    def _read(self, query: Read) -> RunsRead:
        log = self._log(query.log.encode())
        if log is None:
            return RunsRead((), Log(query.log))
        start = max(query.start, log.first)
        if query.since_ns is not None:
            start = max(start, self._reached(log, query.since_ns))
        return RunsRead(tuple(self._runs_from(log, start, query.bytes_max)), self._describe(log))

    def _measure(self, query: Measure) -> Measured:
        log = self._log(query.log.encode())
        if log is None:
            return Measured((), Log(query.log))
        start = max(query.start, log.first)
        holding = self._holding(log, start)
        rows = self._database.query(
            "SELECT position, count, LENGTH(data), CASE WHEN LENGTH(data) <= ? THEN data ELSE ? END "
            "FROM runs WHERE log = ? AND position >= ? ORDER BY position LIMIT ?",
            (query.small, b"", log.id, start if holding is None else holding[0], READ_RUNS_MAX),
        )
        runs = (RunSize(position, count, size or 0, data or b"") for position, count, size, data in rows)
        return Measured(tuple(run for run in runs if run.next > start), self._describe(log))

    def _reached(self, log: _Log, since_ns: int) -> Position:
        """The position of the run with which the log reached this time; by binary search, as that time never falls."""
        if log.last_ns < since_ns:
            return log.next
        low, high = log.first, log.next
        while low < high:
            middle = (low + high) // 2
            row = self._holding(log, middle)
            if row is None:
                low = middle + 1
            elif row[2] >= since_ns:
                high = row[0]
            else:
                low = max(middle + 1, row[0] + row[1])
        return low

    def _holding(self, log: _Log, position: Position) -> tuple[int, int, int] | None:
        """Position, count and time reached of the last run that begins at or before this position."""
        rows = self._database.query(
            "SELECT position, count, reached_ns FROM runs WHERE log = ? AND position <= ? "
            "ORDER BY position DESC LIMIT 1",
            (log.id, position),
        )
        return rows[0] if rows else None

    def _runs_from(self, log: _Log, start: Position, bytes_max: int) -> list[Run | Damage]:
        """The runs from ``start`` on. Every position is in a run or in a Damage."""
        if start >= log.next:
            return []
        holding = self._holding(log, start)
        sizes = self._sizes_from(log, start if holding is None else holding[0], bytes_max)
        count = fitting([size or 0 for _, size in sizes[:READ_RUNS_MAX]], bytes_max)
        begins = [position for position, _ in sizes[:count]]
        end = sizes[count][0] if count < len(sizes) else log.next
        rows = {row[0]: row for row in self._rows(log, begins)}
        found: list[Run | Damage] = []
        expected = min(start, begins[0]) if begins else start
        for position, following in zip(begins, [*begins[1:], end], strict=False):  # an end without begins: all are lost
            if position > expected:
                found.append(Damage(expected, position - expected, "missing"))
            found.append(_run_of(log, rows.get(position), position, following))
            expected = found[-1].next
        if expected < end:
            found.append(Damage(expected, end - expected, "missing"))
        return [each for each in found if each.next > start]

    def _sizes_from(self, log: _Log, start: Position, bytes_max: int) -> list[tuple[Position, int]]:
        """Positions and sizes of runs: of all that may go into one answer, and of one more if there is one.

        Runs are usually large, so that few are needed: each costs the database a page.
        """
        sizes: list[tuple[Position, int]] = []
        for most in (FEW_RUNS, READ_RUNS_MAX + 1):
            sizes = self._database.query(
                "SELECT position, LENGTH(data) FROM runs WHERE log = ? AND position >= ? ORDER BY position LIMIT ?",
                (log.id, start, most),
            )
            if len(sizes) < most or sum(size or 0 for _, size in sizes) > bytes_max:
                break
        return sizes

    def _rows(self, log: _Log, begins: list[Position]) -> list[Any]:
        """Whole rows. If the database cannot read one of them, the others are read one by one."""
        if not begins:
            return []
        where = f"{_RUN_ROWS} WHERE log = ? AND position BETWEEN ? AND ?"
        try:
            return self._database.query(where, (log.id, begins[0], begins[-1]))
        except VaultError as error:
            if error.reason is not Reason.VAULT_DAMAGED:
                raise
        rows: list[Any] = []
        for position in begins:
            try:
                rows += self._database.query(where, (log.id, position, position))
            except VaultError as error:
                if error.reason is not Reason.VAULT_DAMAGED:
                    raise
        return rows


def _run_of(log: _Log, row: Any, position: Position, following: Position) -> Run | Damage:
    """The run of a row, if it is undamaged; a damaged one extends to the next run."""
    if row is None:
        return Damage(position, following - position, "unreadable")
    _, count, first_ns, last_ns, reached_ns, crc, data = row
    if not _is_whole(_RUN, (log.id, position, count, first_ns, last_ns, reached_ns), data, crc):
        return Damage(position, following - position, "checksum wrong")
    return Run(position, count, first_ns, last_ns, data)


def _is_whole(head: struct.Struct, numbers: Sequence[Any], data: Any, crc: Any) -> bool:
    """True if the checksum is right. Damaged values may even have other types."""
    try:
        return bool(crc == crc32(data, crc32(head.pack(*numbers))))
    except (TypeError, struct.error):
        return False


def _is_value(key: bytes, value: Any, crc: Any) -> bool:
    return isinstance(value, bytes) and bool(crc == crc32(value, crc32(key)))


def _checked(row: Any) -> _Log:
    number, name, *numbers, crc = row
    if not _is_whole(_LOG, (number, *numbers), name, crc):
        raise VaultError(Reason.VAULT_DAMAGED, f"the row of the log {name!r} has a wrong checksum")
    return _Log(number, name, *numbers)


def _log_of(log: _Log, first_ns: int) -> Log:
    last_ns = log.last_ns if log.next else 0
    return Log(log.name.decode(), log.first, log.next, log.runs, log.bytes, first_ns, last_ns)


def _page(column: str, prefix: str, after: str | None) -> tuple[str, tuple[bytes, ...]]:
    """The condition for names with a prefix, after one of them. Byte 255 never occurs in UTF-8."""
    start = prefix.encode()
    where, values = f"{column} >= ? AND {column} < ?", (start, start + b"\xff")
    return (where, values) if after is None else (f"{where} AND {column} > ?", (*values, after.encode()))
