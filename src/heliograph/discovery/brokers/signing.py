"""Signing: messages that say who sent them, and that only their receiver can read.

In:    bodies to send; messages as received, with the wall time.
Out:   messages to pack; bodies with their proven holder, or ProtocolError.
State: the keyring's memories, and which signed statements were here before.
Not here: keys and chains (trust/), who may do what (policy.py).

Without a keyring nothing is signed, and what others signed is read without being believed: nobody is proven. With one
that must be shown, what is unsigned, forged, expired or replayed is refused.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.messages import KINDS, NO_COOKIE, Body, DiscoveryRequest, Flag, Kind, Message
from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from heliograph.trust import envelope
from heliograph.trust.freshness import Freshness

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

_B = TypeVar("_B", bound=Body)
NS_PER_MS = 1_000_000
SEALED, SIGNED = int(Flag.SEALED), int(Flag.SIGNED)  # plain numbers: they are compared for every message
SEALED_ID = bytes(16)  # in a challenge: whatever the id under the seal is


def domain_of(kind: Kind) -> bytes:
    """What a signature or seal of such a message is for."""
    return f"heliograph/broker-{kind.name.lower()}/1".encode()


class Signing:
    """Signs and reads the messages of one machine."""

    def __init__(self, keyring: Keyring | None, *, required: bool) -> None:
        self._keyring = keyring
        self._required = required and keyring is not None
        self._freshness = Freshness()

    @property
    def required(self) -> bool:
        """True if what is not signed is not believed."""
        return self._required

    def message(self, body: Body, cookie: bytes = NO_COOKIE, recipient: Holder | None = None) -> Message:
        """A message, signed if there is a key, and sealed if its recipient is named."""
        kind = KINDS[type(body)]
        data, flags, chain = messages.encode(body), 0, b""
        keyring = self._keyring
        if keyring is not None and keyring.own is not None:
            data, flags, chain = keyring.sign(domain_of(kind), data), SIGNED, keyring.own.chain
        if keyring is not None and recipient is not None:
            data = keyring.seal(recipient, domain_of(kind), data)
            flags |= SEALED
        return Message(kind, flags, cookie, data, chain)

    def opened(self, message: Message) -> Message:
        """The message without its seal, if that was for us."""
        if not message.flags & SEALED:
            return message
        if self._keyring is None:
            raise ProtocolError(Reason.SEAL_BROKEN, "there is no key here to open it with")
        inner = self._keyring.open(domain_of(message.kind), message.body)
        return Message(message.kind, message.flags & ~SEALED, message.cookie, inner, message.chain)

    def id_of(self, message: Message) -> bytes:
        """The id of a request, for a challenge. A seal is not opened for somebody who has proven nothing."""
        return SEALED_ID if message.flags & SEALED else self.glance(message, DiscoveryRequest).id

    def glance(self, message: Message, kind: type[_B]) -> _B:
        """The body as it stands there; nothing of it is proven."""
        message = self.opened(message)
        signed = message.flags & SIGNED
        return messages.decode(kind, envelope.decode(message.body).payload if signed else message.body)

    def read(
        self, message: Message, kind: type[_B], wall_ns: int | None, role: Role | None = None
    ) -> tuple[_B, Holder | None]:
        """The body and who proved to have sent it; None: nobody did, and nobody had to.

        ProtocolError(CERTIFICATE_UNKNOWN) where the signer's chain is needed first: see ``hash_of`` and ``learn``.
        """
        message = self.opened(message)
        if not message.flags & SIGNED:
            if self._required:
                raise ProtocolError(Reason.CREDENTIAL_MISSING, "it is not signed")
            return messages.decode(kind, message.body), None
        if self._keyring is None:
            return messages.decode(kind, envelope.decode(message.body).payload), None
        if wall_ns is None:
            raise ProtocolError(Reason.STALE, "there is no time yet to check a certificate by")
        if message.chain and self._keyring.chain(self.hash_of(message)) is None:
            self._keyring.learn(message.chain, wall_ns, role)
        signed = self._keyring.verify(domain_of(message.kind), message.body, wall_ns, role)
        return messages.decode(kind, signed.payload), signed.holder

    def check_fresh(self, request: DiscoveryRequest, holder: Holder | None, wall_ns: int | None) -> None:
        """ProtocolError for a signed request that is old, or that was here before."""
        if holder is None or wall_ns is None:
            return
        id = sha256(request.id + bytes([request.attempt])).digest()[:16]
        self._freshness.accept(holder.chain_hash, id, request.issued_ms * NS_PER_MS, wall_ns)

    def learn(self, chain: bytes, wall_ns: int | None) -> Holder | None:
        """Remember whose chain this is; ProtocolError if nobody trustworthy vouches for it."""
        if self._keyring is None or wall_ns is None:
            return None
        return self._keyring.learn(chain, wall_ns)

    def chain(self, hash: bytes) -> bytes | None:
        """The chain with this hash, for those who ask."""
        return None if self._keyring is None else self._keyring.chain(hash)

    @staticmethod
    def hash_of(message: Message) -> bytes:
        """The hash of the chain of whoever claims to have signed; empty if nobody does."""
        return envelope.decode(message.body).chain_hash if message.flags & SIGNED else b""

    def chain_for(self, message: Message) -> bytes:
        """The chain that whoever reads this message after us will need."""
        return message.chain or self.chain(self.hash_of(message)) or b""
