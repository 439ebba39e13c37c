"""A planted bug: one publication or delivery silently leaves a stream. Checkers must notice.

In:    bytes that a machine wrote at once: whole frames.
Out:   the same bytes without their first EVENT or DELIVERY frame.
State: none.
Not here: when it happens (faults.py); anything that parses frames for a good reason (wire/scan.py).
"""

from __future__ import annotations

from heliograph.wire.frames import HEAD, Kind
from heliograph.wire.limits import HEAD_BYTES


def without_frame(data: bytes) -> bytes:
    """The bytes without their first EVENT or DELIVERY; unchanged if there is none, or if they are not whole frames."""
    start = 0
    while start + HEAD_BYTES <= len(data):
        length, kind = HEAD.unpack_from(data, start)[:2]
        end = start + 4 + length
        if end > len(data):
            break
        if kind in (Kind.EVENT, Kind.DELIVERY):
            return data[:start] + data[end:]
        start = end
    return data
