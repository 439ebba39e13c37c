"""Rows: converts frames of publications to columns, many at a time.

In:    whole EVENT frames, one after the other, with the position of each.
Out:   Arrow record batches in the columns of the source.
State: none.
Not here: decoding frames (wire/events.py), Spark's side of the source (source.py).

Columns have the names of Spark's Kafka source if they mean the same. All work is done on whole columns, whose buffers
are filled by a compiled scan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.wire.events import Want, read_events

_TIME = pa.timestamp("us", tz="UTC")
FLOAT_MAX = sys.float_info.max
UNKNOWN = -(1 << 62)  # a time of storing that the store did not tell

COLUMNS: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "value": pa.binary(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "store": pa.string(),
    "origin": pa.string(),
    "sequence": pa.int64(),
    "synchronised": pa.bool_(),
    "stored": _TIME,
    "headers": pa.string(),
}
TYPES = {"double": pa.float64(), "long": pa.int64(), "bigint": pa.int64(), "int": pa.int32(), "string": pa.string(),
         "boolean": pa.bool_()}  # fmt: skip

_TWICE = "there would be two columns {!r}: leave one out of the options columns and attributes"

_headers = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def own_headers(text: str | None) -> dict[str, Any]:
    """The publisher's headers, without those that brokers added. What is no JSON object counts as no headers."""
    try:
        read = _headers(text) if text else {}
    except _UNREADABLE:
        return {}
    return {name: value for name, value in read.items() if name[:1] != "$"}


def parse_attributes(text: str) -> dict[str, pa.DataType]:
    """``disk double, system string`` as names and types."""
    found: dict[str, pa.DataType] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, word = part.rpartition(" ")
        if word not in TYPES or not name.strip():
            raise UsageError(f"attributes: {part!r} is not a name and one of {', '.join(TYPES)}")
        name = name.strip(" `")
        if name in found:
            raise UsageError(_TWICE.format(name))
        found[name] = TYPES[word]
    return found


def schema_of(columns: Sequence[str], attributes: dict[str, pa.DataType]) -> pa.Schema:
    """The schema of the rows: these columns, then the attributes."""
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"columns: there is no {name!r}; there are {', '.join(COLUMNS)}")
    names = [*columns, *attributes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(_TWICE.format(twice))
    return pa.schema([*((name, COLUMNS[name]) for name in columns), *attributes.items()])


def to_batch(
    store: str,
    data: Sequence[bytes],
    positions: Sequence[Sequence[int]],
    columns: Sequence[str],
    attributes: dict[str, pa.DataType] | None = None,
    partition: int = 0,
    taken: Sequence[tuple[int, int]] = (),
) -> pa.RecordBatch:
    """The publications of some runs as rows: their frames, and the position of each publication.

    ``taken``: when they were stored, by ascending positions.
    """
    attributes = attributes or {}
    offsets = _offsets(positions)
    schema = schema_of(columns, attributes)
    wanted = _wanted(columns, bool(attributes))
    read = read_events(data, wanted)
    count = read.rows
    if count != len(offsets):
        raise ProtocolError(Reason.FRAME_TOO_SHORT, f"{count} publications with {len(offsets)} positions")
    headers = _texts(count, read.header_ends, read.headers) if wanted & Want.HEADERS else None
    makers: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: _texts(count, read.topic_ends, read.topics),
        "value": lambda: pa.Array.from_buffers(pa.binary(), count, _buffers(None, read.payload_ends, read.payloads)),
        "headers": lambda: headers,
        "timestamp": lambda: pa.Array.from_buffers(_TIME, count, _buffers(read.stamped, read.stamps)),
        "synchronised": lambda: pa.Array.from_buffers(pa.bool_(), count, _buffers(None, read.synchronised)),
        "origin": lambda: _equal_texts(count, 16, read.origins),
        "sequence": lambda: pa.Array.from_buffers(pa.int64(), count, _buffers(None, read.sequences)),
        "offset": lambda: pa.array(offsets),
        "partition": lambda: pa.array(np.full(count, partition, np.int32)),
        "store": lambda: _equal_texts(count, len(store.encode()), store.encode() * count),
        "stored": lambda: _stored(offsets, taken),
    }
    arrays = [makers[name]() for name in columns] + _attributes(headers, attributes)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _offsets(positions: Sequence[Sequence[int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    parts = [
        np.arange(some.start, some.stop, dtype=np.int64) if isinstance(some, range) else np.asarray(some, np.int64)
        for some in positions
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _stored(positions: np.ndarray[Any, np.dtype[np.int64]], taken: Sequence[tuple[int, int]]) -> pa.Array:
    """When publications were stored: each time holds from its position to the next; null if that is unknown."""
    if not taken:
        return pa.nulls(len(positions), _TIME)
    known = np.array(taken, np.int64)
    places = np.searchsorted(known[:, 0], positions, side="right") - 1
    times = known[np.maximum(places, 0), 1]
    return pa.array(times, pa.int64(), mask=(places < 0) | (times == UNKNOWN)).cast(_TIME)


def _wanted(columns: Sequence[str], has_attributes: bool) -> int:
    needs = {"topic": Want.TOPICS, "value": Want.PAYLOADS, "headers": Want.HEADERS, "timestamp": Want.TIMES,
             "synchronised": Want.TIMES, "origin": Want.IDS, "sequence": Want.IDS}  # fmt: skip
    wanted = int(Want.HEADERS) if has_attributes else 0
    for name in columns:
        wanted |= needs.get(name, 0)
    return wanted


def _buffers(*parts: bytes | None) -> list[pa.Buffer | None]:
    return [None, *map(pa.py_buffer, parts[1:])] if parts[0] is None else [pa.py_buffer(part) for part in parts]


def _texts(count: int, ends: bytes, data: bytes) -> pa.Array:
    """Texts; invalid UTF-8 is replaced, as everywhere."""
    found = pa.Array.from_buffers(pa.binary(), count, _buffers(None, ends, data))
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in found.to_pylist()], pa.string())


def _equal_texts(count: int, length: int, data: bytes) -> pa.Array:
    """Texts of one length."""
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(pa.string(), count, _buffers(None, ends.tobytes(), data))


def _attributes(headers: pa.Array | None, wanted: dict[str, pa.DataType]) -> list[pa.Array]:
    """Typed columns from headers; null if a header is missing or of another type."""
    if not wanted or headers is None:
        return []
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    for text in headers.to_pylist():
        try:
            read = _headers(text) if text else {}
        except _UNREADABLE:
            read = {}
        for name, column in columns.items():
            column.append(_typed(read.get(name), wanted[name]))
    return [pa.array(columns[name], kind) for name, kind in wanted.items()]


def _typed(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return value if type(value) is bool else None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else None
    if type(value) is int or type(value) is float:
        if pa.types.is_floating(kind):
            return float(value) if -FLOAT_MAX <= value <= FLOAT_MAX else None  # JSON has integers of any size
        limit = 1 << (31 if kind.bit_width == 32 else 63)
        return int(value) if value == int(value) and -limit <= value < limit else None
    return None


def matching(batch: pa.RecordBatch, pattern: str) -> pa.RecordBatch:
    """The rows whose whole topic matches an RE2 pattern."""
    return batch.filter(pc.match_substring_regex(batch.column("topic"), f"^(?:{pattern})$"))
