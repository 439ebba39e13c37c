"""Siblings: the conditions that are roots on one filter, and which of them cover which.

In:    conditions, with their boxes.
Out:   a condition that covers a given one; those that a given one covers.
State: an index of boxes and one of terms, or a list while there are few.
Not here: filters, and what hangs under a root (covering.py); comparing two conditions (conditions.py).

A condition without a residue is compared by its box, so an index of boxes finds it. A condition with a residue is
covered only by one that shares a term with it, or has no residue. It is found by its terms, because many such
conditions have the same box, or none, and an index of boxes would have to return them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from heliograph.matching.boxes.box import Box, encloses
from heliograph.matching.boxes.chunk import Stored
from heliograph.matching.boxes.index import BoxIndex, IndexFullError
from heliograph.matching.condition import Condition
from heliograph.matching.conditions import asks_less

LISTED_MAX = 16  # up to this many conditions, trying each is cheaper than an index


class Siblings:
    """The roots of one filter."""

    __slots__ = ("_listed", "_plain", "_rich", "_terms", "boxes")

    def __init__(self) -> None:
        self.boxes: dict[Condition, Box | None] = {}
        self._listed: dict[Condition, None] = {}  # conditions in no index: few, impossible, or with too many attributes
        self._plain: _Shelf | None = None  # without a residue …
        self._rich: _Shelf | None = None  # … and with one, beside a box
        self._terms: _Terms | None = None  # terms of those with a residue, once there is one

    def add(self, condition: Condition, wanted: Box | None) -> None:
        """A condition becomes a root."""
        self.boxes[condition] = wanted
        if condition.residue is not None:
            self._terms = self._terms or _Terms()
            self._terms.add(condition)
        if self._plain is not None:
            self._shelve(condition)
            return
        self._listed[condition] = None
        if len(self.boxes) > LISTED_MAX:
            few, self._listed = self._listed, {}
            self._plain, self._rich = _Shelf(), _Shelf()
            for one in few:
                self._shelve(one)

    def remove(self, condition: Condition) -> None:
        """A condition is no longer a root."""
        del self.boxes[condition]
        self._listed.pop(condition, None)
        for index in (self._plain, self._rich, self._terms):
            if index is not None:
                index.remove(condition)

    def coverer(self, narrow: Condition, wanted: Box | None) -> Condition | None:
        """A condition that covers this one."""
        for wide in self._wider(narrow, wanted):
            if asks_less(wide, narrow):
                return wide
        return None

    def covered(self, wide: Condition, wanted: Box | None) -> list[Condition]:
        """The conditions that this one covers."""
        found = dict.fromkeys(self._narrower(wide))
        return [narrow for narrow in found if _holds(wanted, self.boxes[narrow]) and asks_less(wide, narrow)]

    def _wider(self, narrow: Condition, wanted: Box | None) -> Iterator[Condition]:
        if self._plain is not None:
            yield from self._plain.coverers(narrow)
        sharing = () if self._terms is None else self._terms.asking_no_more(narrow)
        for one in chain(self._listed, sharing):
            if _holds(self.boxes[one], wanted):
                yield one

    def _narrower(self, wide: Condition) -> Iterator[Condition]:
        """All conditions that this one may cover; some may occur twice."""
        if wide.residue is not None:
            if self._terms is not None:
                yield from self._terms.asking_all(wide)
            return
        yield from self._listed
        for shelf in (self._plain, self._rich):
            if shelf is not None:
                yield from shelf.meeting(wide)
        if self._terms is not None and not wide.box:
            yield from self._terms.unboxed

    def _shelve(self, condition: Condition) -> None:
        assert self._plain is not None
        assert self._rich is not None
        if self.boxes[condition] is None:
            self._listed[condition] = None  # no event matches it: there is at most one such condition
        elif condition.residue is not None and not condition.box:
            pass  # it is found by its terms alone
        elif not (self._plain if condition.residue is None else self._rich).add(condition):
            self._listed[condition] = None


def _holds(outer: Box | None, inner: Box | None) -> bool:
    return inner is None or (outer is not None and encloses(outer, inner))


class _Shelf:
    """Conditions in an index of boxes."""

    __slots__ = ("_by_id", "_ids", "_index")

    def __init__(self) -> None:
        self._index = BoxIndex()
        self._by_id: dict[int, Condition] = {}
        self._ids: dict[Condition, int] = {}

    def add(self, condition: Condition) -> bool:
        """False if there is no room: there are too many different attributes."""
        id = self._index.spare
        try:
            self._index.add(id, condition.box)
        except IndexFullError:
            return False
        self._by_id[id] = condition
        self._ids[condition] = id
        return True

    def remove(self, condition: Condition) -> None:
        """Remove a condition, if it is here."""
        id = self._ids.pop(condition, None)
        if id is not None:
            del self._by_id[id]
            self._index.remove(id)

    def coverers(self, narrow: Condition) -> Iterator[Condition]:
        """Those whose boxes enclose this one's."""
        return map(self._by_id.__getitem__, self._index.coverers(narrow.box))

    def meeting(self, wide: Condition) -> Iterator[Condition]:
        """Those whose boxes intersect this one's. For a narrow box these are few, and the tables find them at once."""
        return map(self._by_id.__getitem__, self._index.intersecting(wide.box, Stored.ADVERTISEMENTS))


class _Terms:
    """Conditions by the terms of their residues. Those without one are not here."""

    __slots__ = ("_first", "_having", "_key", "unboxed")

    def __init__(self) -> None:
        self._having: dict[str, dict[Condition, None]] = {}  # term -> all conditions with it
        self._first: dict[str, dict[Condition, None]] = {}  # term -> the conditions that are looked up by it
        self._key: dict[Condition, str] = {}  # … which is the rarest of their terms
        self.unboxed: dict[Condition, None] = {}  # conditions without a box

    def add(self, condition: Condition) -> None:
        assert condition.residue is not None
        terms = sorted(condition.residue.terms)
        key = self._key[condition] = min(terms, key=lambda term: len(self._first.get(term, ())), default="")
        self._first.setdefault(key, {})[condition] = None
        for term in terms:
            self._having.setdefault(term, {})[condition] = None
        if not condition.box:
            self.unboxed[condition] = None

    def remove(self, condition: Condition) -> None:
        if condition.residue is None:
            return
        self.unboxed.pop(condition, None)
        _take(self._first, self._key.pop(condition), condition)
        for term in condition.residue.terms:
            _take(self._having, term, condition)

    def asking_no_more(self, narrow: Condition) -> Iterator[Condition]:
        """Conditions whose terms may all be terms of this one."""
        if narrow.residue is not None:
            for term in ("", *sorted(narrow.residue.terms)):
                yield from self._first.get(term, ())

    def asking_all(self, wide: Condition) -> Iterator[Condition]:
        """Conditions that may have every term of this one."""
        assert wide.residue is not None
        found = [self._having.get(term, {}) for term in sorted(wide.residue.terms)]
        yield from min(found, key=len, default=self._key)


def _take(table: dict[str, dict[Condition, None]], term: str, condition: Condition) -> None:
    held = table[term]
    del held[condition]
    if not held:
        del table[term]
