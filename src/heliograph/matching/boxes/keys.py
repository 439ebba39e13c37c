"""Keys: one order of all values of an attribute, and intervals in it.

In:    values and predicates (model/predicates.py).
Out:   Interval: the values that satisfy some predicates on one attribute; zone() of a value.
State: none.
Not here: several attributes at once (box.py), the number that represents a key in a table (_kernels.c).
Paper: [resources] §3.

The order has zones: numbers, then strings, then booleans; a test on one zone never holds in another. An interval is
half open, [start, end), and both bounds are values: "above 5" starts at the next value after 5, "at most 5" ends before
it, and a prefix ends before the next string that does not have it. So every bound has one form, and an interval is
empty exactly if start is not below end.

The numbers of the order are the 64-bit integers and the finite floats, by exact value: 2**53 + 1 lies between 2.0**53
and 2.0**53 + 2. An event's value that is none of these (an infinity, an integer of 65 bits, a list) is in no zone: only
tests for presence hold for it. None is absent.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from heliograph.errors import UsageError
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Op, Predicate

NOWHERE, NUMBER, TEXT, TRUTH = range(4)
EVERYWHERE = NOWHERE  # as the zone of an interval: the only test is "present"

FLOAT_MAX = sys.float_info.max
START: dict[int, Any] = {EVERYWHERE: None, NUMBER: -FLOAT_MAX, TEXT: "", TRUTH: 0}
"""The first key of a zone."""
END: dict[int, Any] = {EVERYWHERE: None, NUMBER: None, TEXT: None, TRUTH: 2}
EXACT_MAX = 1 << 53  # up to here floats are denser than integers
_PRESENT, _EQUAL, _UNEQUAL, _PREFIX = Op.PRESENT, Op.EQUAL, Op.UNEQUAL, Op.PREFIX
_BELOW, _AT_MOST, _ABOVE, _AT_LEAST = Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST
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
_NONE: frozenset[Any] = frozenset()
_new = tuple.__new__  # makes an Interval without the cost of a class call: a third of the time of making a box


def zone(value: object) -> int:
    """The zone of a value."""
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
    if -EXACT_MAX < value < EXACT_MAX:
        return math.nextafter(value, math.inf)
    nearest = float(value)
    following = nearest if nearest > value else math.nextafter(nearest, math.inf)
    if INTEGER_MIN <= value < INTEGER_MAX:  # here integers are denser than floats
        return min(int(value) + 1, following)
    return None if following == math.inf else following


def after_prefix(prefix: str) -> str | None:
    """The first string after all those with this prefix; None if there is none."""
    for length in range(len(prefix), 0, -1):
        point = ord(prefix[length - 1]) + 1
        if point <= CODE_POINT_MAX:
            point = SURROGATES_END if point == SURROGATES_FIRST else point
            return prefix[: length - 1] + chr(point)
    return None


def interval(predicate: Predicate) -> Interval | None:
    """The values for which a predicate holds; None if there are none."""
    op, value = predicate.op, predicate.value
    if op is _PRESENT:
        return WHOLE
    where = NUMBER if type(value) is int and -EXACT_MAX < value < EXACT_MAX else zone(value)  # the usual case
    if where != NUMBER or op is _PREFIX:
        _check(predicate, where)
        value = int(value) if where == TRUTH else value
    start, end = START[where], END[where]
    if op is _AT_LEAST:
        start = value
    elif op is _AT_MOST:
        end = after(where, value)
    elif op is _ABOVE:
        start = after(where, value)
    elif op is _BELOW:
        end = value
    elif op is _EQUAL:
        start, end = value, after(where, value)
    elif op is _PREFIX:
        start, end = value, after_prefix(str(value))
    else:
        return _trimmed(where, start, end, frozenset((value,)))
    return None if start is None or (end is not None and end <= start) else _new(Interval, (where, start, end, _NONE))


def meet(one: Interval, other: Interval) -> Interval | None:
    """The values that lie in both; None if there are none."""
    where, start, end, holes = one
    if where == EVERYWHERE or other.zone == EVERYWHERE:
        return other if where == EVERYWHERE else one
    if where != other.zone:
        return None
    if other.start > start:
        start = other.start
    if not _ends_by(end, other.end):
        end = other.end
    if holes or other.holes:
        return _trimmed(where, start, end, holes | other.holes)
    return None if end is not None and end <= start else _new(Interval, (where, start, end, _NONE))


def _trimmed(where: int, start: Any, end: Any, holes: frozenset[Any]) -> Interval | None:
    """An interval without holes at its ends, so that equal sets of values have one form."""
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


def _check(predicate: Predicate, where: int) -> None:
    op, value = predicate.op, predicate.value
    what = f"{predicate.attribute} {op} {value!r}"
    if where == NOWHERE:
        raise UsageError(f"{what}: a value is a 64-bit integer, a finite float, a string or a boolean")
    if where == NUMBER:
        raise UsageError(f"{what}: only strings have prefixes")
    if where == TRUTH and op is not _EQUAL and op is not _UNEQUAL:
        raise UsageError(f"{what}: booleans have no order; ask with = or !=")
    if where == TEXT and not _encodable(str(value)):
        raise UsageError(f"{what}: the string has half a surrogate pair and no UTF-8 form")


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
