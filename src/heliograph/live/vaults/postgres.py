"""A vault in a schema of PostgreSQL, for deployments that outgrow one machine.

In:    postgresql://…, a name; changes and queries.
Out:   the schema heliograph_NAME; VaultErrors with a readable text.
State: the connection, and the number of this vault's transactions.
Not here: tables and their meaning (tables.py), the thread (live/disk.py).

An advisory lock keeps a second store out while the connection is open. Each transaction raises a counter: after the
connection broke, the counter tells whether the last transaction was made, and it is repeated only if it was not. If no
server answers within RECONNECT_S, the vault fails, with everything under way. A server that accepts connections and
refuses ours (a wrong password, another database) is told from one that is not there or that starts: by PQping, as
messages come in the server's language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg import errors, pq, sql
from psycopg.conninfo import make_conninfo

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.tables import TABLES, VERSION, Tables
from heliograph.model.places import without_password
from heliograph.vault import Change, Committed, Found, Query, TailDamage, Vault

CONNECT_S = 5  # for each attempt
LOCK_S = 2.0  # another store may be ending, and the server notices it a moment later
RECONNECT_S = 10.0  # for a restarting server
RETRY_S = 0.1

_REASONS: tuple[tuple[type[psycopg.Error], Reason], ...] = (
    (errors.DiskFull, Reason.VAULT_FULL),
    (errors.DataCorrupted, Reason.VAULT_DAMAGED),
    (errors.IndexCorrupted, Reason.VAULT_DAMAGED),
    (errors.ReadOnlySqlTransaction, Reason.VAULT_READ_ONLY),
    (errors.InsufficientPrivilege, Reason.VAULT_READ_ONLY),
    (errors.InvalidCatalogName, Reason.VAULT_MISSING),
)


class BrokenError(VaultError):
    """The connection is gone; work under way may have been done."""


class PostgresVault:
    """One schema."""

    def __init__(self, vault: Vault) -> None:
        self._place = vault.place
        self._schema = f"heliograph_{vault.name}"
        self._bytes_max = vault.bytes_max
        self._connection: psycopg.Connection[Any] | None = None
        self._writer = token_hex(8)  # while the schema has this value, no other vault has written since we opened it
        self._commits = 0
        self._tables = Tables(self)
        self.narrowed = False  # the server's own files are not our business

    # Opening and closing.

    def open(self) -> int:
        """Create the schema if it does not exist, and lock it."""
        self.close()
        try:
            self._patiently(self._prepare, LOCK_S, again_if_broken=False)
        except VaultError:
            self.close()
            raise
        return self._tables.bytes

    def _patiently(self, attempt: Callable[[], None], seconds: float, *, again_if_broken: bool) -> None:
        """Try for a while, if the problem may pass."""
        until = monotonic() + seconds
        while True:
            try:
                attempt()
                return
            except VaultError as error:
                passes = error.reason is Reason.VAULT_LOCKED or (again_if_broken and isinstance(error, BrokenError))
                if not passes or monotonic() > until:
                    raise
            self.close()
            sleep(RETRY_S)

    def _prepare(self) -> None:
        self._connect()
        if self._is_new():
            self._make()
        ((version,),) = self.query("SELECT version FROM vault")
        if version > VERSION:
            problem = f"schema {self._schema}: has version {version}; this Heliograph knows {VERSION}: use a newer one"
            raise VaultError(Reason.VAULT_NEWER, problem)
        ((self._commits,),) = self.query("UPDATE vault SET writer = ? RETURNING commits", (self._writer,))
        self._tables = Tables(self)
        self._tables.load()

    def _connect(self) -> None:
        self._connection = self._dialled(again=True)
        ((locked,),) = self.query("SELECT pg_try_advisory_lock(hashtextextended(?, 0))", (self._schema,))
        if not locked:
            raise VaultError(Reason.VAULT_LOCKED, f"schema {self._schema}: another store uses it")
        self.query("SET synchronous_commit = on")
        self.query("SELECT set_config('search_path', ?, false)", (sql.Identifier(self._schema).as_string(),))

    def _dialled(self, again: bool) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(self._place, autocommit=True, connect_timeout=CONNECT_S)
        except psycopg.Error as error:
            is_absent = self._is_absent()
            if is_absent or not again:
                raise self._told(error, is_absent) from None
        return self._dialled(again=False)  # it may have become ready between the two questions

    def _is_absent(self) -> bool:
        """True if no server accepts connections: it is away, or starts, or ends."""
        try:
            place = make_conninfo(self._place, connect_timeout=CONNECT_S)
        except psycopg.Error:  # not an address at all
            return False
        return pq.PGconn.ping(place.encode()) in (pq.Ping.REJECT, pq.Ping.NO_RESPONSE)

    def _is_new(self) -> bool:
        in_schema = "SELECT relname FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = ?)"
        names = {name for (name,) in self.query(in_schema, (self._schema,))}
        if names and "vault" not in names:
            raise VaultError(Reason.VAULT_FOREIGN, f"schema {self._schema}: it is not a vault of Heliograph")
        if names and self.query("SELECT has_schema_privilege(?, 'USAGE')", (self._schema,)) != [(True,)]:
            raise VaultError(Reason.VAULT_READ_ONLY, f"schema {self._schema}: this user may not use it")
        return not names

    def _make(self) -> None:
        self.query("BEGIN")
        schema = sql.Identifier(self._schema).as_string()
        self.query(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for table in TABLES:
            self.query(table.replace("BLOB", "BYTEA"))
        self.query("ALTER TABLE runs ALTER COLUMN data SET STORAGE EXTERNAL")  # payloads rarely compress
        self.query("CREATE TABLE vault (version BIGINT NOT NULL, commits BIGINT NOT NULL, writer TEXT NOT NULL)")
        self.query("INSERT INTO vault VALUES (?, 0, '')", (VERSION,))
        self.query("COMMIT")

    def close(self) -> None:
        """Release the schema."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Use.

    def check_tail(self) -> tuple[TailDamage, ...]:
        """Damage among the last runs of the logs that were written to last."""
        return self._tables.check_tail()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        """Make all of them in one transaction, exactly once even if the connection breaks."""
        goal = self._commits + 1
        done: list[Committed] = []
        while True:
            try:
                self.query("BEGIN")
                done = self._apply(commits)
                self.query("COMMIT")
            except BrokenError:
                self._tables.forget()
                self._reconnect()
                if self._commits == goal:
                    return done  # it had been made before the connection broke
            except VaultError:
                self._tables.forget()
                self.query("ROLLBACK")
                raise
            else:
                self._commits = goal
                return done

    def _apply(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        before = self._tables.bytes
        done = self._tables.apply(commits)
        if self._bytes_max is not None and before < self._tables.bytes > self._bytes_max:
            raise VaultError(Reason.VAULT_FULL, f"schema {self._schema}: has {before} of {self._bytes_max} bytes")
        if not self.query("UPDATE vault SET commits = commits + 1 WHERE writer = ? RETURNING 1", (self._writer,)):
            raise self._taken_over()
        return done

    def _reconnect(self) -> None:
        self._patiently(self._resume, RECONNECT_S, again_if_broken=True)

    def _resume(self) -> None:
        """Connect again, to the schema as we left it."""
        self.close()
        self._connect()
        ((self._commits, writer),) = self.query("SELECT commits, writer FROM vault")
        if writer != self._writer:
            raise self._taken_over()
        self._tables = Tables(self)
        self._tables.load()

    def _taken_over(self) -> VaultError:
        return VaultError(Reason.VAULT_FAILED, f"schema {self._schema}: another store used it meanwhile")

    def read(self, query: Query) -> Found:
        """Answer a query, on a new connection if the old one broke."""
        try:
            return self._tables.find(query)
        except BrokenError:
            self._reconnect()
        return self._tables.find(query)

    def tidy(self, busy: bool) -> None:
        """PostgreSQL does this itself."""

    def check(self) -> list[str]:
        """PostgreSQL checks its checksums whenever it reads a page."""
        return []

    def compact(self) -> None:
        """Return unused space to the system."""
        for table in ("runs", "logs", "pairs"):
            self.query(f"VACUUM FULL {table}")

    # What tables.py needs.

    def query(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        assert self._connection is not None, "the vault is not open"
        try:
            cursor = self._connection.cursor(binary=True)
            cursor.execute(_with_their_placeholders(text), values)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._told(error) from None

    def change(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row of values."""
        assert self._connection is not None, "the vault is not open"
        try:
            self._connection.cursor().executemany(_with_their_placeholders(text), rows)
        except psycopg.Error as error:
            raise self._told(error) from None

    def _told(self, error: psycopg.Error, is_absent: bool = False) -> VaultError:
        said = without_password(str(error).strip(), self._place)
        problem = f"schema {self._schema}: {said or type(error).__name__}"
        for kind, reason in _REASONS:
            if isinstance(error, kind):
                return VaultError(reason, problem)
        broken = self._connection is None or self._connection.closed
        return (BrokenError if broken else VaultError)(Reason.VAULT_FAILED, problem, is_absent=is_absent)


def _with_their_placeholders(text: str) -> str:
    """Our statements are constants, except for the schema's name, which is quoted."""
    return text.replace("?", "%s")
