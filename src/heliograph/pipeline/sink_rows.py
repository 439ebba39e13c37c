"""Rows of the sink: which columns it takes, and what becomes of a row.

In:    a schema; Arrow batches of rows with ``topic``, ``value`` and perhaps ``headers``.
Out:   topics, payloads and headers, in chunks; UsageError for what is no publication.
State: none.
Not here: where they go (sink.py), rows of the source (rows.py).

``value`` is string or binary. ``headers`` is a JSON object as a text, such as the source's column, or a map or struct
of texts, numbers, booleans and lists of these; what is null in it, and what brokers add (names with ``$``), is left
out. Anything else is refused by its type, before a row is written, so that nothing is published as other bytes than its
author thinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from heliograph.errors import UsageError
from heliograph.pipeline.rows import own_headers

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

CHUNK_BYTES = 8 << 20  # staged at once; a chunk ends with its Arrow batch, too
Headers = dict[str, Any]
Row = tuple[str, bytes, Headers | None]
"""Topic, payload, headers."""


def check_columns(schema: StructType, topic: str, key_header: str = "") -> None:
    """UsageError if rows of this schema are no publications; ``topic`` and ``key_header`` are options."""
    from pyspark.sql.types import BinaryType, StringType

    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds or ("topic" not in kinds and not topic):
        raise UsageError("the sink needs a column value, and a column topic or the option topic")
    value, topics, headers, key = kinds["value"], kinds.get("topic"), kinds.get("headers"), kinds.get("key")
    if not isinstance(value, StringType | BinaryType):
        raise UsageError(f"the column value must be string or binary, not {value.simpleString()}: cast it")
    if topics is not None and not isinstance(topics, StringType):
        raise UsageError(f"the column topic must be string, not {topics.simpleString()}: cast it")
    if key is None and key_header:
        raise UsageError("the option keyHeader is for rows with a column key")
    if key is not None and (not key_header or key_header[:1] == "$"):
        raise UsageError(
            "publications have no key: drop the column key, or name the header that it becomes with the option "
            "keyHeader (a name without $ in front)"
        )
    if key is not None and not _is_value(key):
        raise UsageError(f"the column key must be a string, number or boolean, not {key.simpleString()}: cast it")
    if headers is not None and not _is_headers(headers):
        raise UsageError(
            "the column headers must be a string (JSON), or a map or struct of strings, numbers, booleans and arrays "
            f"of these, not {headers.simpleString()}: cast what is in it, or use to_json"
        )


def _is_headers(kind: DataType) -> bool:
    from pyspark.sql.types import MapType, StringType, StructType

    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _is_value(kind.valueType)
    if isinstance(kind, StructType):
        return all(_is_value(field.dataType) for field in kind.fields)
    return isinstance(kind, StringType)


def _is_value(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, BooleanType, DoubleType, FloatType, IntegralType, StringType

    if isinstance(kind, ArrayType):
        return _is_value(kind.elementType)
    return isinstance(kind, BooleanType | DoubleType | FloatType | IntegralType | StringType)


def chunks(batches: Iterable[pa.RecordBatch], topic: str, key_header: str = "") -> Iterator[list[Row]]:
    """Rows, as many at once as should be staged together. ``topic`` is for rows that have none.

    ``key_header``: the header that the column key becomes.
    """
    for batch in batches:
        chunk: list[Row] = []
        size = 0
        for row in _rows(batch, topic, key_header):
            if size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(row)
            size += len(row[1])
        if chunk:
            yield chunk


def size_of(row: Row) -> int:
    """About how many bytes it takes."""
    return len(row[0]) + len(row[1]) + (len(str(row[2])) if row[2] else 0)


def _rows(batch: pa.RecordBatch, topic: str, key_header: str) -> Iterator[Row]:
    names = batch.schema.names
    values = batch.column("value").to_pylist()
    topics = batch.column("topic").to_pylist() if "topic" in names else [topic] * len(values)
    headers = _headers(batch.column("headers")) if "headers" in names else [None] * len(values)
    if key_header:
        headers = [
            _with_key(own, key_header, key) for own, key in zip(headers, batch.column("key").to_pylist(), strict=True)
        ]
    for where, value, own in zip(topics, values, headers, strict=True):
        if value is None:
            text = f"a row on {(where or topic)!r} has no value, and null is not published"
            raise UsageError(f"{text}: leave it out, or use coalesce(value, '')")
        yield where or topic, value.encode() if isinstance(value, str) else value, own


def _with_key(own: Headers | None, name: str, key: Any) -> Headers | None:
    return own if key is None else {**(own or {}), name: key}


def _headers(column: pa.Array) -> list[Headers | None]:
    """The headers of each row; equal texts that follow each other are read once."""
    read: Callable[[Any], Headers] = _of_text
    if pa.types.is_map(column.type):
        read = _of_pairs
    elif pa.types.is_struct(column.type):
        read = _of_struct
    found: list[Headers | None] = []
    last: Any = None
    own: Headers | None = None
    for given in column.to_pylist():
        if given != last:
            last, own = given, (read(given) or None) if given else None
        found.append(own)
    return found


def _of_text(text: str) -> Headers:
    return own_headers(text)


def _of_pairs(pairs: list[tuple[str, Any]]) -> Headers:
    return _of_struct(dict(pairs))


def _of_struct(fields: Headers) -> Headers:
    return {name: value for name, value in fields.items() if value is not None and name[:1] != "$"}
