"""Bitmaps as numpy arrays: for large tables if there are no compiled kernels.

In:    slots and buckets (chunk.py).
Out:   ARRAYS, a form of bitmaps. Importing this file imports numpy.
State: none.
Not here: what the bits mean (chunk.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

SLOTS = 16_384
_WORDS = SLOTS // 64
_WORD = np.dtype("<u8")  # on every machine, byte n holds the slots from 8 n on


class _ArrayRows:
    __slots__ = ("_count", "_rows")

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows = np.zeros((count, _WORDS), _WORD)

    def __getitem__(self, bucket: int) -> Any:
        return self._rows[bucket]

    def split(self, bucket: int) -> None:
        if self._count == len(self._rows):
            larger = np.zeros((self._count * 3 // 2, _WORDS), _WORD)
            larger[: self._count] = self._rows
            self._rows = larger
        self._rows[bucket + 1 : self._count + 1] = self._rows[bucket : self._count]
        self._count += 1

    def write(self, slot: int, first: int, last: int) -> None:
        word, bit = slot >> 6, np.uint64(1 << (slot & 63))
        column = self._rows[: self._count, word]
        column |= bit
        column[first : last + 1] &= ~bit

    def clear(self, slot: int) -> None:
        self._rows[:, slot >> 6] &= ~np.uint64(1 << (slot & 63))

    def size(self) -> int:
        return int(self._rows.nbytes)


class Arrays:
    """Bitmaps as arrays of 64-bit words."""

    name = "numpy"
    slots = SLOTS

    def rows(self, count: int) -> _ArrayRows:
        """Rows with no bit set."""
        return _ArrayRows(count)

    def empty(self) -> Any:
        """A bitmap with no bit set."""
        return np.zeros(_WORDS, _WORD)

    def put(self, bitmap: Any, slot: int, value: bool) -> Any:
        """Change one bit, in place."""
        bit = np.uint64(1 << (slot & 63))
        bitmap[slot >> 6] = bitmap[slot >> 6] | bit if value else bitmap[slot >> 6] & ~bit
        return bitmap

    def list(self, bitmap: Any) -> list[int]:
        """The bits that are set."""
        found: list[int] = _set_bits(bitmap).tolist()
        return found

    def pack(self, bitmap: Any, base: int) -> bytes:
        """The bits that are set, with a base added, as 32-bit numbers."""
        return bytes((_set_bits(bitmap) + base).astype(np.uint32))


def _set_bits(bitmap: Any) -> Any:
    return np.flatnonzero(np.unpackbits(bitmap.view(np.uint8), bitorder="little"))


ARRAYS = Arrays()
