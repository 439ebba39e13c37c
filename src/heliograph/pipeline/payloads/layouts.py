"""Layouts: the columns that payloads become, as data; read from and written as a list of columns in SQL's form.

In:    ``celsius double not null, place struct<room: string>, tags array<string>``.
Out:   Layout, PayloadField; the same text again; the Arrow types of the columns.
State: none.
Not here: which values fit (fitting.py), layouts of Avro and Protobuf schemas (avro.py, protobuf.py), layouts that are
       found in a sample (inference.py).

The types are those of Spark, and ``json``: any value, as JSON text. A schema may come from a stranger, so its text, its
depth and the number of its fields are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from heliograph.errors import UsageError

TEXT_BYTES_MAX = 1 << 20  # of a schema; that of a topic's description is smaller
FIELDS_MAX = 1_000  # with those of nested structs: each is a column of the Parquet files
DEPTH_MAX = 16  # of types in types
NAME_MAX = 128
DIGITS_MAX = 38  # of a decimal

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "json": pa.string(),
}
_SYNONYMS = {"integer": "int", "long": "bigint", "real": "float", "bool": "boolean", "text": "string", "dec": "decimal"}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s,:<>()`]+)|([,:<>()]))")
_UNFIT = re.compile(r"\W")  # in names of columns: Parquet, Delta and SQL have their own opinions of each other sign
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Layout:
    """A type of values."""

    kind: str
    fields: tuple[PayloadField, ...] = ()  # of a struct
    item: Layout | None = None  # of an array; of the values of a map, whose keys are strings
    precision: int = 0  # of a decimal
    scale: int = 0

    def arrow(self) -> pa.DataType:
        """Its type in Arrow."""
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "struct":
            return pa.struct([pa.field(each.column, each.layout.arrow()) for each in self.fields])
        if self.item is not None:
            inner = self.item.arrow()
            return pa.list_(inner) if self.kind == "array" else pa.map_(pa.string(), inner)
        return _SIMPLE[self.kind]

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return f"struct<{', '.join(each.text(': ') for each in self.fields)}>"
        if self.item is not None:
            return f"array<{self.item}>" if self.kind == "array" else f"map<string, {self.item}>"
        return self.kind


@dataclass(frozen=True, slots=True)
class PayloadField:
    """A named part of a struct; without ``needed`` it may be missing or null."""

    name: str
    layout: Layout
    needed: bool = False

    @property
    def column(self) -> str:
        """Its name as a column."""
        return column_name(self.name)

    def text(self, between: str = " ") -> str:
        """As it is written in a schema."""
        name = self.name if _PLAIN.match(self.name) else f"`{self.name.replace('`', '``')}`"
        return f"{name}{between}{self.layout}{' not null' if self.needed else ''}"


def column_name(name: str) -> str:
    """The name of its column: signs that are no letters or digits become ``_``."""
    return _UNFIT.sub("_", name)


def is_name(name: str) -> bool:
    """True if a field of this name can be a column."""
    return 0 < len(name) <= NAME_MAX and name.isprintable()


def struct(fields: Iterable[PayloadField]) -> Layout:
    """A struct of these fields. UsageError if two of them would be the same column, or a name cannot be one."""
    made = tuple(fields)
    seen: dict[str, str] = {}
    for each in made:
        if not is_name(each.name):
            raise UsageError(f"the schema: {each.name[:NAME_MAX]!r} is no name of a column (1 to {NAME_MAX} letters)")
        other = seen.setdefault(each.column.lower(), each.name)
        if other is not each.name:
            raise UsageError(f"the schema: the fields {other!r} and {each.name!r} would be the same column")
    return Layout("struct", made)


def checked(layout: Layout) -> Layout:
    """The same layout, of a size that tables can have. UsageError for others."""
    count, todo = 0, [(layout, 0)]
    while todo:
        each, depth = todo.pop()
        count += len(each.fields)
        if depth > DEPTH_MAX:
            raise UsageError(f"the schema: types are nested more than {DEPTH_MAX} deep")
        if count > FIELDS_MAX:
            raise UsageError(f"the schema: it has more than {FIELDS_MAX} fields")
        todo += [(field.layout, depth + 1) for field in each.fields]
        todo += [(each.item, depth + 1)] if each.item is not None else []
    return layout


def columns_text(layout: Layout) -> str:
    """The fields of a struct, as read_columns reads them."""
    return ", ".join(each.text() for each in layout.fields)


def read_columns(text: str) -> Layout:
    """The struct that a list of columns describes. UsageError, in one line, if it cannot be read."""
    if len(text) > TEXT_BYTES_MAX:
        raise UsageError(f"the schema: more than {TEXT_BYTES_MAX:,} letters")
    reading = _Reading(list(_tokens(text)))
    layout = struct(reading.fields("", 0))
    if reading.at < len(reading.tokens):
        raise UsageError(f"the schema: {reading.tokens[reading.at][0]!r} is not expected there")
    return checked(layout)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words and signs, each with whether it was quoted."""
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UsageError(f"the schema: {text[at : at + 20]!r} is not understood")
        quoted, word, sign = found.groups()
        yield (quoted.replace("``", "`"), True) if quoted is not None else (word or sign, False)
        at = found.end()


