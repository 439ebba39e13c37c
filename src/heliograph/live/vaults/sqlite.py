"""A vault in a file of SQLite: the default.

In:    a folder, a name; changes and queries.
Out:   NAME.vault, with its write-ahead log beside it; VaultErrors with a readable text.
State: the connection, and how much was written since the last checkpoint.
Not here: tables and their meaning (tables.py), the thread (live/disk.py).

Every commit flushes the write-ahead log (synchronous=FULL). Moving it into the file (a checkpoint) is left to ``tidy``,
so that no commit includes it. The system locks the file for as long as it is open: a killed process leaves no lock.

To flush a file that has grown takes about twice as long, because the file system flushes its own journal too. Where
commits are small, the write-ahead log is therefore lengthened once, with zeros, and is reused often enough that it does
not grow again. SQLite reads it only as far as its frames have the right numbers and checksums.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.private import create_private, narrow
from heliograph.live.vaults.tables import TABLES, VERSION, Tables
from heliograph.vault import Change, Committed, Found, Query, TailDamage, Vault, size_of

APPLICATION_ID = 0x48_45_4C_56  # "HELV" in the file's head
ELSEWHERE = "choose another folder: the setting place, for a store --store-place or store run --place"
LOCK_S = 1.0  # another process may be ending
IDLE_BYTES = 1 << 20  # written since the last checkpoint: worth a checkpoint when no commit waits …
OVERDUE_BYTES = 32 << 20  # … and even when one does
COMMIT_BYTES = 16 << 10  # the cost of a transaction beside its data: about four pages
KEPT_BYTES = 64 << 20  # of the write-ahead log's file, for reuse
SMALL_BYTES = 32 << 10  # after a commit of this size or less …
SMALL_OVERDUE_BYTES = 4 << 20  # … a checkpoint is overdue earlier …
ROOM_BYTES = 5 << 20  # … and before that, the write-ahead log has this length …
USED_BYTES = 256 << 10  # … if the vault is used at all

_REASONS = {
    sqlite3.SQLITE_FULL: Reason.VAULT_FULL,
    sqlite3.SQLITE_CORRUPT: Reason.VAULT_DAMAGED,
    sqlite3.SQLITE_NOTADB: Reason.VAULT_FOREIGN,
    sqlite3.SQLITE_BUSY: Reason.VAULT_LOCKED,
    sqlite3.SQLITE_LOCKED: Reason.VAULT_LOCKED,
    sqlite3.SQLITE_READONLY: Reason.VAULT_READ_ONLY,
    sqlite3.SQLITE_PERM: Reason.VAULT_READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: Reason.VAULT_READ_ONLY,
}
_HINTS = {
    Reason.VAULT_FOREIGN: "it is not a vault of Heliograph",
    Reason.VAULT_LOCKED: "another process uses it",
    Reason.VAULT_READ_ONLY: "it, or its folder, cannot be written to",
}


class SqliteVault:
    """One file."""

    def __init__(self, vault: Vault) -> None:
        self.path = Path(vault.place) / f"{vault.name}.vault"
        self._bytes_max = vault.bytes_max
        self._connection: sqlite3.Connection | None = None
        self._tables = Tables(self)
        self._written = 0  # bytes since the last checkpoint, about
        self._last_written = 0  # of these, by the last commit
        self._has_room = False  # the write-ahead log was lengthened, or cannot be
        self.narrowed = False

    # Opening and closing.

    def open(self) -> int:
        """Create the file if it does not exist, and lock it."""
        self.close()
        self._make_place()
        try:
            self._connection = sqlite3.connect(self.path, timeout=LOCK_S, isolation_level=None)
        except sqlite3.Error as error:
            raise self._told(error) from None
        self._connection.text_factory = bytes  # we store no text, and damaged text may not be UTF-8
        try:
            self._prepare()
            self.narrowed = narrow(self.path)  # only now: the file might have been another program's
        except VaultError:
            self.close()
            raise
        return int(self._pragma("page_count")) * int(self._pragma("page_size"))

    def _make_place(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_private(self.path)
        except PermissionError as error:
            raise VaultError(Reason.VAULT_READ_ONLY, f"{error}; {ELSEWHERE}") from None
        except OSError as error:
            raise VaultError(Reason.VAULT_FAILED, f"{error}; {ELSEWHERE}") from None
        if self.path.exists() and not os.access(self.path, os.W_OK):  # else SQLite fails later, with another text
            raise VaultError(Reason.VAULT_READ_ONLY, f"{self.path}: it cannot be written to")

    def _prepare(self) -> None:
        self._pragma("locking_mode = EXCLUSIVE")
        is_new = self._is_new()  # before anything is changed, as the file may belong to another program
        self._pragma("journal_mode = WAL")
        self._pragma("synchronous = FULL")
        self._pragma("wal_autocheckpoint = 0")
        self._pragma("secure_delete = OFF")  # some systems switch it on, and overwrite deleted data
        self._pragma(f"journal_size_limit = {KEPT_BYTES}")
        if self._bytes_max is not None:
            self._pragma(f"max_page_count = {max(1, self._bytes_max // int(self._pragma('page_size')))}")
        self.query("BEGIN IMMEDIATE")  # shows whether the file is writable, and holds the lock from here on
        if is_new:
            for table in TABLES:
                self.query(table)
            self._pragma(f"application_id = {APPLICATION_ID}")
            self._pragma(f"user_version = {VERSION}")
        self.query("COMMIT")
        self._tables = Tables(self)
        self._tables.load()
        self._has_room = False
        self._written = OVERDUE_BYTES  # an earlier process may have left data in the write-ahead log

    def _is_new(self) -> bool:
        mark, version = self._pragma("application_id"), self._pragma("user_version")
        if mark == APPLICATION_ID:
            if version > VERSION:
                problem = f"{self.path}: has version {version}; this Heliograph knows {VERSION}: use a newer one"
                raise VaultError(Reason.VAULT_NEWER, problem)
            return False
        if mark or version or self.query("SELECT 1 FROM sqlite_master LIMIT 1"):
            raise VaultError(Reason.VAULT_FOREIGN, f"{self.path}: it is not a vault of Heliograph")
        return True

    def close(self) -> None:
        """Release the file; SQLite moves the write-ahead log into it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass  # committed data stays in the write-ahead log

    # Use.

    def check_tail(self) -> tuple[TailDamage, ...]:
        """Damage among the last runs of the logs that were written to last."""
        return self._tables.check_tail()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        """Make all of them in one transaction."""
        try:
            self.query("BEGIN IMMEDIATE")
            done = self._tables.apply(commits)
            self.query("COMMIT")
        except VaultError:
            self._tables.forget()
            self._roll_back()
            raise
        self._last_written = COMMIT_BYTES + sum(size_of(change) for changes in commits for change in changes)
        self._written += self._last_written
        return done

    def _roll_back(self) -> None:
        assert self._connection is not None
        if self._connection.in_transaction:  # SQLite rolls back by itself after some errors
            self.query("ROLLBACK")

    def read(self, query: Query) -> Found:
        """Answer a query."""
        return self._tables.find(query)

    def tidy(self, busy: bool) -> None:
        """Move the write-ahead log into the file, so that it does not grow."""
        is_small = self._last_written <= SMALL_BYTES
        if self._written < (IDLE_BYTES if not busy else SMALL_OVERDUE_BYTES if is_small else OVERDUE_BYTES):
            if is_small and self._written >= USED_BYTES and not self._has_room:
                self._has_room = True
                self._make_room()
            return
        try:
            self.query("PRAGMA wal_checkpoint(PASSIVE)")
        except VaultError as error:
            if error.reason is not Reason.VAULT_FULL:
                raise
        self._written = 0

    def _make_room(self) -> None:
        """Lengthen the write-ahead log, which only this thread uses. If that fails, commits are slower, no more."""
        with suppress(OSError), Path(f"{self.path}-wal").open("r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                while (missing := ROOM_BYTES - file.tell()) > 0:
                    file.write(bytes(min(missing, 1 << 20)))
                os.fsync(file)
            except OSError:
                file.truncate(end)  # the disk is full: SQLite needs what is left

    def check(self) -> list[str]:
        """Problems that SQLite finds."""
        return [row[0].decode() for row in self.query("PRAGMA integrity_check(100)") if row[0] != b"ok"]

    def compact(self) -> None:
        """Rewrite the file."""
        self.query("VACUUM")
        self.query("PRAGMA wal_checkpoint(TRUNCATE)")

    # What tables.py needs.

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        assert self._connection is not None, "the vault is not open"
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._told(error) from None

    def change(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row of values."""
        assert self._connection is not None, "the vault is not open"
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as error:
            raise self._told(error) from None

    def _pragma(self, text: str) -> Any:
        rows = self.query(f"PRAGMA {text}")
        return rows[0][0] if rows else None

    def _told(self, error: sqlite3.Error) -> VaultError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the other bits are more detailed than our reasons
        reason = _REASONS.get(code, Reason.VAULT_FAILED)
        return VaultError(reason, f"{self.path}: {_HINTS.get(reason, '')}{' ' if reason in _HINTS else ''}({error})")
