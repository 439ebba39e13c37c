"""Revocations known to a broker's service: kept until the revoked grants have expired, and offered to neighbours.

In:    signed revocations with the chains of their signers.
Out:   whether a grant is revoked by one of some entities; statements to pass on.
State: at most REVOCATIONS_MAX statements, a share per signer.
Not here: verifying them (grants.py), passing them on (rights.py).
"""

from __future__ import annotations

from hashlib import sha256

from heliograph.discovery.topics.grants import Revocation
from heliograph.errors import ProtocolError, Reason

REVOCATIONS_MAX = 65_536
PER_SIGNER_MAX = 4_096


class KnownRevocations:
    """The revocations known at one broker."""

    def __init__(self) -> None:
        self._statements: dict[bytes, tuple[int, str, Revocation, bytes]] = {}  # digest -> until, signer, said, bytes
        self._by_grant: dict[bytes, dict[str, None]] = {}  # grant -> the entities that revoked it
        self._per_signer: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._statements)

    def add(self, signed: bytes, revocation: Revocation, signer: str) -> bool:
        """Keep a statement. Returns False if it is known already. ProtocolError if there are too many."""
        digest = sha256(signed).digest()
        if digest in self._statements:
            return False
        if len(self._statements) >= REVOCATIONS_MAX or self._per_signer.get(signer, 0) >= PER_SIGNER_MAX:
            raise ProtocolError(Reason.RIGHTS_OVER_LIMIT, "too many revocations")
        self._statements[digest] = (revocation.until_ms, signer, revocation, signed)
        self._per_signer[signer] = self._per_signer.get(signer, 0) + 1
        for grant in revocation.grants:
            self._by_grant.setdefault(grant, {})[signer] = None
        return True

    def is_revoked(self, grant: bytes, entities: tuple[str, ...]) -> bool:
        """True if one of these entities revoked this grant."""
        signers = self._by_grant.get(grant)
        return signers is not None and any(entity in signers for entity in entities)

    def statements(self) -> list[bytes]:
        """All statements, for a neighbour that was away."""
        return [signed for _, _, _, signed in self._statements.values()]

    def expire(self, wall_ms: int) -> None:
        """Forget statements about grants that have expired."""
        for digest, (until_ms, signer, revocation, _) in list(self._statements.items()):
            if until_ms > wall_ms:
                continue
            del self._statements[digest]
            self._per_signer[signer] -= 1
            for grant in revocation.grants:
                signers = self._by_grant.get(grant)
                if signers is not None:
                    signers.pop(signer, None)
                    if not signers:
                        del self._by_grant[grant]
