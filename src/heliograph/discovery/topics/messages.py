"""Messages between entities and topic directories, as carried in the payloads of publications.

In:    fields, or bytes from any sender.
Out:   bytes, or a TopicMessage; ProtocolError if the bytes are not one.
State: none.
Not here: signatures (statements.py), which senders may send what (directory.py), when messages are sent.
Paper: [topics] §4, §5, §6.

    3s magic "HGT"   u8 version   u8 kind   u8 flags   u8 chains   per chain: u16 length, bytes   body

The body is a MessagePack map: in a signed envelope (trust/envelope.py) if SIGNED is set, sealed for its receiver if
SEALED is set. Chains of certificates are public, so they are outside the seal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Annotated, Any, TypeVar

import msgspec

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics.listing import Creation, Id, Lifetime, Stamp, Word
from heliograph.errors import ProtocolError, Reason

MAGIC = b"HGT"
VERSION = 1
MESSAGE_BYTES_MAX = 1 << 20
CHAINS_MAX = 255  # of a page of topics: two for each, and the sender's
ITEMS_MAX = 1_024
GRANTS_MAX = 8
WITHOUT_MAX = 1_024

DIRECTORIES_TOPIC = "Services/Discovery/TopicDiscoveryNode"  # to all directories, or with /<TDN-ID> to one
TOPICS_TOPIC = "Services/Discovery/Topics"
OWNERS_TOPIC = "Services/Discovery/Topics/Owners"  # to owners that are present, when no directory answers
ENTITY_TOPIC = "Entity"

_HEAD = Struct("<3sBBBB")
_LENGTH = Struct("<H")

SignedBytes = Annotated[bytes, msgspec.Meta(max_length=MESSAGE_BYTES_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=8_192)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Millis = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]


class TopicKind(IntEnum):
    """Kinds of messages. Numbers are part of the protocol."""

    LOCATE = 1  # entity -> directories: asks which are available
    LOCATED = 2  # directory -> entity
    CREATE = 3  # entity -> one directory
    CREATED = 4  # directory -> entity: a signed advertisement
    ADVERTISE = 5  # creator -> directories: the advertisement, countersigned
    ACKNOWLEDGED = 6  # directory -> creator: stored, or the reason why not
    WITHDRAW = 7  # creator -> directories
    RENEW = 8  # creator -> one directory; answered by CREATED
    SEARCH = 9  # entity -> directories or owners
    FOUND = 10  # directory or owner -> entity
    UNWATCH = 11  # entity -> directories: a standing search ends
    HANDOVER = 12  # owner -> grantee: a grant, or the key of an encrypted topic


class Locate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks which directories are available."""

    id: Id
    issued_ms: Stamp
    institution: Word = ""
    creates: bool = True  # the entity wants to create a topic, not only to search


class Located(msgspec.Struct, frozen=True, omit_defaults=True):
    """A directory is available."""

    id: Id
    directory: Word


