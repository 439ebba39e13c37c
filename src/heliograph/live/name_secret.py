"""The secret of this user's durable names: one file, made when the first name without credentials is used.

In:    the user's state folder; a file that machines share, if a program names one.
Out:   a secret.
State: the file ``names.secret``, which only its owner can read.
Not here: what is shown to stores, which is never the secret (wire/name_proofs.py), files (private_file.py).

A secret is the content of its file without white space around it, so that it can be copied to another machine.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from heliograph.errors import UsageError
from heliograph.live.private_file import lock_private, read_private, replace_private, state_dir
from heliograph.wire.name_proofs import check_secret

FILE = "names.secret"
SECRET_BYTES = 32
WHAT = "the secret of durable names"


def own_secret(folder: Path | None = None) -> bytes:
    """This user's secret on this machine; drawn if there is none. Programs that start at the same time get the same."""
    path = (state_dir() if folder is None else folder) / FILE
    try:
        if not path.exists():
            _make(path)
    except OSError as error:
        text = f"{WHAT} cannot be kept: {error}; give secret= or --secret-file, or set $HELIOGRAPH_STATE_DIR"
        raise UsageError(text) from None
    return secret_in(path)


def secret_in(path: Path) -> bytes:
    """The secret in a file."""
    try:
        content = read_private(path, WHAT)
    except FileNotFoundError:
        raise UsageError(f"{WHAT} {path}: there is no such file") from None
    try:
        return check_secret(content.strip())
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _make(path: Path) -> None:
    lock = lock_private(path, wait=True)
    try:
        if not path.exists():  # no other program has made it in the meantime
            replace_private(path, secrets.token_hex(SECRET_BYTES).encode() + b"\n")
    finally:
        os.close(lock)
