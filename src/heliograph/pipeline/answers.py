"""Answers: the rows of a query as plain values, some of them or all.

In:    a table of Spark's.
Out:   rows as dicts that JSON can represent; the lines of a JSON array or of CSV.
State: none. Of an answer that is read as a whole, one partition at a time is in memory.
Not here: the queries (jobs.py), tables for people (cli/tables.py).

Times are UTC, as in the tables. PySpark converts them to the time zone of the machine when it makes them Python's.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Plain = Callable[[Any], Any]


def some_rows(table: DataFrame, most: int) -> tuple[list[dict[str, Any]], bool]:
    """The first rows, and whether there are more."""
    found = _plain_rows(table, iter(table.limit(most + 1).collect()))
    rows = list(found)
    return rows[:most], len(rows) > most


def all_rows(table: DataFrame) -> list[dict[str, Any]]:
    """All rows, of a table that is small."""
    return list(_plain_rows(table, iter(table.collect())))


def every_row(table: DataFrame) -> Iterator[dict[str, Any]]:
    """All rows, one after the other, however many."""
    return _plain_rows(table, table.toLocalIterator())


def json_lines(table: DataFrame) -> Iterator[str]:
    """All rows as one JSON array, a line for each row."""
    before = "["
    for row in every_row(table):
        yield before + json.dumps(row)
        before = ","
    yield "[]" if before == "[" else "]"


def csv_lines(table: DataFrame) -> Iterator[str]:
    """All rows as CSV with a head. Null is empty; lists and structs are JSON."""
    yield _csv_line(table.columns)
    for row in every_row(table):
        yield _csv_line([json.dumps(each) if isinstance(each, list | dict) else each for each in row.values()])


def _csv_line(cells: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _plain_rows(table: DataFrame, rows: Iterator[Any]) -> Iterator[dict[str, Any]]:
    fields = [(field.name, _plain(field.dataType)) for field in table.schema.fields]
    for row in rows:
        yield {name: plain(value) for (name, plain), value in zip(fields, row, strict=True)}


def _plain(kind: DataType) -> Plain:
    """How values of this type become plain."""
    from pyspark.sql import types

    inner: Plain
    if isinstance(kind, types.TimestampType):
        inner = _utc
    elif isinstance(kind, types.ArrayType):
        inner = partial(_plain_list, _plain(kind.elementType))
    elif isinstance(kind, types.MapType):
        inner = partial(_plain_map, _plain(kind.valueType))
    elif isinstance(kind, types.StructType):
        inner = partial(_plain_struct, [(field.name, _plain(field.dataType)) for field in kind.fields])
    else:
        inner = _plain_value
    return lambda value: None if value is None else inner(value)


def _utc(value: datetime) -> str:
    return str(value.astimezone(UTC).replace(tzinfo=None))


def _plain_list(plain: Plain, values: Any) -> list[Any]:
    return [plain(each) for each in values]


def _plain_map(plain: Plain, values: Any) -> dict[str, Any]:
    return {str(key): plain(value) for key, value in values.items()}


def _plain_struct(fields: list[tuple[str, Plain]], values: Any) -> dict[str, Any]:
    return {name: plain(value) for (name, plain), value in zip(fields, values, strict=True)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value if isinstance(value, str | int | float | bool) else str(value)