class Create(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks to create a topic."""

    id: Id
    issued_ms: Stamp
    creation: Creation


class Renew(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks to sign an advertisement again, for this long."""

    id: Id
    issued_ms: Stamp
    lifetime_s: Lifetime
    advertisement: SignedBytes


class Created(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signed advertisement; or, with a reason, why there is none."""

    id: Id
    advertisement: SignedBytes = b""
    reason: Count = 0
    text: Text = ""


class Advertise(msgspec.Struct, frozen=True, omit_defaults=True):
    """The creator's signature that this advertisement is its own. Kept as signed, as proof for those who find it."""

    id: Id
    issued_ms: Stamp
    advertisement: SignedBytes


class TopicAcknowledged(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of an advertisement, a withdrawal or the end of a standing search."""

    id: Id
    directory: Word
    reason: Count = 0  # 0: stored
    text: Text = ""


class WithdrawTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """The creator withdraws its topic."""

    id: Id
    issued_ms: Stamp
    topic: Id


class Unwatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A standing search ends."""

    id: Id
    issued_ms: Stamp
    search: Id


class TopicQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conditions of a search. Times are milliseconds since 1970; 0 means no condition."""

    language: Word = ""
    text: Text = ""
    owner: Word = ""
    institution: Word = ""
    space: Word = ""
    topics: Annotated[list[Id], msgspec.Meta(max_length=256)] = []
    created_from_ms: Millis = 0
    created_until_ms: Millis = 0
    expires_until_ms: Millis = 0
    valid_for_ms: Millis = 0  # at least this long from now on
    newest_first: bool = False


class Search(msgspec.Struct, frozen=True, omit_defaults=True):
    """Searches for topics. With ``watch_ms`` the search stays, and changes are reported too."""

    id: Id
    issued_ms: Stamp
    query: TopicQuery
    count: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    until_ms: Stamp = 0  # no answer is needed after this
    watch_ms: Millis = 0
    watch: Annotated[bytes, msgspec.Meta(max_length=16)] = b""  # the id of a standing search that is being renewed
    answers: Count = 0  # of owners: about this many should answer
    grants: Annotated[list[SignedBytes], msgspec.Meta(max_length=GRANTS_MAX)] = []  # that allow discovery

    @property
    def watch_id(self) -> bytes:
        """The id of the standing search: that of its first message."""
        return self.watch or self.id


class FoundItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One topic: the creator's Advertise in its envelope, and what happened to it if this is a standing search."""

    advertise: SignedBytes
    change: Word = ""  # "", "appeared", "changed" or "gone"


class FoundPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Topics that were found, a page at a time. The chains of their signers are in the message."""

    id: Id
    directory: Word
    items: Annotated[list[FoundItem], msgspec.Meta(max_length=ITEMS_MAX)] = []
    page: Count = 0
    last: bool = False  # no more pages, unless something changes
    reason: Count = 0  # why something was left out
    text: Text = ""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an owner gives a grantee: signed grants starting with the owner's own, or a topic key."""

    id: Id
    issued_ms: Stamp
    topic: Id
    grants: Annotated[list[SignedBytes], msgspec.Meta(max_length=8)] = []
    advertise: SignedBytes = b""
    key: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    statement: SignedBytes = b""  # of the topic's owner, about the key
    without: Annotated[list[Id], msgspec.Meta(max_length=WITHOUT_MAX)] = []  # grants whose holders must not get the key


TopicBody = (
    Locate
    | Located
    | Create
    | Renew
    | Created
    | Advertise
    | TopicAcknowledged
    | WithdrawTopic
    | Unwatch
    | Search
    | FoundPage
    | Handover
)
TOPIC_KINDS: dict[type, TopicKind] = {
    Locate: TopicKind.LOCATE,
    Located: TopicKind.LOCATED,
    Create: TopicKind.CREATE,
    Renew: TopicKind.RENEW,
    Created: TopicKind.CREATED,
    Advertise: TopicKind.ADVERTISE,
    TopicAcknowledged: TopicKind.ACKNOWLEDGED,
    WithdrawTopic: TopicKind.WITHDRAW,
    Unwatch: TopicKind.UNWATCH,
    Search: TopicKind.SEARCH,
    FoundPage: TopicKind.FOUND,
    Handover: TopicKind.HANDOVER,
}
_KINDS = frozenset(map(int, TopicKind))
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {kind: msgspec.msgpack.Decoder(kind) for kind in TOPIC_KINDS}
_B = TypeVar("_B", bound=TopicBody)


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A decoded message; nothing in it is verified."""

    kind: TopicKind
    flags: int
    chains: tuple[bytes, ...]
    body: bytes


def encode_body(body: TopicBody) -> bytes:
    """The encoding that is signed."""
    return _encoder.encode(body)


def decode_body(kind: type[_B], data: bytes) -> _B:
    """ProtocolError(BODY_MALFORMED) if these bytes are not such a body."""
    try:
        body: _B = _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
    return body


def pack(message: TopicMessage) -> bytes:
    """The encoding that is sent."""
    assert len(message.chains) <= CHAINS_MAX
    head = _HEAD.pack(MAGIC, VERSION, message.kind, message.flags, len(message.chains))
    return head + b"".join(_LENGTH.pack(len(chain)) + chain for chain in message.chains) + message.body


def unpack(data: bytes) -> TopicMessage:
    """Decode a message; ProtocolError if these bytes are not one."""
    if len(data) < _HEAD.size or len(data) > MESSAGE_BYTES_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "not a message about topics")
    magic, version, kind, flags, count = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"known here: {MAGIC.decode()} version {VERSION}")
    if flags & ~(SIGNED | SEALED) or kind not in _KINDS or count > CHAINS_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, f"kind {kind}, flags {flags}, {count} chains")
    chains, position = [], _HEAD.size
    for _ in range(count):
        if len(data) < position + _LENGTH.size:
            raise ProtocolError(Reason.BODY_MALFORMED, "it ends within a chain")
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise ProtocolError(Reason.BODY_MALFORMED, "it ends within a chain")
        chains.append(data[start:position])
    return TopicMessage(TopicKind(kind), flags, tuple(chains), data[position:])


def domain_of(kind: TopicKind) -> bytes:
    """The purpose of a signature or seal of such a message."""
    return f"heliograph/topic-{kind.name.lower()}/1".encode()
