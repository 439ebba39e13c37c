"""Bitmaps as Python integers: no dependencies, and fast while they are short.

In:    slots and buckets (chunk.py).
Out:   INTS, a form of bitmaps.
State: none.
Not here: what the bits mean (chunk.py).
"""

from __future__ import annotations

import sys
from array import array

_BITS_OF_BYTE = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


class _IntRows:
    __slots__ = ("_rows",)

    def __init__(self, count: int) -> None:
        self._rows = [0] * count

    def __getitem__(self, bucket: int) -> int:
        return self._rows[bucket]

    def split(self, bucket: int) -> None:
        self._rows.insert(bucket, self._rows[bucket])

    def write(self, slot: int, first: int, last: int) -> None:
        rows, bit = self._rows, 1 << slot
        rows[:first] = [row | bit for row in rows[:first]]
        rows[last + 1 :] = [row | bit for row in rows[last + 1 :]]
        rows[first : last + 1] = [row & ~bit if row & bit else row for row in rows[first : last + 1]]

    def clear(self, slot: int) -> None:
        self._rows = [row & ~(1 << slot) for row in self._rows]

    def size(self) -> int:
        return sum(map(sys.getsizeof, self._rows))


class Ints:
    """Bitmaps as integers."""

    name = "python"
    slots = 2_048

    def rows(self, count: int) -> _IntRows:
        """Rows with no bit set."""
        return _IntRows(count)

    def empty(self) -> int:
        """A bitmap with no bit set."""
        return 0

    def put(self, bitmap: int, slot: int, value: bool) -> int:
        """The bitmap with one bit changed."""
        return bitmap | 1 << slot if value else bitmap & ~(1 << slot)

    def list(self, bitmap: int) -> list[int]:
        """The bits that are set, found byte by byte."""
        found: list[int] = []
        data = bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "little")
        for place, byte in enumerate(data):
            if byte:
                base = place * 8
                found += [base + bit for bit in _BITS_OF_BYTE[byte]]
        return found

    def pack(self, bitmap: int, base: int) -> bytes:
        """The bits that are set, with a base added, as 32-bit numbers."""
        return array("I", [base + slot for slot in self.list(bitmap)]).tobytes()


INTS = Ints()
