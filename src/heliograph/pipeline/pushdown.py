"""Pushdown: a query's conditions on offset, topic and time reduce what tasks read.

In:    filters that Spark offers a reader before it plans its tasks.
Out:   Narrowed: a range of offsets, topics, a range of times. It may be wider than the filters, never narrower.
State: none.
Not here: reading (source.py).

Every filter goes back to Spark, which checks it again: a filter that is not understood here costs time, never rows.
Offsets and topics limit what stores send. Times are filtered in the task, before rows go to the JVM: stores know only
when they took a publication, and the column ``timestamp`` is the publisher's clock.

A reader that overrides ``pushFilters`` breaks every read unless spark.sql.python.filterPushdown.enabled is set. The
process in which Spark plans a read with filters runs its own module, by which ``is_offered`` recognises it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from heliograph.model.topics import matches, topic_fault
from heliograph.pipeline.platforms import HAS_FILTERS

if TYPE_CHECKING or HAS_FILTERS:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What can be skipped: positions outside [start, end), other topics, other times."""

    start: int = 0
    end: int = HIGHEST
    topics: frozenset[str] | None = None  # None: any
    since: datetime | None = None
    until: datetime | None = None

    def filters(self, given: Sequence[str]) -> tuple[str, ...]:
        """Topic filters that read everything wanted and no more than the given ones."""
        if self.topics is None:
            return tuple(given)
        names = [
            each.encode() for each in sorted(self.topics) if topic_fault(each.encode()) is None
        ]  # others have no rows
        return tuple(name.decode() for name in names if any(matches(one.encode(), name) for one in given))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch without rows of other times, if it has times."""
        if "timestamp" not in batch.schema.names:
            return batch
        if self.since is not None:
            batch = batch.filter(pc.greater_equal(batch.column("timestamp"), _moment(self.since)))
        if self.until is not None:
            batch = batch.filter(pc.less_equal(batch.column("timestamp"), _moment(self.until)))
        return batch


def is_offered() -> bool:
    """True in a process to which Spark passes filters."""
    return PLANNER in sys.modules


def narrowed(filters: Iterable[Filter]) -> Narrowed:
    """The ranges that some filters require together, as far as they are understood."""
    found = Narrowed()
    for each in filters:
        column = getattr(each, "attribute", ())
        if column == ("offset",):
            found = _by_offset(found, each)
        elif column == ("topic",):
            found = _by_topic(found, each)
        elif column == ("timestamp",):
            found = _by_time(found, each)
    return found


def _by_offset(found: Narrowed, each: Any) -> Narrowed:
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    if not values or not all(type(value) is int for value in values):
        return found
    start, end = found.start, found.end
    if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo | In):
        start = max(start, min(values) + isinstance(each, GreaterThan))
    if isinstance(each, LessThan | LessThanOrEqual | EqualTo | In):
        end = min(end, max(values) + (not isinstance(each, LessThan)))
    return replace(found, start=start, end=end)


def _by_topic(found: Narrowed, each: Any) -> Narrowed:
    if not isinstance(each, EqualTo | In):
        return found
    values = each.value if isinstance(each, In) else (each.value,)
    if not all(isinstance(value, str) and _is_exact(value) for value in values):
        return found
    topics = frozenset(values)
    return replace(found, topics=topics if found.topics is None else found.topics & topics)


def _is_exact(topic: str) -> bool:
    """False if rows with other topics could show this text, or if it has another meaning as a filter."""
    return bool(topic) and "�" not in topic and "\0" not in topic and not any(sign in topic for sign in "+#*")


def _by_time(found: Narrowed, each: Any) -> Narrowed:
    value = getattr(each, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return found
    if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo):
        found = replace(found, since=value if found.since is None else max(found.since, value))
    if isinstance(each, LessThan | LessThanOrEqual | EqualTo):
        found = replace(found, until=value if found.until is None else min(found.until, value))
    return found


def _moment(when: datetime) -> pa.Scalar:
    return pa.scalar(when, pa.timestamp("us", tz="UTC"))
