"""Columns: many frames of the same length, read all at once.

In:    consecutive frames of one length.
Out:   runs of them with their routes, as the scan would find them; nothing if they are not alike enough.
State: a few compiled structs.
Not here: frames of different lengths (wire/scan.py reads them one by one, with the same result).

A batch of frames of equal length is a table whose rows are frames. Byte ``n`` of every frame is a slice with a step,
and one C call tells whether it is the same everywhere; so the fixed bytes of hundreds of frames are checked in a few
microseconds. The lowest byte of the sequence must count up, and the next byte must step when it wraps. If topics
differ, one call unpacks all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

FRAMES_MIN = 16  # fewer are read as fast one by one
TOPICS_STEP = 16  # topics are unpacked this many at a time, so that there are few structs to compile
STRUCTS_MAX = 256

FRAMES_MAX = 256  # at once: the lowest byte of the sequence wraps at most once

_FIXED = (*range(16), *range(18, 28))  # all of the head but the two lowest bytes of the sequence
_COUNTING = bytes(range(256)) * 2
_structs: dict[tuple[str, int], Struct] = {}


class Mixed:
    """Frames whose topics have different routes, in place of a run's route. The frames are in order; or, if no two
    routes share a link, joined by route (broker/_native.c), which makes no difference to any link."""

    __slots__ = ("frames", "routes")
    one = None
    guard = None
    guarded = None

    def __init__(self, routes: list[Any], frames: tuple[bytes, ...]) -> None:
        self.routes = routes
        self.frames = frames


def alike(data: bytes, pos: int, stride: int, size: int) -> int:
    """How many frames from ``pos`` on could be read as columns; 0 if the second is not like the first."""
    count = min((size - pos) // stride, FRAMES_MAX)
    return count if data[pos + stride : pos + stride + 16] == data[pos : pos + 16] else 0


def read_columns(
    data: bytes, pos: int, stride: int, count: int, topic_length: int, find: Callable[[bytes], Any]
) -> list[tuple[Any, int, int]]:
    """Runs of the frames from ``pos`` on that differ only in topic, payload and a sequence that counts up.

    The first frame has been checked. Empty if too few frames are alike and have topics with a route.
    """
    count = _same(data, pos, stride, count, _FIXED)
    if count < FRAMES_MIN or not _counts_up(data, pos, stride, count):
        return []
    end = pos + stride * count
    if _same(data, pos, stride, count, range(28, 28 + topic_length)) == count:
        route = find(data[pos + 28 : pos + 28 + topic_length])
        return [] if route is None else [(route, pos, end)]
    count -= count % TOPICS_STEP
    routes = list(map(find, _topics(stride, count, topic_length).unpack_from(data, pos)))
    if None in routes:
        count = routes.index(None)
        if count < FRAMES_MIN:
            return []
        del routes[count:]
    end = pos + stride * count
    if routes.count(routes[0]) == count:
        return [(routes[0], pos, end)]
    return [(Mixed(routes, _frames(stride, count).unpack_from(data, pos)), pos, end)]


def _same(data: bytes, pos: int, stride: int, count: int, offsets: Any) -> int:
    """How many frames, counted from the first, have the same bytes at these offsets."""
    end = pos + stride * count
    for offset in offsets:
        column = data[pos + offset : end : stride]
        first = column[:1]
        if column != first * count:
            count -= len(column.lstrip(first))
            end = pos + stride * count
    return count


def _counts_up(data: bytes, pos: int, stride: int, count: int) -> bool:
    """True if these frames have consecutive sequences; the higher bytes are known to be the same."""
    end = pos + stride * count
    low, next_low = data[pos + 16], data[pos + 17 : pos + 18]
    if data[pos + 16 : end : stride] != _COUNTING[low : low + count]:
        return False
    before = min(count, 256 - low)  # frames until the lowest byte wraps
    after = _COUNTING[next_low[0] + 1 : next_low[0] + 2]
    if before < count and next_low == b"\xff":
        return False  # a third byte would change: rare, so these are read one by one
    return data[pos + 17 : end : stride] == next_low * before + after * (count - before)


def _topics(stride: int, count: int, topic_length: int) -> Struct:
    """One struct for the topics of all frames."""
    return _struct(f"28x{topic_length}s{stride - 28 - topic_length}x", count)


def _frames(stride: int, count: int) -> Struct:
    """One struct that cuts all frames."""
    return _struct(f"{stride}s", count)


def _struct(row: str, count: int) -> Struct:
    struct = _structs.get((row, count))
    if struct is None:
        if len(_structs) >= STRUCTS_MAX:
            _structs.clear()
        struct = _structs[(row, count)] = Struct(row * count)
    return struct
