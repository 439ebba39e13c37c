"""Steps: what clients do in a random session, as values that print as the line of code that makes them.

In:    nothing.
Out:   step types; the bytes of every way to break a rule, with the reason that it must lead to.
State: none.
Not here: drawing steps (stories.py), carrying them out (sessions.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tests.conformance import grammar
from tests.conformance.grammar import put_together

CLIENTS: dict[str, tuple[str, ...]] = {  # entities and their roles; each client is one session with one secret
    "ann": ("client",),
    "bob": ("client",),
    "sensor-1": ("client",),
    "root": ("client", "admin"),
}


@dataclass(frozen=True)
class Dial:
    """A new link of this client; if it has one already, the session moves to the new link."""

    client: str
    hold: bool = False
    body: tuple[tuple[str, Any], ...] = ()  # fields of the HELLO that differ


@dataclass(frozen=True)
class Subscribe:
    client: str
    number: int
    filter: str
    policy: str = "drop_oldest"
    echo: bool = True
    language: str = "topic"
    where: str = ""


@dataclass(frozen=True)
class Unsubscribe:
    client: str
    number: int


@dataclass(frozen=True)
class Publish:
    """Publications with the numbers first, first + 1, …"""

    client: str
    topic: str
    first: int
    count: int = 1
    expires_s: int | None = None  # from now; may be in the past
    headers: str = ""  # JSON, or what claims to be


@dataclass(frozen=True)
class Flush:
    client: str
    number: int


@dataclass(frozen=True)
class Ask:
    client: str
    service: str


Frames = Dial | Subscribe | Unsubscribe | Publish | Flush


@dataclass(frozen=True)
class Break:
    """Send something for which a link ends, or that is malformed inside a good frame."""

    client: str
    how: str


@dataclass(frozen=True)
class Leave:
    """Say goodbye, or (politely=False) just vanish."""

    client: str
    politely: bool


@dataclass(frozen=True)
class Press:
    """The driver's buffer for this client's link is full, or has room again."""

    client: str
    pressed: bool


@dataclass(frozen=True)
class Slowly:
    """Send the frames of a step in pieces of these sizes; the rest goes out before the client's next step."""

    step: Frames
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Take:
    """The driver carries out what the broker wants."""


Step = Dial | Subscribe | Unsubscribe | Publish | Flush | Ask | Break | Leave | Press | Slowly | Take

BREAKS = {
    "a foreign origin": "origin_foreign",
    "a reserved flag": "flags_unknown",
    "a flag in a control frame": "flags_unknown",
    "a kind nobody knows": "kind_unknown",
    "a kind that brokers send": "kind_unexpected",
    "a second hello": "kind_unexpected",
    "a parcel": "kind_unexpected",
    "a length below 24": "frame_too_short",
    "a length over the limit": "frame_over_limit",
    "a control frame over the limit": "frame_over_limit",
    "a topic longer than its frame": "topic_over_frame",
    "headers longer than their frame": "headers_over_frame",
    "a body that is no JSON": "body_malformed",
    "a body without its fields": "body_malformed",
}


def secret_of(client: str) -> bytes:
    return hashlib.sha256(client.encode()).digest()


def origin_of(client: str) -> int:
    return int.from_bytes(hashlib.sha256(secret_of(client)).digest()[:8], "little")


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def broken(client: str, how: str) -> bytes:
    """The bytes of a Break."""
    event = put_together(grammar.EVENT, 1, b"x", b"a", origin=origin_of(client))
    match how:
        case "a foreign origin":
            return put_together(grammar.EVENT, 1, b"x", b"a", origin=origin_of(client) ^ 1)
        case "a reserved flag":
            return put_together(grammar.EVENT, 1, b"x", b"a", origin=origin_of(client), flags=1)
        case "a flag in a control frame":
            return put_together(grammar.PING, 1, flags=4)
        case "a kind nobody knows":
            return put_together(99)
        case "a kind that brokers send":
            return put_together(grammar.CONFIRMED, 1)
        case "a second hello":
            return put_together(grammar.HELLO, 0, body(versions=[1], secret=secret_of(client).hex()))
        case "a parcel":
            return put_together(grammar.PARCEL, 1, event, headers=bytes(8))
        case "a length below 24":
            return (23).to_bytes(4, "little") + event[4:]
        case "a length over the limit":
            return (1_114_109).to_bytes(4, "little") + event[4:]
        case "a control frame over the limit":
            return put_together(grammar.SUBSCRIBE, 1, b" " * 65_537)
        case "a topic longer than its frame":
            return event[:6] + (3).to_bytes(2, "little") + event[8:]
        case "headers longer than their frame":
            return event[:24] + (2).to_bytes(4, "little") + event[28:]
        case "a body that is no JSON":
            return put_together(grammar.SUBSCRIBE, 1, b'{"number": 1, "filter": ')
        case "a body without its fields":
            return put_together(grammar.UNSUBSCRIBE, 1, b"{}")
    raise AssertionError(how)
