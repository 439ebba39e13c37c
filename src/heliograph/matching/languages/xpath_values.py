"""Values of nodes: XPath's comparisons, computed once for all expressions.

In:    the nodes that a path selects: strings, or elements with a function that gives their text.
Out:   Values: whether some node compares like this; Candidates with their Columns: for which candidates some node does.
State: what was computed for one document.
Not here: lxml (documents.py), which comparisons an expression makes (xpath_facts.py, xpath_masks.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate
from operator import or_
from typing import Any

CANDIDATES_MAX = 256  # each costs about 2 µs, shared by many expressions; for a single one, libxml2 is cheaper

Evaluate = Callable[[Any], Any]
TextOf = Callable[[Any], str]

_NUMBER = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\r\n]*")


class Values:
    """What a path selects in a document, ready for comparisons that hold if they hold for one node."""

    __slots__ = ("_found", "_highest", "_lowest", "_nan", "_numbers", "_text_of", "_texts")

    def __init__(self, found: list[Any], text_of: TextOf) -> None:
        self._found = found
        self._text_of = text_of
        self._texts: set[str] | None = None
        self._numbers: set[float] | None = None

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._found)

    def compare(self, op: str, value: str | float | None) -> bool:
        """True if some node compares like this; without a value, if there is a node."""
        if value is None or not self._found:
            return bool(self._found)
        if self._texts is None:
            self._texts = {one if isinstance(one, str) else self._text_of(one) for one in self._found}
        if isinstance(value, str) and op in ("=", "!="):
            return value in self._texts if op == "=" else len(self._texts) > (value in self._texts)
        number = to_number(value) if isinstance(value, str) else value
        if self._numbers is None:
            self._numbers = self._count(self._texts)
        match op:
            case "=":
                return number in self._numbers
            case "!=":
                return self._nan or number != number or len(self._numbers) > (number in self._numbers)
            case "<":
                return self._lowest < number
            case "<=":
                return self._lowest <= number
            case ">":
                return self._highest > number
        return self._highest >= number

    def _count(self, texts: set[str]) -> set[float]:
        numbers = [to_number(text) for text in texts]
        real = {number for number in numbers if number == number}
        self._nan = any(number != number for number in numbers)
        self._lowest = min(real, default=float("nan"))
        self._highest = max(real, default=float("nan"))
        return real


class Column:
    """What a path selects from each candidate: tells which candidates have a node that compares like this, as bits."""

    __slots__ = ("_any", "_numbers", "_several", "_texts")

    def __init__(self, rows: list[list[Any]], text_of: TextOf) -> None:
        self._texts: dict[str, int] = {}
        self._any = 0
        self._several = 0  # candidates with several texts: one of them differs from any given value
        self._numbers: _Numbers | None = None
        for number, row in enumerate(rows):
            texts = {one if isinstance(one, str) else text_of(one) for one in row}
            bit = 1 << number
            for text in texts:
                self._texts[text] = self._texts.get(text, 0) | bit
            self._any |= bit if texts else 0
            self._several |= bit if len(texts) > 1 else 0

    def compare(self, op: str, value: str | float | None) -> int:
        """The candidates with a node that compares like this; without a value, those that have a node."""
        if value is None:
            return self._any
        if isinstance(value, str) and op in ("=", "!="):
            equal = self._texts.get(value, 0)
            return equal if op == "=" else self._several | (self._any & ~equal)
        if self._numbers is None:
            self._numbers = _Numbers(self._texts)
        return self._numbers.compare(op, to_number(value) if isinstance(value, str) else value)


class _Numbers:
    """The texts of a column as numbers, with the candidates up to each and from each on."""

    __slots__ = ("_any", "_below", "_by_number", "_from", "_several", "_sorted")

    def __init__(self, texts: dict[str, int]) -> None:
        self._by_number: dict[float, int] = {}
        self._any = 0
        self._several = 0
        for text, bits in texts.items():
            number = to_number(text)
            self._several |= bits & self._any & ~self._by_number.get(number, 0)
            self._any |= bits
            self._by_number[number] = self._by_number.get(number, 0) | bits
            if number != number:
                self._several |= bits  # NaN is unequal to everything
        self._sorted = sorted(number for number in self._by_number if number == number)
        masks = [self._by_number[number] for number in self._sorted]
        self._below: list[int] = [0, *accumulate(masks, or_)]
        self._from: list[int] = [0, *accumulate(reversed(masks), or_)][::-1]

    def compare(self, op: str, number: float) -> int:
        if op in ("=", "!="):
            equal = self._by_number.get(number, 0) if number == number else 0
            return equal if op == "=" else self._several | (self._any & ~equal)
        if number != number:
            return 0
        match op:
            case "<":
                return self._below[bisect_left(self._sorted, number)]
            case "<=":
                return self._below[bisect_right(self._sorted, number)]
            case ">":
                return self._from[bisect_right(self._sorted, number)]
        return self._from[bisect_left(self._sorted, number)]


class Candidates:
    """The nodes that a path selects, on which predicates are tested; bit n is the nth."""

    __slots__ = ("_columns", "_nodes", "_text_of", "all")

    def __init__(self, nodes: list[Any], text_of: TextOf) -> None:
        self._nodes = nodes
        self._text_of = text_of
        self._columns: dict[str, Column] = {}
        self.all = (1 << len(nodes)) - 1

    def column(self, path: str, evaluate: Evaluate) -> Column:
        """What a relative path selects from each candidate."""
        found = self._columns.get(path)
        if found is None:
            found = self._columns[path] = Column([evaluate(node) for node in self._nodes], self._text_of)
        return found


def to_number(text: str) -> float:
    """A text as a number, as libxml2 converts it: blanks around it, no plus sign, NaN if it is not a number."""
    match = _NUMBER.fullmatch(text)
    return float(match[1]) if match else float("nan")
