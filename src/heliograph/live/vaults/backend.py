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
from heliograph.vault import Change, Committed, Found, Query


class VaultError(HeliographError):
    """A back end could not do it. After VAULT_FULL it goes on; after anything else it has to be opened again."""

    def __init__(self, reason: Reason, problem: str) -> None:
        super().__init__(f"{reason.word}: {problem}")
        self.reason = reason
        self.problem = problem


class Backend(Protocol):
    """One vault, used by one thread. Every method may raise VaultError; it may be opened again after any."""

    def open(self) -> int:
        """Make it if it is not there, and keep others out; how many bytes it takes on disk."""
        ...

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        """All of them durably, in order, in one transaction; or none."""
        ...

    def read(self, query: Query) -> Found:
        """What was asked for. VAULT_DAMAGED if not even the positions of what is damaged can be told."""
        ...

    def tidy(self, busy: bool) -> None:
        """Called between other calls: work that no commit should wait for. With ``busy``, only what is overdue."""
        ...

    def check(self) -> list[str]:
        """What is wrong with its structure; the runs' own checksums are looked at when they are read. It takes long."""
        ...

    def compact(self) -> None:
        """Give unused space back to the system. It takes long."""
        ...

    def close(self) -> None:
        """Let go of it. Never raises."""
        ...
