"""Envelopes: a payload with its signature and the hash of its signer's certificate chain.

In:    the parts; or bytes as received.
Out:   one string of bytes; or an Envelope, with ProtocolError for anything else.
State: none.
Not here: what the payload means, making and checking the signature (keyring.py), the chain itself (chains.py).

    u8 version = 1 | signature (64) | SHA-256 of the chain (32) | payload

The signature covers everything after it, as received. A chain of certificates would fill half a datagram, so only its
hash is sent; a receiver that does not know the chain yet asks for it over a link.
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.errors import ProtocolError, Reason

ENVELOPE_BYTES = 97  # what an envelope adds to its payload
HASH_BYTES = 32

_VERSION = 1
_SIGNED_FROM = 65


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed envelope; nothing in it is verified yet."""

    signature: bytes
    signed: bytes  # exactly the bytes under the signature: chain hash and payload

    @property
    def chain_hash(self) -> bytes:
        """The SHA-256 of the chain of the claimed signer."""
        return self.signed[:HASH_BYTES]

    @property
    def payload(self) -> bytes:
        """The signed bytes."""
        return self.signed[HASH_BYTES:]


def encode(envelope: Envelope) -> bytes:
    """The envelope as it is sent."""
    return b"%c%b%b" % (_VERSION, envelope.signature, envelope.signed)


def decode(data: bytes) -> Envelope:
    """Parse an envelope; ProtocolError(BODY_MALFORMED) if these bytes are not one."""
    if len(data) < ENVELOPE_BYTES:
        raise ProtocolError(Reason.BODY_MALFORMED, f"a signed envelope has at least {ENVELOPE_BYTES} bytes")
    if data[0] != _VERSION:
        raise ProtocolError(Reason.BODY_MALFORMED, f"envelope version {data[0]}; known here: {_VERSION}")
    return Envelope(bytes(data[1:_SIGNED_FROM]), bytes(data[_SIGNED_FROM:]))
