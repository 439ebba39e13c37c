"""Certificate files for tests, good and bad.

In:    a folder.
Out:   TlsFiles.
State: one authority per folder.
Not here: making certificates (trust/certificates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from heliograph.live.tls import TlsFiles
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority, revoke


class Authority:
    """Issues certificate files into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._pair = make_authority(name, datetime.now(UTC) - timedelta(days=100), 1_000)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._pair.certificate)

    def files(
        self,
        entity: str,
        *,
        roles: Sequence[Role] = (Role.CLIENT,),
        days_ago: int = 0,
        days: int = 30,
        trust: bool = True,
    ) -> TlsFiles:
        """A certificate for 127.0.0.1, begun ``days_ago`` and good for ``days`` from then."""
        begin = datetime.now(UTC) - timedelta(days=days_ago, hours=1)
        pair: Pair = issue(self._pair, entity, roles, ["127.0.0.1", "localhost"], begin, days)
        certificate, key = self._folder / f"{entity}.crt", self._folder / f"{entity}.key"
        certificate.write_bytes(pair.certificate)
        key.unlink(missing_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        return TlsFiles(certificate=certificate, key=key, authority=self.file if trust else None)

    def revoke(self, *entities: str) -> Path:
        """A list of the certificates of these entities as they are in the folder now; empty without any."""
        listed = self._folder / "revoked.crl"
        certificates = [(self._folder / f"{entity}.crt").read_bytes() for entity in entities]
        listed.write_bytes(revoke(self._pair, certificates, b"", datetime.now(UTC)))
        return listed
