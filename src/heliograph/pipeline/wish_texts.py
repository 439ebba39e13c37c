"""Reads the texts of many requests: nearly all are a few tests of numbers and single texts, joined by "and".

In:    topic filters with conditions in any language.
Out:   WishReader.read: the parts of each wish and its signatures, the same as those of ``wishes.read``.
State: tests and kinds of wishes that were read already, both bounded.
Not here: all other conditions: ``wishes.read`` reads them.

The quick way cuts a text at " and ", and reads each piece by one regular expression. A piece that does not fit (a word
of the language, a quote inside a text, a number that is no exact float, anything else) sends the whole text the long
way, so the quick way need not know what is an error. Both ways end with the same parts; a property compares them.
"""

from __future__ import annotations

import math
import re
import struct
from hashlib import blake2b
from typing import NamedTuple

from heliograph.errors import ConditionError
from heliograph.matching.boxes.keys import FLOAT_MAX
from heliograph.matching.filters import canonical
from heliograph.matching.languages.lexer import NAME_CHARACTERS_MAX
from heliograph.matching.languages.ranges import WORDS
from heliograph.pipeline.wishes import (
    EXACT_MAX,
    INFINITE,
    LEVELS,
    NEVER,
    Names,
    Wish,
    WishShape,
    bucket,
    read,
    signatures,
)

QUICK_CHARACTERS_MAX = 2_048  # its canonical form is at most 2.5 times as long: below what a condition may have
NUMBER_CHARACTERS_MAX = 30  # the lexer refuses longer integers
KEPT_MAX = 65_536  # tests, and kinds of wishes
ID_BYTES = 8
EXACT = float(EXACT_MAX)  # floats are compared with a float ten times as fast as with an integer

_TEST = re.compile(
    r"""\s* ([^\W\d][\w.$]*) \s* (<=|>=|[=<>]) \s*
    (?: ([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?) | '([^'\ud800-\udfff]*)' ) \s*""",
    re.VERBOSE,
)

Mark = str | tuple[str, int | str]
"""An attribute: a name with a range of numbers, or a name with a text, or with the bucket of a single number."""


class Test(NamedTuple):
    """One test: the range of numbers, from a start to a negated end, or a text if there is no end."""

    name: str
    mark: Mark
    start: float | str
    end: float | None


class WishKind:
    """What wishes with equal signatures and shapes have in common."""

    __slots__ = ("numbers", "packed", "shape", "signatures")

    def __init__(self, shape: bytes | None, signatures: tuple[str, ...], numbers: int = 0) -> None:
        self.shape = shape  # None if the text cannot be read
        self.signatures = signatures
        self.numbers = tuple(map(signature_number, signatures))
        self.packed = struct.Struct(f"<{2 * numbers}d")


def signature_number(signature: str) -> int:
    """The number of a signature."""
    return int.from_bytes(blake2b(signature.encode(), digest_size=ID_BYTES).digest(), "big", signed=True)


UNREADABLE = WishKind(None, ("",) * LEVELS)
IMPOSSIBLE = WishKind(NEVER, ("",) * LEVELS)
Read = tuple[WishKind, bytes | None]
"""A wish: its kind and its bounds; None if it is odd, or none at all."""


