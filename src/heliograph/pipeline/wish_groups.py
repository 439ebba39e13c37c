"""Covering of many wishes in one task: numbers as arrays, whatever does not fit into arrays by the brokers' index.

In:    tables of wishes: id, shape, bounds, signature, and what the caller keeps beside them.
Out:   WishTable: its groups, each of one signature and one filter; link(): which of some groups cover which wishes.
State: the codes of texts in one task.
Not here: what a wish is (wishes.py), comparing points (points.py), steps on Spark (requests.py).

Within a group, plain wishes with the same attributes are points, two coordinates for each attribute. A text is two
coordinates too: its code and the negated code, so that only the same text is below it. A wish that lacks an attribute
of another one is below it in the coordinates of that attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from heliograph.model.topics import covers as filter_covers
from heliograph.pipeline.points import Array, Below, below, minimal
from heliograph.pipeline.wishes import BOUND_BYTES, INFINITE, Coverers, Wish, from_parts, maximal, read_shape

Attribute = tuple[str, bool]
"""A name, and whether it has a text."""
SMALL = 256  # wishes: comparing each with each is quicker than finding the wide ones first
UNKNOWN = -1.0  # the code of a text that no other wish has


class Codes:
    """The codes of texts: equal texts have equal codes."""

    __slots__ = ("_codes", "_is_open")

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self._is_open = True

    def close(self) -> None:
        """From now on new texts are unknown: nothing that was coded equals them."""
        self._is_open = False

    def of(self, text: str) -> float:
        """The code of a text."""
        if self._is_open:
            return self._codes.setdefault(text, float(len(self._codes)))
        return self._codes.get(text, UNKNOWN)


class WishGroup:
    """Wishes with one signature, one filter, and the same attributes; or odd ones with one signature and filter."""

    __slots__ = ("_engine", "attributes", "filter", "points", "rows", "signature", "table")

    def __init__(self, table: WishTable, signature: int, filter: bytes, rows: Array) -> None:
        self.table = table
        self.signature = signature
        self.filter = filter
        self.rows = rows  # of the table
        self.attributes: tuple[Attribute, ...] = ()
        self.points: Array | None = None  # None if they are odd
        self._engine: Coverers | None = None

    def part(self, places: Array) -> WishGroup:
        """Some of them."""
        found = WishGroup(self.table, self.signature, self.filter, self.rows[places])
        found.attributes = self.attributes
        found.points = None if self.points is None else self.points[places]
        return found

    def widest(self) -> WishGroup:
        """Those that no other one of them covers, if they are plain."""
        return self if self.points is None else self.part(minimal(self.points))

    def engine(self) -> Coverers:
        """The index of these wishes, each under its row."""
        if self._engine is None:
            self._engine = Coverers()
            for row, wish in self.wishes():
                self._engine.add(row, wish)
        return self._engine

    def wishes(self) -> Iterator[tuple[int, Wish]]:
        """Each row with its wish."""
        for row in self.rows.tolist():
            yield row, self.table.wish(row)

    def points_with(self, attributes: tuple[Attribute, ...]) -> Array:
        """The points, in the coordinates of a group with more attributes."""
        assert self.points is not None
        if attributes == self.attributes:
            return self.points
        found = np.full((len(self.rows), 2 * len(attributes)), -INFINITE)
        for number, attribute in enumerate(self.attributes):
            column = attributes.index(attribute)
            found[:, column] = self.points[:, number]
            found[:, column + len(attributes)] = self.points[:, number + len(self.attributes)]
        return found


class WishTable:
    """Wishes of one task, by columns."""

    __slots__ = ("_bounds", "_places", "_shape", "_shapes", "codes", "columns", "rows", "signature")

    def __init__(self, table: pa.Table, codes: Codes) -> None:
        self.rows = table.num_rows
        self.codes = codes
        self.columns: Mapping[str, Array] = {
            name: table.column(name).to_numpy() for name in table.column_names if name not in ("shape", "bounds")
        }
        self.signature = self.columns["signature"]
        shapes = table.column("shape").combine_chunks().dictionary_encode()
        shapes = shapes.combine_chunks() if isinstance(shapes, pa.ChunkedArray) else shapes
        self._shapes: list[bytes] = shapes.dictionary.to_pylist()
        self._shape = shapes.indices.to_numpy()
        self._bounds, self._places = _floats(table.column("bounds"))

    def wish(self, row: int) -> Wish:
        """One of them."""
        return from_parts(self._shapes[self._shape[row]], self._bytes(row))

    def groups(self) -> dict[int, list[WishGroup]]:
        """All of them, by signature."""
        forms, texts = self._forms()
        keys = np.stack([self.signature, forms.kind[self._shape]]) if self.rows else np.zeros((2, 0), np.int64)
        order = np.lexsort(keys[::-1])
        changes = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0).nonzero()[0] + 1
        found: dict[int, list[WishGroup]] = {}
        for rows in np.split(order, changes) if self.rows else ():
            pattern, attributes = forms.kinds[keys[1, rows[0]]]
            group = WishGroup(self, int(keys[0, rows[0]]), pattern, rows)
            if attributes is not None:
                group.attributes = attributes
                group.points = self._points(rows, attributes, texts)
            found.setdefault(group.signature, []).append(group)
        return found

    def _forms(self) -> tuple[_Forms, list[list[float]]]:
        """The kind of each shape: its filter and attributes; and the codes of its texts."""
        kinds: dict[tuple[bytes, tuple[Attribute, ...] | None], int] = {}
        is_odd = np.zeros(len(self._shapes), bool)
        is_odd[self._shape[self._places[:, 1] < 0]] = True
        kind, texts = np.zeros(len(self._shapes), np.int64), []
        for number, (shape, odd) in enumerate(zip(self._shapes, is_odd.tolist(), strict=True)):
            key: tuple[bytes, tuple[Attribute, ...] | None] = b"", None
            codes: list[float] = []
            if odd:
                key = from_parts(shape, None).filter, None
            else:
                pattern, numbers, held = read_shape(shape)
                codes = [self.codes.of(text) for _, text in held]
                attributes = (*((name, False) for name in numbers), *((name, True) for name, _ in held))
                key = (pattern.encode(), attributes)
            kind[number] = kinds.setdefault(key, len(kinds))
            texts.append(codes)
        return _Forms(list(kinds), kind), texts

    def _points(self, rows: Array, attributes: tuple[Attribute, ...], texts: list[list[float]]) -> Array:
        count = sum(not is_text for _, is_text in attributes)
        bounds = self._bounds[self._places[rows, 0][:, None] + np.arange(2 * count)]
        if count == len(attributes):
            return bounds
        used, which = np.unique(self._shape[rows], return_inverse=True)
        codes = np.array([texts[shape] for shape in used.tolist()])[which]
        return np.hstack([bounds[:, :count], codes, bounds[:, count:], -codes])

    def _bytes(self, row: int) -> bytes | None:
        start, length = self._places[row].tolist()
        return None if length < 0 else bytes(self._bounds[start : start + length].tobytes())


class _Forms:
    """Kinds of shapes by number, and the kind of each shape."""

    __slots__ = ("kind", "kinds")

    def __init__(self, kinds: list[tuple[bytes, tuple[Attribute, ...] | None]], kind: Array) -> None:
        self.kinds = kinds
        self.kind = kind


def widest(groups: list[WishGroup]) -> list[WishGroup]:
    """Groups of one signature without most of the wishes that others of them cover; small groups remain as they are."""
    kept = [group if len(group.rows) <= SMALL else group.widest() for group in groups]
    odd = dict.fromkeys(group.filter for group in kept if group.points is None)
    found = [group for group in kept if group.filter not in odd]
    for pattern in odd:
        found += _widest_by_index([group for group in kept if group.filter == pattern])
    return found


def _widest_by_index(groups: list[WishGroup]) -> list[WishGroup]:
    wishes = [
        (number, place, wish) for number, group in enumerate(groups) for place, (_, wish) in enumerate(group.wishes())
    ]
    wishes.sort(key=lambda each: (len(each[2].box), len(each[2].terms)))
    places: list[list[int]] = [[] for _ in groups]
    for kept in maximal(wish for _, _, wish in wishes):
        number, place, _ = wishes[kept]
        places[number].append(place)
    return [group.part(np.array(sorted(some), np.int64)) for group, some in zip(groups, places, strict=True) if some]


def link(wide: list[WishGroup], narrow: WishGroup) -> Below:
    """For each wish of a group, the rows of the wide wishes that cover it."""
    wide = [group for group in wide if group.filter == narrow.filter or filter_covers(group.filter, narrow.filter)]
    if narrow.points is None:
        return _link_by_index(wide, narrow)
    asked = set(narrow.attributes)
    plain = [group for group in wide if group.points is not None and asked.issuperset(group.attributes)]
    odd = [group for group in wide if group.points is None]
    found = _link_points(plain, narrow)
    return _both(found, _link_by_index(odd, narrow)) if odd else found


def _link_points(wide: list[WishGroup], narrow: WishGroup) -> Below:
    if not wide:
        return _nothing(len(narrow.rows))
    rows = np.concatenate([group.rows for group in wide])
    found = below(np.concatenate([group.points_with(narrow.attributes) for group in wide]), narrow.points)
    first = np.where(found.count > 0, rows[found.first], -1)
    return Below(first, found.count, (rows[found.links[0]], rows[found.links[1]]))


def _link_by_index(wide: list[WishGroup], narrow: WishGroup) -> Below:
    first, count, _ = _nothing(len(narrow.rows))
    ones: list[int] = []
    others: list[int] = []
    for place, (_, wish) in enumerate(narrow.wishes()):
        rows = [row for group in wide for row in group.engine().covering(wish)]
        if rows:
            first[place], count[place] = rows[0], len(rows)
            ones += rows[:-1]
            others += rows[1:]
    return Below(first, count, (np.array(ones, np.int64), np.array(others, np.int64)))


def _both(one: Below, other: Below) -> Below:
    first = np.where(one.first < 0, other.first, one.first)
    met = (one.first >= 0) & (other.first >= 0)
    pairs = ((one.links[0], other.links[0], one.first[met]), (one.links[1], other.links[1], other.first[met]))
    return Below(first, one.count + other.count, (np.concatenate(pairs[0]), np.concatenate(pairs[1])))


def _nothing(size: int) -> Below:
    none = np.zeros(0, np.int64)
    return Below(np.full(size, -1, np.int64), np.zeros(size, np.int64), (none, none))


def _floats(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """All bounds in one array; for each row, where its own begin and how many they are, -1 if it has none."""
    column = column.cast(pa.large_binary())
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.large_binary())
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(0), np.zeros((0, 2), np.int64)
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    lengths = np.where(array.is_null().to_numpy(zero_copy_only=False), -1, np.diff(ends) // BOUND_BYTES)
    base = int(ends[0])
    size = int(ends[-1]) - base
    floats = np.frombuffer(data, np.float64, size // BOUND_BYTES, base) if size else np.zeros(0)
    return floats, np.stack([(ends[:-1] - base) // BOUND_BYTES, lengths], axis=1)
