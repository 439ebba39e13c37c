"""Private files: files of a user's programs that hold a secret, readable by their owner only.

In:    paths; what to write; the environment, which says where this user keeps state.
Out:   what was read; UsageError that says what is wrong with a file and what to do.
State: the files, and locks on them.
Not here: what is in them (publisher_file.py, name_secret.py, connect.py), files of commands (cli/files.py).
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from heliograph.errors import UsageError

PRIVATE = 0o600
FILE_BYTES_MAX = 1 << 16


def state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """The directory for persistent state of this user's programs."""
    environment = os.environ if environment is None else environment
    if chosen := environment.get("HELIOGRAPH_STATE_DIR"):
        return Path(chosen)
    if base := environment.get("XDG_STATE_HOME"):
        return Path(base) / "heliograph"
    return Path.home() / ".local" / "state" / "heliograph"


def read_private(path: Path, what: str) -> bytes:
    """The content of a file. FileNotFoundError if there is none; UsageError if others can read or change it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"{what} {path}: others can read this secret; run: chmod 600 {path}")
            return file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error}") from None


def replace_private(path: Path, content: bytes) -> None:
    """Write a whole file, so that a reader sees the old content or the new; it is on disk when this returns.

    Only one process writes a file at a time: see ``lock_private``.
    """
    fresh = path.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, PRIVATE), "wb") as file:
        os.fchmod(file.fileno(), PRIVATE)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def lock_private(path: Path, *, wait: bool) -> int:
    """Lock a file for this process, in a folder that is made if need be; closing the descriptor ends the lock.

    BlockingIOError if another process has it and we do not wait.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(lock)
        raise
    return lock
