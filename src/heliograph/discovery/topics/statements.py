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
from typing import TYPE_CHECKING, NamedTuple, TypeVar

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
    from heliograph.trust.keyring import Keyring, Signed

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


class Glance(NamedTuple):
    """A countersigned advertisement of which only the directory's signature is verified."""

    advertisement: TopicAdvertisement
    creator_hash: bytes  # of the creator's chain, as the advertisement names it
    directory: Holder


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
        (opened,) = self._keyring.verify_all(ADVERTISEMENT_DOMAIN, (signed,), wall_ns, Role.DIRECTORY)
        return _checked(opened, wall_ns)

    def read_advertise(self, signed: bytes, wall_ns: int) -> tuple[TopicAdvertisement, Holder, Holder]:
        """A countersigned advertisement with its creator and its directory; both signatures are verified."""
        said = self._keyring.verify(domain_of(TopicKind.ADVERTISE), signed, wall_ns)
        advertise = messages.decode_body(Advertise, said.payload)
        advertisement, directory = self.read_advertisement(advertise.advertisement, wall_ns)
        if advertisement.creator != said.holder.identity.entity:
            raise ProtocolError(Reason.OWNER_OTHER, f"{advertisement.uuid} was created by {advertisement.creator}")
        return advertisement, said.holder, directory

    def glance_all(self, many: Sequence[bytes], wall_ns: int) -> list[Glance | ProtocolError]:
        """Countersigned advertisements of which only the directory's signatures are verified, all at once.

        Verifying the creator's costs as much again, on first use.
        """
        parts = [_parts(signed) for signed in many]
        opened = self._keyring.verify_all(ADVERTISEMENT_DOMAIN, [inner for inner, _ in parts], wall_ns, Role.DIRECTORY)
        found: list[Glance | ProtocolError] = []
        for (_, creator_hash), one in zip(parts, opened, strict=True):
            try:
                advertisement, directory = _checked(one, wall_ns)
                found.append(Glance(advertisement, creator_hash, directory))
            except ProtocolError as error:
                found.append(error)
        return found


def _parts(signed: bytes) -> tuple[bytes, bytes]:
    """The directory's envelope in a creator's, and the hash of the creator's chain; no bytes if it is malformed."""
    try:
        outer = envelope.decode(signed)
        return messages.decode_body(Advertise, outer.payload).advertisement, outer.chain_hash
    except ProtocolError:
        return b"", b""  # which is no envelope either


def _checked(opened: Signed | ProtocolError, wall_ns: int) -> tuple[TopicAdvertisement, Holder]:
    """The advertisement in an opened envelope; ProtocolError unless a directory signed it and it is valid."""
    if isinstance(opened, ProtocolError):
        if opened.reason is Reason.ROLE_MISSING:
            raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, opened.detail) from None
        raise opened
    advertisement = decode_advertisement(opened.payload)
    if advertisement.directory != opened.holder.identity.entity:
        raise ProtocolError(Reason.SIGNER_NO_DIRECTORY, "it names another directory than the one that signed it")
    if advertisement.expires_ms * NS_PER_MS <= wall_ns:
        raise ProtocolError(Reason.TOPIC_EXPIRED, advertisement.uuid)
    return advertisement, opened.holder
