"""How many TLS records begin in a read, by the lengths in their heads.

In:    what was read from the TCP stream, read after read.
Out:   a count.
State: where the next record begins.
Not here: decryption, and what a read of many small records means (secure.py).
"""

from __future__ import annotations

HEAD_BYTES = 5  # kind, version, and in the last two the length of what follows


class RecordCounter:
    """Follows the records of one stream; a read may end anywhere."""

    def __init__(self) -> None:
        self._next_at = 0  # where the next record begins, counted from the beginning of the next read
        self._head = b""  # the first part of its head, if a read ended within it

    def count(self, data: memoryview) -> int:
        """How many heads of records are complete with this read."""
        size, at, count = len(data), self._next_at, 0
        if self._head:
            at = HEAD_BYTES - len(self._head)
            self._head += bytes(data[:at])
            if len(self._head) < HEAD_BYTES:
                return 0
            at += self._head[3] << 8 | self._head[4]
            self._head, count = b"", 1
        while at + HEAD_BYTES <= size:
            at += HEAD_BYTES + (data[at + 3] << 8 | data[at + 4])
            count += 1
        if at < size:
            self._head, at = bytes(data[at:]), size
        self._next_at = at - size
        return count
