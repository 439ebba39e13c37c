"""What is pushed down leaves out no row that a query wants, with Spark and without it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from heliograph.model.topics import matches
from heliograph.pipeline.offsets import LogRange, StoreLog
from heliograph.pipeline.options import LOG, SourceOptions
from heliograph.pipeline.pushdown import is_offered, narrowed
from heliograph.pipeline.source import PushingReader
from tests.pipeline.test_source import url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["url"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TOPICS = ("a", "a/b", "a/c", "b", "d#", "x+y", "�")
moments = st.integers(0, 9).map(lambda n: EPOCH + timedelta(seconds=n))
values: dict[str, st.SearchStrategy[Any]] = {
    "offset": st.integers(-2, 12),
    "topic": st.sampled_from(TOPICS),
    "timestamp": moments,
}
COMPARED = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


@st.composite
def one_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(values)))
    kind = draw(st.sampled_from([*COMPARED, In, IsNotNull, Not]))
    if kind is In:
        return In((column,), tuple(draw(st.lists(values[column], max_size=3))))
    if kind is IsNotNull:
        return IsNotNull((column,))
    if kind is Not:
        return Not(EqualTo((column,), draw(values[column])))
    return kind((column,), draw(values[column]))


def holds(each: Any, row: dict[str, Any]) -> bool:
    """What SQL says of a row."""
    if isinstance(each, Not):
        value = row[each.child.attribute[0]]
        return value is not None and not holds(each.child, row)
    value = row[each.attribute[0]]
    if isinstance(each, IsNotNull):
        return value is not None
    if value is None:
        return False
    return value in each.value if isinstance(each, In) else COMPARED[type(each)](value, each.value)


rows = st.lists(st.tuples(st.sampled_from(TOPICS), moments | st.none()), max_size=10)


@pytest.mark.req("S1")
@given(rows, st.lists(one_filter(), max_size=4), st.sampled_from([("#",), ("a/#", "b"), ("a/+",)]))
def test_no_row_that_is_wanted_is_left_out(
    made: list[tuple[str, datetime | None]], filters: list[Filter], subscribed: tuple[str, ...]
) -> None:
    table = [{"offset": n, "topic": topic, "timestamp": when} for n, (topic, when) in enumerate(made)]
    table = [row for row in table if any(matches(one.encode(), row["topic"].encode()) for one in subscribed)]
    reader = PushingReader(SourceOptions(filters=subscribed))
    assert list(reader.pushFilters(filters)) == filters, "Spark checks all of them again"
    ranges = [each for each in reader.plan([StoreLog("s", "", 0, len(made))]) if isinstance(each, LogRange)]
    kept = narrowed(filters)
    narrow = kept.filters(subscribed)
    read = [
        row
        for row in table
        if any(part.start <= row["offset"] < part.end for part in ranges)
        and any(matches(one.encode(), row["topic"].encode()) for one in narrow)
    ]
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    left = kept.rows(pa.RecordBatch.from_pylist(read, schema)).to_pylist()
    assert [row for row in left if all(holds(each, row) for each in filters)] == [
        row for row in table if all(holds(each, row) for each in filters)
    ]


def test_less_is_read() -> None:
    reader = PushingReader(SourceOptions(filters=("a/#",)))
    list(reader.pushFilters([GreaterThan(("offset",), 10), LessThan(("offset",), 20), EqualTo(("topic",), "a/b")]))
    (part,) = reader.plan([StoreLog("s", "", 0, 1_000)])
    assert isinstance(part, LogRange)
    assert (part.start, part.end, narrowed([EqualTo(("topic",), "a/b")]).filters(("a/#",))) == (11, 20, ("a/b",))
    none = PushingReader(SourceOptions(filters=("a/#",)))
    list(none.pushFilters([EqualTo(("topic",), "elsewhere")]))
    assert (none.partitions(), list(none.read(None)), LOG) == ([], [], "0")
    assert not is_offered(), "this process plans nothing"


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
def test_spark_finds_the_same_with_and_without(spark: SparkSession, url: str) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    with_them, without = [], []
    for found, enabled in ((without, "false"), (with_them, "true")):
        spark.conf.set(setting, enabled)
        source = spark.read.format("heliograph").options(url=url, subscribe="hosts/#").load()
        for query in (
            "offset >= 40 and offset < 90 and topic = 'hosts/1'",
            "topic in ('hosts/0', 'elsewhere') and offset in (3, 6, 7)",
            "topic = 'elsewhere'",
            "timestamp > timestamp'2020-01-01' and offset = 12",
            "timestamp < timestamp'2020-01-01'",
        ):
            found.append(sorted(row["offset"] for row in source.where(query).collect()))
    spark.conf.set(setting, "false")
    assert with_them == without
    assert [len(each) for each in with_them] == [17, 2, 0, 1, 0]
