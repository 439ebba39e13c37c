"""Statistics of Parquet files for the log of a table, so that engines pass over files without wanted rows.

In:    the footer of a file.
Out:   statistics in Delta's form: rows, and the least and the greatest offset, times and topic.
State: none.
Not here: the log (tables.py).

Delta has times to a millisecond: the least is rounded down and the greatest up, so that no row is outside.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet as pq

COLUMNS = ("offset", "stored", "timestamp", "topic")
TEXT_MAX = 256  # longer ones are left out: a log should stay small


def stats_of(footer: pq.FileMetaData) -> str:
    """The statistics of a file, as JSON."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    for name in COLUMNS:
        if name not in places:
            continue
        groups = [footer.row_group(n).column(places[name]).statistics for n in range(footer.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        filled = [group for group in groups if group.num_values]
        if not filled or not all(group.has_min_max for group in filled):
            continue
        low = _told(min(group.min for group in filled), up=False)
        high = _told(max(group.max for group in filled), up=True)
        if low is not None and high is not None:
            least[name], most[name] = low, high
    return json.dumps({"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls})


def _told(value: Any, *, up: bool) -> int | str | None:
    """A value in Delta's form; None if it has none."""
    if isinstance(value, datetime):
        try:
            rest = timedelta(microseconds=-value.microsecond % 1_000 if up else -(value.microsecond % 1_000))
            rounded = value.astimezone(UTC) + rest
        except OverflowError:
            return None
        return f"{rounded.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, int):
        return value
    return value if isinstance(value, str) and len(value) <= TEXT_MAX else None
