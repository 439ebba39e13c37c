"""Proofs of durable names: how a client without credentials shows that a name at a store is its own.

In:    a secret that only this client, or the machines that share a name, know; a store's id and a name.
Out:   the proof that goes with requests; the hash of it that a store keeps.
State: none.
Not here: where a client keeps its secret (live/name_secret.py), whose name it is (stores/names.py).

A proof is an HMAC of the store's id and the name, so a store learns nothing that it could show at another store, and
nothing about other names. The proof of no name at all shows which names of a store are listed to a client.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Annotated

import msgspec

from heliograph.errors import UsageError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 1_024
Proof = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{64})?\Z")]
"""A proof in a request; empty: none is shown."""


def proof_of(secret: bytes, store: str, name: str = "") -> str:
    """The proof of a name at a store; empty without a secret."""
    return hmac_digest(secret, f"{store}/{name}".encode(), "sha256").hex() if secret else ""


def hash_of(proof: str) -> str:
    """What a store keeps of a proof."""
    return sha256(proof.encode()).hexdigest() if proof else ""


def is_shown(proof: str, kept: str) -> bool:
    """True if this is the proof whose hash was kept. Takes the same time wherever they differ."""
    return bool(proof and kept) and compare_digest(hash_of(proof), kept)


def check_secret(secret: bytes) -> bytes:
    """A secret of the right length; otherwise UsageError."""
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise UsageError(f"the secret of a durable name has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return secret
