"""Matches many events with many boxes at once: the batch form of the box index.

In:    boxes, each under its place in a list; the attributes of many events, by column.
Out:   BatchIndex.match: pairs (event, box), exact, in order of events.
State: per attribute a ruler and one row of bits per bucket; immutable. Needs numpy.
Not here: boxes that come and go (index.py), conditions that no box can express and topics (matching/bulk.py).

The layout is that of chunk.py: a set bit in a row means that a box is *out* if an event's value falls into this bucket.
Here the values of a whole column become buckets in one step, and the rows of many events are OR-ed in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from heliograph.matching.boxes.box import Box
from heliograph.matching.boxes.keys import FLOAT_MAX, NUMBER, Interval
from heliograph.matching.boxes.ruler import ABSENT, FIRST, ODD, Ruler

ROWS_BYTES_MAX = 64 << 20  # of one attribute
CUTS_MAX, CUTS_MIN = 2_048, 64
SLICE_WORDS = 1 << 18  # of bits for the events handled at once: they stay in the cache
EXACT_MAX = float(1 << 53)  # up to here a float represents every integer exactly

Pairs = tuple[Any, Any]
"""Two arrays of equal length: events and boxes."""


class EventColumn(Protocol):
    """The values of one attribute, one per event; None if an event lacks it."""

    def __len__(self) -> int: ...

    def buckets(self, ruler: Ruler) -> Any:
        """The bucket of each value, as an array."""
        ...

    def value(self, event: int) -> object:
        """One value."""
        ...

    def floats(self) -> tuple[Any, Any] | None:
        """The values as floats, and which of them are exactly that; None if the column has no numbers."""
        ...


class ValueColumn:
    """A column of any values."""

    __slots__ = ("_floats", "_values")

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values
        self._floats: tuple[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self._values)

    def buckets(self, ruler: Ruler) -> Any:
        """Uses the ruler once for each different value of each type."""
        known: dict[tuple[type, object], int] = {}
        found = np.zeros(len(self._values), np.int64)
        for event, value in enumerate(self._values):
            if value is None:
                continue
            try:
                key = (type(value), value)
                bucket = known.get(key)
                if bucket is None:
                    bucket = known[key] = ruler.bucket(value)
            except TypeError:  # a list or a dict: only tests for presence hold
                bucket = ODD
            found[event] = bucket
        return found

    def value(self, event: int) -> object:
        """One value."""
        return self._values[event]

    def floats(self) -> tuple[Any, Any] | None:
        """Computed once."""
        if self._floats is None:
            exact = np.array([_is_exact(value) for value in self._values], bool)
            found = [float(value) if known else 0.0 for value, known in zip(self._values, exact, strict=True)]  # type: ignore[arg-type]
            self._floats = np.array(found, np.float64), exact
        return self._floats


class NumberColumn:
    """A column of floats or 64-bit integers; ``present`` is False if an event lacks it."""

    __slots__ = ("_present", "_values")

    def __init__(self, values: Any, present: Any) -> None:
        self._values = values
        self._present = present

    def __len__(self) -> int:
        return len(self._values)

    def buckets(self, ruler: Ruler) -> Any:
        """All at once, if floats represent the values exactly."""
        cuts = np.array([float(cut) for cut in ruler.numbers])
        exact = all(float(cut) == cut for cut in ruler.numbers)
        values = self._values
        if not exact or (values.dtype.kind != "f" and len(values) and np.abs(values).max(initial=0) >= EXACT_MAX):
            return ValueColumn([self.value(event) for event in range(len(values))]).buckets(ruler)
        found = FIRST + np.searchsorted(cuts, values.astype(np.float64), side="right")
        if values.dtype.kind == "f":
            found[~(np.abs(values) <= FLOAT_MAX)] = ODD  # infinities and NaN
        found[~self._present] = ABSENT
        return found

    def value(self, event: int) -> object:
        """One value."""
        return self._values[event].item() if self._present[event] else None

    def floats(self) -> tuple[Any, Any] | None:
        """All of them, except large integers."""
        values = self._values
        if values.dtype.kind == "f":
            return values.astype(np.float64), self._present
        return values.astype(np.float64), self._present & (values < EXACT_MAX) & (values > -EXACT_MAX)


class WordColumn:
    """A column of strings with few different ones: codes, and the string of each code; a code below 0 is absent."""

    __slots__ = ("_codes", "_words")

    def __init__(self, codes: Any, words: Sequence[object]) -> None:
        self._codes = codes
        self._words = words

    def __len__(self) -> int:
        return len(self._codes)

    def buckets(self, ruler: Ruler) -> Any:
        """Uses the ruler once for each different string."""
        known = np.array([*map(ruler.bucket, self._words), ABSENT])
        return known[self._codes]

    def value(self, event: int) -> object:
        """One value."""
        code = self._codes[event]
        return self._words[code] if code >= 0 else None

    def floats(self) -> tuple[Any, Any] | None:
        """None: these are strings."""
        return None


class _NumberBounds:
    """The bounds of boxes in one attribute as floats, if these are exact: then many are compared at once."""

    __slots__ = ("ends", "plain", "starts")

    def __init__(self, boxes: int, stored: Mapping[int, Interval]) -> None:
        self.plain = np.zeros(boxes, bool)
        self.starts, self.ends = np.zeros(boxes), np.zeros(boxes)
        for place, held in stored.items():
            is_bound = held.end is None or _is_exact(held.end)
            if held.zone == NUMBER and not held.holes and _is_exact(held.start) and is_bound:
                self.plain[place] = True
                self.starts[place], self.ends[place] = held.start, np.inf if held.end is None else held.end

    def wrong(self, column: EventColumn, events: Any, places: Any) -> tuple[Any, Any]:
        """Of these pairs: which do not match, and which are not decided here."""
        given = column.floats()
        if given is None:
            return np.zeros(len(places), bool), np.ones(len(places), bool)
        floats, exact = given
        decided = self.plain[places] & exact[events]
        values = floats[events]
        return decided & ((values < self.starts[places]) | (values >= self.ends[places])), ~decided


class BatchIndex:
    """Boxes by their places; a place with None is never matched."""

    def __init__(self, boxes: Sequence[Box | None]) -> None:
        self._boxes = boxes
        self._words = max(1, -(-len(boxes) // 64))
        self._never = _bits([box is None for box in boxes], self._words, fill=True)
        named: dict[str, dict[int, Interval]] = {}
        for place, box in enumerate(boxes):
            for attribute, values in (box or {}).items():
                named.setdefault(attribute, {})[place] = values
        self._rulers: dict[str, Ruler] = {}
        self._rows: dict[str, Any] = {}
        self._unsure: dict[str, Any] = {}  # attribute -> places of boxes that its rows do not decide
        self._bounds: dict[str, _NumberBounds] = {}  # for the same attributes
        cuts_max = max(CUTS_MIN, min(CUTS_MAX, ROWS_BYTES_MAX // (8 * self._words)))
        for attribute, stored in named.items():
            self._add(attribute, stored, cuts_max)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that boxes name; others need not be given."""
        return tuple(self._rows)

    def match(self, columns: Mapping[str, EventColumn], count: int) -> Pairs:
        """The pairs for ``count`` events. An attribute without a column is absent from all events."""
        buckets = {
            name: columns[name].buckets(ruler) if name in columns else np.zeros(count, np.int64)
            for name, ruler in self._rulers.items()
        }
        step = max(1, SLICE_WORDS // self._words)
        parts = [self._slice(buckets, start, min(start + step, count)) for start in range(0, count, step)]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        events, places = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        return self._sure(columns, events, places)

    def _add(self, attribute: str, stored: dict[int, Interval], cuts_max: int) -> None:
        ruler = Ruler()
        exact = ruler.settle(stored.values(), cuts_max)
        places = np.fromiter(stored, np.int64, len(stored))
        spans = np.array([ruler.span(values) for values in stored.values()])
        rows = np.zeros((len(ruler), self._words), np.uint64)
        out = np.zeros(len(self._boxes), bool)
        for bucket in range(len(ruler)):
            out[places] = (spans[:, 0] > bucket) | (spans[:, 1] < bucket)
            rows[bucket] = _bits(out, self._words)
        self._rulers[attribute], self._rows[attribute] = ruler, rows
        doubtful = np.zeros(len(self._boxes), bool)
        doubtful[places] = [bool(held.holes or (not exact and ruler.missing(held))) for held in stored.values()]
        if doubtful.any():
            self._unsure[attribute] = doubtful
            self._bounds[attribute] = _NumberBounds(len(self._boxes), stored)

    def _slice(self, buckets: Mapping[str, Any], start: int, end: int) -> Pairs:
        out = np.repeat(self._never[None, :], end - start, axis=0)
        for name, rows in self._rows.items():
            out |= rows[buckets[name][start:end]]
        left = ~out
        events, words = np.nonzero(left)
        bits = np.unpackbits(left[events, words].astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        which, bit = np.nonzero(bits)
        return start + events[which], words[which] * 64 + bit

    def _sure(self, columns: Mapping[str, EventColumn], events: Any, places: Any) -> Pairs:
        """Remove pairs that the rows could not decide and that do not match."""
        for attribute, doubtful in self._unsure.items():
            asked = np.flatnonzero(doubtful[places])
            if not len(asked):
                continue
            column = columns[attribute]
            wrong, open_ = self._bounds[attribute].wrong(column, events[asked], places[asked])
            for number in np.flatnonzero(open_).tolist():
                pair = asked[number]
                wrong[number] = not self._boxes[places[pair]][attribute].has(column.value(events[pair]))
            if wrong.any():
                events, places = np.delete(events, asked[wrong]), np.delete(places, asked[wrong])
        return events, places


def _is_exact(value: object) -> bool:
    """True for a number that a float represents exactly."""
    kind = type(value)
    if kind is float:
        return -FLOAT_MAX <= value <= FLOAT_MAX  # type: ignore[operator]
    return kind is int and -EXACT_MAX < value < EXACT_MAX  # type: ignore[operator]


def _bits(flags: Any, words: int, fill: bool = False) -> Any:
    """Flags as words of bits; bits beyond the flags are set to ``fill``."""
    whole = np.full(words * 64, fill)
    whole[: len(flags)] = flags
    return np.packbits(whole, bitorder="little").view("<u8")
