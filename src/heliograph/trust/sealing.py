"""Sealing: bytes that only the owner of one key can read. HPKE (RFC 9180) from `cryptography`.

In:    a recipient's key, a domain, a plaintext, and bytes that both sides know (``aad``).
Out:   a suite byte and the HPKE ciphertext; or the plaintext, with ProtocolError for a broken seal.
State: none. The ephemeral key of each seal comes from the system's random source, inside `cryptography`: sealed bytes
       differ each time, their length does not.
Not here: the sender: a seal does not name it, so sign what must be attributed (signatures.py).

The suite is DHKEM(P-256, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. Domain and aad enter the key schedule as HPKE's info:
with one message per seal this binds them as firmly as the cipher's associated data, which the library keeps private.
"""

from __future__ import annotations

from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from heliograph.errors import ProtocolError, Reason
from heliograph.trust.domains import framed

SEAL_BYTES = 82  # what sealing adds: suite byte, ephemeral key (65), tag (16)

_PURPOSE = b"heliograph seal 1"
_SUITE_BYTE = b"\1"  # other suites will have other numbers, such as a post-quantum one
_SUITE = Suite(KEM.P256, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class Sealer(Protocol):
    """How a keyring seals: with HPKE, or in a simulation with a stand-in (seeded_hpke.py)."""

    def draw(self, size: int) -> bytes:
        """This many random bytes."""
        ...

    def seal(self, key: ec.EllipticCurvePublicKey, domain: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """The plaintext, sealed for the owner of this key."""
        ...

    def open(self, key: ec.EllipticCurvePrivateKey, domain: bytes, sealed: bytes, aad: bytes) -> bytes:
        """The plaintext; ProtocolError(SEAL_BROKEN) if it cannot be opened."""
        ...


class HpkeSealer:
    """The functions below."""

    def draw(self, size: int) -> bytes:
        """At most 32 random bytes from the system."""
        return AESGCM.generate_key(256)[:size]

    def seal(self, key: ec.EllipticCurvePublicKey, domain: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """See ``seal``."""
        return seal(key, domain, plaintext, aad)

    def open(self, key: ec.EllipticCurvePrivateKey, domain: bytes, sealed: bytes, aad: bytes) -> bytes:
        """See ``open_sealed``."""
        return open_sealed(key, domain, sealed, aad)


def seal(key: ec.EllipticCurvePublicKey, domain: bytes, plaintext: bytes, aad: bytes = b"") -> bytes:
    """The plaintext, sealed for the owner of this key. Opening needs the same domain and aad."""
    return _SUITE_BYTE + _SUITE.encrypt(plaintext, key, framed(_PURPOSE, domain, aad))


def open_sealed(key: ec.EllipticCurvePrivateKey, domain: bytes, sealed: bytes, aad: bytes = b"") -> bytes:
    """The plaintext; ProtocolError(SEAL_BROKEN) if it was sealed differently, for another key, or was changed."""
    info = framed(_PURPOSE, domain, aad)
    if len(sealed) < SEAL_BYTES or sealed[:1] != _SUITE_BYTE:
        raise ProtocolError(Reason.SEAL_BROKEN, "too short, or sealed with a suite that is unknown here")
    try:
        return _SUITE.decrypt(sealed[1:], key, info)
    except (InvalidTag, ValueError):
        raise ProtocolError(Reason.SEAL_BROKEN, "not sealed for this key and purpose, or changed since") from None
