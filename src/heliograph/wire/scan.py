"""The scan: one pass over received bytes that turns plain EVENT frames into runs with a route.

In:    bytes, where to start, the session's routes (looking up a topic resolves its route) and its Seen.
Out:   where it stopped and why, and (route, start, end) per run of frames with the same route, in order.
State: none of its own; it updates ``seen.next`` and its counters.
Not here: anything that is not a plain EVENT with a valid topic. The scan stops there, and the broker decides
          (broker/reading.py) and continues the scan.

This is the hot path. A frame costs one struct read, one slice and one dict look-up, and no object. Many consecutive
frames of the same length are read as columns (wire/columns.py), several times faster. broker/_native.c has a compiled
twin that does the same; tests/conformance compares both with a slow oracle.
"""

from __future__ import annotations

from typing import Any, Protocol

from heliograph.errors import Reason
from heliograph.wire.columns import FRAMES_MIN, alike, read_columns
from heliograph.wire.frames import LENGTH, SCAN
from heliograph.wire.limits import FRAME_BYTES_MAX, HEAD_BYTES, HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX

MORE = 0  # the rest is not a whole frame
OTHER = 1  # not a plain EVENT: another kind, or an EVENT with flags
MISS = 2  # the topic has no route: it is invalid, or resolving it has to wait

RETRY_BYTES = 4_096  # after frames of different lengths, check again after this many bytes whether frames are alike
PLAIN_EVENT = 1  # kind EVENT, no flags, in the low 16 bits of the word

_unpack = SCAN.unpack_from


class Found(Protocol):
    """What the scan needs of the routes in broker/routes.py."""

    def __getitem__(self, topic: bytes, /) -> Any: ...


class Numbers(Protocol):
    """What the scan needs of broker/routing/seen.py."""

    origin: int
    next: int
    accepted: int

    def admit(self, sequence: int) -> bool: ...  # noqa: D102


def scan(
    data: bytes,
    pos: int,
    routes: Found,
    seen: Numbers,
    payload_bytes_max: int,
    spans: list[tuple[Any, int, int]],
) -> tuple[int, int]:
    """Append runs to ``spans``; return (position, MORE | OTHER | MISS | a Reason for which the link must end)."""
    size = len(data)
    last = size - HEAD_BYTES
    # In a frame no longer than this, no part is over its limit. (Not min(): single frames come here too.)
    small = payload_bytes_max if payload_bytes_max < HEADERS_BYTES_MAX else HEADERS_BYTES_MAX
    origin = seen.origin
    expected = base = seen.next
    current: Any = None  # the route of the run that begins at ``start``
    start = pos
    word = -1
    topic_length = inner = 0
    columns_from = pos  # do not try columns before this
    why = MORE
    while pos <= last:
        length, this_word, this_origin, sequence, header_length = _unpack(data, pos)
        if this_word != word:
            if this_word & 0xFFFF != PLAIN_EVENT:
                why = OTHER
                break
            word = this_word
            topic_length = word >> 16
            inner = 24 + topic_length
        if length > small and is_over_limit(length, topic_length, header_length, payload_bytes_max):
            why = Reason.FRAME_OVER_LIMIT
            break
        end = pos + 4 + length
        if inner + header_length > length:
            why = _bad_length(length, inner)
            break
        if end > size:
            break
        if this_origin != origin:
            why = Reason.ORIGIN_FOREIGN
            break
        if sequence == expected and pos >= columns_from and size - pos >= FRAMES_MIN * (length + 4):
            count = alike(data, pos, length + 4, size)
            if count:
                found = read_columns(data, pos, length + 4, count, topic_length, routes.__getitem__)
                if found:
                    if current is not None:
                        spans.append((current, start, pos))
                        current = None
                    spans += found
                    pos = found[-1][2]
                    expected += (pos - found[0][1]) // (length + 4)
                    continue
                columns_from = pos + (length + 4) * count  # these are not alike enough: read them one by one
            else:
                columns_from = end + RETRY_BYTES
        route = routes[data[pos + 28 : pos + 28 + topic_length]]
        if route is None:
            why = MISS
            break
        if sequence == expected:
            expected += 1
        else:
            seen.accepted += expected - base
            seen.next = expected
            new = seen.admit(sequence)
            expected = base = seen.next
            if not new:  # a duplicate: the run ends before it, the next begins after it
                if current is not None:
                    spans.append((current, start, pos))
                    current = None
                pos = end
                continue
        if route is not current:
            if current is not None:
                spans.append((current, start, pos))
            current = route
            start = pos
        pos = end
    if current is not None:
        spans.append((current, start, pos))
    seen.accepted += expected - base
    seen.next = expected
    return pos, why


def frames_of(chunk: bytes, start: int) -> list[int]:
    """Where each whole frame of a chunk ends. A rest that is not a frame counts as one: a relay does not check."""
    size = len(chunk)
    ends: list[int] = []
    while start < size:
        start = min(size, start + 4 + LENGTH.unpack_from(chunk, start)[0]) if size - start >= 4 else size
        ends.append(start)
    return ends


def is_over_limit(length: int, topic_length: int, header_length: int, payload_bytes_max: int) -> bool:
    """True if an EVENT, its headers or its payload is larger than this broker accepts."""
    if length + 4 > FRAME_BYTES_MAX - PAYLOAD_BYTES_MAX + payload_bytes_max or header_length > HEADERS_BYTES_MAX:
        return True
    return length - (HEAD_BYTES - 4) - topic_length - header_length > payload_bytes_max


def _bad_length(length: int, inner: int) -> Reason:
    if length < HEAD_BYTES - 4:
        return Reason.FRAME_TOO_SHORT
    return Reason.TOPIC_OVER_FRAME if inner > length else Reason.HEADERS_OVER_FRAME
