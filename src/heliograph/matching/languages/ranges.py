"""Ranges: combines several predicates on one attribute, and finds one form for equivalent conjunctions.

In:    conjunctions, in any order and with repetitions.
Out:   canonical(): sorted and merged, or NEVER; hull(): a conjunction that holds if one of several does; write().
State: none.
Not here: the key space of the index (matching/boxes/), parsing (predicates.py and the other languages).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.matching.languages.lexer import quote
from heliograph.model.predicates import INTEGER_MAX, INTEGER_MIN, Conjunction, Op, Predicate, Value

NEVER: Conjunction = (Predicate("$never", Op.EQUAL, True), Predicate("$never", Op.EQUAL, False))
"""The one form of every conjunction that nothing can satisfy."""
WORDS = frozenset(("and", "between", "false", "has", "prefix", "present", "true"))

_PLAIN = re.compile(r"[^\W\d][\w.$]*\Z")
Bound = tuple[Any, bool]
"""A limit, and whether it is exclusive."""


@dataclass(slots=True)
class Range:
    """The values of one attribute that satisfy some predicates. Without a kind, any value does."""

    kind: str | None = None  # "number", "string" or "boolean"
    low: Bound | None = None
    high: Bound | None = None
    prefix: str | None = None
    unequal: tuple[Any, ...] = ()

    def narrow(self, predicate: Predicate) -> bool:
        """Take one more predicate into account; False if nothing is left."""
        op, value = predicate.op, predicate.value
        bound: Bound
        if op == Op.PRESENT:
            return True
        kind = kind_of(value)
        if self.kind not in (None, kind):
            return False
        self.kind = kind
        if op in (Op.EQUAL, Op.ABOVE, Op.AT_LEAST):
            bound = (value, op == Op.ABOVE)
            self.low = bound if self.low is None else max(self.low, bound)
        if op in (Op.EQUAL, Op.BELOW, Op.AT_MOST):
            bound = (value, op == Op.BELOW)
            self.high = bound if self.high is None else min(self.high, bound, key=_strict_first)
        if op == Op.UNEQUAL:
            self.unequal += (value,)
        if op == Op.PREFIX:
            return self._begin(str(value))
        return True

    def _begin(self, prefix: str) -> bool:
        known = self.prefix or ""
        self.prefix = max(known, prefix, key=len)
        return self.prefix.startswith(known) and self.prefix.startswith(prefix)

    def settle(self) -> bool:
        """Reduce everything to its simplest form; False if nothing is left."""
        if self.prefix is not None and not self._settle_prefix(self.prefix):
            return False
        if self.kind == "boolean":
            return self._settle_boolean()
        for value in self.unequal:
            if self.low == (value, False):
                self.low = (value, True)
            if self.high == (value, False):
                self.high = (value, True)
        self.unequal = tuple(sorted({value for value in self.unequal if self._inside(value)}))
        if self.low is None or self.high is None or self.low[0] < self.high[0]:
            return True
        return self.low[0] == self.high[0] and not (self.low[1] or self.high[1])

    def _settle_prefix(self, prefix: str) -> bool:
        """Drop bounds that the prefix implies; False if the bounds exclude the prefix."""
        if self.low is not None and not str(self.low[0]).startswith(prefix):
            if str(self.low[0]) > prefix:
                return False
            self.low = None
        if self.low == (prefix, False):
            self.low = None
        if self.high is not None and not str(self.high[0]).startswith(prefix):
            if str(self.high[0]) < prefix:
                return False
            self.high = None
        if self.low is not None and self.low == self.high:
            self.prefix = None
        if prefix == "" and (self.low or self.high or self.unequal):
            self.prefix = None  # any other test on strings implies that it is a string
        return True

    def _settle_boolean(self) -> bool:
        left = [value for value in (False, True) if value not in self.unequal]
        if self.low is not None:
            left = [value for value in left if value == self.low[0] and self.high is not None and value == self.high[0]]
        if len(left) == 1:
            self.low = self.high = (left[0], False)
            self.unequal = ()
        return len(left) == 1

    def _inside(self, value: Any) -> bool:
        above = self.low is None or value > self.low[0]
        below = self.high is None or value < self.high[0]
        return above and below and (self.prefix is None or str(value).startswith(self.prefix))

    def predicates(self, attribute: str) -> list[Predicate]:
        """The fewest equivalent predicates; call ``settle`` first."""
        if self.kind is None:
            return [Predicate(attribute, Op.PRESENT, True)]
        if self.low is not None and self.low == self.high:
            return [Predicate(attribute, Op.EQUAL, self.low[0])]
        found = []
        if self.prefix is not None:
            found.append(Predicate(attribute, Op.PREFIX, self.prefix))
        if self.low is not None:
            found.append(Predicate(attribute, Op.ABOVE if self.low[1] else Op.AT_LEAST, self.low[0]))
        if self.high is not None:
            found.append(Predicate(attribute, Op.BELOW if self.high[1] else Op.AT_MOST, self.high[0]))
        return found + [Predicate(attribute, Op.UNEQUAL, value) for value in self.unequal]


def kind_of(value: Value) -> str:
    """The kind of a value. Values of different kinds are never equal, above or below each other."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def canonical(predicates: Iterable[Predicate]) -> Conjunction:
    """The one form of all equivalent conjunctions: merged per attribute and sorted."""
    ranges = _ranges(predicates)
    if ranges is None:
        return NEVER
    return tuple(predicate for attribute in sorted(ranges) for predicate in ranges[attribute].predicates(attribute))


