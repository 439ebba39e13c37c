"""Topic advertisements: a creator's description of a topic, and what a directory signs for it.

In:    fields from a program, or bytes from any sender.
Out:   Creation, TopicAdvertisement; ProtocolError or UsageError if they are invalid.
State: none, except that checks of names are remembered.
Not here: signatures (statements.py), messages (messages.py), searching (queries.py).
Paper: [topics] §3, §5.2.

A created topic is ``Topics/<uuid>`` and everything below it. The place of its synopsis depends on its type: ``string``
has levels after the UUID, ``integer`` and ``tags`` a last level; ``properties`` are in the headers of events, ``xml``
in their payload. For these two the UUID replaces the placeholder in the topic.

The UUID is of version 8: 122 bits of a SHA-256 over the creator and a nonce that a directory drew. No directory can
therefore sign a topic of one entity for another, and no creator can choose its UUID.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from math import isfinite
from typing import Annotated
from xml.parsers import expat

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.matching.synopses import read_integer
from heliograph.model.identity import entity_is_valid
from heliograph.model.topics import CREATED_ROOT, topic_fault
from heliograph.repository import EVERYBODY, ID_VERSION, Scalar
from heliograph.trust.domains import framed

SYNOPSIS_TYPES = ("string", "integer", "tags", "properties", "xml")
NAMES_CHECKED = 4_096  # whose check is remembered
DESCRIPTORS_BYTES_MAX = 1 << 16
LIFETIME_S_MAX = 10 * 365 * 86_400
KEYWORDS_MAX = 64
PROPERTIES_MAX = 128
READERS_MAX = 256
ID_BYTES = 16
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 64) - 1  # of MessagePack
NUL = "\0"  # PostgreSQL keeps no text that contains it
SEALED_DOMAIN = b"heliograph/topic-descriptors/1"
ID_DOMAIN = b"heliograph/topic-id/1"
_ID_HEAD = framed(b"heliograph topic 1", ID_DOMAIN, b"")
_ROOT = CREATED_ROOT.decode()

Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Nonce = Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)]
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Stamp = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]  # milliseconds since 1970
Lifetime = Annotated[int, msgspec.Meta(ge=1, le=LIFETIME_S_MAX)]
Word = Annotated[str, msgspec.Meta(max_length=128)]
Path = Annotated[str, msgspec.Meta(max_length=1_024)]
Long = Annotated[str, msgspec.Meta(max_length=DESCRIPTORS_BYTES_MAX)]
Keywords = Annotated[list[Word], msgspec.Meta(max_length=KEYWORDS_MAX)]
Properties = Annotated[dict[Word, Scalar], msgspec.Meta(max_length=PROPERTIES_MAX)]
Readers = Annotated[list[Word], msgspec.Meta(max_length=READERS_MAX)]
SealedBytes = Annotated[bytes, msgspec.Meta(max_length=2 * DESCRIPTORS_BYTES_MAX)]


class Descriptors(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a topic, in one or more of four formats."""

    path: Path = ""  # such as plant/hall-3/temperature
    text: Long = ""
    keywords: Keywords = []
    properties: Properties = {}
    document: Long = ""  # XML


class Synopsis(msgspec.Struct, frozen=True, omit_defaults=True):
    """How events of the topic are distinguished; ``topic`` is filled in by a directory."""

    type: Word = "string"
    placeholder: Path = ""
    topic: Path = ""


class Creation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A creator's request."""

    creator: Word
    lifetime_s: Lifetime
    institution: Word = ""
    space: Path = ""
    descriptors: Descriptors = Descriptors()
    synopsis: Synopsis = Synopsis()
    readers: Readers = msgspec.field(default_factory=lambda: [EVERYBODY])  # entities that may find it
    encrypted: bool = False  # events on it are encrypted with a key that grantees get
    sealed: SealedBytes = b""  # further descriptors, sealed for readers


