"""Wishes: requests in a canonical form that equal requests share, and which wishes cover which.

In:    topic filters with conditions in any language.
Out:   Wish: its key (equal wishes have equal keys), its signatures, and the wish from a key; Coverers: the wishes of a
       group that cover one.
State: none; Coverers keeps the index of one group.
Not here: many texts at once (wish_texts.py), covering of many wishes (wish_groups.py), covering of two conditions
       (matching/).
Paper: [resources] §5.1.

A *signature* is what a wish must share with a wish that covers it: a wish can be covered only by one whose tokens are
a subset of its own. Tokens are the names of its attributes, and for an attribute with a single value, that value's
bucket.

A key has two parts. For a *plain* wish, which asks only for ranges of numbers and for single texts, these are its
*shape*, which is everything but the numbers, and its *bounds*: the start of each range, then the end of each, negated.
So a plain wish is a point, and it covers another one of its shape exactly if none of its coordinates is greater. Any
other wish is *odd*: its shape is the whole wish, and it has no bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from heliograph.errors import ConditionError
from heliograph.matching.boxes import engines
from heliograph.matching.boxes.box import Box, box
from heliograph.matching.boxes.keys import NUMBER, TEXT, Interval, after
from heliograph.matching.boxes.table import Engine
from heliograph.matching.filters import canonical
from heliograph.matching.languages import compile

BUCKETS = 64  # of one attribute's values in signatures
LEVELS = 4  # of signatures: with values, names only, only the filter, a bucket of filters
FILTER_BUCKETS = 256
WILD = ("+", "#")
NEVER = b""  # the key of a wish that no event can match
EXACT_MAX = 1 << 53
INFINITE = float("inf")
BOUND_BYTES = 8

_encode = msgspec.json.Encoder().encode
_decode_odd = msgspec.json.Decoder(tuple[str, list[tuple[str, int, Any, Any, list[Any]]], list[str]]).decode

Names = list[tuple[str, int | None]]
"""The attributes of a wish in order, each with the bucket of its value if it has a single one."""


class WishShape(NamedTuple):
    """What a plain wish is, apart from its numbers. Equal shapes have equal bytes."""

    filter: str
    numbers: tuple[str, ...]  # names of attributes with a range of numbers, in order
    texts: tuple[tuple[str, str], ...]  # attributes that are equal to a text, in order

    def encode(self) -> bytes:
        """As bytes; never with a zero byte."""
        return _encode(self)


read_shape = msgspec.json.Decoder(WishShape).decode


@dataclass(frozen=True, slots=True)
class Wish:
    """A topic filter, a box, and the terms that a box cannot express."""

    filter: bytes
    box: Box
    terms: frozenset[str]

    @property
    def key(self) -> bytes:
        """Equal for equal wishes only."""
        shape, bounds = self.parts
        return shape if bounds is None else shape + b"\0" + bounds

    @property
    def parts(self) -> tuple[bytes, bytes | None]:
        """Its shape and its bounds; None if it is odd."""
        bounds = self.bounds()
        if bounds is not None:
            return self.shape().encode(), struct.pack(f"<{len(bounds)}d", *bounds)
        values = [
            (name, held.zone, _plain(held.start), _plain(held.end), sorted(map(_plain, held.holes)))
            for name, held in sorted(self.box.items())
        ]
        return _encode((self.filter.decode(), values, sorted(self.terms))), None

    def shape(self) -> WishShape:
        """The shape of a plain wish."""
        held = sorted(self.box.items())
        numbers = tuple(name for name, each in held if each.zone == NUMBER)
        return WishShape(
            self.filter.decode(), numbers, tuple((name, each.start) for name, each in held if each.zone == TEXT)
        )

    def bounds(self) -> list[float] | None:
        """Starts and negated ends; None if it is odd."""
        if self.terms:
            return None
        starts, ends = [], []
        for _, held in sorted(self.box.items()):
            if held.holes or not (held.zone == NUMBER or (held.zone == TEXT and is_point(held))):
                return None
            if held.zone == NUMBER:
                start, end = float(held.start), INFINITE if held.end is None else float(held.end)
                if start != held.start or (held.end is not None and end != held.end):
                    return None  # a large integer that is no float
                starts.append(start + 0.0)
                ends.append(0.0 - end)  # never -0.0, whose bytes differ
        return starts + ends

    def names(self) -> Names:
        """Its attributes."""
        held = sorted(self.box.items())
        return [(name, bucket(each.start) if is_point(each) else None) for name, each in held]

    def tokens(self, level: int) -> tuple[str, ...]:
        """The tokens that a wish that covers this one may have."""
        return tokens(self.filter.decode(), self.names(), level)


def tokens(pattern: str, names: Names, level: int) -> tuple[str, ...]:
    """The tokens of a wish; the first is the filter, which is compared by covering.

    At the last level, if there are too many filters, it is empty: then filters are compared one by one.
    """
    if level == LEVELS - 1:
        return ("", *_filter_bucket(pattern))
    if level == LEVELS - 2:
        return (pattern,)
    found = []
    for name, value in names:
        found.append(name)
        if level == 0 and value is not None:
            found.append(f"{name}={value}")
    return (pattern, *found)


def signatures(pattern: str, names: Names) -> tuple[str, ...]:
    """The signature of a wish at each level."""
    return tuple("\n".join(tokens(pattern, names, level)) for level in range(LEVELS))


def bucket(value: Any) -> int:
    """The bucket of a single value."""
    return blake2b(repr(_plain(value)).encode(), digest_size=2).digest()[0] % BUCKETS


def read(pattern: str, language: str, where: str) -> Wish | None:
    """The wish of a request; None if no event can match it. ConditionError if the condition cannot be read."""
    if not where:
        return Wish(canonical(pattern.encode()), {}, frozenset())
    condition = compile(language or "predicates", where)
    values = box(condition.box)
    if values is None:
        return None
    terms = frozenset() if condition.residue is None else condition.residue.terms
    return Wish(canonical(pattern.encode()), values, terms)


def key_of(pattern: str, language: str, where: str) -> bytes | None:
    """The key of a request; NEVER if no event can match it, None if it cannot be read."""
    try:
        wish = read(pattern, language, where)
    except ConditionError:
        return None
    return NEVER if wish is None else wish.key


def from_key(key: bytes) -> Wish:
    """The wish with this key."""
    shape, plain, bounds = key.partition(b"\0")
    return from_parts(shape, bounds if plain else None)


def from_parts(shape: bytes, bounds: bytes | None) -> Wish:
    """The wish with this shape and these bounds."""
    if bounds is None:
        pattern, values, terms = _decode_odd(shape)
        held = {name: Interval(zone, start, end, frozenset(holes)) for name, zone, start, end, holes in values}
        return Wish(pattern.encode(), held, frozenset(terms))
    pattern, numbers, texts = read_shape(shape)
    ranges = struct.unpack(f"<{len(bounds) // BOUND_BYTES}d", bounds)
    held = {name: Interval(TEXT, value, after(TEXT, value)) for name, value in texts}
    for name, start, end in zip(numbers, ranges[: len(numbers)], ranges[len(numbers) :], strict=True):
        held[name] = Interval(NUMBER, start, None if end == -INFINITE else 0.0 - end)
    return Wish(pattern.encode(), held, frozenset())


def is_point(held: Interval) -> bool:
    """True if it contains a single value."""
    return held.zone in (NUMBER, TEXT) and held.end is not None and after(held.zone, held.start) == held.end


class Coverers:
    """The wishes of one group (one filter), by number. A wish covers itself."""

    __slots__ = ("_engine", "_terms")

    def __init__(self) -> None:
        self._engine: Engine = engines.large(engines.in_use())
        self._terms: dict[int, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._terms)

    def numbers(self) -> list[int]:
        """All of them, in order."""
        return sorted(self._terms)

    def add(self, number: int, wish: Wish) -> None:
        """Add a wish."""
        self._engine.put(number, wish.box, 0)
        self._terms[number] = wish.terms

    def remove(self, number: int) -> None:
        """Remove a wish."""
        self._engine.drop(number)
        del self._terms[number]

    def covering(self, wish: Wish) -> Iterator[int]:
        """The wishes that cover this one."""
        for number in memoryview(self._engine.coverers(wish.box)).cast("I"):
            if self._terms[number] <= wish.terms:
                yield number

    def covered(self, wish: Wish) -> list[int]:
        """The wishes that this one covers."""
        found = memoryview(self._engine.covered(wish.box)).cast("I")
        return [number for number in found if wish.terms <= self._terms[number]]


def maximal(wishes: Iterable[Wish]) -> list[int]:
    """The indexes of wishes that no other wish of the same filter covers. All wishes must be different.

    Wide ones should come first: a wish that is already covered costs one query.
    """
    by_filter: dict[bytes, Coverers] = {}
    for place, wish in enumerate(wishes):
        kept = by_filter.setdefault(wish.filter, Coverers())
        if next(kept.covering(wish), None) is not None:
            continue
        for narrow in kept.covered(wish):
            kept.remove(narrow)
        kept.add(place, wish)
    return sorted(number for kept in by_filter.values() for number in kept.numbers())


def _filter_bucket(pattern: str) -> tuple[str, ...]:
    """Filters that begin with a wildcard can cover any; all others only those with the same beginning."""
    first = pattern.split("/", 1)[0]
    return () if first in WILD else (f"{bucket(first) % FILTER_BUCKETS}",)


def _plain(value: Any) -> Any:
    """The same form for equal numbers."""
    if type(value) is float and value.is_integer() and abs(value) < EXACT_MAX:
        return int(value)
    return value