class _Reading:
    """Words of a schema, read from left to right."""

    def __init__(self, tokens: list[tuple[str, bool]]) -> None:
        self.tokens = tokens
        self.at = 0

    def fields(self, end: str, depth: int) -> Iterator[PayloadField]:
        while True:
            name = self._word("a name")
            self._skips(":")
            layout = self._type(depth)
            needed = self._skips("not")
            if needed and not self._skips("null"):
                raise UsageError("the schema: `not` is followed by `null`")
            yield PayloadField(name, layout, needed)
            if not self._skips(","):
                break
        if end:
            self._expect(end)

    def _type(self, depth: int) -> Layout:
        if depth > DEPTH_MAX:
            raise UsageError(f"the schema: types are nested more than {DEPTH_MAX} deep")
        word = self._word("a type").lower()
        kind = _SYNONYMS.get(word, word)
        if kind == "decimal":
            return self._decimal()
        if kind == "struct":
            self._expect("<")
            return struct(self.fields(">", depth + 1))
        if kind in ("array", "map"):
            self._expect("<")
            if kind == "map":
                if self._word("the type of keys").lower() != "string":
                    raise UsageError("the schema: the keys of a map are of the type string")
                self._expect(",")
            item = self._type(depth + 1)
            self._expect(">")
            return Layout(kind, item=item)
        if kind not in _SIMPLE:
            known = ", ".join([*_SIMPLE, "decimal(p,s), array<…>, map<string, …>, struct<name: …>"])
            raise UsageError(f"the schema: there is no type {word[:40]!r}; there are {known}")
        return Layout(kind)

    def _decimal(self) -> Layout:
        numbers = [10, 0]
        if self._skips("("):
            numbers = [self._number()]
            numbers.append(self._number() if self._skips(",") else 0)
            self._expect(")")
        precision, scale = numbers
        if not (1 <= precision <= DIGITS_MAX and scale <= precision):
            raise UsageError(f"the schema: decimal({precision},{scale}): 1 to {DIGITS_MAX} digits, scale not above")
        return Layout("decimal", precision=precision, scale=scale)

    def _number(self) -> int:
        word = self._word("a number")
        if not (word.isascii() and word.isdigit() and len(word) < 4):
            raise UsageError(f"the schema: {word[:40]!r} is not a number of digits")
        return int(word)

    def _word(self, what: str) -> str:
        word, is_quoted = self.tokens[self.at] if self.at < len(self.tokens) else ("", False)
        if not word or (word in ",:<>()" and not is_quoted):
            raise UsageError(f"the schema: {what} is missing {f'before {word!r}' if word else 'at its end'}")
        self.at += 1
        return word

    def _skips(self, word: str) -> bool:
        found, is_quoted = self.tokens[self.at] if self.at < len(self.tokens) else ("", True)
        if is_quoted or found.lower() != word:
            return False
        self.at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skips(sign):
            raise UsageError(f"the schema: {sign!r} is missing")
