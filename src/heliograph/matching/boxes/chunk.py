"""Chunks: some thousand boxes with a bitmap per attribute and bucket, in any form of bitmap.

In:    boxes by slot, the attributes of an event, a box to compare with.
Out:   ids (a base plus the slot) in ascending order, as 32-bit numbers; exact.
State: the boxes, and per attribute a ruler with one row of bits per bucket.
Not here: forms of bitmaps (ints.py, arrays.py), many chunks (table.py), the compiled twin (_kernels.c).
Paper: [resources] §3.2; the layout is that of decision 0012.

A set bit in a row means that the box in this slot is *out* if the event's value falls into this bucket: an event is
matched by OR-ing one row per attribute. A box sets bits only for attributes that it names. While every bound of an
attribute's intervals is a cut, its rows are exact; an attribute with too many bounds is coarse, and the remaining
candidates are compared with the boxes themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from heliograph.matching.boxes.box import Box, encloses, fits, touches
from heliograph.matching.boxes.keys import Interval
from heliograph.matching.boxes.ruler import ABSENT, Ruler

ROWS_MAX = 1_280  # of a chunk, shared by its attributes: 160 bytes per slot
CUTS_MAX, CUTS_MIN = 254, 4  # of one attribute
SETTLED_MIN = 64  # new boxes on a coarse attribute before its cuts are chosen again


class Stored(Enum):
    """What the boxes of an index represent, for queries by intersection."""

    BOXES = 0  # sets of events: an attribute that one of the two does not name may have any value
    ADVERTISEMENTS = 1  # the query is a subscription: an advertisement must name all its attributes
    SUBSCRIPTIONS = 2  # the query is an advertisement: it must name all attributes of a subscription


class Rows(Protocol):
    """One bitmap per bucket."""

    def __getitem__(self, bucket: int) -> Any:
        """One row; rows are combined with ``&``, ``|`` and ``~``."""
        ...

    def split(self, bucket: int) -> None:
        """Insert a copy of this row after it."""
        ...

    def write(self, slot: int, first: int, last: int) -> None:
        """Clear the slot's bit from the first to the last bucket, and set it in all others."""
        ...

    def clear(self, slot: int) -> None:
        """Clear the slot's bit everywhere."""
        ...

    def size(self) -> int:
        """The size in bytes."""
        ...


class Bits(Protocol):
    """A form of bitmaps."""

    name: str
    slots: int  # of a chunk

    def rows(self, count: int) -> Rows:
        """Rows with no bit set."""
        ...

    def empty(self) -> Any:
        """A bitmap with no bit set."""
        ...

    def put(self, bitmap: Any, slot: int, value: bool) -> Any:
        """The bitmap with one bit changed, perhaps in place."""
        ...

    def list(self, bitmap: Any) -> list[int]:
        """The slots whose bit is set."""
        ...

    def pack(self, bitmap: Any, base: int) -> bytes:
        """The same, with a base added, as 32-bit numbers."""
        ...


