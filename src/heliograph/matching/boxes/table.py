"""Tables: boxes by id, in chunks, in pure Python over any form of bitmap.

In:    boxes by id, the attributes of an event, a box to compare with.
Out:   Engine, the interface of a table; Table, the one made of chunks.
State: the chunks. They are added one at a time as ids grow, and removed when empty: nothing is copied to grow.
Not here: which table is used when (index.py), the compiled table (_kernels.c, through native.py).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from typing import Protocol

from heliograph.matching.boxes.box import Box
from heliograph.matching.boxes.chunk import Bits, Chunk, Stored


class Engine(Protocol):
    """Boxes by id. Ids come back in ascending order as packed 32-bit numbers."""

    name: str

    @property
    def attributes(self) -> Mapping[str, int]:
        """The attributes that its boxes name."""
        ...

    def put(self, id: int, box: Box, link: int) -> None:
        """Add a box under a free id."""
        ...

    def drop(self, id: int) -> int:
        """Remove a box, which must be there. Returns its link."""
        ...

    def __contains__(self, id: int) -> bool: ...

    def ids(self) -> bytes:
        """The ids of all boxes."""
        ...

    def match(self, attributes: Mapping[str, object]) -> bytes:
        """The boxes in which an event lies."""
        ...

    def match_links(self, attributes: Mapping[str, object], links: dict[int, None], links_max: int) -> None:
        """Add the links of the boxes in which an event lies, until there are this many."""
        ...

    def coverers(self, box: Box) -> bytes:
        """The boxes that enclose this one."""
        ...

    def covered(self, box: Box) -> bytes:
        """The boxes that this one encloses."""
        ...

    def intersecting(self, box: Box, stored: Stored) -> bytes:
        """The boxes that have an event in common with this one."""
        ...

    def size(self) -> int:
        """Memory in bytes, without the boxes that came as Python objects."""
        ...


class Table:
    """An engine made of chunks."""

    __slots__ = ("_bits", "_chunks", "_order", "attributes", "name")

    def __init__(self, bits: Bits) -> None:
        self.name = bits.name
        self._bits = bits
        self._chunks: dict[int, Chunk] = {}
        self._order: list[int] = []
        self.attributes: dict[str, int] = {}  # name -> how many boxes name it

    def put(self, id: int, box: Box, link: int) -> None:
        """Add a box under a free id."""
        number, slot = divmod(id, self._bits.slots)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = Chunk(self._bits, id - slot)
            insort(self._order, number)
        chunk.put(slot, box, link)
        for name in box:
            self.attributes[name] = self.attributes.get(name, 0) + 1

    def drop(self, id: int) -> int:
        """Remove a box, which must be there. Returns its link."""
        number, slot = divmod(id, self._bits.slots)
        chunk = self._chunks[number]
        for name in chunk.boxes[slot]:
            if self.attributes[name] == 1:
                del self.attributes[name]
            else:
                self.attributes[name] -= 1
        link = chunk.drop(slot)
        if not chunk.boxes:
            del self._chunks[number]
            self._order.remove(number)
        return link

    def pop(self) -> tuple[int, Box, int] | None:
        """Remove and return some box with its id and link."""
        if not self._order:
            return None
        chunk = self._chunks[self._order[0]]
        slot = next(iter(chunk.boxes))
        found = (chunk.base + slot, chunk.boxes[slot], chunk.links[slot])
        self.drop(found[0])
        return found

    def __contains__(self, id: int) -> bool:
        number, slot = divmod(id, self._bits.slots)
        return number in self._chunks and slot in self._chunks[number].boxes

    def ids(self) -> bytes:
        """The ids of all boxes."""
        return self._join(lambda chunk: chunk.ids())

    def match(self, attributes: Mapping[str, object]) -> bytes:
        """The boxes in which an event lies."""
        return self._join(lambda chunk: chunk.match(attributes))

    def match_links(self, attributes: Mapping[str, object], links: dict[int, None], links_max: int) -> None:
        """Add the links of the boxes in which an event lies, until there are this many."""
        for number in self._order:
            if len(links) == links_max:
                return
            self._chunks[number].match_links(attributes, links, links_max)

    def coverers(self, box: Box) -> bytes:
        """The boxes that enclose this one."""
        return self._join(lambda chunk: chunk.coverers(box))

    def covered(self, box: Box) -> bytes:
        """The boxes that this one encloses."""
        return self._join(lambda chunk: chunk.covered(box))

    def intersecting(self, box: Box, stored: Stored) -> bytes:
        """The boxes that have an event in common with this one."""
        return self._join(lambda chunk: chunk.intersecting(box, stored))

    def size(self) -> int:
        """Memory of the rows in bytes."""
        return sum(chunk.size() for chunk in self._chunks.values())

    def _join(self, ask: Callable[[Chunk], bytes]) -> bytes:
        return b"".join([ask(self._chunks[number]) for number in self._order])
