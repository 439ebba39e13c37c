"""Inference: the layout that most payloads of a sample have.

In:    decoded JSON values.
Out:   a struct, or nothing if the sample says nothing.
State: none.
Not here: which payloads are sampled (pipeline/decode_option.py, decoded_tables.py).

A sample may contain anything, written by anybody. So a field gets the type of nearly all of its values (MAJORITY), and
the others do not fit; without such a majority it is ``json``. Depth and number of fields are bounded, the most frequent
fields first. What gets no column is not lost: it is among the other fields of its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from heliograph.pipeline.payloads.layouts import Layout, PayloadField, is_name, struct

SAMPLE_ROWS, SAMPLE_BYTES = 500, 1 << 16  # payloads of a sample, and how long each may be
MAJORITY = 0.9  # of the values of a field that are not null
COLUMNS_MAX = 256  # with those of nested objects
NESTED_MAX = 8
ITEMS_MAX = 100_000  # that are looked at, of the arrays of a field
BARE = "value"  # the field of a payload that is not an object
LONG_MAX = 1 << 63

_JSON = Layout("json")
_NUMBERS = ("bigint", "double")


def infer(values: Sequence[Any]) -> Layout | None:
    """The layout of payloads; None if they have no field with a value."""
    found = _object([as_object(value) for value in values], 0, [COLUMNS_MAX])
    return found if found is not None and found.fields else None


def as_object(value: Any) -> dict[str, Any]:
    """A payload as an object; any other value is its field ``value``."""
    return value if type(value) is dict else {BARE: value}


def _object(values: Sequence[dict[str, Any]], depth: int, left: list[int]) -> Layout | None:
    """``left``: how many more fields there may be."""
    counts = Counter(name for value in values for name, inner in value.items() if inner is not None and is_name(name))
    names: dict[str, str] = {}
    for name, _ in counts.most_common(COLUMNS_MAX):
        names.setdefault(PayloadField(name, _JSON).column.lower(), name)
    kept = list(names.values())[: left[0]]
    left[0] -= len(kept)
    order = {name: place for place, name in enumerate(dict.fromkeys(name for value in values for name in value))}
    fields = [
        PayloadField(name, _value([value[name] for value in values if value.get(name) is not None], depth, left))
        for name in sorted(kept, key=order.__getitem__)
    ]
    return struct(fields) if fields else None


def _value(values: Sequence[Any], depth: int, left: list[int]) -> Layout:
    kinds = Counter(map(_kind, values))
    if set(kinds) <= set(_NUMBERS):
        return Layout("double" if "double" in kinds else "bigint")
    numbers = sum(kinds.pop(kind, 0) for kind in _NUMBERS)
    kind, count = max([*kinds.items(), ("number", numbers)], key=lambda each: each[1])
    if count < MAJORITY * len(values) or kind == "json":
        return _JSON
    if kind == "number":
        return _value([value for value in values if _kind(value) in _NUMBERS], depth, left)
    if kind in ("boolean", "string"):
        return Layout(kind)
    if depth >= NESTED_MAX:
        return _JSON
    if kind == "object":
        return _object([value for value in values if type(value) is dict], depth + 1, left) or _JSON
    items = [item for value in values if type(value) is list for item in value[:ITEMS_MAX] if item is not None]
    return Layout("array", item=_value(items[:ITEMS_MAX], depth + 1, left) if items else _JSON)


def _kind(value: Any) -> str:
    if type(value) is int:
        return "bigint" if -LONG_MAX <= value < LONG_MAX else "json"
    return {bool: "boolean", float: "double", str: "string", dict: "object", list: "array"}.get(type(value), "json")
