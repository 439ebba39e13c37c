"""Decoding: a column of payloads becomes a column for each field of their schema, many rows at a time.

In:    an Arrow array of payloads; a schema.
Out:   DecodedColumns: a struct, the other fields as JSON, and for each row that does not fit, why.
State: the reader of the schema that was used last, per process.
Not here: single payloads (formats.py), which rows and what becomes of them (pipeline/decoded_tables.py, reading.py).

Whatever a payload makes a decoder raise costs its row, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from heliograph.errors import HeliographError
from heliograph.pipeline.payloads.fitting import json_text
from heliograph.pipeline.payloads.formats import PayloadReader, PayloadSchema, reader

PIECE_BYTES = 16 << 20  # of payloads at once: what becomes of them stays far below the 2 GiB of an Arrow array
PIECE_ROWS = 65_536
REASON_MAX = 200
PAYLOAD, OTHERS, FAULT = "payload", "payload_other_fields", "payload_fault"  # the columns of the source
NO_VALUE = "no payload, or one that is too large for a row"


@dataclass(frozen=True, slots=True)
class DecodedColumns:
    """Payloads as columns. A row fits if it has no fault; else its values are null."""

    values: pa.StructArray
    others: pa.Array  # JSON text: fields that the schema does not know; null if there are none
    faults: pa.Array


known_reader = lru_cache(maxsize=64)(reader)


def decode(schema: PayloadSchema, payloads: pa.Array) -> DecodedColumns:
    """The columns of some payloads."""
    known = known_reader(schema)
    rows: list[Any] = []
    others: list[str | None] = []
    faults: list[str | None] = []
    for payload in payloads:
        row, other, fault = _row(known, payload)
        rows.append(row)
        others.append(other)
        faults.append(fault)
    kind = known.layout.arrow()
    try:
        values = pa.array(rows, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        rows, faults = _one_by_one(rows, faults, kind)
        values = pa.array(rows, kind)
    return DecodedColumns(values, pa.array(others, pa.string()), pa.array(faults, pa.string()))


def with_payloads(batch: pa.RecordBatch, schema: PayloadSchema | None) -> Iterator[pa.RecordBatch]:
    """Rows of the source, with the columns of their payloads if there is a schema."""
    if schema is None:
        yield batch
        return
    for piece in pieces(batch, "value"):
        found = decode(schema, piece.column("value"))
        names = [*piece.schema.names, PAYLOAD, OTHERS, FAULT]
        yield pa.RecordBatch.from_arrays([*piece.columns, found.values, found.others, found.faults], names=names)


def pieces(batch: pa.RecordBatch, column: str) -> Iterator[pa.RecordBatch]:
    """A batch in parts, so that none has too many bytes in this column."""
    start, size = 0, 0
    for place, value in enumerate(batch.column(column)):
        size += value.as_buffer().size if value.is_valid else 0
        if size > PIECE_BYTES or place - start >= PIECE_ROWS:
            yield batch.slice(start, place - start + 1)
            start, size = place + 1, 0
    if start < len(batch):
        yield batch.slice(start)


def _row(known: PayloadReader, payload: Any) -> tuple[Any, str | None, str | None]:
    if not payload.is_valid:
        return None, None, NO_VALUE
    try:
        row, lost = known.read(payload.as_py())
        return row, json_text(lost) if lost else None, None
    except HeliographError as unfit:
        return None, None, str(unfit)[:REASON_MAX]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return None, None, f"not JSON: {error}"[:REASON_MAX]
    except Exception as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return None, None, f"it cannot be decoded: {told}"[:REASON_MAX]


def _one_by_one(
    rows: Sequence[Any], faults: Sequence[str | None], kind: pa.DataType
) -> tuple[list[Any], list[str | None]]:
    """The same rows, without those that Arrow does not take."""
    kept: list[Any] = []
    told: list[str | None] = []
    for row, fault in zip(rows, faults, strict=True):
        try:
            pa.array([row], kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            row, fault = None, f"it is no row: {error}"[:REASON_MAX]
        kept.append(row)
        told.append(fault)
    return kept, told