class WishReader:
    """Reads requests, one after the other."""

    __slots__ = ("_kinds", "_tests")

    def __init__(self) -> None:
        self._tests = _Tests()
        self._kinds: dict[tuple[Mark, ...], WishKind] = {}

    def read(self, pattern: str, language: str, where: str) -> Read:
        """The wish of a request."""
        if where and len(where) <= QUICK_CHARACTERS_MAX and language in ("", "predicates"):
            found = self._quickly(pattern, where)
            if found is not None:
                return found
        try:
            wish = read(pattern, language, where)
        except ConditionError:
            return UNREADABLE, None
        return (IMPOSSIBLE, None) if wish is None else self._parts(wish)

    def _quickly(self, pattern: str, where: str) -> Read | None:
        found: dict[str, Test] = {}
        is_possible = True
        for piece in where.split(" and "):
            test = self._tests[piece]
            if test is None:
                return None
            if test.name in found:
                both = _meet(found[test.name], test)
                is_possible = is_possible and both is not None
                test = both or test
            found[test.name] = test
        if not is_possible:
            return IMPOSSIBLE, None
        marks: list[Mark] = [pattern]
        starts, ends = [], []
        for name in sorted(found):
            _, mark, start, end = found[name]
            marks.append(mark)
            if end is not None:
                starts.append(start)
                ends.append(end)
        kind = self._kind(tuple(marks))
        return kind, kind.packed.pack(*starts, *ends)

    def _parts(self, wish: Wish) -> Read:
        bounds = wish.bounds()
        pattern, names = wish.filter.decode(), wish.names()
        if bounds is None:
            return WishKind(wish.parts[0], signatures(pattern, names)), None
        texts = dict(wish.shape().texts)
        marks = [(name, texts[name]) if name in texts else name if of is None else (name, of) for name, of in names]
        kind = self._kind((pattern, *marks))
        return kind, kind.packed.pack(*bounds)

    def _kind(self, marks: tuple[Mark, ...]) -> WishKind:
        found = self._kinds.get(marks)
        if found is None:
            if len(self._kinds) >= KEPT_MAX:
                self._kinds.clear()
            found = self._kinds[marks] = _kind(str(marks[0]), marks[1:])
        return found


class _Tests(dict[str, Test | None]):
    """Pieces of texts and what they mean; None if it is not a test that is read quickly."""

    def __missing__(self, piece: str) -> Test | None:
        if len(self) >= KEPT_MAX:
            self.clear()
        found = self[piece] = _test(piece)
        return found


def _test(piece: str) -> Test | None:
    match = _TEST.fullmatch(piece)
    if match is None:
        return None
    name, sign, number, text = match.groups()
    if name.lower() in WORDS or len(name) > NAME_CHARACTERS_MAX:
        return None
    if number is None:
        return Test(name, (name, text), text, None) if sign == "=" else None
    value = float(number) + 0.0
    if not -EXACT < value < EXACT or len(number) > NUMBER_CHARACTERS_MAX:
        return None
    following = math.nextafter(value, INFINITE) + 0.0
    if sign == "=":
        return Test(name, (name, bucket(value)), value, 0.0 - following)
    if sign[0] == ">":
        return Test(name, name, value if sign == ">=" else following, -INFINITE)
    return Test(name, name, -FLOAT_MAX, 0.0 - (value if sign == "<" else following))


def _meet(one: Test, other: Test) -> Test | None:
    """Both tests of one attribute; None if no value passes both."""
    name = one.name
    if one.end is None or other.end is None:
        return one if one == other else None
    start, end = max(one.start, other.start), max(one.end, other.end)
    assert isinstance(start, float)
    if start >= -end:
        return None
    is_single = math.nextafter(start, INFINITE) == -end
    return Test(name, (name, bucket(start)) if is_single else name, start, end)


def _kind(pattern: str, marks: tuple[Mark, ...]) -> WishKind:
    pattern = canonical(pattern.encode()).decode()
    numbers = tuple(mark if isinstance(mark, str) else mark[0] for mark in marks if not _is_text(mark))
    texts = tuple((mark[0], str(mark[1])) for mark in marks if _is_text(mark))
    names: Names = [(mark, None) if isinstance(mark, str) else (mark[0], _bucket(mark[1])) for mark in marks]
    return WishKind(WishShape(pattern, numbers, texts).encode(), signatures(pattern, names), len(numbers))


def _is_text(mark: Mark) -> bool:
    return not isinstance(mark, str) and isinstance(mark[1], str)


def _bucket(value: int | str) -> int:
    return bucket(value) if isinstance(value, str) else value
