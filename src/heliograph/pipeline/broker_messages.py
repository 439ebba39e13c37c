"""Messages about brokers, as JSON: advertisements, requests and announcements of broker discovery, for a table.

In:    payloads of publications on Services/BrokerDiscoveryNodes/….
Out:   as_json(): one JSON object per payload, with ``fault`` if it cannot be read.
State: none.
Not here: the messages (discovery/brokers/messages.py), the table (kinds.py).

Nothing is verified here: directories and brokers check signatures when they receive a message. Only the kind of a
sealed message is known.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.messages import (
    BODIES,
    Announcement,
    BrokerAdvertisement,
    DiscoveryRequest,
    Relay,
    Spread,
)
from heliograph.discovery.signed_bodies import SEALED, payload_of
from heliograph.errors import ProtocolError

US_PER_MS = 1_000
SPREAD_DEPTH_MAX = 2  # a request within a request; more is nonsense

_encode = msgspec.json.Encoder().encode


def as_json(payload: bytes) -> str:
    """The content of a message, with the names of the table's columns."""
    try:
        row = _row(bytes(payload), SPREAD_DEPTH_MAX)
    except ProtocolError as error:
        row = {"fault": f"{error.reason.name.lower()} {error.detail}".strip()}
    return _encode(row).decode()


def _row(payload: bytes, depth: int) -> dict[str, Any]:
    message = messages.unpack(payload, padded=False)
    row: dict[str, Any] = {"what": message.kind.name.lower(), "is_sealed": bool(message.flags & SEALED)}
    if row["is_sealed"]:
        return row
    body = messages.decode(BODIES[message.kind], payload_of(message.flags, message.body))
    match body:
        case BrokerAdvertisement():
            row |= _advertised(body)
        case DiscoveryRequest():
            row |= {"request": body.id.hex(), "requester": body.requester, "role": body.role, "network": body.network}
            row |= {"issued_us": body.issued_ms * US_PER_MS} if body.issued_ms > 0 else {}
        case Spread() if depth:
            inner = _row(body.request, depth - 1)
            inner.pop("is_sealed")
            row |= inner | {"what": row["what"], "by": body.by, "host": body.host}
        case Announcement():
            row |= {"directory": body.directory, "host": body.host, "lifetime_s": body.lifetime_s}
        case Relay():
            row |= {"request": body.id.hex(), "host": body.host}
    return row


def _advertised(body: BrokerAdvertisement) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("broker", "incarnation", "number", "lifetime_s", "host", "island", "brokers", "geography")
    }
    more = {name: getattr(body, name) for name in ("institution", "network", "withdrawn", "address")}
    return row | more | {"ports": _encode(body.ports).decode(), "distances": _encode(body.distances).decode()}
