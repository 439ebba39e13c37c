"""Grants: rights to a topic, signed by its owner, delegated by holders that may do so, and revoked.

In:    a topic advertisement, signed grants and revocations as received; the wall time.
Out:   TopicRight: what the last holder may do, and until when; ProtocolError for an invalid grant.
State: none; the caller keeps the known revocations (revocations.py).
Not here: whether the requester has the holder's key (possession.py), the broker's table (broker/rights.py).
Paper: [topics] §7: the creator authorises others by signing their credentials.

A chain of grants begins with one that the topic's creator signed. Each further grant is signed by the holder of the
previous one, which must allow delegation; it allows no more than that one, and for no longer. A chain has at most four.
A grant is revoked by its signer, or by a signer of a grant before it in the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec

from heliograph.discovery.topics.listing import Id, Stamp, TopicAdvertisement, Word
from heliograph.discovery.topics.statements import NS_PER_MS
from heliograph.errors import ProtocolError, Reason
from heliograph.trust import envelope as envelopes

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

GRANT_DOMAIN = b"heliograph/topic-grant/1"
REVOCATION_DOMAIN = b"heliograph/topic-revocation/1"
DEPTH_MAX = 4

Parent = Annotated[bytes, msgspec.Meta(max_length=32)]
GrantId = Annotated[bytes, msgspec.Meta(max_length=16)]
Revocable = tuple[bytes, bytes, str]
"""What a revocation ends: a topic, a grant to it (empty: the topic itself), and the entity that revokes it."""


class TopicGrant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What its signer allows an entity to do with a topic."""

    id: Id
    topic: Id
    holder: Word  # an entity id
    begins_ms: Stamp
    expires_ms: Stamp
    publish: bool = False
    subscribe: bool = False
    discover: bool = False
    delegate: bool = False
    parent: Parent = b""  # SHA-256 of the grant that it was derived from, as signed; empty: the owner's own

    @property
    def verbs(self) -> tuple[str, ...]:
        """What it allows."""
        return tuple(verb for verb in ("publish", "subscribe", "discover", "delegate") if getattr(self, verb))


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A grant revoked by its signer or a signer above it; without a grant, a topic that its owner withdraws."""

    topic: Id
    issued_ms: Stamp
    grant: GrantId = b""


@dataclass(frozen=True, slots=True)
class TopicRight:
    """What a holder may do with a topic."""

    holder: str
    publish: bool
    subscribe: bool
    discover: bool
    delegate: bool
    until_ms: int
    grants: tuple[bytes, ...] = ()  # it depends on all of these; empty for the owner
    ends_with: tuple[Revocable, ...] = ()  # it ends when one of these is revoked
    serials: tuple[int, ...] = ()  # it ends when the authority revokes one of these certificates

    def resting_on(self, *holders: Holder) -> TopicRight:
        """The same right, which ends with the certificates of these holders too."""
        serials = dict.fromkeys(serial for holder in holders for serial in holder.serials)
        until_ms = min([self.until_ms, *(holder.ends * 1_000 for holder in holders)])
        return replace(self, until_ms=until_ms, serials=tuple(serials | dict.fromkeys(self.serials)))


@dataclass(frozen=True, slots=True)
class SignedGrant:
    """A grant whose signature was verified."""

    grant: TopicGrant
    signer: Holder


IsRevoked = Callable[[Revocable], bool]
"""Tells whether this grant of this topic was revoked by this entity."""

_encoder = msgspec.msgpack.Encoder()
_grants = msgspec.msgpack.Decoder(TopicGrant)
_revocations = msgspec.msgpack.Decoder(Revocation)


def sign_grant(keyring: Keyring, grant: TopicGrant) -> bytes:
    """A grant in an envelope signed by us."""
    return keyring.sign(GRANT_DOMAIN, _encoder.encode(grant))


def sign_revocation(keyring: Keyring, revocation: Revocation) -> bytes:
    """A revocation in an envelope signed by us."""
    return keyring.sign(REVOCATION_DOMAIN, _encoder.encode(revocation))


def read_grant(keyring: Keyring, signed: bytes, wall_ns: int) -> SignedGrant:
    """A grant and its signer."""
    said = keyring.verify(GRANT_DOMAIN, signed, wall_ns)
    try:
        grant = _grants.decode(said.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None
    return SignedGrant(grant, said.holder)


def read_grants(keyring: Keyring, signed: Sequence[bytes], topic: bytes, wall_ns: int) -> list[SignedGrant]:
    """A chain of grants for one topic, each derived from the one before; ProtocolError if it is none."""
    if not 1 <= len(signed) <= DEPTH_MAX:
        raise ProtocolError(Reason.GRANT_INVALID, f"a chain has 1 to {DEPTH_MAX} grants, this one has {len(signed)}")
    found: list[SignedGrant] = []
    parent = b""
    for envelope in signed:
        one = read_grant(keyring, envelope, wall_ns)
        if one.grant.topic != topic:
            raise ProtocolError(Reason.GRANT_FOREIGN, "it is for another topic")
        signer = one.signer.identity.entity
        if found and signer != found[-1].grant.holder:
            raise ProtocolError(Reason.GRANT_FOREIGN, f"signed by {signer}, who has no right to delegate")
        if one.grant.parent != parent:
            raise ProtocolError(Reason.GRANT_FOREIGN, "it was derived from another grant")
        found.append(one)
        parent = sha256(envelope).digest()
    return found


def glance_grant(signed: bytes) -> TopicGrant:
    """The content of a grant, unverified."""
    try:
        return _grants.decode(envelopes.decode(signed).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None


def read_revocation(keyring: Keyring, signed: bytes, wall_ns: int) -> tuple[Revocation, Holder]:
    """A revocation and its signer; whether it signed the grant is another question (revocations.py)."""
    said = keyring.verify(REVOCATION_DOMAIN, signed, wall_ns)
    try:
        revocation = _revocations.decode(said.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None
    return revocation, said.holder


def owner_right(advertisement: TopicAdvertisement) -> TopicRight:
    """The owner may do everything while the topic exists."""
    root = (advertisement.id, b"", advertisement.creator)
    return TopicRight(advertisement.creator, True, True, True, True, advertisement.expires_ms, ends_with=(root,))


def right_of(
    keyring: Keyring, advertisement: TopicAdvertisement, signed: Sequence[bytes], wall_ns: int, is_revoked: IsRevoked
) -> TopicRight:
    """What the holder of the last grant may do; ProtocolError if the chain is invalid, or if a part was revoked."""
    right = owner_right(advertisement)
    signers: dict[str, None] = {}
    for one in read_grants(keyring, signed, advertisement.id, wall_ns):
        grant, signer = one.grant, one.signer.identity.entity
        _check(grant, signer, right, wall_ns // NS_PER_MS)
        signers[signer] = None
        right = TopicRight(
            grant.holder,
            *(grant.publish, grant.subscribe, grant.discover, grant.delegate),
            until_ms=min(grant.expires_ms, right.until_ms),
            grants=(*right.grants, grant.id),
            ends_with=(*right.ends_with, *((grant.topic, grant.id, above) for above in signers)),
            serials=right.serials,
        ).resting_on(one.signer)
    check_revoked(right, is_revoked)
    return right


def check_revoked(right: TopicRight, is_revoked: IsRevoked) -> None:
    """ProtocolError if the topic was withdrawn, or a grant that the right depends on revoked."""
    for topic, grant, entity in right.ends_with:
        if not is_revoked((topic, grant, entity)):
            continue
        if grant:
            raise ProtocolError(
                Reason.GRANT_REVOKED, f"{entity} revoked a grant that the right of {right.holder} needs"
            )
        raise ProtocolError(Reason.TOPIC_WITHDRAWN, f"{entity} withdrew the topic")


def _check(grant: TopicGrant, signer: str, right: TopicRight, wall_ms: int) -> None:
    if signer != right.holder:
        raise ProtocolError(Reason.GRANT_FOREIGN, f"signed by {signer}, but the right is that of {right.holder}")
    if not right.delegate:
        raise ProtocolError(Reason.GRANT_TOO_WIDE, f"{right.holder} may not delegate")
    wider = any(getattr(grant, verb) and not getattr(right, verb) for verb in ("publish", "subscribe", "discover"))
    if wider or (right.grants and grant.expires_ms > right.until_ms):
        raise ProtocolError(Reason.GRANT_TOO_WIDE, f"it allows more than {right.holder} may")
    if not grant.begins_ms <= wall_ms < grant.expires_ms:
        raise ProtocolError(Reason.GRANT_EXPIRED, f"the grant of {grant.holder} is not valid now")
