"""Workloads of match: subscriptions as columns of numbers, the conjunctions made of them, and their oracle.

In:    a size and a seed.
Out:   Five and Twenty: conjunctions by id, events, and the ids that an event must find, by comparing column by column.
State: the columns.
Not here: measuring (match.py), other ways to match (match_baselines.py).

The oracle reads the columns and nothing else: it shares no code with the index.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

import numpy as np

from heliograph.model.predicates import Conjunction, Op, Predicate

Event = dict[str, Any]
OPS = (Op.BELOW, Op.AT_MOST, Op.ABOVE, Op.AT_LEAST, Op.EQUAL)
COMPARE = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal)


class Workload(Protocol):
    """Subscriptions and events."""

    name: str
    says: str

    def conjunctions(self, first: int, end: int) -> list[Conjunction]:
        """The subscriptions from one id to before another."""
        ...

    def event(self, dice: random.Random) -> Event:
        """One event; it carries all attributes."""
        ...

    def matching(self, event: Event) -> list[int]:
        """The oracle."""
        ...

    def uncovered(self, dice: random.Random) -> Conjunction:
        """A query that no subscription, or hardly one, covers."""
        ...


class Five:
    """W5: five attributes with values 1 to 100; ``a`` and at least one other, one predicate each."""

    name = "W5"
    says = "5 attributes, values 1-100, `a` and at least one other, operators < <= > >= = alike"
    attributes = "abcde"

    def __init__(self, size: int, seed: int) -> None:
        dice = np.random.default_rng(seed)
        others = dice.integers(1, 16, size)
        self._ops = dice.integers(0, 5, (5, size), dtype=np.int8)
        for place in range(4):
            self._ops[place + 1][others >> place & 1 == 0] = -1
        self._values = dice.integers(1, 101, (5, size), dtype=np.int8)
        self._known = [[[Predicate(name, op, value) for value in range(101)] for op in OPS] for name in self.attributes]

    def conjunctions(self, first: int, end: int) -> list[Conjunction]:
        ops, values = self._ops[:, first:end].T.tolist(), self._values[:, first:end].T.tolist()
        return [
            tuple([known[op][value] for known, op, value in zip(self._known, *one, strict=True) if op >= 0])
            for one in zip(ops, values, strict=True)
        ]

    def event(self, dice: random.Random) -> Event:
        return {attribute: dice.randint(1, 100) for attribute in self.attributes}

    def matching(self, event: Event) -> list[int]:
        fits = np.ones(self._ops.shape[1], bool)
        for place, attribute in enumerate(self.attributes):
            ops, values = self._ops[place], self._values[place]
            for op, compare in enumerate(COMPARE):
                fits &= (ops != op) | compare(event[attribute], values)
        found: list[int] = np.flatnonzero(fits).tolist()
        return found

    def uncovered(self, dice: random.Random) -> Conjunction:
        return (Predicate(dice.choice("bcde"), Op.AT_LEAST, 1),)


class Twenty:
    """W20s: twenty attributes; narrow ranges on some of 16 numbers below a million, some of 4 categories."""

    name = "W20s"
    says = "20 attributes: ranges on 2-4 of 16 numbers of a domain of 1,000,000, and 1-2 of 4 categories of 12 kinds"
    numbers = tuple(f"n{place:02}" for place in range(16))
    categories = tuple(f"kind{place}" for place in range(4))
    kinds = tuple(f"category-{number:02}" for number in range(12))

    def __init__(self, size: int, seed: int) -> None:
        dice = np.random.default_rng(seed)
        named = _some_of(dice, size, 16, 2, 4)
        width = dice.integers(60_000, 320_000, (16, size), dtype=np.int32)
        self._low = (dice.random((16, size), dtype=np.float32) * (1_000_000 - width)).astype(np.int32)
        self._high = self._low + width
        self._low[~named] = -1
        self._kind = dice.integers(0, len(self.kinds), (4, size), dtype=np.int8)
        self._kind[~_some_of(dice, size, 4, 1, 2)] = -1

    def conjunctions(self, first: int, end: int) -> list[Conjunction]:
        columns = (self._low, self._high, self._kind)
        return [
            self._conjunction(*one) for one in zip(*(rows[:, first:end].T.tolist() for rows in columns), strict=True)
        ]

    def _conjunction(self, lows: list[int], highs: list[int], kinds: list[int]) -> Conjunction:
        found = []
        for name, low, high in zip(self.numbers, lows, highs, strict=True):
            if low >= 0:
                found.append(Predicate(name, Op.AT_LEAST, low))
                found.append(Predicate(name, Op.AT_MOST, high))
        for name, kind in zip(self.categories, kinds, strict=True):
            if kind >= 0:
                found.append(Predicate(name, Op.EQUAL, self.kinds[kind]))
        return tuple(found)

    def event(self, dice: random.Random) -> Event:
        numbers: Event = {name: dice.randrange(1_000_000) for name in self.numbers}
        return numbers | {name: dice.choice(self.kinds) for name in self.categories}

    def matching(self, event: Event) -> list[int]:
        fits = np.ones(self._low.shape[1], bool)
        for place, name in enumerate(self.numbers):
            low, high = self._low[place], self._high[place]
            fits &= (low < 0) | ((low <= event[name]) & (event[name] <= high))
        for place, name in enumerate(self.categories):
            kind = self._kind[place]
            fits &= (kind < 0) | (kind == self.kinds.index(event[name]))
        found: list[int] = np.flatnonzero(fits).tolist()
        return found

    def uncovered(self, dice: random.Random) -> Conjunction:
        names = dice.sample(self.numbers, 4)
        return tuple(
            predicate
            for name in names
            for predicate in (Predicate(name, Op.AT_LEAST, 1), Predicate(name, Op.AT_MOST, 999_999))
        )


def _some_of(dice: np.random.Generator, size: int, count: int, least: int, most: int) -> Any:
    """Which of ``count`` things each of ``size`` subscriptions names: from least to most of them."""
    order = np.argsort(dice.random((count, size), dtype=np.float32), axis=0).argsort(axis=0)
    return order < dice.integers(least, most + 1, size)
