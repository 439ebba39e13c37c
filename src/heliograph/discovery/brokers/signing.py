"""Signing: the messages of broker discovery with their signatures and seals.

In:    bodies to send; messages as received, with the wall time.
Out:   messages to pack; bodies with their proven holder, or ProtocolError.
State: one machine's signatures.
Not here: signatures and seals themselves (discovery/signed_bodies.py), which parties may do what (policy.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.messages import KINDS, NO_COOKIE, DiscoveryRequest, Message, MessageBody, MessageKind
from heliograph.discovery.signed_bodies import SEALED, Signatures, hash_of, payload_of
from heliograph.model.identity import Role

if TYPE_CHECKING:  # cryptography is slow to load, and only nodes with certificates need it
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

_B = TypeVar("_B", bound=MessageBody)
SEALED_ID = bytes(16)  # in a challenge to a sealed request, as its id cannot be read


def domain_of(kind: MessageKind) -> bytes:
    """The purpose of a signature or seal of such a message."""
    return f"heliograph/broker-{kind.name.lower()}/1".encode()


class Signing:
    """Signs and reads the messages of one machine."""

    def __init__(self, keyring: Keyring | None, *, required: bool) -> None:
        self._signatures = Signatures(keyring, required=required)

    @property
    def required(self) -> bool:
        """True if unsigned messages are refused."""
        return self._signatures.required

    def message(self, body: MessageBody, cookie: bytes = NO_COOKIE, recipient: Holder | None = None) -> Message:
        """A message, signed if there is a key, and sealed if its recipient is named."""
        kind = KINDS[type(body)]
        flags, data, chain = self._signatures.sign(domain_of(kind), messages.encode(body), recipient)
        return Message(kind, flags, cookie, data, chain)

    def opened(self, message: Message) -> Message:
        """The message without its seal, if that was for us."""
        if not message.flags & SEALED:
            return message
        inner = self._signatures.unseal(domain_of(message.kind), message.body)
        return Message(message.kind, message.flags & ~SEALED, message.cookie, inner, message.chain)

    def id_of(self, message: Message) -> bytes:
        """The id of a request, for a challenge. Seals are not opened for a party that has proven nothing."""
        return SEALED_ID if message.flags & SEALED else self.glance(message, DiscoveryRequest).id

    def glance(self, message: Message, kind: type[_B]) -> _B:
        """The body as received, unverified."""
        message = self.opened(message)
        return messages.decode(kind, payload_of(message.flags, message.body))

    def read(
        self, message: Message, kind: type[_B], wall_ns: int | None, role: Role | None = None
    ) -> tuple[_B, Holder | None]:
        """The body and its proven signer (None if unproven and no proof is required).

        ProtocolError(CERTIFICATE_UNKNOWN) if the signer's chain is needed first: see ``hash_of`` and ``learn``.
        """
        message = self.opened(message)
        domain = domain_of(message.kind)
        payload, holder = self._signatures.verify(domain, message.flags, message.body, message.chain, wall_ns, role)
        return messages.decode(kind, payload), holder

    def check_fresh(self, request: DiscoveryRequest, holder: Holder | None, wall_ns: int | None) -> None:
        """ProtocolError for a signed request that is old, or that was seen before."""
        self._signatures.check_fresh(request.id, request.attempt, request.issued_ms, holder, wall_ns)

    def learn(self, chain: bytes, wall_ns: int | None) -> Holder | None:
        """Remember a chain and its holder; ProtocolError if no authority of ours vouches for it."""
        return self._signatures.learn(chain, wall_ns)

    def chain(self, hash: bytes) -> bytes | None:
        """The chain with this hash, for parties that ask."""
        return self._signatures.chain(hash)

    @staticmethod
    def hash_of(message: Message) -> bytes:
        """The hash of the chain of the claimed signer; empty if the message is not signed."""
        return hash_of(message.flags, message.body)

    def chain_for(self, message: Message) -> bytes:
        """The chain that later readers of this message will need."""
        return message.chain or self.chain(self.hash_of(message)) or b""
