"""The runtime directory: where a running node leaves the token for this machine's administrator.

In:    the node's port; the environment.
Out:   a token file that only its owner can read; the token, for command-line tools of the same user; the environment
       of nodes that we start, which leave their tokens where we look.
State: files ``admin-<port>.token``, from the node's start to its stop.
Not here: what the token allows (broker/credentials.py), tokens of clients (trust/).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heliograph import kernels


@dataclass(frozen=True, slots=True)
class LocalToken:
    """A secret for one run of a node. The broker knows only its digest."""

    text: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def digest(self) -> bytes:
        """The value of ``BrokerConfig.local_digest``."""
        return hashlib.sha256(self.text.encode()).digest()


def runtime_dir(environment: Mapping[str, str] | None = None) -> Path:
    """The directory for files of this user's nodes that are removed when a node stops."""
    environment = os.environ if environment is None else environment
    if chosen := environment.get("HELIOGRAPH_RUNTIME_DIR"):
        return Path(chosen)
    if session := environment.get("XDG_RUNTIME_DIR"):
        return Path(session) / "heliograph"
    return Path.home() / ".cache" / "heliograph" / "run"


def node_environment(folder: Path) -> dict[str, str]:
    """The variables of a node that we start with settings of our own, and with this runtime directory.

    The user's HELIOGRAPH_ variables are settings of another node or a client's credentials; only the choice of kernels
    concerns the machine.
    """
    ours = [name for name in os.environ if name.startswith("HELIOGRAPH_") and name != kernels.VARIABLE]
    kept = {name: text for name, text in os.environ.items() if name not in ours}
    return {**kept, "HELIOGRAPH_RUNTIME_DIR": str(folder)}


def write_token(port: int, token: LocalToken) -> Path:
    """Write the token where ``local_token`` finds it. OSError if others can access the directory."""
    directory = runtime_dir()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(directory):
        raise PermissionError(f"{directory} must belong to you alone; run: chmod 700 {directory}")
    path = _path(port)
    path.unlink(missing_ok=True)  # left by a node that was killed
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # never readable by others
        file.write(token.text)
    return path


def remove_token(port: int, token: LocalToken) -> None:
    """The node ends: remove its token. The file of another node that has taken over the port stays."""
    if local_token(port) == token.text:
        _path(port).unlink(missing_ok=True)


def local_token(port: int) -> str | None:
    """The token of this user's node on that port of this machine, if there is one."""
    path = local_token_file(port)
    try:
        return path.read_text() if path is not None else None
    except OSError:
        return None


def local_token_file(port: int) -> Path | None:
    """The file of that token, if nobody else could have put it there."""
    path = _path(port)
    try:
        return path if _is_private(path) else None
    except OSError:
        return None


def _path(port: int) -> Path:
    return runtime_dir() / f"admin-{port}.token"


def _is_private(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
