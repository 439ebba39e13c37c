"""Inspects streams, which only a simulated world may do: to record what travels (flows.py), or to plant a bug.

In:    bytes that a machine wrote at once: whole frames.
Out:   the same bytes without their first EVENT, DELIVERY or PARCEL; the payloads of EVENTs, also inside PARCELs and
       DELIVERYs.
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


def payloads_inside(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The payload of every EVENT, alone or in a PARCEL or DELIVERY, and where in the data the outer frame ends."""
    for kind, start, end in _frames(data):
        if kind == Kind.EVENT:
            yield Frame(data[start:end]).payload, end
        elif kind in (Kind.PARCEL, Kind.DELIVERY):
            inside = Frame(data[start:end]).payload
            for each, first, last in _frames(inside):
                if each == Kind.EVENT:
                    yield Frame(inside[first:last]).payload, end


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