class TopicAdvertisement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a directory signs."""

    id: Id
    directory: Word
    created_ms: Stamp
    issued_ms: Stamp
    expires_ms: Stamp
    synopsis: Synopsis
    creation: Creation
    digest: Digest  # SHA-256 of the creation as it was requested and of the synopsis
    nonce: Nonce = b""  # 16 bytes, drawn when the topic was created; empty in archives of earlier versions

    @property
    def creator(self) -> str:
        """The entity that owns the topic."""
        return self.creation.creator

    @property
    def uuid(self) -> str:
        """The id as it appears in topics."""
        return uuid_text(self.id)

    @property
    def root(self) -> str:
        """The topic below which all topics of this advertisement are."""
        return root_of(self.id)


_encoder = msgspec.msgpack.Encoder()
_descriptors = msgspec.msgpack.Decoder(Descriptors)
_creations = msgspec.msgpack.Decoder(Creation)
_advertisements = msgspec.msgpack.Decoder(TopicAdvertisement)


def encode_creation(creation: Creation) -> bytes:
    """The encoding that is sent and hashed."""
    return _encoder.encode(creation)


def decode_creation(data: bytes) -> Creation:
    """A creation that a directory could sign; ProtocolError with the reason if it is invalid."""
    try:
        creation = _creations.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.DESCRIPTORS_INVALID, str(error)) from None
    check_creation(creation)
    return creation


def encode_descriptors(descriptors: Descriptors) -> bytes:
    """The encoding that is sealed."""
    return _encoder.encode(descriptors)


def decode_descriptors(data: bytes) -> Descriptors:
    """Descriptors from under a seal; ProtocolError if these bytes are not descriptors."""
    try:
        return _descriptors.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.DESCRIPTORS_INVALID, str(error)) from None


def encode_advertisement(advertisement: TopicAdvertisement) -> bytes:
    """The encoding that is signed."""
    return _encoder.encode(advertisement)


def decode_advertisement(data: bytes) -> TopicAdvertisement:
    """An advertisement as a directory signed it; ProtocolError if these bytes are not one, or are inconsistent."""
    advertisement = decode_archived(data)
    _check_id(advertisement)
    return advertisement


def decode_archived(data: bytes) -> TopicAdvertisement:
    """The same, but its UUID need not be bound to its creator: for archives, which have older ones. Gives no rights."""
    try:
        advertisement = _advertisements.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
    check_creation(advertisement.creation, len(data))
    if advertisement.synopsis.topic != topic_of(advertisement.id, advertisement.creation.synopsis):
        raise ProtocolError(Reason.SYNOPSIS_INVALID, "the topic does not begin with its own UUID")
    if advertisement.digest != digest_of(advertisement.creation, advertisement.synopsis):
        raise ProtocolError(Reason.BODY_MALFORMED, "the digest is not that of request and synopsis")
    return advertisement


def advertised(
    creation: Creation, nonce: bytes, directory: str, created_ms: int, issued_ms: int, expires_ms: int
) -> TopicAdvertisement:
    """What a directory signs for a creation. The directory draws the nonce, never the requester."""
    wanted, id = creation.synopsis, id_of(creation.creator, nonce)
    synopsis = Synopsis(wanted.type, wanted.placeholder, topic_of(id, wanted))
    return TopicAdvertisement(
        id=id,
        directory=directory,
        created_ms=created_ms,
        issued_ms=issued_ms,
        expires_ms=expires_ms,
        synopsis=synopsis,
        creation=creation,
        digest=digest_of(creation, synopsis),
        nonce=nonce,
    )


def digest_of(creation: Creation, synopsis: Synopsis) -> bytes:
    """The SHA-256 of the request and of the synopsis with its UUID."""
    return sha256(_encoder.encode(creation) + _encoder.encode(synopsis)).digest()


def topic_of(id: bytes, synopsis: Synopsis) -> str:
    """The topic for this synopsis: unique in the network, because the UUID is."""
    root = root_of(id)
    levels = synopsis.placeholder if synopsis.type in ("string", "integer", "tags") else ""
    return f"{root}/{levels}" if levels else root


def root_of(id: bytes) -> str:
    """The topic below which all topics with this id are."""
    return f"{_ROOT}/{uuid_text(id)}"


def uuid_text(id: bytes) -> str:
    """16 bytes in the text form of a UUID."""
    digits = id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_of(creator: str, nonce: bytes) -> bytes:
    """The UUID (version 8) of a topic of this entity: the same after a renewal of the topic or of a certificate."""
    said = _ID_HEAD + nonce + creator.encode()  # the nonce has a fixed length, so no two creators say the same
    changed = bytearray(sha256(said).digest()[:ID_BYTES])
    changed[6] = changed[6] & 0x0F | ID_VERSION << 4
    changed[8] = changed[8] & 0x3F | 0x80
    return bytes(changed)


def _check_id(advertisement: TopicAdvertisement) -> None:
    """ProtocolError(TOPIC_ID_UNBOUND) unless the UUID is that of the creator and the nonce."""
    if (version := advertisement.id[6] >> 4) != ID_VERSION:
        raise ProtocolError(Reason.TOPIC_ID_UNBOUND, f"{advertisement.uuid} has version {version}, not {ID_VERSION}")
    creator, nonce = advertisement.creator, advertisement.nonce
    if len(nonce) != ID_BYTES or advertisement.id != id_of(creator, nonce):
        raise ProtocolError(Reason.TOPIC_ID_UNBOUND, f"{advertisement.uuid} was not created for {creator}")


# Names of spaces, readers and creators repeat from one found topic to the next.
_topic_fault = lru_cache(maxsize=NAMES_CHECKED)(topic_fault)
_entity_is_valid = lru_cache(maxsize=NAMES_CHECKED)(entity_is_valid)


def check_creation(creation: Creation, bytes_max: int = 1 << 62) -> None:
    """ProtocolError with the reason if a creation is invalid. Its encoding is known to have at most ``bytes_max``."""
    if not _entity_is_valid(creation.creator):
        raise ProtocolError(Reason.DESCRIPTORS_INVALID, "the creator is not an entity id")
    _check_values(creation)
    if bytes_max > DESCRIPTORS_BYTES_MAX < len(_encoder.encode(creation.descriptors)):
        raise ProtocolError(Reason.DESCRIPTORS_OVER_LIMIT, f"at most {DESCRIPTORS_BYTES_MAX} bytes describe a topic")
    _check_synopsis(creation.synopsis)
    for name, text in (("path", creation.descriptors.path), ("space", creation.space)):
        fault = _topic_fault(text.encode("utf-8", "surrogatepass")) if text else None
        if fault is not None:
            raise ProtocolError(Reason.DESCRIPTORS_INVALID, f"{name}: {fault}")
    if creation.descriptors.document:
        _check_document(creation.descriptors.document)
    for reader in creation.readers:
        if reader != EVERYBODY and not _entity_is_valid(reader):
            raise ProtocolError(Reason.DESCRIPTORS_INVALID, f"reader {reader[:64]!r} is not an entity id")


def _check_values(creation: Creation) -> None:
    """Numbers that every repository can keep and compare; texts without NUL, which not every database can keep."""
    said = creation.descriptors
    for name, value in said.properties.items():
        if isinstance(value, float) and not isfinite(value):
            raise ProtocolError(Reason.DESCRIPTORS_INVALID, f"property {name[:64]!r}: {value} is not a finite number")
        if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise ProtocolError(Reason.DESCRIPTORS_INVALID, f"property {name[:64]!r}: it does not fit 64 bits")
        if NUL in name or (isinstance(value, str) and NUL in value):
            raise ProtocolError(Reason.DESCRIPTORS_INVALID, f"property {name[:64]!r} contains the character NUL")
    if NUL in said.text or NUL in creation.institution or any(NUL in keyword for keyword in said.keywords):
        raise ProtocolError(Reason.DESCRIPTORS_INVALID, "text, keywords or institution contain the character NUL")


def _check_synopsis(synopsis: Synopsis) -> None:
    if synopsis.type not in SYNOPSIS_TYPES:
        known = ", ".join(SYNOPSIS_TYPES)
        raise ProtocolError(Reason.SYNOPSIS_INVALID, f"no synopsis type {synopsis.type[:64]!r}; there are {known}")
    levels = synopsis.placeholder.encode("utf-8", "surrogatepass")
    if not levels:
        return
    if synopsis.type in ("string", "integer", "tags"):
        fault = _topic_fault(CREATED_ROOT + b"/" + bytes(36).hex().encode()[:36] + b"/" + levels)
        if fault is not None:
            raise ProtocolError(Reason.SYNOPSIS_INVALID, f"placeholder: {fault}")
    if synopsis.type == "integer" and not read_integer(levels):
        raise ProtocolError(Reason.SYNOPSIS_INVALID, "the placeholder of an integer synopsis ends in a decimal number")
    if synopsis.type == "tags" and b"=" not in levels:
        raise ProtocolError(Reason.SYNOPSIS_INVALID, "the placeholder of a tags synopsis is written name=value,…")


def _check_document(document: str) -> None:
    """Well-formed, and without a document type: no entities, nothing external. Limits are checked by the reader."""
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")

    def refuse(*_: object) -> None:
        raise ProtocolError(Reason.DOCUMENT_INVALID, "an XML descriptor has no document type")

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(document.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        raise ProtocolError(Reason.DOCUMENT_INVALID, f"not XML: {error}") from None
