"""The splitter: a byte stream in, whole frames out.

In:    the bytes of one link, cut anywhere.
Out:   whole frames, in order; after a bad length or kind, only the reason why it stopped.
State: the beginning of the incomplete frame, in pieces.
Not here: the broker's fast path (wire/scan.py), what is inside a frame (wire/frames.py, client/deliveries.py).

Each length is checked against the limit of its kind as soon as five bytes are there, so a peer cannot make us allocate
more memory than one frame of that kind may have. A frame that comes in many pieces is joined once, when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from heliograph.errors import Reason
from heliograph.wire.frames import BODY_BYTES, Kind
from heliograph.wire.limits import CONTROL_BYTES_MAX, DELIVERY_BYTES_MAX, FRAME_BYTES_MAX, HEAD_BYTES, TIME_BYTES_MAX

LENGTH_AND_KIND = Struct("<IB")

_KINDS = frozenset(int(kind) for kind in Kind)
_CONTROL = HEAD_BYTES + CONTROL_BYTES_MAX
FROM_BROKER: Mapping[int, int] = {
    Kind.DELIVERY: DELIVERY_BYTES_MAX,
    Kind.SERVICE: FRAME_BYTES_MAX,
    Kind.STORED: FRAME_BYTES_MAX,
    Kind.WELCOME: _CONTROL,
    Kind.GOODBYE: _CONTROL,
    Kind.PING: HEAD_BYTES,
    Kind.PONG: HEAD_BYTES + TIME_BYTES_MAX,
    Kind.CONFIRMED: HEAD_BYTES,
    Kind.REFUSED: _CONTROL,
}
"""The kinds of frames that a broker may send to a client, and the largest size of each in bytes."""


LARGE_BYTES = 1 << 16
PIECE_BYTES = 1 << 12  # smaller pieces are gathered, as each would cost more than its bytes


class Splitter:
    """Cuts one link's stream. Once ``fault`` is set, nothing more comes out."""

    __slots__ = ("_bytes_max", "_need", "_pieces", "_waiting", "fault")

    def __init__(self, bytes_max: Mapping[int, int] = FROM_BROKER) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes | bytearray] = []
        self._waiting = 0  # bytes in pieces
        self._need = LENGTH_AND_KIND.size  # bytes that must be there before they are examined again
        self.fault: Reason | None = None

    def split(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Check ``fault`` after handling them."""
        frames: list[bytes] = []
        if self._waiting:
            lacking = self._need - self._waiting
            if len(data) < lacking:
                self._keep(data)
                return []
            if self._need >= LARGE_BYTES:  # its head was examined: complete it alone, so that it is not copied again
                frames.append(b"".join((*self._pieces, memoryview(data)[:lacking])))
                data = data[lacking:]
            else:
                data = b"".join((*self._pieces, data))
            self._pieces.clear()
            self._waiting = 0
        start, size = 0, len(data)
        self._need = LENGTH_AND_KIND.size
        while self.fault is None and size - start >= LENGTH_AND_KIND.size:
            length, kind = LENGTH_AND_KIND.unpack_from(data, start)
            end = start + 4 + length
            self.fault = self._fault_of(length, kind)
            if end > size or self.fault is not None:
                self._need = 4 + length
                break
            frames.append(data[start:end])
            start = end
        if start < size and self.fault is None:
            self._keep(data[start:])
        return frames

    def _keep(self, data: bytes) -> None:
        self._waiting += len(data)
        if len(data) >= PIECE_BYTES:
            self._pieces.append(data)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._pieces[-1] += data
        else:
            self._pieces.append(bytearray(data))

    def _fault_of(self, length: int, kind: int) -> Reason | None:
        if length < BODY_BYTES:
            return Reason.FRAME_TOO_SHORT
        bytes_max = self._bytes_max.get(kind)
        if bytes_max is None:
            return Reason.KIND_UNKNOWN if kind not in _KINDS else Reason.KIND_UNEXPECTED
        return Reason.FRAME_OVER_LIMIT if length + 4 > bytes_max else None
