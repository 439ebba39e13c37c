"""Sinks: what subscribers read is compared with what was published, byte by byte.

In:    received bytes, split anywhere, and the batches of frames that must arrive next.
Out:   how many frames have arrived; MismatchError at the first byte that is wrong, early or too much.
State: per sink, the expected bytes that have not arrived yet.
Not here: sockets (flow.py), what the bytes of one system look like (peers/).
"""

from __future__ import annotations

from collections import deque


class MismatchError(Exception):
    """A subscriber did not read what was published: the run is wrong, and its figures mean nothing."""


class Sink:
    """One subscriber's expectation. All frames of a run have the same size, so bytes count frames."""

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.replies = b""  # what the link should send back, such as the answer to a keep-alive
        self._batches: deque[bytes] = deque()
        self._offset = 0  # checked bytes of the first batch
        self._checked = 0  # bytes of all batches before it

    @property
    def frames(self) -> int:
        """Whole frames that have arrived, all of them right."""
        return (self._checked + self._offset) // self.frame_bytes

    def expect(self, batch: bytes) -> None:
        """These bytes come next."""
        self._batches.append(batch)

    def feed(self, data: memoryview) -> int:
        """Check what has been read; returns how much of it is settled. The rest is to be shown again, with more."""
        self.check(data)
        return len(data)

    def check(self, data: memoryview) -> None:
        """All of this must be what comes next."""
        agreed = self.advance(data)
        if agreed < len(data):
            raise self.difference(data[agreed:])

    def advance(self, data: memoryview) -> int:
        """Go on as far as ``data`` is what comes next; returns how far. ``startswith`` compares without copying."""
        agreed = 0
        while self._batches and agreed < len(data):
            batch = self._batches[0]
            part = data[agreed : agreed + len(batch) - self._offset]
            same = len(part) if batch.startswith(part, self._offset) else _common(batch, self._offset, part)
            agreed += same
            self._offset += same
            if self._offset == len(batch):
                self._checked += self._offset
                self._offset = 0
                self._batches.popleft()
            if same < len(part):
                break
        return agreed

    @property
    def between_frames(self) -> bool:
        """True if what comes next is the beginning of a frame."""
        return (self._checked + self._offset) % self.frame_bytes == 0

    def difference(self, data: memoryview) -> MismatchError:
        """What is wrong with ``data``, whose first byte is not the one that should come next."""
        if not self._batches:
            return MismatchError(f"after frame {self.frames}, {len(data)} bytes too much: {_show(data)}")
        frame, byte = divmod(self._checked + self._offset, self.frame_bytes)
        expected = memoryview(self._batches[0])[self._offset :]
        return MismatchError(f"frame {frame}, byte {byte}: expected {_show(expected)}, received {_show(data)}")


def _common(batch: bytes, offset: int, part: memoryview) -> int:
    """The length of the longest prefix of ``part`` that stands in ``batch`` at ``offset``, by halving."""
    low, high = 0, min(len(part), len(batch) - offset)
    while low < high:
        middle = (low + high + 1) // 2
        if batch.startswith(part[:middle], offset):
            low = middle
        else:
            high = middle - 1
    return low


def _show(data: memoryview) -> str:
    return repr(bytes(data[:48]))
