"""The oracle's own reading of the protocol page: frames, names and filters, each in the plainest form.

In:    bytes and text.
Out:   frames cut from a stream; is this a name, does this filter match, overlap, cover.
State: none.
Not here: sessions (oracle.py). Nothing of heliograph is imported.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

EVENT, PARCEL, DELIVERY, SERVICE = 1, 2, 3, 4
HELLO, WELCOME, GOODBYE, PING, PONG, SUBSCRIBE, UNSUBSCRIBE, CONFIRMED, REFUSED = range(16, 25)
KINDS = (EVENT, PARCEL, DELIVERY, SERVICE, *range(HELLO, REFUSED + 1))
EXPIRES = 4
HEAD = struct.Struct("<IBBHQQI")
CONTROL_BYTES_MAX = 65_536 + 28
BYTES_MAX = {EVENT: 1_114_112, DELIVERY: 1_377_280}
SYSTEM = ("Services", "Entity", "System")


class EndError(Exception):
    """The peer broke a rule for which its link ends."""


class Frame(NamedTuple):
    """A frame, taken apart."""

    raw: bytes
    kind: int
    flags: int
    origin: int
    sequence: int
    topic: bytes
    headers: bytes
    payload: bytes


def take_apart(raw: bytes) -> Frame:
    """The fields of a whole frame."""
    _, kind, flags, topic_length, origin, sequence, header_length = HEAD.unpack_from(raw)
    topic_length = 0 if kind == PARCEL else topic_length
    top, body = 28 + topic_length, 28 + topic_length + header_length
    return Frame(raw, kind, flags, origin, sequence, raw[28:top], raw[top:body], raw[body:])


def put_together(
    kind: int,
    sequence: int = 0,
    payload: bytes = b"",
    topic: bytes = b"",
    headers: bytes = b"",
    origin: int = 0,
    flags: int = 0,
) -> bytes:
    """The bytes of a frame."""
    length = 24 + len(topic) + len(headers) + len(payload)
    return HEAD.pack(length, kind, flags, len(topic), origin, sequence, len(headers)) + topic + headers + payload


def check_head(buffer: bytes) -> int:
    """The size of the frame at the start of this buffer, which holds at least its head."""
    length, kind, _, topic_length, _, _, header_length = HEAD.unpack_from(buffer)
    topic_length = 0 if kind == PARCEL else topic_length  # there it is the cluster's epoch
    if length < 24:
        raise EndError("frame_too_short")
    if length + 4 > BYTES_MAX.get(kind, CONTROL_BYTES_MAX):
        raise EndError("frame_over_limit")
    if 24 + topic_length > length:
        raise EndError("topic_over_frame")
    if 24 + topic_length + header_length > length:
        raise EndError("headers_over_frame")
    return int(length) + 4


def whole_frames(stream: bytes) -> Iterator[Frame]:
    """The frames of a stream of whole frames, such as the payload of a DELIVERY."""
    while stream:
        size = check_head(stream)
        assert size <= len(stream), "a frame was cut"
        yield take_apart(stream[:size])
        stream = stream[size:]


def read_json(body: bytes, *must: str) -> dict[str, Any]:
    """A control frame's body, with at least these fields."""
    try:
        found = json.loads(body)
    except ValueError:
        raise EndError("body_malformed") from None
    if not isinstance(found, dict) or any(name not in found for name in must):
        raise EndError("body_malformed")
    return found


def expiry_of(headers: bytes) -> int | None:
    """The ``$x`` of headers, or None if they do not say it as they must."""
    try:
        expiry = json.loads(headers)["$x"]
    except (ValueError, KeyError, TypeError):
        return None
    return expiry if isinstance(expiry, int) and not isinstance(expiry, bool) else None


def is_name(name: str) -> bool:
    """Levels separated by "/", none empty, no control characters, at most 1,024 bytes and 32 levels."""
    levels = name.split("/")
    return all(levels) and name.isprintable() and len(levels) <= 32 and len(name.encode()) <= 1_024


def is_topic(name: bytes) -> bool:
    """A name in UTF-8 without wildcards."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return False
    return is_name(text) and "+" not in text and "#" not in text


def is_filter(pattern: str) -> bool:
    """A name in which "+" and "#" stand alone, and "#" last."""
    levels = pattern.split("/")
    plus = all(level == "+" for level in levels if "+" in level)
    rest = all(level == "#" and place == len(levels) - 1 for place, level in enumerate(levels) if "#" in level)
    return is_name(pattern) and plus and rest


def is_system(name: str) -> bool:
    """Does it lie under a protected root?"""
    return name.split("/")[0] in SYSTEM


def matches(pattern: str, topic: str) -> bool:
    """Does this filter match this topic?"""
    if pattern[0] in "+#" and is_system(topic):
        return False
    return _fits(pattern.split("/"), topic.split("/"))


def _fits(wanted: list[str], given: list[str]) -> bool:
    if not wanted:
        return not given
    if wanted[0] == "#":
        return True
    return bool(given) and wanted[0] in ("+", given[0]) and _fits(wanted[1:], given[1:])


@lru_cache(maxsize=4_096)
def overlaps(one: str, other: str) -> bool:
    """Is there a topic that both filters match? Found by trying all that could make a difference."""
    return any(matches(one, topic) and matches(other, topic) for topic in _universe(one, other))


@lru_cache(maxsize=4_096)
def covers(wide: str, narrow: str) -> bool:
    """Does ``wide`` match all that ``narrow`` matches? Found by trying all that could make a difference."""
    return all(matches(wide, topic) for topic in _universe(wide, narrow) if matches(narrow, topic))


def _universe(*patterns: str) -> list[str]:
    """Every topic over the words of these filters and one that none of them has, one level deeper than they are."""
    words = dict.fromkeys(level for pattern in patterns for level in pattern.split("/") if level not in ("+", "#"))
    depth = max(pattern.count("/") + 1 for pattern in patterns) + 1
    return ["/".join(levels) for n in range(1, depth + 1) for levels in product([*words, "another"], repeat=n)]
