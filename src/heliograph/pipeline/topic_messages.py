"""Messages about topics, as JSON: the messages between entities and topic directories, for a table.

In:    payloads of publications on Services/Discovery/….
Out:   as_json(): one JSON object per payload, with ``fault`` if it cannot be read.
State: none.
Not here: the messages (discovery/topics/messages.py), the table (kinds.py).

Nothing is verified here: brokers let only proven entities publish there, and directories check every signature. Only
the kind of a sealed message is known. Advertisements of before UUIDs were bound to creators are read too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics import messages
from heliograph.discovery.topics.listing import TopicAdvertisement, decode_archived, uuid_text
from heliograph.discovery.topics.messages import TOPIC_KINDS, Advertise, Search, TopicMessage, Unwatch, WithdrawTopic
from heliograph.errors import ProtocolError
from heliograph.trust import envelope

US_PER_MS = 1_000
_BODIES: dict[int, type[Any]] = {number: kind for kind, number in TOPIC_KINDS.items()}

_encode = msgspec.json.Encoder().encode


def as_json(payload: bytes) -> str:
    """The content of a message, with the names of the table's columns."""
    try:
        row = _row(messages.unpack(bytes(payload)))
    except ProtocolError as error:
        row = {"fault": f"{error.reason.name.lower()} {error.detail}".strip()}
    return _encode(row).decode()


def _row(message: TopicMessage) -> dict[str, Any]:
    row: dict[str, Any] = {"what": message.kind.name.lower(), "is_sealed": bool(message.flags & SEALED)}
    if row["is_sealed"]:
        return row
    signed = bool(message.flags & SIGNED)
    data = envelope.decode(message.body).payload if signed else message.body
    body = messages.decode_body(_BODIES[message.kind], data)
    row["id"] = body.id.hex()
    if (issued_ms := getattr(body, "issued_ms", 0)) > 0:
        row["time_us"] = issued_ms * US_PER_MS
    match body:
        case Advertise():
            row |= _advertised(decode_archived(envelope.decode(body.advertisement).payload))
        case WithdrawTopic():
            row["uuid"] = uuid_text(body.topic)
        case Search():
            row["query"] = _encode(body.query).decode()
        case Unwatch():
            row["query"] = body.search.hex()
    return row


def _advertised(advertisement: TopicAdvertisement) -> dict[str, Any]:
    creation = advertisement.creation
    return {
        "uuid": advertisement.uuid,
        "created_topic": advertisement.synopsis.topic,
        "owner": creation.creator,
        "institution": creation.institution,
        "space": creation.space,
        "directory": advertisement.directory,
        "created_us": advertisement.created_ms * US_PER_MS,
        "expires_us": advertisement.expires_ms * US_PER_MS,
        "is_encrypted": creation.encrypted,
        "readers": list(creation.readers),
        "attributes": _encode(creation.descriptors).decode(),
    }
