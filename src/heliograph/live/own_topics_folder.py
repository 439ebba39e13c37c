"""The folder of an entity's own topics: what it created or renewed, for its next session and for its other programs.

In:    signed advertisements of our own topics; the environment, which says where this user keeps state.
Out:   all that are kept; whether something changed since they were read.
State: one file per topic, readable by its owner only.
Not here: whether they are valid (discovery/topics/owners.py), answering searches (topic_desk.py).

A file that cannot be read or written is ignored: only searches that no directory answers depend on it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from heliograph.discovery.topics.listing import uuid_text
from heliograph.discovery.topics.messages import MESSAGE_BYTES_MAX
from heliograph.discovery.topics.owners import TOPICS_MAX
from heliograph.live.private_file import PRIVATE, state_dir

_SUFFIX = ".topic"


class OwnTopicsFolder:
    """The topics of one entity on this machine."""

    def __init__(self, entity: str, environment: Mapping[str, str] | None = None) -> None:
        self._path = state_dir(environment) / "topics" / sha256(entity.encode()).hexdigest()[:16]
        self._read_at = 0

    def __bool__(self) -> bool:
        """True if there may be topics."""
        return self._path.is_dir()

    @property
    def has_changed(self) -> bool:
        """True if a topic was kept or forgotten, by any program, since the last ``read``."""
        return self._stamp() != self._read_at

    def _stamp(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    def read(self) -> dict[str, bytes]:
        """All topics, by UUID; nothing from a file that another user could have written."""
        self._read_at = self._stamp()
        found: dict[str, bytes] = {}
        with suppress(OSError):
            for path in sorted(self._path.glob(f"*{_SUFFIX}"))[:TOPICS_MAX]:
                if (record := _read(path)) is not None:
                    found[path.stem] = record
        return found

    def keep(self, id: bytes, record: bytes) -> bool:
        """Keep a topic, in place of an earlier version; False if that failed."""
        path = self._file(uuid_text(id))
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
                    file.write(record)
                draft.replace(path)
                return True
            finally:
                draft.unlink(missing_ok=True)
        return False

    def forget(self, uuid: str) -> None:
        """A topic was withdrawn, or has expired."""
        with suppress(OSError):
            self._file(uuid).unlink(missing_ok=True)

    def _file(self, uuid: str) -> Path:
        return self._path / f"{uuid}{_SUFFIX}"


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            return file.read(MESSAGE_BYTES_MAX)
    except OSError:
        return None
