"""The language ``integer``: ``42``, ``10..20``, ``..5``, ``7..`` or a list such as ``1, 4, 10..20``.

In:    a text. Ranges include both ends.
Out:   a Condition on the topic read as an integer (matching/synopses.py).
State: none.
Not here: reading topics (matching/synopses.py).

One range is a box. For a list, the box is the hull, and the residue checks the merged and sorted ranges.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from heliograph.errors import ConditionError
from heliograph.matching.condition import Condition, Event
from heliograph.matching.languages.lexer import check_length, over_limit
from heliograph.matching.synopses import INTEGER, read_integer
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Conjunction, Op, Predicate

RANGES_MAX = 256  # in one list

_RANGE = re.compile(r"\s*(?P<low>[+-]?[0-9]+)?\s*(?:(?P<dots>\.\.)\s*(?P<high>[+-]?[0-9]+)?)?\s*")
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Listed:
    """The integer lies in one of several ranges."""

    spans: tuple[Span, ...]
    terms: frozenset[str]

    def matches(self, event: Event) -> bool:
        value = read_integer(event.topic).get(INTEGER)
        if not isinstance(value, int):
            return False
        index = bisect_right(self.spans, (value, INTEGER_MAX)) - 1
        return index >= 0 and value <= self.spans[index][1]


def read(text: str) -> Condition:
    """The condition of a text in this language."""
    check_length(text)
    spans = _merged(_spans(text))
    plain = ", ".join(_write(span) for span in spans)
    box = _box((spans[0][0], spans[-1][1]))
    residue = _Listed(spans, frozenset((f"integer {plain}",))) if len(spans) > 1 else None
    return Condition("integer", plain, box, residue)


def _spans(text: str) -> list[Span]:
    found: list[Span] = []
    position = 0
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None or not (match["low"] or match["dots"]):
            raise ConditionError("expected an integer or a range such as 10..20", text, position)
        if len(found) == RANGES_MAX:
            over_limit(f"a list has at most {RANGES_MAX} ranges", text, position)
        found.append(_span(match, text, position))
        position += len(piece) + 1
    return found


def _span(match: re.Match[str], text: str, position: int) -> Span:
    low = _end(match["low"], INTEGER_MIN, text, position)
    high = _end(match["high"], INTEGER_MAX, text, position) if match["dots"] else low
    if low > high:
        raise ConditionError("a range begins with its lower end", text, position)
    return (low, high)


def _end(digits: str | None, open_end: int, text: str, position: int) -> int:
    if digits is None:
        return open_end
    if len(digits) > 20 or not INTEGER_MIN <= int(digits) <= INTEGER_MAX:
        raise ConditionError("integers have at most 64 bits", text, position)
    return int(digits)


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Sorted ranges, with adjacent ones joined."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _write(span: Span) -> str:
    low, high = span
    if low == high:
        return str(low)
    return f"{'' if low == INTEGER_MIN else low}..{'' if high == INTEGER_MAX else high}"


def _box(span: Span) -> Conjunction:
    low, high = span
    if low == high:
        return (Predicate(INTEGER, Op.EQUAL, low),)
    bounds = []
    if low != INTEGER_MIN:
        bounds.append(Predicate(INTEGER, Op.AT_LEAST, low))
    if high != INTEGER_MAX:
        bounds.append(Predicate(INTEGER, Op.AT_MOST, high))
    return tuple(bounds) or (Predicate(INTEGER, Op.PRESENT, True),)
