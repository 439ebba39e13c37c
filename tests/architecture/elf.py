"""What the dynamic linker reads in a shared object of Linux: flags and names of symbols, without any tool.

In:    the bytes of a 64-bit little-endian ELF file.
Out:   Elf: its dynamic entries, the kinds of its segments, its dynamic symbols' names.
State: none.
Not here: what they should be (test_compiled.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import iter_unpack, unpack_from

LOAD, DYNAMIC, RELRO = 1, 2, 0x6474E552
STRINGS, SYMBOLS, BIND_NOW, FLAGS, FLAGS_1 = 5, 6, 24, 30, 0x6FFFFFFB


@dataclass(frozen=True)
class Elf:
    """One shared object."""

    segments: tuple[int, ...]
    entries: dict[int, int]  # tag -> value
    symbols: tuple[str, ...]

    @property
    def binds_now(self) -> bool:
        """All symbols are resolved at load, so that the table of them can be made read-only."""
        return bool(BIND_NOW in self.entries or self.entries.get(FLAGS, 0) & 8 or self.entries.get(FLAGS_1, 0) & 1)


def read_elf(data: bytes) -> Elf | None:
    """None if it is another kind of file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (start,), (size, count) = unpack_from("<Q", data, 32), unpack_from("<HH", data, 54)
    heads = [unpack_from("<IIQQQQQQ", data, start + size * number) for number in range(count)]

    def offset(address: int) -> int:
        return next(
            at + address - base
            for kind, _, at, base, _, held, *_ in heads
            if kind == LOAD and base <= address < base + held
        )

    [(at, held)] = [(head[2], head[5]) for head in heads if head[0] == DYNAMIC]
    entries = dict(iter_unpack("<QQ", data[at : at + held]))
    strings, symbols = offset(entries[STRINGS]), offset(entries[SYMBOLS])
    names = []
    for place in range(symbols, strings, 24):  # linkers put the strings behind the symbols
        name = strings + unpack_from("<I", data, place)[0]
        names.append(data[name : data.index(0, name)].decode())
    return Elf(tuple(head[0] for head in heads), entries, tuple(names))
