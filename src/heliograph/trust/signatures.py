"""Signatures: ECDSA P-256 with SHA-256, each for one domain, over unchanged bytes.

In:    a key, a domain, a message; when checking, a signature as received.
Out:   64 bytes (r, then s, big-endian); or nothing, with ProtocolError for a wrong signature. Checks, for whoever has
       many to make and several threads for them.
State: none.
Not here: whose key it is (chains.py), what travels with a signature (envelope.py), remembering results (keyring.py).

The same key and message always give the same signature (RFC 6979), so machines that sign stay deterministic. Only the
lower of the two forms of s is accepted, so a second valid signature cannot be made from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from heliograph.errors import ProtocolError, Reason
from heliograph.trust.domains import framed

SIGNATURE_BYTES = 64

_PURPOSE = b"heliograph signature 1"
_HALF = SIGNATURE_BYTES // 2
_SIGNING = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
_CHECKING = ec.ECDSA(hashes.SHA256())
_ORDER = ec.SECP256R1.group_order


def sign(key: ec.EllipticCurvePrivateKey, domain: bytes, message: bytes) -> bytes:
    """The signature of a message for this domain."""
    r, s = decode_dss_signature(key.sign(framed(_PURPOSE, domain, message), _SIGNING))
    return r.to_bytes(_HALF, "big") + min(s, _ORDER - s).to_bytes(_HALF, "big")


class Check(NamedTuple):
    """A signature that is still to be verified."""

    key: ec.EllipticCurvePublicKey
    signature: bytes  # in DER
    signed: bytes

    def holds(self) -> bool:
        """True if the key's owner signed exactly these bytes. Other threads run meanwhile."""
        try:
            self.key.verify(self.signature, self.signed, _CHECKING)
        except InvalidSignature:
            return False
        return True


CheckAll = Callable[[Sequence[Check]], Sequence[bool]]


def check_in_turn(checks: Sequence[Check]) -> list[bool]:
    """Make one check after another."""
    return [check.holds() for check in checks]


def check_of(key: ec.EllipticCurvePublicKey, domain: bytes, message: bytes, signature: bytes) -> Check:
    """The check of a signature as received; ProtocolError(SIGNATURE_WRONG) if it is malformed."""
    r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
    if len(signature) != SIGNATURE_BYTES or s > _ORDER - s:
        raise ProtocolError(Reason.SIGNATURE_WRONG, f"not a signature of {SIGNATURE_BYTES} bytes in its lower form")
    return Check(key, encode_dss_signature(r, s), framed(_PURPOSE, domain, message))


def verify(key: ec.EllipticCurvePublicKey, domain: bytes, message: bytes, signature: bytes) -> None:
    """ProtocolError(SIGNATURE_WRONG) unless the key's owner signed exactly these bytes for this domain."""
    if not check_of(key, domain, message, signature).holds():
        raise wrong()


def wrong() -> ProtocolError:
    """The error for a check that does not hold."""
    return ProtocolError(Reason.SIGNATURE_WRONG, "not signed by this key, for this purpose, as received")
