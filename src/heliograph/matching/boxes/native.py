"""The compiled table: takes the answers of _kernels.c and checks the boxes that it leaves in doubt.

In:    as table.Engine.
Out:   as table.Engine.
State: the compiled table; the boxes with holes, or with integer bounds that no float equals.
Not here: the loops (_kernels.c).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from heliograph.matching.boxes._kernels import Table as Compiled
from heliograph.matching.boxes.box import Box, encloses, fits, touches
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.keys import Interval

COVERERS, COVERED, INTERSECTING = 1, 2, 3


class NativeTable:
    """An engine in C."""

    __slots__ = ("_boxes", "_compiled", "attributes", "name")

    def __init__(self) -> None:
        self.name = "native"
        self._compiled = Compiled()
        self._boxes: dict[int, Box] = {}
        self.attributes: Mapping[str, int] = self._compiled.names

    def put(self, id: int, box: Box, link: int) -> None:
        """Add a box under a free id."""
        if self._compiled.put(id, link, box, _holed(box)):
            self._boxes[id] = box

    def drop(self, id: int) -> int:
        """Remove a box, which must be there. Returns its link."""
        self._boxes.pop(id, None)
        return self._compiled.drop(id)

    def __contains__(self, id: int) -> bool:
        return id in self._compiled

    def ids(self) -> bytes:
        """The ids of all boxes."""
        return self._compiled.ids()

    def match(self, attributes: Mapping[str, object]) -> bytes:
        """The boxes in which an event lies."""
        ids, doubts = self._compiled.match(_plain(attributes))
        return ids if not doubts else self._judged(ids, doubts, lambda stored: fits(stored, attributes))

    def match_links(self, attributes: Mapping[str, object], links: dict[int, None], links_max: int) -> None:
        """Add the links of the boxes in which an event lies, until there are this many."""
        plain = _plain(attributes)
        for id, link in _pairs(self._compiled.match_links(plain, links, links_max)):
            if link not in links and fits(self._boxes[id], attributes):
                links[link] = None

    def coverers(self, box: Box) -> bytes:
        """The boxes that enclose this one."""
        ids, doubts = self._compiled.relate(COVERERS, box, Stored.BOXES.value)
        return ids if not doubts else self._judged(ids, doubts, lambda stored: encloses(stored, box))

    def covered(self, box: Box) -> bytes:
        """The boxes that this one encloses."""
        ids, doubts = self._compiled.relate(COVERED, box, Stored.BOXES.value)
        if _holed(box):
            ids, doubts = b"", ids + doubts
        return ids if not doubts else self._judged(ids, doubts, lambda stored: encloses(box, stored))

    def intersecting(self, box: Box, stored: Stored) -> bytes:
        """The boxes that have an event in common with this one."""
        ids, doubts = self._compiled.relate(INTERSECTING, box, stored.value)
        if _holed(box):
            ids, doubts = b"", ids + doubts
        return ids if not doubts else self._judged(ids, doubts, lambda other: touches(box, other))

    def size(self) -> int:
        """Memory in bytes, without the boxes that came as Python objects."""
        return self._compiled.size()

    def _judged(self, ids: bytes, doubts: bytes, hold: Callable[[Box], bool]) -> bytes:
        """The certain ids, and those in doubt whose boxes pass a check."""
        found = array("I", ids)
        found.extend(id for id in array("I", doubts) if hold(self._box(id)))
        return array("I", sorted(found)).tobytes()

    def _box(self, id: int) -> Box:
        """A box as it was added, or rebuilt from its keys."""
        kept = self._boxes.get(id)
        if kept is not None:
            return kept
        names = {number: name for name, number in self.attributes.items()}
        return {names[number]: Interval(zone, start, end) for number, zone, start, end in self._compiled.bounds(id)}


def _plain(attributes: Mapping[str, object]) -> dict[str, object]:
    return attributes if type(attributes) is dict else dict(attributes)


def _pairs(packed: bytes) -> list[tuple[int, int]]:
    numbers = array("I", packed).tolist()
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _holed(box: Box) -> bool:
    for values in box.values():  # noqa: SIM110 - a generator costs more than the loop, and this is asked at every put
        if values.holes:
            return True
    return False
