"""Grants: rights to a topic, signed by its owner, delegated by holders that may do so, and revoked.

In:    a topic advertisement, signed grants and revocations as received; the wall time.
Out:   TopicRight: what the last holder may do, and until when; ProtocolError for an invalid grant.
State: none; the caller keeps the known revocations (rights.py).
Not here: whether the requester has the holder's key (rights.py), the broker's table (broker/rights.py).
Paper: [topics] §7: the creator authorises others by signing their credentials.

A chain of grants begins with one that the topic's creator signed. Each further grant is signed by the holder of the
previous one, which must allow delegation; it allows no more than that one, and for no longer. A chain has at most four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec

from heliograph.discovery.topics.listing import Id, Stamp, TopicAdvertisement, Word
from heliograph.discovery.topics.statements import NS_PER_MS
from heliograph.errors import ProtocolError, Reason
from heliograph.trust import envelope as envelopes

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

GRANT_DOMAIN = b"heliograph/topic-grant/1"
REVOCATION_DOMAIN = b"heliograph/topic-revocation/1"
DEPTH_MAX = 4
REVOKED_AT_ONCE_MAX = 64

Parent = Annotated[bytes, msgspec.Meta(max_length=32)]


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
    """Grants revoked by their signer, or by the topic's owner."""

    id: Id
    topic: Id
    grants: Annotated[list[Id], msgspec.Meta(max_length=REVOKED_AT_ONCE_MAX)]
    issued_ms: Stamp
    until_ms: Stamp  # when all of them will have expired


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


IsRevoked = Callable[[bytes, tuple[str, ...]], bool]
"""Tells whether one of these entities revoked this grant."""

_encoder = msgspec.msgpack.Encoder()
_grants = msgspec.msgpack.Decoder(TopicGrant)
_revocations = msgspec.msgpack.Decoder(Revocation)


def sign_grant(keyring: Keyring, grant: TopicGrant) -> bytes:
    """A grant in an envelope signed by us."""
    return keyring.sign(GRANT_DOMAIN, _encoder.encode(grant))


def sign_revocation(keyring: Keyring, revocation: Revocation) -> bytes:
    """A revocation in an envelope signed by us."""
    return keyring.sign(REVOCATION_DOMAIN, _encoder.encode(revocation))


def read_grant(keyring: Keyring, signed: bytes, wall_ns: int) -> tuple[TopicGrant, str, int]:
    """A grant, its signer, and until when its signer's certificates are valid (milliseconds)."""
    said = keyring.verify(GRANT_DOMAIN, signed, wall_ns)
    try:
        grant = _grants.decode(said.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None
    return grant, said.holder.identity.entity, said.holder.ends * 1_000


def glance_grant(signed: bytes) -> TopicGrant:
    """The content of a grant, unverified."""
    try:
        return _grants.decode(envelopes.decode(signed).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None


def read_revocation(keyring: Keyring, signed: bytes, wall_ns: int) -> tuple[Revocation, str]:
    """A revocation and its signer."""
    said = keyring.verify(REVOCATION_DOMAIN, signed, wall_ns)
    try:
        revocation = _revocations.decode(said.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.GRANT_INVALID, str(error)) from None
    return revocation, said.holder.identity.entity


def owner_right(advertisement: TopicAdvertisement) -> TopicRight:
    """The owner may do everything while the topic exists."""
    return TopicRight(advertisement.creator, True, True, True, True, advertisement.expires_ms)


def right_of(
    keyring: Keyring,
    advertisement: TopicAdvertisement,
    signed: Sequence[bytes],
    wall_ns: int,
    is_revoked: IsRevoked = lambda grant, entities: False,
) -> TopicRight:
    """What the holder of the last grant may do; ProtocolError if the chain is invalid."""
    if not 1 <= len(signed) <= DEPTH_MAX:
        raise ProtocolError(Reason.GRANT_INVALID, f"a chain has 1 to {DEPTH_MAX} grants, this one has {len(signed)}")
    right = owner_right(advertisement)
    parent = b""
    for envelope in signed:
        grant, signer, ends_ms = read_grant(keyring, envelope, wall_ns)
        _check(grant, signer, parent, right, advertisement, wall_ns // NS_PER_MS)
        if is_revoked(grant.id, (signer, advertisement.creator)):
            raise ProtocolError(Reason.GRANT_REVOKED, f"the grant of {grant.holder} was revoked")
        until_ms = min(grant.expires_ms, ends_ms, right.until_ms)
        verbs = (grant.publish, grant.subscribe, grant.discover, grant.delegate)
        right = TopicRight(grant.holder, *verbs, until_ms, (*right.grants, grant.id))
        parent = sha256(envelope).digest()
    return right


def _check(
    grant: TopicGrant,
    signer: str,
    parent: bytes,
    right: TopicRight,
    advertisement: TopicAdvertisement,
    wall_ms: int,
) -> None:
    if grant.topic != advertisement.id:
        raise ProtocolError(Reason.GRANT_FOREIGN, "it is for another topic")
    if signer != right.holder:
        raise ProtocolError(Reason.GRANT_FOREIGN, f"signed by {signer}, but the right is that of {right.holder}")
    if grant.parent != parent:
        raise ProtocolError(Reason.GRANT_FOREIGN, "it was derived from another grant")
    if not right.delegate:
        raise ProtocolError(Reason.GRANT_TOO_WIDE, f"{right.holder} may not delegate")
    wider = any(getattr(grant, verb) and not getattr(right, verb) for verb in ("publish", "subscribe", "discover"))
    if wider or (parent and grant.expires_ms > right.until_ms):
        raise ProtocolError(Reason.GRANT_TOO_WIDE, f"it allows more than {right.holder} may")
    if not grant.begins_ms <= wall_ms < grant.expires_ms:
        raise ProtocolError(Reason.GRANT_EXPIRED, f"the grant of {grant.holder} is not valid now")
