"""Events as columns: the topics, headers, payloads, ids and times of many frames; and which frames are wanted.

In:    consecutive whole EVENT frames, as bytes or as pieces of bytes.
Out:   EventColumns, buffers in the layout of Arrow; pieces of consecutive wanted frames.
State: none.
Not here: Arrow (pipeline/rows.py), frames that are routed (wire/scan.py, wire/columns.py).

There are two equivalent forms: the functions below, and ``_events.c``, which parses the plain JSON that clients write
as headers and calls ``times_of`` for any other. HELIOGRAPH_KERNELS=python selects this one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from heliograph import kernels
from heliograph.errors import ProtocolError, Reason
from heliograph.model.publication import STAMP_MAX, STAMP_MIN, TIMESTAMP, UNSYNCHRONISED
from heliograph.wire.frames import HEAD, Kind
from heliograph.wire.limits import HEAD_BYTES

try:
    from heliograph.wire import _events as native
except ImportError:  # there was no compiler when this was installed
    is_native = False
else:
    is_native = kernels.wanted() in (None, "native")

BYTES_MAX = (1 << 31) - 1  # at once: offsets have 32 bits

Piece = tuple[int, int, int, int]
"""Start and end in the bytes; the number of its first frame, among those examined; how many frames."""


class Want(IntEnum):
    """Which columns to make; the others are empty."""

    TOPICS = 1
    HEADERS = 2
    PAYLOADS = 4
    TIMES = 8
    IDS = 16


class EventColumns(NamedTuple):
    """Texts are (ends, bytes): 32-bit offsets, one more than rows, and the bytes they point into. Flags are bits."""

    rows: int
    topic_ends: bytes
    topics: bytes
    header_ends: bytes
    headers: bytes
    payload_ends: bytes
    payloads: bytes
    origins: bytes  # 16 hexadecimal digits each
    sequences: bytes  # 64 bits each
    stamps: bytes  # 64 bits each: when it was published, in microseconds since 1970 …
    stamped: bytes  # … if this bit is set
    synchronised: bytes  # bits


class _Times(msgspec.Struct):
    """The reserved headers that are times."""

    t: Any = msgspec.field(name=TIMESTAMP, default=None)
    u: Any = msgspec.field(name=UNSYNCHRONISED, default=False)


_decode = msgspec.json.Decoder(_Times).decode


def times_of(headers: bytes) -> tuple[int | None, bool]:
    """The time of publication, if the headers have it, and whether that clock was synchronised to network time."""
    if not headers:
        return None, True
    try:
        read = _decode(headers)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, True
    stamp = read.t if type(read.t) is int and STAMP_MIN <= read.t <= STAMP_MAX else None
    return stamp, not read.u


def read_events(data: bytes | Sequence[bytes], wanted: int) -> EventColumns:
    """The frames as columns. ProtocolError if these are not whole EVENT frames; none spans two pieces."""
    pieces = [data] if isinstance(data, bytes) else [*data]
    try:
        if is_native:
            return EventColumns(*native.read_events(pieces, wanted, times_of))
        return plain_events(pieces, wanted)
    except ValueError as error:
        raise ProtocolError(Reason.FRAME_TOO_SHORT, f"publications that are not whole: {error}") from None


def plain_events(pieces: Sequence[bytes], wanted: int) -> EventColumns:
    """The same in Python. ValueError if these are not whole EVENT frames."""
    if sum(map(len, pieces)) > BYTES_MAX:
        raise ValueError("more than 2 GiB at once")
    topics, headers, payloads = (
        _Texts(wanted & Want.TOPICS),
        _Texts(wanted & Want.HEADERS),
        _Texts(wanted & Want.PAYLOADS),
    )
    origins: list[str] = []
    sequences, stamps = array("Q"), array("q")
    stamped: list[bool] = []
    synchronised: list[bool] = []
    count = 0
    for data, at, (top, body, end, origin, sequence) in _whole(pieces):
        topics.add(data[at + HEAD_BYTES : top])
        headers.add(data[top:body])
        payloads.add(data[body:end])
        if wanted & Want.IDS:
            origins.append(f"{origin:016x}")
            sequences.append(sequence)
        if wanted & Want.TIMES:
            stamp, is_right = times_of(data[top:body])
            stamps.append(stamp or 0)
            stamped.append(stamp is not None)
            synchronised.append(is_right)
        count += 1
    return EventColumns(
        count,
        *topics.buffers(),
        *headers.buffers(),
        *payloads.buffers(),
        "".join(origins).encode(),
        sequences.tobytes(),
        stamps.tobytes(),
        _bits(stamped),
        _bits(synchronised),
    )


def select(
    data: bytes,
    skip: int,
    count_max: int,
    bytes_max: int,
    known: dict[bytes, bool],
    wants: Callable[[bytes], bool],
) -> tuple[int, int, list[Piece]]:
    """Examine frames after the first ``skip``: at most ``count_max``, or until ``bytes_max`` bytes are wanted.

    ``known`` tells whether a topic is wanted; ``wants`` is asked about others. Returns how many frames were examined,
    the bytes of the wanted ones, and the pieces that they form. Stops at anything that is not a whole EVENT frame.
    """
    if is_native:
        return native.select(data, skip, count_max, bytes_max, known, wants)
    return plain_select(data, skip, count_max, bytes_max, known, wants)


def plain_select(
    data: bytes,
    skip: int,
    count_max: int,
    bytes_max: int,
    known: dict[bytes, bool],
    wants: Callable[[bytes], bool],
) -> tuple[int, int, list[Piece]]:
    """The same in Python."""
    pieces: list[Piece] = []
    at = looked = taken = count = start = first = 0
    last, wanted = None, False
    while skip > 0 and (parts := _parts_of(data, at)) is not None:
        at = parts[2]
        skip -= 1
    while not skip and looked < count_max and taken < bytes_max and (parts := _parts_of(data, at)) is not None:
        topic, end = data[at + HEAD_BYTES : parts[0]], parts[2]
        if topic != last:
            said = known.get(topic)
            last, wanted = topic, wants(topic) if said is None else said
        if wanted:
            if not count:
                start, first = at, looked
            count += 1
            taken += end - at
        elif count:
            pieces.append((start, at, first, count))
            count = 0
        at = end
        looked += 1
    if count:
        pieces.append((start, at, first, count))
    return looked, taken, pieces


def _whole(pieces: Sequence[bytes]) -> Iterator[tuple[bytes, int, tuple[int, int, int, int, int]]]:
    """Each frame: its piece, where it begins there, and its parts. ValueError if there is anything else."""
    before = 0
    for data in pieces:
        at = 0
        while at < len(data):
            parts = _parts_of(data, at)
            if parts is None:
                raise ValueError(f"no whole publication at {before + at}")
            yield data, at, parts
            at = parts[2]
        before += len(data)


def _parts_of(data: bytes, at: int) -> tuple[int, int, int, int, int] | None:
    """Where the headers, the payload and the next frame begin, and the id; None if there is no whole EVENT."""
    if at + HEAD_BYTES > len(data):
        return None
    length, kind, _, topic_length, origin, sequence, header_length = HEAD.unpack_from(data, at)
    top = at + HEAD_BYTES + topic_length
    body, end = top + header_length, at + 4 + length
    return (top, body, end, origin, sequence) if kind == Kind.EVENT and body <= end <= len(data) else None


class _Texts:
    """One column of bytes of any length."""

    def __init__(self, is_wanted: int) -> None:
        self._is_wanted = is_wanted
        self._ends = array("i", [0])
        self._parts: list[bytes] = []

    def add(self, text: bytes) -> None:
        """Add a row."""
        if self._is_wanted:
            self._ends.append(self._ends[-1] + len(text))
            self._parts.append(text)

    def buffers(self) -> tuple[bytes, bytes]:
        """(ends, bytes)."""
        return (self._ends.tobytes(), b"".join(self._parts)) if self._is_wanted else (b"", b"")


def _bits(flags: list[bool]) -> bytes:
    whole = sum(1 << number for number, flag in enumerate(flags) if flag)
    return whole.to_bytes((len(flags) + 7) // 8, "little")
