"""The file of a named publisher: its secret and its numbers, so that it can continue after a crash.

In:    the name of a publisher; where such files are; the numbers that were used.
Out:   the secret of its session, and the first number that was never used.
State: a file that only its owner can read, locked while its publisher runs.
Not here: what the secret proves (model/origin.py), reliable publications (client/stored/reliable.py), private files
          (private_file.py).

Numbers are reserved in blocks before they are used: one write of the file for a million publications. After a crash the
rest of a block is skipped, which brokers and stores accept.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from heliograph.errors import UsageError
from heliograph.live.private_file import lock_private, read_private, replace_private, state_dir
from heliograph.model.identity import entity_is_valid
from heliograph.model.origin import SECRET_BYTES_MIN

BLOCK = 1 << 20
AHEAD = BLOCK // 2  # at least this many numbers are reserved


class PublisherFile:
    """One named publisher. UsageError if its file is in use or not valid."""

    def __init__(self, name: str, folder: Path) -> None:
        if not entity_is_valid(name):
            raise UsageError(f"{name!r} is not the name of a publisher: letters, digits and . _ @ - only")
        self._path = folder / f"{name}.json"
        try:
            self._lock = lock_private(self._path, wait=False)
        except BlockingIOError:
            raise UsageError(f"publisher {name!r} runs already: {self._path} is in use") from None
        except OSError as error:
            raise UsageError(f"the file of publisher {name!r} cannot be kept: {error}") from None
        self.secret, self.used = self._read()
        self._reserved = self.used
        self._closed = False
        self.keep_ahead(self.used)

    def keep_ahead(self, used: int) -> None:
        """Numbers up to this one were used: reserve more if few are left."""
        if used + AHEAD > self._reserved and not self._closed:
            self._reserved = used + BLOCK
            self._write(self._reserved)

    def close(self, used: int) -> None:
        """The publisher has ended; its next incarnation may use the remaining numbers."""
        if not self._closed:
            self._closed = True
            self._write(used)
            os.close(self._lock)

    def _read(self) -> tuple[bytes, int]:
        try:
            kept = json.loads(read_private(self._path, "the file of a publisher"))
            secret, used = bytes.fromhex(kept["secret"]), int(kept["used"])
        except FileNotFoundError:
            return secrets.token_bytes(SECRET_BYTES_MIN), 0
        except UsageError:
            os.close(self._lock)
            raise
        except (ValueError, KeyError, TypeError) as error:
            os.close(self._lock)
            raise UsageError(f"{self._path} is not the file of a publisher: {error}") from None
        return secret, used

    def _write(self, used: int) -> None:
        """Replace the whole file; it is on disk before anything is published under these numbers."""
        replace_private(self._path, json.dumps({"secret": self.secret.hex(), "used": used}).encode())


def publishers_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the files of this user's publishers are."""
    return state_dir(environment) / "publishers"
