"""Files that hold secrets: written whole or not at all, readable by their owner, never overwritten by accident.

In:    paths and bytes.
Out:   files.
State: none.
Not here: what is in them (trust/).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heliograph.errors import HeliographError, UsageError

PRIVATE = 0o600
PUBLIC = 0o644
FILE_BYTES_MAX = 4 << 20


def write_file(path: Path, data: bytes, *, mode: int = PRIVATE, force: bool = False) -> None:
    """Write a file atomically: readers see the old one or the new one. Without ``force`` an existing file is kept."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # private from the start
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # without the temporary name
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if force:
            Path(name).replace(path)
        else:
            os.link(name, path)  # unlike a rename, this fails if the file exists
    except FileExistsError:
        raise HeliographError(f"{path} exists; add --force to overwrite it") from None
    finally:
        Path(name).unlink(missing_ok=True)
    _sync_folder(path.parent)


def refuse_existing(*paths: Path) -> None:
    """Fail before any work is done; ``write_file`` checks again, in case the file was created meanwhile."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise HeliographError(f"{path} exists; add --force to overwrite it")


def private_folder(path: Path) -> None:
    """Create a folder that only its owner can read, unless it exists."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_file(path: Path, what: str) -> bytes:
    """The bytes of a small file; ``what`` says in errors what it should contain."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{what} {path} is larger than {FILE_BYTES_MAX} bytes")
    return data


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that no other process changes its files. The process's end releases it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