def plain_number(number: int | float) -> int | float:
    """One form for equal numbers: 3.0 is 3."""
    if isinstance(number, float) and number.is_integer() and INTEGER_MIN <= number <= INTEGER_MAX:
        return int(number)
    return number


def hull(branches: Sequence[Iterable[Predicate]]) -> Conjunction:
    """A conjunction that holds if one of these does: not always the narrowest, but close to it."""
    possible = [ranges for branch in branches if (ranges := _ranges(branch)) is not None]
    if not possible:
        return NEVER
    common = [attribute for attribute in possible[0] if all(attribute in ranges for ranges in possible[1:])]
    return canonical(
        predicate
        for attribute in common
        for predicate in _widest([ranges[attribute] for ranges in possible]).predicates(attribute)
    )


def write(conjunction: Conjunction) -> str:
    """A canonical conjunction as text in the language ``predicates``."""
    if conjunction == NEVER:
        return "false"
    return " and ".join(_write(predicate) for predicate in conjunction) or "true"


def write_name(name: str, words: frozenset[str]) -> str:
    """A name as it is written in a condition: in double quotes if it needs them."""
    if _PLAIN.match(name) and name.lower() not in words:
        return name
    return '"' + name.replace('"', '""') + '"'


def write_value(value: Value) -> str:
    """A value as it is written in a condition."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else repr(value)


def _write(predicate: Predicate) -> str:
    name = write_name(predicate.attribute, WORDS)
    if predicate.op == Op.PRESENT:
        return f"{name} present"
    return f"{name} {predicate.op} {write_value(predicate.value)}"


def _strict_first(high: Bound) -> Bound:
    return (high[0], not high[1])


def _ranges(predicates: Iterable[Predicate]) -> dict[str, Range] | None:
    """The range of each attribute, or None if nothing can satisfy the predicates."""
    ranges: dict[str, Range] = {}
    for predicate in predicates:
        value = predicate.value
        if isinstance(value, float):
            predicate = Predicate(predicate.attribute, predicate.op, plain_number(value))
        if not ranges.setdefault(predicate.attribute, Range()).narrow(predicate):
            return None
    return ranges if all(range.settle() for range in ranges.values()) else None


def _widest(ranges: list[Range]) -> Range:
    """A range that includes all of these."""
    kinds = {range.kind for range in ranges}
    if len(kinds) > 1 or None in kinds:
        return Range()
    if ranges.count(ranges[0]) == len(ranges):
        return ranges[0]
    if "boolean" in kinds:
        return Range()
    lows = [range.low or ((range.prefix, False) if range.prefix else None) for range in ranges]
    highs = [range.high for range in ranges]
    wide = Range(kind=ranges[0].kind)
    if None not in lows:
        wide.low = min(low for low in lows if low is not None)
    if None not in highs:
        wide.high = max((high for high in highs if high is not None), key=_strict_first)
    if wide.low is None and wide.high is None:
        return Range(kind="string", prefix="") if wide.kind == "string" else Range()
    return wide
