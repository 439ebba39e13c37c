"""Revocations: each with the proof that its signer may revoke; those that are known, within shares per topic owner.

In:    signed revocations with bundles: the grants up to the revoked one; for a withdrawal, the topic's advertisement.
Out:   ProvenRevocation; whether something is revoked; notices, as they are passed on.
State: KnownRevocations: at most BYTES_MAX, until what they revoke has expired.
Not here: what grants mean (grants.py), passing notices on (revocation_news.py), learning them at directories
          (revocation_learner.py).

A revocation is worth as much as its proof: the revoker signed the grant, or a grant before it in the chain, and a
broker that never saw the grant can check that. So a revocation may arrive before the grant does, and none is kept that
revokes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

import msgspec

from heliograph.discovery.topics.bundle import GrantBundle, pack_bundle, unpack_bundle
from heliograph.discovery.topics.grants import Revocable, Revocation, read_grants, read_revocation
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.errors import ProtocolError, Reason

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

BYTES_MAX = 32 << 20  # of all revocations: about 12,000, usually of 2 to 3 KiB
OWNER_BYTES_MAX = 4 << 20  # of the revocations for the topics of one owner
NOTICE_BYTES_MAX = 46_000  # a bundle that can be presented, and the statement
KEPT_BYTES = 700  # of objects for each notice that is kept, an estimate

_Part = Annotated[bytes, msgspec.Meta(max_length=NOTICE_BYTES_MAX)]


class RevocationNotice(msgspec.Struct, frozen=True, array_like=True):
    """A revocation with its proof, as it is passed on."""

    statement: _Part  # a Revocation in its signer's envelope
    bundle: _Part  # packed; it has the chains of all signers


_encoder = msgspec.msgpack.Encoder()
_notices = msgspec.msgpack.Decoder(RevocationNotice)


def decode_notice(data: bytes) -> RevocationNotice:
    """ProtocolError(BODY_MALFORMED) if these bytes are not a notice."""
    try:
        return _notices.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None


@dataclass(frozen=True, slots=True)
class ProvenRevocation:
    """A revocation whose signer may revoke."""

    what: Revocable
    above: tuple[Revocable, ...]  # if one of these is revoked for as long, this one adds nothing
    owner: str  # signed the first grant of the chain, or the topic's advertisement
    until_ms: int  # nobody can use the grant after this
    data: bytes  # the notice to pass on: nothing in it but what proves it

    @property
    def withdraws(self) -> bool:
        """True if it is the end of the whole topic."""
        return not self.what[1]


def prove(statements: Statements, statement: bytes, bundle: GrantBundle, wall_ns: int) -> ProvenRevocation:
    """What a revocation ends; ProtocolError unless its signer signed the grant or one before it, or owns the topic."""
    statements.learn(bundle.chains, wall_ns)
    revocation, revoker = read_revocation(statements.keyring, statement, wall_ns)
    if bundle.grants:
        found = _of_grant(statements.keyring, revocation, revoker.identity.entity, bundle, wall_ns)
    else:
        found = _of_topic(statements, revocation, revoker.identity.entity, bundle, wall_ns)
    above, owner, until_ms, named = found
    if until_ms * NS_PER_MS <= wall_ns:
        raise ProtocolError(Reason.GRANT_EXPIRED, "what it revokes has expired")
    shown = GrantBundle(b"" if bundle.grants else bundle.advertise, _chains((revoker, *named)), bundle.grants)
    data = _encoder.encode(RevocationNotice(statement, pack_bundle(shown)))
    if len(data) > NOTICE_BYTES_MAX:
        raise ProtocolError(Reason.DESCRIPTORS_OVER_LIMIT, "it is too long to be passed on between brokers")
    what = (revocation.topic, revocation.grant, revoker.identity.entity)
    return ProvenRevocation(what, above, owner, until_ms, data)


_Found = tuple[tuple[Revocable, ...], str, int, tuple["Holder", ...]]


def _of_grant(keyring: Keyring, said: Revocation, revoker: str, bundle: GrantBundle, wall_ns: int) -> _Found:
    grants = read_grants(keyring, bundle.grants, said.topic, wall_ns)
    last, signers = grants[-1].grant, [one.signer.identity.entity for one in grants]
    if last.id != said.grant:
        raise ProtocolError(Reason.GRANT_FOREIGN, "it comes with another grant than the one that it revokes")
    if revoker not in signers:
        raise ProtocolError(Reason.GRANT_FOREIGN, f"{revoker} signed neither the grant nor one before it")
    until_ms = min(min(one.grant.expires_ms, one.signer.ends * 1_000) for one in grants)
    above: list[Revocable] = []
    for number, one in enumerate(grants[:-1]):
        above += [(said.topic, one.grant.id, signer) for signer in signers[: number + 1]]
    return tuple(above), signers[0], until_ms, tuple(one.signer for one in grants)


def _of_topic(statements: Statements, said: Revocation, revoker: str, bundle: GrantBundle, wall_ns: int) -> _Found:
    if said.grant:
        raise ProtocolError(Reason.GRANT_INVALID, "it comes without the grant that it revokes")
    advertisement, creator, directory = statements.read_advertise(bundle.advertise, wall_ns)
    if advertisement.id != said.topic:
        raise ProtocolError(Reason.GRANT_FOREIGN, "it comes with the advertisement of another topic")
    if revoker != advertisement.creator:
        raise ProtocolError(Reason.OWNER_OTHER, f"{revoker} cannot withdraw a topic of {advertisement.creator}")
    until_ms = min(advertisement.expires_ms, creator.ends * 1_000, directory.ends * 1_000)
    return (), revoker, until_ms, (creator, directory)


def _chains(holders: tuple[Holder, ...]) -> list[bytes]:
    return list(dict.fromkeys(holder.chain for holder in holders))


def read_notice(statements: Statements, data: bytes, wall_ns: int) -> ProvenRevocation:
    """A notice of another party, proven."""
    notice = decode_notice(data)
    return prove(statements, notice.statement, unpack_bundle(notice.bundle), wall_ns)


@dataclass(frozen=True, slots=True)
class _Kept:
    proven: ProvenRevocation
    number: int  # in the order in which they became known
    digest: bytes

    @property
    def size(self) -> int:
        return len(self.proven.data) + KEPT_BYTES


class KnownRevocations:
    """The revocations known at one broker or directory.

    They are charged to the owner of the topic. If there is no room, the owner with the most loses its oldest, so
    however many others sign revocations, those of an owner with few stay. Among those of one owner, those of entities
    that it delegated to go first.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, owner_bytes_max: int = OWNER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._owner_bytes_max = owner_bytes_max
        self._kept: dict[Revocable, _Kept] = {}  # oldest first
        self._digests: dict[bytes, Revocable] = {}
        self._shares: dict[str, dict[str, dict[Revocable, None]]] = {}  # owner -> revoker -> what, oldest first
        self._used: dict[tuple[str, str], int] = {}  # bytes by owner and revoker
        self._owners: dict[str, int] = {}  # bytes by owner
        self._bytes = 0
        self._last = 0  # the highest number

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes_used(self) -> int:
        """The memory in use."""
        return self._bytes

    def has(self, what: Revocable) -> bool:
        """True if this was revoked by this entity."""
        return what in self._kept

    def has_notice(self, data: bytes) -> bool:
        """True if exactly this notice is kept, so that it need not be verified again."""
        return sha256(data).digest() in self._digests

    def add(self, proven: ProvenRevocation) -> bool:
        """Keep it. Returns False if it says nothing new; ProtocolError if its owner's share is full."""
        known = self._kept.get(proven.what)
        if known is not None and known.proven.until_ms >= proven.until_ms:
            return False
        if any(self._until(what) >= proven.until_ms for what in proven.above):
            return False
        kept = _Kept(proven, self._last + 1, sha256(proven.data).digest())
        if known is not None:
            self._drop(known)
        self._make_room(proven, kept.size)
        self._last = kept.number
        self._count(kept, 1)
        self._kept[proven.what] = kept
        self._digests[kept.digest] = proven.what
        self._shares.setdefault(proven.owner, {}).setdefault(proven.what[2], {})[proven.what] = None
        return True

    def _until(self, what: Revocable) -> int:
        """When this revocation is forgotten; 0 if it is not known.

        Of two grants with one id the shorter may have been revoked, so that ends before what was granted below the
        other.
        """
        kept = self._kept.get(what)
        return 0 if kept is None else kept.proven.until_ms

    def _make_room(self, new: ProvenRevocation, size: int) -> None:
        while self._owners.get(new.owner, 0) + size > self._owner_bytes_max:
            self._drop(self._least(new.owner, new))
        while self._bytes + size > self._bytes_max:
            largest = max(self._owners, key=lambda owner: self._owners[owner], default=new.owner)
            is_more = self._owners.get(largest, 0) > self._owners.get(new.owner, 0)
            self._drop(self._least(largest if is_more else new.owner, new))

    def _least(self, owner: str, new: ProvenRevocation) -> _Kept:
        """What this owner loses first. ProtocolError if that would be to the good of its own revoker only."""
        shares = self._shares.get(owner, {})
        others = [revoker for revoker in shares if revoker != owner]
        revoker = max(others, key=lambda one: self._used[owner, one], default=owner)
        is_own = new.owner == owner and new.what[2] == revoker
        if revoker not in shares or is_own or (new.owner == owner and revoker == owner):
            raise ProtocolError(Reason.RIGHTS_OVER_LIMIT, f"too many revocations for topics of {owner}")
        return self._kept[next(iter(shares[revoker]))]

    def _count(self, kept: _Kept, sign: int) -> None:
        owner, revoker, size = kept.proven.owner, kept.proven.what[2], sign * kept.size
        self._bytes += size
        self._owners[owner] = self._owners.get(owner, 0) + size
        self._used[owner, revoker] = self._used.get((owner, revoker), 0) + size

    def _drop(self, kept: _Kept) -> None:
        what, owner, revoker = kept.proven.what, kept.proven.owner, kept.proven.what[2]
        del self._kept[what]
        del self._digests[kept.digest]
        self._count(kept, -1)
        del self._shares[owner][revoker][what]
        if not self._shares[owner][revoker]:
            del self._shares[owner][revoker]
            del self._used[owner, revoker]
        if not self._shares[owner]:
            del self._shares[owner]
            del self._owners[owner]

    def notices(self) -> list[bytes]:
        """All notices, for a neighbour that was away."""
        return [kept.proven.data for kept in self._kept.values()]

    def after(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The notices that became known after the one with this number, oldest first, each with its number."""
        new: list[_Kept] = []
        for kept in reversed(self._kept.values()):
            if kept.number <= number:
                break
            new.append(kept)
        return ((kept.number, kept.proven.data) for kept in reversed(new))

    def expire(self, wall_ms: int) -> None:
        """Forget the revocations of what has expired."""
        for kept in [kept for kept in self._kept.values() if kept.proven.until_ms <= wall_ms]:
            self._drop(kept)
