"""Signatures: signs, seals and checks the bodies of discovery messages, whatever their subject.

In:    encoded bodies with the domain that they are signed for; bodies as received, with their flags, and wall time.
Out:   signed and sealed bodies; payloads with their proven holder, or ProtocolError.
State: the keyring's caches, and which signed requests were seen before.
Not here: keys and chains (trust/), the messages (brokers/signing.py, brokers/messages.py).

Without a keyring nothing is signed, and a signed body of another party is read, but proves nothing. With a keyring, if
signatures are required, a body that is unsigned, forged, expired or replayed is refused.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from heliograph.trust import envelope
from heliograph.trust.freshness import Freshness

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
SIGNED, SEALED = 1, 2  # flags of a message; plain numbers, as they are compared for every message


class Signatures:
    """The signatures of one machine."""

    def __init__(self, keyring: Keyring | None, *, required: bool) -> None:
        self._keyring = keyring
        self._required = required and keyring is not None
        self._freshness = Freshness()

    @property
    def required(self) -> bool:
        """True if unsigned bodies are refused."""
        return self._required

    def sign(self, domain: bytes, data: bytes, recipient: Holder | None) -> tuple[int, bytes, bytes]:
        """Flags, body and chain: signed if there is a key, and sealed if there is a recipient."""
        flags, chain, keyring = 0, b"", self._keyring
        if keyring is not None and keyring.own is not None:
            data, flags, chain = keyring.sign(domain, data), SIGNED, keyring.own.chain
        if keyring is not None and recipient is not None:
            data = keyring.seal(recipient, domain, data)
            flags |= SEALED
        return flags, data, chain

    def unseal(self, domain: bytes, data: bytes) -> bytes:
        """The body under a seal that was made for us."""
        if self._keyring is None:
            raise ProtocolError(Reason.SEAL_BROKEN, "there is no key here to open it with")
        return self._keyring.open(domain, data)

    def verify(
        self, domain: bytes, flags: int, data: bytes, chain: bytes, wall_ns: int | None, role: Role | None
    ) -> tuple[bytes, Holder | None]:
        """The payload of an unsealed body, and its proven signer (None if unproven and no proof is required).

        ProtocolError(CERTIFICATE_UNKNOWN) if the signer's chain is needed first: see ``hash_of`` and ``learn``.
        """
        if not flags & SIGNED:
            if self._required:
                raise ProtocolError(Reason.CREDENTIAL_MISSING, "it is not signed")
            return data, None
        if self._keyring is None:
            return payload_of(flags, data), None
        if wall_ns is None:
            raise ProtocolError(Reason.STALE, "the time is not known yet, so certificates cannot be checked")
        if chain and self._keyring.chain(hash_of(flags, data)) is None:
            self._keyring.learn(chain, wall_ns, role)
        signed = self._keyring.verify(domain, data, wall_ns, role)
        return signed.payload, signed.holder

    def check_fresh(self, id: bytes, attempt: int, issued_ms: int, holder: Holder | None, wall_ns: int | None) -> None:
        """ProtocolError for a signed request that is old, or that was seen before."""
        if holder is None or wall_ns is None:
            return
        digest = sha256(id + bytes([attempt])).digest()[:16]
        self._freshness.accept(holder.chain_hash, digest, issued_ms * NS_PER_MS, wall_ns)

    def learn(self, chain: bytes, wall_ns: int | None) -> Holder | None:
        """Remember a chain and its holder; ProtocolError if no authority of ours vouches for it."""
        if self._keyring is None or wall_ns is None:
            return None
        return self._keyring.learn(chain, wall_ns)

    def chain(self, hash: bytes) -> bytes | None:
        """The chain with this hash, if it is known."""
        return None if self._keyring is None else self._keyring.chain(hash)


def payload_of(flags: int, data: bytes) -> bytes:
    """The payload of an unsealed body, unverified."""
    return envelope.decode(data).payload if flags & SIGNED else data


def hash_of(flags: int, data: bytes) -> bytes:
    """The hash of the chain of the claimed signer; empty if the body is not signed."""
    return envelope.decode(data).chain_hash if flags & SIGNED else b""
