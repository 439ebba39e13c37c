"""Tables of Spark's catalogue, ``CREATE TABLE … USING heliograph OPTIONS (…)``: how a query gets their options.

In:    the options with which Spark asks for columns, or for a reader; columns.
Out:   columns that carry the options of a table; the options of a query.
State: none.
Not here: what the options mean (options.py).

Spark passes the options of a table to a Python source once, when it is created and asked for its columns. It keeps the
columns in the catalogue and hands them to each query, but not the options. So they travel with the first column, in its
metadata. They name files, and hold no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from heliograph.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PREFIX = "option."  # Spark's, for the options of a table; without it, its properties are among them
MARK = "heliograph"  # the key in the metadata


def own(given: Mapping[str, str]) -> dict[str, str]:
    """The options that the program gave."""
    if not any(name.startswith(PREFIX) for name in given):
        return dict(given)
    return {name.removeprefix(PREFIX): value for name, value in given.items() if name.startswith(PREFIX)}


def carrying(columns: StructType, given: Mapping[str, str]) -> StructType:
    """The columns, with the options of a table. Without any options there is an empty mark: see ``of_query``."""
    if not given or any(name.startswith(PREFIX) for name in given):
        columns.fields[0].metadata[MARK] = own(given)
    return columns


def of_query(given: Mapping[str, str], columns: StructType) -> dict[str, str]:
    """The options of a query. Its own go first, as in ``SELECT … FROM t WITH (store = …)``."""
    kept = columns.fields[0].metadata.get(MARK) if columns.fields else None
    if kept is None and not given:
        raise UsageError(
            "Spark did not pass on the options: create the table without naming columns (the option columns does that)"
        )
    return {**(kept or {}), **given}


def check_columns(given: StructType, expected: StructType) -> None:
    """UsageError if a program asked for other columns than the options give."""
    wanted, found = ([(each.name, each.dataType) for each in columns.fields] for columns in (given, expected))
    if wanted != found:
        raise UsageError(
            f"the columns of this source are {', '.join(expected.names)}, not {', '.join(given.names)}: leave them "
            "out, and choose with the options columns and attributes"
        )
