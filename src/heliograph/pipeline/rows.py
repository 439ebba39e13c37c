"""Rows: frames of publications become columns, many at a time.

In:    whole EVENT frames, one after the other, with the position of each.
Out:   Arrow record batches in the columns of the source.
State: none.
Not here: getting frames from stores (reading.py), Spark's side of the source (source.py).

Columns bear the names of Spark's Kafka source wherever they mean the same. All work is done on whole columns: lengths
are read with one struct look per frame (or none, where all frames have the same length), heads as one table, and
topics, headers and payloads are gathered into three buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.model.publication import TIMESTAMP, UNSYNCHRONISED
from heliograph.wire.limits import HEAD_BYTES

_HEAD = np.dtype(
    [
        ("length", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("topic", "<u2"),
        ("origin", "<u8"),
        ("sequence", "<u8"),
        ("headers", "<u4"),
    ]
)
EVENT = 1
_TIME = pa.timestamp("us", tz="UTC")

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


class _Stamps(msgspec.Struct):
    """The reserved headers that become columns."""

    t: Any = msgspec.field(name=TIMESTAMP, default=None)
    u: Any = msgspec.field(name=UNSYNCHRONISED, default=False)


_stamps = msgspec.json.Decoder(_Stamps).decode
_headers = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def parse_attributes(text: str) -> dict[str, pa.DataType]:
    """``disk double, system string`` as names and types."""
    found: dict[str, pa.DataType] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, word = part.rpartition(" ")
        if word not in TYPES or not name.strip():
            raise UsageError(f"attributes: {part!r} is not a name and one of {', '.join(TYPES)}")
        found[name.strip(" `")] = TYPES[word]
    return found


def schema_of(columns: Sequence[str], attributes: dict[str, pa.DataType]) -> pa.Schema:
    """The schema of the rows: these columns, then the attributes."""
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"columns: there is no {name!r}; there are {', '.join(COLUMNS)}")
    return pa.schema([*((name, COLUMNS[name]) for name in columns), *attributes.items()])


def starts_of(data: bytes) -> Any:
    """Where each frame starts. ProtocolError if they are not whole frames."""
    size = len(data)
    if size >= HEAD_BYTES:
        stride = 4 + int.from_bytes(data[:4], "little")
        if stride >= HEAD_BYTES and size % stride == 0:
            starts = np.arange(0, size, stride)
            lengths = np.frombuffer(data, np.uint8).reshape(-1, stride)[:, :4].copy().view("<u4")
            if (lengths == stride - 4).all():
                return starts
    found, at = [], 0
    while at + HEAD_BYTES <= size:
        found.append(at)
        at += 4 + unpack_from("<I", data, at)[0]
    if at != size:
        raise ProtocolError(Reason.FRAME_TOO_SHORT, "publications that are not whole")
    return np.array(found, np.int64)


def to_batch(
    store: str,
    data: bytes,
    positions: Sequence[int],
    columns: Sequence[str],
    attributes: dict[str, pa.DataType] | None = None,
    partition: int = 0,
) -> pa.RecordBatch:
    """The publications of some frames as rows."""
    attributes = attributes or {}
    schema = schema_of(columns, attributes)
    starts = starts_of(data)
    count = len(starts)
    raw = np.frombuffer(data, np.uint8)
    heads = raw[starts[:, None] + np.arange(HEAD_BYTES)].reshape(-1).view(_HEAD)
    topics, headers = heads["topic"].astype(np.int64), heads["headers"].astype(np.int64)
    payloads = heads["length"].astype(np.int64) + 4 - HEAD_BYTES - topics - headers
    if count != len(positions) or (payloads < 0).any() or (heads["kind"] != EVENT).any():
        raise ProtocolError(Reason.FRAME_TOO_SHORT, "publications that are not whole")
    at = starts + HEAD_BYTES
    made: dict[str, pa.Array] = {}
    wanted = set(columns)
    header_text = _strings(raw, at + topics, headers)
    if "topic" in wanted:
        made["topic"] = _strings(raw, at, topics)
    if "value" in wanted:
        made["value"] = _gather(raw, at + topics + headers, payloads, pa.binary())
    if "headers" in wanted:
        made["headers"] = header_text
    if wanted & {"timestamp", "synchronised"}:
        made["timestamp"], made["synchronised"] = _stamped(header_text)
    if "origin" in wanted:
        made["origin"] = _hex(heads["origin"])
    made["sequence"] = pa.array(heads["sequence"].astype(np.int64))
    made["offset"] = pa.array(positions, pa.int64())
    made["partition"] = pa.array(np.full(count, partition, np.int32))
    if "store" in wanted:
        made["store"] = pa.array([store], pa.string()).take(pa.array(np.zeros(count, np.int64)))
    if "stored" in wanted:
        made["stored"] = pa.nulls(count, _TIME)
    arrays = [made[name] for name in columns] + _attributes(header_text, attributes)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _strings(raw: Any, starts: Any, lengths: Any) -> pa.Array:
    """Texts; bytes that are no UTF-8 are replaced, as everywhere."""
    found = _gather(raw, starts, lengths, pa.binary())
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in found.to_pylist()], pa.string())


def _gather(raw: Any, starts: Any, lengths: Any, kind: pa.DataType) -> pa.Array:
    """Slices of the bytes as one column."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if len(lengths) and (lengths == lengths[0]).all():
        whole = raw[starts[:, None] + np.arange(int(lengths[0]))].reshape(-1)
    else:
        whole = raw[np.repeat(starts - offsets[:-1], lengths) + np.arange(int(offsets[-1]))]
    return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(whole)])


def _stamped(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    stamps: list[int | None] = []
    synchronised: list[bool] = []
    for text in headers.to_pylist():
        stamp, unsynchronised = None, False
        if text:
            try:
                read = _stamps(text)
                stamp = read.t if type(read.t) is int and abs(read.t) < 1 << 62 else None
                unsynchronised = bool(read.u)
            except _UNREADABLE:
                pass
        stamps.append(stamp)
        synchronised.append(not unsynchronised)
    return pa.array(stamps, pa.int64()).cast(_TIME), pa.array(synchronised, pa.bool_())


def _hex(origins: Any) -> pa.Array:
    different, which = np.unique(origins, return_inverse=True)
    return pa.array([f"{int(origin):016x}" for origin in different], pa.string()).take(pa.array(which))


def _attributes(headers: pa.Array, wanted: dict[str, pa.DataType]) -> list[pa.Array]:
    """Typed columns from headers; null where a header is missing or of another type."""
    if not wanted:
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
            return float(value)
        limit = 1 << (31 if kind.bit_width == 32 else 63)
        return int(value) if value == int(value) and -limit <= value < limit else None
    return None


def matching(batch: pa.RecordBatch, pattern: str) -> pa.RecordBatch:
    """The rows whose whole topic matches a pattern of RE2."""
    return batch.filter(pc.match_substring_regex(batch.column("topic"), f"^(?:{pattern})$"))
