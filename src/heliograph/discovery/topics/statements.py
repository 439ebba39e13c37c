"""Statements: messages about topics with their signatures, seals and freshness; and signed advertisements.

In:    bodies to send; bytes as received, with the wall time.
Out:   bytes to publish; bodies with their proven signer, or ProtocolError.
State: the keyring's caches, the ids of statements accepted in the last 30 s, and the statement read last.
Not here: keys and chains (trust/), which senders may send what (directory.py), the bodies (messages.py).

Every message is signed. Messages from a directory to an entity, or from an entity to one directory, are also sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.listing import TopicAdvertisement, decode_advertisement, encode_advertisement
from heliograph.discovery.topics.messages import TOPIC_KINDS, Advertise, TopicBody, TopicKind, TopicMessage, domain_of
from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import Role
from heliograph.trust import envelope
from heliograph.trust.freshness import Freshness

if TYPE_CHECKING:  # cryptography is slow to load, and only parties with certificates need it
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
CHAINS_MAX = 3  # in a message without topics: the sender's, and those of an advertisement
ADVERTISEMENT_DOMAIN = b"heliograph/topic-advertisement/1"

_B = TypeVar("_B", bound=TopicBody)


@dataclass(frozen=True, slots=True)
class Statement:
    """A message whose signature was verified."""

    message: TopicMessage
    signed: bytes  # its envelope, as received
    payload: bytes
    holder: Holder  # the signer

    @property
    def entity(self) -> str:
        """The signer."""
        return self.holder.identity.entity


class Statements:
    """Signs and reads the messages of one party."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._freshness = Freshness()
        self._last: tuple[Statement | None, TopicBody | None] = (None, None)  # the statement read last

    @property
    def keyring(self) -> Keyring:
        """The keys of this party."""
        return self._keyring

    def write(self, body: TopicBody, recipient: Holder | None = None, chains: Sequence[bytes] = ()) -> bytes:
        """A message, signed, and sealed if a recipient is given. Our own chain comes before the others."""
        own = self._keyring.own
        assert own is not None, "a party without a certificate has nothing to say"
        kind = TOPIC_KINDS[type(body)]
        data, flags = self._keyring.sign(domain_of(kind), messages.encode_body(body)), SIGNED
        if recipient is not None:
            data, flags = self._keyring.seal(recipient, domain_of(kind), data), flags | SEALED
        return messages.pack(TopicMessage(kind, flags, (own.chain, *chains), data))

    def read(self, data: bytes, wall_ns: int | None, role: Role | None = None) -> Statement:
        """A message whose signer is proven; ProtocolError if it is not, or if it was sealed for another party."""
        message = messages.unpack(data)
        if not message.flags & SIGNED:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "it is not signed")
        if wall_ns is None:
            raise ProtocolError(Reason.STALE, "the time is not known yet, so certificates cannot be checked")
        domain = domain_of(message.kind)
        body = message.body
        if message.flags & SEALED:
            body = self._keyring.open(domain, body)
        if len(message.chains) > CHAINS_MAX and message.kind is not TopicKind.FOUND:
            raise ProtocolError(Reason.BODY_MALFORMED, f"{len(message.chains)} chains: each costs time to verify")
        self.learn(message.chains, wall_ns)
        signed = self._keyring.verify(domain, body, wall_ns, role)
        return Statement(message, body, signed.payload, signed.holder)

    def body(self, statement: Statement, kind: type[_B]) -> _B:
        """The body of a statement; ProtocolError if it is of another kind."""
        if TOPIC_KINDS[kind] is not statement.message.kind:
            raise ProtocolError(Reason.KIND_UNEXPECTED, statement.message.kind.name)
        read, body = self._last
        if read is not statement:  # else several conversations are shown the same statement
            body = messages.decode_body(kind, statement.payload)
            self._last = (statement, body)
        assert isinstance(body, kind)
        return body

    def check_fresh(self, statement: Statement, id: bytes, issued_ms: int, wall_ns: int) -> None:
        """ProtocolError for a statement that is old, or that was seen before."""
        self._freshness.accept(statement.holder.chain_hash, id, issued_ms * NS_PER_MS, wall_ns)

    def learn(self, chains: Sequence[bytes], wall_ns: int) -> None:
        """Remember the holders of these chains. Chains that no authority vouches for are refused."""
        for chain in chains:
            self._keyring.learn(chain, wall_ns)

    # -- advertisements -------------------------------------------------------------------------------------------

    def sign_advertisement(self, advertisement: TopicAdvertisement) -> bytes:
        """The advertisement in an envelope signed by us as a directory."""
        return self._keyring.sign(ADVERTISEMENT_DOMAIN, encode_advertisement(advertisement))

    def read_advertisement(self, signed: bytes, wall_ns: int) -> tuple[TopicAdvertisement, Holder]:
        """An advertisement that a directory signed and that has not expired; ProtocolError otherwise."""
        try:
            opened = self._keyring.verify(ADVERTISEMENT_DOMAIN, signed, wall_ns, Role.DIRECTORY)
        except ProtocolError as error:
            if error.reason is Reason.ROLE_MISSING:
                raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, error.detail) from None
            raise
        advertisement = decode_advertisement(opened.payload)
        if advertisement.directory != opened.holder.identity.entity:
            raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, "it names another directory than the one that signed it")
        if advertisement.expires_ms * NS_PER_MS <= wall_ns:
            raise ProtocolError(Reason.TOPIC_EXPIRED, advertisement.uuid)
        return advertisement, opened.holder

    def read_advertise(self, signed: bytes, wall_ns: int) -> tuple[TopicAdvertisement, Holder, Holder]:
        """A countersigned advertisement with its creator and its directory; both signatures are verified."""
        said = self._keyring.verify(domain_of(TopicKind.ADVERTISE), signed, wall_ns)
        advertise = messages.decode_body(Advertise, said.payload)
        advertisement, directory = self.read_advertisement(advertise.advertisement, wall_ns)
        if advertisement.creator != said.holder.identity.entity:
            raise ProtocolError(Reason.OWNER_OTHER, f"{advertisement.uuid} was created by {advertisement.creator}")
        return advertisement, said.holder, directory

    def glance_advertise(self, signed: bytes, wall_ns: int) -> tuple[TopicAdvertisement, bytes, Holder]:
        """The same, but only the directory's signature is verified: verifying the creator's costs time on first use.

        Of the creator's chain only the hash is known.
        """
        outer = envelope.decode(signed)
        advertise = messages.decode_body(Advertise, outer.payload)
        advertisement, directory = self.read_advertisement(advertise.advertisement, wall_ns)
        return advertisement, outer.chain_hash, directory
