"""A stand-in for HPKE whose ephemeral keys are drawn from a seed, so that simulated runs repeat to the last byte.

In:    the same as sealing.py; and ``draw``, a seeded random source.
Out:   seals of the same length as those of sealing.py, with another suite byte, which no other keyring opens.
State: the seed's position.
Not here: anything for use outside a simulation: equal seeds make equal keys.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from heliograph.errors import ProtocolError, Reason
from heliograph.trust.certificates import Draw
from heliograph.trust.domains import framed
from heliograph.trust.sealing import SEAL_BYTES

_PURPOSE = b"heliograph simulated seal 1"
_SUITE_BYTE = b"\xfe"
_POINT_BYTES = 65
_CHANCE_BYTES = 40
_NONCE = bytes(12)  # one message per key


class SimulatedSealer:
    """Seals as sealing.HpkeSealer does, with a seeded random source."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def draw(self, size: int) -> bytes:
        """This many seeded random bytes."""
        return self._draw(size)

    def seal(self, key: ec.EllipticCurvePublicKey, domain: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """The plaintext, sealed for the owner of this key."""
        number = int.from_bytes(self._draw(_CHANCE_BYTES), "big") % (ec.SECP256R1.group_order - 1) + 1
        ephemeral = ec.derive_private_key(number, ec.SECP256R1())
        point = ephemeral.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        secret = _key(ephemeral.exchange(ec.ECDH(), key), framed(_PURPOSE, domain, aad))
        return _SUITE_BYTE + point + AESGCM(secret).encrypt(_NONCE, plaintext, None)

    def open(self, key: ec.EllipticCurvePrivateKey, domain: bytes, sealed: bytes, aad: bytes) -> bytes:
        """The plaintext; ProtocolError(SEAL_BROKEN) if it was sealed differently."""
        info = framed(_PURPOSE, domain, aad)
        if len(sealed) < SEAL_BYTES or sealed[:1] != _SUITE_BYTE:
            raise ProtocolError(Reason.SEAL_BROKEN, "not sealed in this simulation")
        try:
            point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sealed[1 : 1 + _POINT_BYTES])
            secret = _key(key.exchange(ec.ECDH(), point), info)
            return AESGCM(secret).decrypt(_NONCE, sealed[1 + _POINT_BYTES :], None)
        except (InvalidTag, ValueError):
            raise ProtocolError(Reason.SEAL_BROKEN, "not sealed for this key and purpose, or changed since") from None


def _key(shared: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 16, None, info).derive(shared)
