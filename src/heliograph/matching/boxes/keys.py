"""Keys: the one order in which all values of an attribute stand, and intervals of it.

In:    values and predicates (model/predicates.py).
Out:   Interval: what some predicates on one attribute leave; zone() of a value.
State: none.
Not here: several attributes at once (box.py), the number that a key is in a table (_kernels.c).
Paper: [resources] §3.

The order has zones: numbers, then strings, then booleans; a test on one zone never holds in another. An interval is
half open, [start, end), and both are values: "above 5" starts at the next value after 5, "at most 5" ends before it, a
prefix ends before the next string that does not have it. So every bound has one form, and an interval is empty exactly
if start is not below end.

The numbers of the order are the 64-bit integers and the finite floats, by exact value: 2**53 + 1 stands between 2.0**53
and 2.0**53 + 2. An event's value that is none of all these (an infinity, an integer of 65 bits, a list) is in no zone:
it is present and nothing else. None is absent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from heliograph.errors import UsageError
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Op, Predicate

NOWHERE, NUMBER, TEXT, TRUTH = range(4)
EVERYWHERE = NOWHERE  # as the zone of an interval: no test but "present" was made

FLOAT_MAX = sys.float_info.max
START: dict[int, Any] = {EVERYWHERE: None, NUMBER: -FLOAT_MAX, TEXT: "", TRUTH: 0}
"""The first key of a zone."""
CODE_POINT_MAX, SURROGATES_FIRST, SURROGATES_END = 0x10FFFF, 0xD800, 0xE000


class Interval(NamedTuple):
    """The values from ``start`` to before ``end`` (None: to the end of the zone), without ``holes``."""

    zone: int
    start: Any
    end: Any
    holes: frozenset[Any] = frozenset()

    def has(self, value: object) -> bool:
        """True if an event's value lies in it."""
        if self.zone == EVERYWHERE:
            return value is not None
        if zone(value) != self.zone:
            return False
        return self.start <= value and (self.end is None or value < self.end) and value not in self.holes

    def covers(self, other: Interval) -> bool:
        """True if every value of the other lies in this one. Neither is empty."""
        if self.zone == EVERYWHERE:
            return True
        if self.zone != other.zone or other.start < self.start or not _ends_by(other.end, self.end):
            return False
        return all(hole in other.holes for hole in self.holes if other._spans(hole))

    def meets(self, other: Interval) -> bool:
        """True if some value lies in both. Neither is empty."""
        return meet(self, other) is not None

    def _spans(self, value: Any) -> bool:
        return bool(self.start <= value and (self.end is None or value < self.end))


WHOLE = Interval(EVERYWHERE, None, None)


def zone(value: object) -> int:
    """Where a value stands in the order."""
    kind = type(value)
    if kind is bool:
        return TRUTH
    if kind is int:
        return NUMBER if INTEGER_MIN <= value <= INTEGER_MAX else NOWHERE  # type: ignore[operator]
    if kind is float:
        return NUMBER if -FLOAT_MAX <= value <= FLOAT_MAX else NOWHERE  # type: ignore[operator]
    return TEXT if kind is str else NOWHERE


def after(where: int, value: Any) -> Any:
    """The next value of the zone, None after the last."""
    if where == TEXT:
        return value + "\0"
    if where == TRUTH:
        return value + 1
    nearest = float(value)
    following = nearest if nearest > value else math.nextafter(nearest, math.inf)
    if following == math.inf:
        return None
    if abs(value) >= 1 << 53 and INTEGER_MIN <= value < INTEGER_MAX:  # here integers stand closer than floats
        return min(int(value) + 1, following)
    return following


def after_prefix(prefix: str) -> str | None:
    """The first string after all those that begin so; None if there is none."""
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if point <= CODE_POINT_MAX:
            point = SURROGATES_END if point == SURROGATES_FIRST else point
            return prefix[: length - 1] + chr(point)
    return None


def interval(predicate: Predicate) -> Interval | None:
    """The values for which one predicate holds; None if for none."""
    op, value = predicate.op, predicate.value
    if op is Op.PRESENT:
        return WHOLE
    where = _checked_zone(predicate)
    start, end = START[where], 2 if where == TRUTH else None
    if op is Op.EQUAL:
        return _trimmed(where, _key(value), after(where, _key(value)), ())
    if op is Op.UNEQUAL:
        return _trimmed(where, start, end, (_key(value),))
    if op is Op.PREFIX:
        return _trimmed(where, value, after_prefix(str(value)), ())
    if op in (Op.ABOVE, Op.AT_LEAST):
        start = value if op is Op.AT_LEAST else after(where, value)
        return None if start is None else _trimmed(where, start, None, ())
    return _trimmed(where, start, value if op is Op.BELOW else after(where, value), ())


def meet(one: Interval, other: Interval) -> Interval | None:
    """The values that lie in both; None if there are none."""
    if one.zone == EVERYWHERE or other.zone == EVERYWHERE:
        return other if one.zone == EVERYWHERE else one
    if one.zone != other.zone:
        return None
    end = one.end if _ends_by(one.end, other.end) else other.end
    return _trimmed(one.zone, max(one.start, other.start), end, one.holes | other.holes)


def _trimmed(where: int, start: Any, end: Any, holes: Collection[Any]) -> Interval | None:
    """An interval without holes at its ends, so that equal sets of values have one form."""
    if not holes:
        return Interval(where, start, end) if end is None or start < end else None
    while start in holes:
        start = after(where, start)
        if start is None:
            return None
    lasts = {after(where, hole): hole for hole in holes}
    while end in lasts:
        end = lasts[end]
    if end is not None and not start < end:
        return None
    return Interval(where, start, end, frozenset(hole for hole in holes if start < hole and _ends_by(hole, end)))


def _ends_by(end: Any, limit: Any) -> bool:
    return limit is None or (end is not None and bool(end <= limit))


def _key(value: Any) -> Any:
    return int(value) if type(value) is bool else value


def _checked_zone(predicate: Predicate) -> int:
    where = zone(predicate.value)
    what = f"{predicate.attribute} {predicate.op} {predicate.value!r}"
    if where == NOWHERE:
        raise UsageError(f"{what}: a value is a 64-bit integer, a finite float, a string or a boolean")
    if predicate.op is Op.PREFIX and where != TEXT:
        raise UsageError(f"{what}: only strings have prefixes")
    if where == TRUTH and predicate.op not in (Op.EQUAL, Op.UNEQUAL):
        raise UsageError(f"{what}: booleans have no order; ask with = or !=")
    if where == TEXT and not _encodable(str(predicate.value)):
        raise UsageError(f"{what}: the string has half a surrogate pair and no UTF-8 form")
    return where


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
