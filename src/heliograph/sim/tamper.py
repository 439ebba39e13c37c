"""Inspects streams, which only a simulated world may do: to record what travels, or to plant a bug.

In:    bytes that a machine wrote at once: whole frames.
Out:   the same bytes without their first EVENT, DELIVERY or PARCEL; the payloads inside PARCELs.
State: none.
Not here: when a bug is planted (faults.py); parsing frames for any other reason (wire/scan.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.wire.frames import HEAD, Frame, Kind
from heliograph.wire.limits import HEAD_BYTES


def without_frame(data: bytes) -> bytes:
    """The bytes without their first EVENT, DELIVERY or PARCEL; unchanged without one, or if frames are incomplete."""
    for kind, start, end in _frames(data):
        if kind in (Kind.EVENT, Kind.DELIVERY, Kind.PARCEL):
            return data[:start] + data[end:]
    return data


def payloads_of_parcels(data: bytes) -> Iterator[bytes]:
    """The payload of every EVENT in every PARCEL."""
    for kind, start, end in _frames(data):
        if kind == Kind.PARCEL:
            inside = Frame(data[start:end]).payload
            for each, first, last in _frames(inside):
                if each == Kind.EVENT:
                    yield Frame(inside[first:last]).payload


def _frames(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The kind, start and end of each whole frame."""
    start = 0
    while start + HEAD_BYTES <= len(data):
        length, kind = HEAD.unpack_from(data, start)[:2]
        end = start + 4 + length
        if end > len(data):
            return
        yield kind, start, end
        start = end
