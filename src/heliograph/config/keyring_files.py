"""The keyring of a node or a client, from the files that `heliograph ca` writes.

In:    TlsConfig: the paths of a certificate, its key, and the authority.
Out:   Keyring, or ConfigError with all problems; None if no file is named.
State: none.
Not here: what a keyring does (trust/keyring.py), the same files in TLS handshakes (live/tls.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from heliograph.errors import ConfigError, UsageError
from heliograph.trust.config import TlsConfig

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

FILE_BYTES_MAX = 1 << 20  # a hundred authorities need a tenth of it

_OTHERS = 0o077  # the permissions of all users except a file's owner
_Made = TypeVar("_Made")


def load_keyring(tls: TlsConfig) -> Keyring | None:
    """Read the files. To use renewed ones, load again and ``renew`` the keyring that machines hold."""
    if not tls.is_used:
        return None
    from heliograph.trust.chains import Authorities  # takes 30 ms, and only nodes with certificates need it
    from heliograph.trust.keyring import Keyring, Own

    problems: list[str] = []
    if bool(tls.certificate) != bool(tls.key):
        problems.append("tls.certificate and tls.key: name both or neither")
    authority = _read("tls.authority", tls.authority, problems)
    certificate = _read("tls.certificate", tls.certificate, problems)
    revoked = _read("tls.revoked", tls.revoked, problems)
    key = _read("tls.key", tls.key, problems, private=True)
    authorities = own = None
    if authority is not None:
        told = f"tls.authority = {tls.authority!r}" + (f", tls.revoked = {tls.revoked!r}" if revoked else "")
        authorities = _make(lambda: Authorities.from_pem(authority, revoked or b""), told, problems)
    if certificate is not None and key is not None:
        told = f"tls.certificate = {tls.certificate!r}, tls.key = {tls.key!r}"
        own = _make(lambda: Own.from_pem(certificate, key), told, problems)
    if problems:
        raise ConfigError(problems)
    return Keyring(authorities or Authorities(), own)


def _read(path: str, name: str, problems: list[str], *, private: bool = False) -> bytes | None:
    if not name:
        return None
    file = Path(name)
    try:
        if private and file.stat().st_mode & _OTHERS:
            problems.append(f"{path} = {name!r}: others can read this key; run: chmod 600 {name}")
            return None
        with file.open("rb") as opened:
            return opened.read(FILE_BYTES_MAX)
    except OSError as error:
        problems.append(f"{path} = {name!r} cannot be read: {error.strerror or error}")
        return None


def _make(maker: Callable[[], _Made], told: str, problems: list[str]) -> _Made | None:
    try:
        return maker()
    except UsageError as error:
        problems.append(f"{told}: {error}")
        return None
