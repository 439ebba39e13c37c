"""Other ways to match, straightforward ones, to compare the box index with.

In:    conjunctions by id.
Out:   Counting: count how many predicates of each conjunction hold. Linear: try one conjunction after another.
State: their tables.
Not here: the box index (src/heliograph/matching/boxes/).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Any

from heliograph.matching.boxes.box import Box, box, fits
from heliograph.model.predicates import Conjunction, Op


class Counting:
    """Predicates by attribute and operator, in order of their values; a conjunction matches when all of its count."""

    name = "counting"

    def __init__(self, conjunctions: list[Conjunction]) -> None:
        self._needs = [len(conjunction) for conjunction in conjunctions]
        unordered: dict[tuple[str, Op], list[tuple[Any, int]]] = {}
        for id, conjunction in enumerate(conjunctions):
            for predicate in conjunction:
                unordered.setdefault((predicate.attribute, predicate.op), []).append((predicate.value, id))
        self._tables: dict[str, list[tuple[Op, list[Any], list[int]]]] = {}
        for (attribute, op), pairs in unordered.items():
            pairs.sort()
            table = (op, [value for value, _ in pairs], [id for _, id in pairs])
            self._tables.setdefault(attribute, []).append(table)

    def match(self, event: dict[str, Any]) -> list[int]:
        held: Counter[int] = Counter()
        for attribute, value in event.items():
            for op, values, ids in self._tables.get(attribute, ()):
                held.update(ids[_holding(op, values, value)])
        return sorted(id for id, count in held.items() if count == self._needs[id])


def _holding(op: Op, values: list[Any], value: Any) -> slice:
    """Which of the predicates with this operator hold: those whose constants lie on the right side."""
    low, high = bisect_left(values, value), bisect_right(values, value)
    return {
        Op.EQUAL: slice(low, high),
        Op.ABOVE: slice(0, low),
        Op.AT_LEAST: slice(0, high),
        Op.BELOW: slice(high, None),
        Op.AT_MOST: slice(low, None),
    }[op]


class Linear:
    """One after another."""

    name = "linear"

    def __init__(self, conjunctions: list[Conjunction]) -> None:
        self._boxes: list[Box] = [wanted for one in conjunctions if (wanted := box(one)) is not None]

    def match(self, event: dict[str, Any]) -> list[int]:
        return [id for id, wanted in enumerate(self._boxes) if fits(wanted, event)]
