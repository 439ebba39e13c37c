"""The file of remembered brokers: the last target set, on disk, for the next search.

In:    a target set; brokers that are gone; the environment, which says where this user keeps state.
Out:   the target set of the last search with the same options, if it is not too old.
State: one file per set of options, at most FILES_MAX, each readable by its owner only.
Not here: its content (discovery/brokers/remembered.py), when it is used (discovery/brokers/search.py).

Programs that search in different networks must not mislead each other, so each set of options has its own file. A file
that cannot be read or written is ignored: only speed depends on it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time

from heliograph.discovery.brokers import remembered
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.live.private_file import state_dir

FILE_BYTES_MAX = 1 << 16
FILES_MAX = 32
AGE_S_MAX = 10**9  # what is forgotten may be of any age
_PREFIX = "brokers-"


def file_for(asked: Sequence[str], environment: Mapping[str, str] | None = None) -> Path:
    """The file for these options."""
    key = sha256("\n".join(sorted(asked)).encode()).hexdigest()[:16]
    return state_dir(environment) / f"{_PREFIX}{key}.json"


def read(path: Path, age_s_max: int) -> tuple[Remembered, ...]:
    """Brokers that are not too old. Nothing from a file that another user could have written."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return ()
            return remembered.decode(file.read(FILE_BYTES_MAX), int(time()), age_s_max)
    except OSError:
        return ()


def write(path: Path, brokers: Sequence[Remembered]) -> None:
    """Replace the whole file: a reader sees the old one or the new one."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(remembered.encode(brokers))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        _forget_oldest(path.parent)


def forget(addresses: Collection[str], environment: Mapping[str, str] | None = None) -> None:
    """These brokers are gone for good: no search needs to ask them."""
    for path in state_dir(environment).glob(f"{_PREFIX}*.json"):
        known = read(path, AGE_S_MAX)
        kept = [broker for broker in known if broker.address not in addresses]
        if len(kept) < len(known):
            write(path, kept)


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob(f"{_PREFIX}*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-FILES_MAX]:
        file.unlink(missing_ok=True)
