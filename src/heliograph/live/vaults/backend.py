"""The interface of a vault's back end.

In:    commits and queries of one vault.
Out:   positions and records; VaultError if the back end fails.
State: none.
Not here: the thread that uses it (live/disk.py), choosing one (choice.py), SQLite (sqlite.py), PostgreSQL
          (postgres.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from heliograph.errors import HeliographError, Reason
from heliograph.vault import Change, Committed, Found, Query, TailDamage


class VaultError(HeliographError):
    """A back end failed. After VAULT_FULL it can be used again; after any other reason it has to be reopened.

    ``is_content``: it refused what it was given, and can be used again for other jobs. ``is_absent``: its server is
    not there, or not yet: a node that starts waits for it.
    """

    def __init__(self, reason: Reason, problem: str, *, is_content: bool = False, is_absent: bool = False) -> None:
        super().__init__(f"{reason.word}: {problem}")
        self.reason = reason
        self.problem = problem
        self.is_content = is_content
        self.is_absent = is_absent


class Backend(Protocol):
    """One vault, used by one thread. Every method may raise VaultError; the vault may then be opened again."""

    narrowed: bool  # others could read it until it was opened

    def open(self) -> int:
        """Create it if it does not exist, and lock it; returns its bytes on disk."""
        ...

    def check_tail(self) -> tuple[TailDamage, ...]:
        """Read the last runs of the logs that were written to last; returns the damaged ones. A crash hits these."""
        ...

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        """Make all of them durable, in order, in one transaction; or none."""
        ...

    def read(self, query: Query) -> Found:
        """Answer a query. VAULT_DAMAGED if not even the positions of damaged records are known."""
        ...

    def tidy(self, busy: bool) -> None:
        """Work that no commit should wait for; called between other calls. With ``busy``, only overdue work."""
        ...

    def check(self) -> list[str]:
        """Problems of its structure. Checksums of runs are checked when they are read. Slow."""
        ...

    def compact(self) -> None:
        """Return unused space to the system. Slow."""
        ...

    def close(self) -> None:
        """Release it. Never raises."""
        ...
