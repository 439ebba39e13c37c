"""Rulers: the ordered values of an attribute, cut into buckets.

In:    cuts: the bounds of the intervals that are stored.
Out:   the bucket of a value, the buckets that an interval touches, and whether it fills them.
State: the cuts of one attribute, separately for numbers and strings.
Not here: what is kept per bucket (chunk.py).

Bucket 0 is "absent", bucket 1 "present, but in no zone"; then come those of the numbers, of the strings, and one each
for false and true. An interval whose bounds are cuts contains either all values between two neighbouring cuts or none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from heliograph.matching.boxes.keys import EVERYWHERE, NUMBER, START, TEXT, TRUTH, Interval, zone

ABSENT, ODD, FIRST = 0, 1, 2


class Ruler:
    """Cuts of one attribute."""

    __slots__ = ("numbers", "texts")

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.texts: list[Any] = []

    def __len__(self) -> int:
        """How many buckets there are."""
        return FIRST + len(self.numbers) + 1 + len(self.texts) + 1 + 2

    def bucket(self, value: object) -> int:
        """The bucket of an event's value."""
        if value is None:
            return ABSENT
        where = zone(value)
        if where == NUMBER:
            return FIRST + bisect_right(self.numbers, value)
        if where == TEXT:
            return FIRST + 1 + len(self.numbers) + bisect_right(self.texts, value)
        if where == TRUTH:
            return len(self) - 2 + bool(value)
        return ODD

    def span(self, values: Interval) -> tuple[int, int]:
        """The first and the last bucket that an interval touches."""
        if values.zone == EVERYWHERE:
            return ODD, len(self) - 1
        if values.zone == TRUTH:
            return len(self) - 2 + values.start, len(self) - 3 + values.end
        cuts, base = self._zone(values.zone)
        last = len(cuts) if values.end is None else bisect_left(cuts, values.end)
        return base + bisect_right(cuts, values.start), base + last

    def missing(self, values: Interval) -> list[Any]:
        """Bounds of an interval that are not cuts."""
        if values.zone in (EVERYWHERE, TRUTH):
            return []
        cuts, _ = self._zone(values.zone)
        return [cut for cut in bounds(values) if not _holds(cuts, cut)]

    def cut(self, where: int, cut: Any) -> int:
        """Cut a bucket in two. Returns its number, which is now that of the lower part."""
        cuts, base = self._zone(where)
        place = bisect_left(cuts, cut)
        cuts.insert(place, cut)
        return base + place

    def settle(self, stored: Iterable[Interval], cuts_max: int) -> bool:
        """Choose at most this many cuts again, among the bounds; True if every bound is a cut."""
        found: dict[int, list[Any]] = {NUMBER: [], TEXT: []}
        for values in stored:
            if values.zone in found:
                found[values.zone] += bounds(values)
        total = len(found[NUMBER]) + len(found[TEXT])
        exact = True
        for where, cuts in ((NUMBER, self.numbers), (TEXT, self.texts)):
            share = max(2, cuts_max * len(found[where]) // max(total, 1))
            cuts[:] = _quantiles(sorted(found[where]), share)
            exact = exact and len(cuts) == len(set(found[where]))
        return exact

    def _zone(self, where: int) -> tuple[list[Any], int]:
        if where == NUMBER:
            return self.numbers, FIRST
        return self.texts, FIRST + 1 + len(self.numbers)


def bounds(values: Interval) -> list[Any]:
    """The bounds of an interval that are not the ends of its zone."""
    found = [] if values.start == START[values.zone] else [values.start]
    return found if values.end is None else [*found, values.end]


def _quantiles(ordered: list[Any], count: int) -> list[Any]:
    """All different values if there are few, otherwise values at equal distances."""
    different = list(dict.fromkeys(ordered))
    if len(different) <= count:
        return different
    return list(dict.fromkeys(ordered[len(ordered) * number // count] for number in range(count)))


def _holds(cuts: list[Any], cut: Any) -> bool:
    place = bisect_left(cuts, cut)
    return place < len(cuts) and bool(cuts[place] == cut)
