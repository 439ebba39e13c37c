"""Files of SQLite that only their owner can read, in whatever folder they are.

In:    the path of a database.
Out:   an empty file of mode 0600 where there was none; narrower modes of its files.
State: none.
Not here: the databases (sqlite.py, topic_sqlite.py).

SQLite creates the files beside a database with the mode of the database itself. No file is opened here that exists:
closing it would release the locks that this process has on it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError

PRIVATE = 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BESIDE = ("", "-wal", "-shm", "-journal")


def create_private(path: Path) -> None:
    """Create the file unless it exists. SQLite itself would use the umask. OSError if it cannot be created."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    except FileExistsError:
        pass


def narrow(path: Path) -> bool:
    """Take all rights of others away from a database and the files beside it. True if others had any.

    VaultError if that is not possible: a vault that others can read is not used.
    """
    wide = [each for beside in _BESIDE if _is_wide(each := path.with_name(path.name + beside))]
    for each in wide:
        try:
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~_OTHERS)
        except OSError as error:
            problem = f"{each}: others can read it ({error.strerror or error}); its owner must run: chmod 600 {each}"
            raise VaultError(Reason.VAULT_READ_ONLY, problem) from None
        if _is_wide(each):
            raise VaultError(Reason.VAULT_READ_ONLY, f"{each}: others can read it, and its file system has no modes")
    return bool(wide)


def _is_wide(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except FileNotFoundError:
        return False