class _Column:
    """One attribute in one chunk."""

    __slots__ = ("bits", "count", "exact", "rows", "ruler", "since")

    def __init__(self, bits: Bits) -> None:
        self.bits = bits
        self.ruler = Ruler()
        self.rows = bits.rows(len(self.ruler))
        self.exact = True
        self.count = 0  # boxes that name it
        self.since = 0  # boxes added since the cuts were chosen

    def put(self, slot: int, values: Interval, cuts_max: int) -> None:
        self.count += 1
        self.since += 1
        missing = self.ruler.missing(values)
        if missing and self.exact and len(self.ruler) + len(missing) <= cuts_max:
            for cut in missing:
                self.rows.split(self.ruler.cut(values.zone, cut))
        elif missing:
            self.exact = False
        self.rows.write(slot, *self.ruler.span(values))

    @property
    def is_stale(self) -> bool:
        """True if the cuts were chosen for far fewer boxes, or for others."""
        return not self.exact and self.since > max(SETTLED_MIN, self.count // 2)

    def settle(self, stored: Mapping[int, Interval], cuts_max: int) -> None:
        self.ruler = Ruler()
        self.exact = self.ruler.settle(stored.values(), cuts_max)
        self.rows = self.bits.rows(len(self.ruler))
        self.count, self.since = len(stored), 0
        for slot, values in stored.items():
            self.rows.write(slot, *self.ruler.span(values))


class Chunk:
    """Boxes by slot. Only free slots may be filled."""

    __slots__ = ("_bits", "_columns", "_holed", "_left", "_live", "base", "boxes", "links")

    def __init__(self, bits: Bits, base: int) -> None:
        self.base = base
        self._bits = bits
        self._columns: dict[str, _Column] = {}
        self._live = bits.empty()
        self._left: dict[int, Box] = {}  # removed boxes whose bits are still set
        self._holed: dict[int, None] = {}  # slots of boxes with holes, which rows do not express
        self.boxes: dict[int, Box] = {}
        self.links: dict[int, int] = {}

    def put(self, slot: int, box: Box, link: int) -> None:
        """Add a box."""
        for attribute in self._left.pop(slot, ()):
            if attribute not in box and attribute in self._columns:
                self._columns[attribute].rows.clear(slot)
        self.boxes[slot] = box
        self.links[slot] = link
        stale = None
        for attribute, values in box.items():
            column = self._columns.get(attribute)
            if column is None:
                column = self._columns[attribute] = _Column(self._bits)
            column.put(slot, values, self._cuts_max)
            if values.holes:
                self._holed[slot] = None
            if column.is_stale:
                stale = attribute
        self._live = self._bits.put(self._live, slot, True)
        if stale is not None:  # one at a time, so that no box waits for the cuts of all attributes
            self._settle(stale)

    def drop(self, slot: int) -> int:
        """Remove a box. Returns its link."""
        box = self._left[slot] = self.boxes.pop(slot)
        self._holed.pop(slot, None)
        self._live = self._bits.put(self._live, slot, False)
        for attribute in box:
            column = self._columns[attribute]
            column.count -= 1
            if not column.count:
                del self._columns[attribute]
        return self.links.pop(slot)

    def ids(self) -> bytes:
        """The ids of all boxes."""
        return self._bits.pack(self._live, self.base)

    def match(self, attributes: Mapping[str, object]) -> bytes:
        """Ids of the boxes in which an event lies."""
        found, exact = self._stab(attributes)
        if exact:
            return self._bits.pack(found, self.base)
        return self._those(found, lambda stored: fits(stored, attributes))

    def match_links(self, attributes: Mapping[str, object], links: dict[int, None], links_max: int) -> None:
        """Add the links of the boxes in which an event lies, until there are this many."""
        found, exact = self._stab(attributes)
        for slot in self._bits.list(found):
            link = self.links[slot]
            if link not in links and (exact or fits(self.boxes[slot], attributes)):
                links[link] = None
                if len(links) == links_max:
                    return

    def coverers(self, box: Box) -> bytes:
        """Ids of the boxes that enclose this one: those that contain both of its ends."""
        out = ~self._live
        for attribute, column in self._columns.items():
            first, last = column.ruler.span(box[attribute]) if attribute in box else (ABSENT, ABSENT)
            out = out | column.rows[first] | column.rows[last]
        return self._those(~out, lambda stored: encloses(stored, box))

    def covered(self, box: Box) -> bytes:
        """Ids of the boxes that this one encloses: they name its attributes, and are out just outside of it."""
        found = self._live
        for attribute, values in box.items():
            column = self._columns.get(attribute)
            if column is None:
                return b""
            first, last = column.ruler.span(values)
            found = found & column.rows[ABSENT] & column.rows[first - 1]
            if last + 1 < len(column.ruler):
                found = found & column.rows[last + 1]
        return self._those(found, lambda stored: encloses(box, stored))

    def intersecting(self, box: Box, stored: Stored) -> bytes:
        """Ids of the boxes that share an event with this one: they are not out in all buckets that it touches."""
        found = self._live
        for attribute, values in box.items():
            column = self._columns.get(attribute)
            if column is None:
                if stored is Stored.ADVERTISEMENTS:
                    return b""
                continue
            first, last = column.ruler.span(values)
            out = column.rows[first]
            for bucket in range(first + 1, last + 1):
                out = out & column.rows[bucket]
            found = found & ~out
            if stored is Stored.ADVERTISEMENTS:
                found = found & column.rows[ABSENT]
        if stored is Stored.SUBSCRIPTIONS:
            for attribute, column in self._columns.items():
                if attribute not in box:
                    found = found & ~column.rows[ABSENT]
        return self._those(found, lambda other: touches(other, box))

    def size(self) -> int:
        """The size of its rows in bytes."""
        return sum(column.rows.size() for column in self._columns.values())

    def _stab(self, attributes: Mapping[str, object]) -> tuple[Any, bool]:
        """The slots that no row rules out, and whether this is exact."""
        out = ~self._live
        exact = not self._holed
        for attribute, column in self._columns.items():
            out = out | column.rows[column.ruler.bucket(attributes.get(attribute))]
            exact = exact and column.exact
        return ~out, exact

    def _those(self, found: Any, hold: Callable[[Box], bool]) -> bytes:
        return array("I", [self.base + slot for slot in self._bits.list(found) if hold(self.boxes[slot])]).tobytes()

    @property
    def _cuts_max(self) -> int:
        return min(CUTS_MAX, max(CUTS_MIN, ROWS_MAX // len(self._columns)))

    def _settle(self, attribute: str) -> None:
        stored = {slot: box[attribute] for slot, box in self.boxes.items() if attribute in box}
        for slot in self._left:  # the new rows have no bits of them
            self._left[slot] = {name: values for name, values in self._left[slot].items() if name != attribute}
        self._columns[attribute].settle(stored, self._cuts_max)
