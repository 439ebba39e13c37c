"""The sink ``format("heliograph")``: rows become publications in a store, each batch as a whole or not at all.

In:    rows with ``topic`` and ``value``, and perhaps ``headers`` (JSON); options ``store``, ``publisher``, ``topic``.
Out:   a staged part per task; the driver commits (publisher, batch).
State: none.
Not here: reading (source.py), how a store keeps batches (stores/).

After a crash Spark repeats a batch with the same number; the store knows the last one of each publisher and ignores
the repeat. Tasks must know the number to stage under it. Spark passes it to tasks of a stream as a local property,
which is undocumented: if it is missing, tasks pass their rows to the driver, which stages them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from heliograph.errors import UsageError
from heliograph.pipeline.options import SourceOptions, read_options
from heliograph.pipeline.patience import patiently
from heliograph.pipeline.rows import own_headers

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from heliograph.live.blocking import BlockingClient

BATCH_PROPERTY = "streaming.sql.batchId"
HANDED_BYTES_MAX = 64 << 20  # that tasks may pass to the driver
Row = tuple[str, bytes, str]
"""Topic, payload, headers as JSON."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The destination, and the publisher's name."""

    source: SourceOptions
    store: str
    publisher: str
    topic: str
    batch: int | None  # None: Spark numbers them


@dataclass
class StagedPart(WriterCommitMessage):
    """The result of one task: the number of publications it staged, or the publications themselves."""

    part: str
    count: int
    rows: list[Row] | None = None


def sink_options(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Check the options and the columns."""
    words = {name.lower(): value for name, value in given.items()}
    source = read_options({**given, "subscribe": "#"}, streaming)
    names = set(schema.names)
    if "value" not in names or ("topic" not in names and not words.get("topic")):
        raise UsageError("the sink needs a column value, and a column topic or the option topic")
    if not source.store:
        raise UsageError("the sink needs the option store: the name or id of the store that is to keep the rows")
    publisher = words.get("publisher", "")
    if streaming and not publisher:
        raise UsageError("a stream needs the option publisher: a name of its own, under which batches are counted")
    number = None if streaming else int(words.get("batch") or time.time_ns() // 1_000)
    return SinkOptions(source, source.store, publisher or "spark-batch", words.get("topic", ""), number)


class StreamSink(DataSourceStreamArrowWriter):
    """For a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(BATCH_PROPERTY)
        number = int(told) if told is not None and told.isdigit() else None
        return stage(self._options, number, _part_name(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Runs in the driver: commit everything at once."""
        commit(self._options, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """The store drops staged parts when a later batch is committed."""


class BatchSink(DataSourceArrowWriter):
    """For a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return stage(self._options, self._options.batch, _part_name(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs in the driver: commit everything at once."""
        assert self._options.batch is not None
        commit(self._options, self._options.batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The store drops staged parts when a later batch is committed."""


def stage(options: SinkOptions, number: int | None, part: str, batches: Iterable[pa.RecordBatch]) -> StagedPart:
    """Stage the rows of a task, not yet visible; without a number, pass them to the driver."""
    rows = (row for batch in batches for row in _rows(batch, options.topic))
    if number is None:
        return StagedPart(part, 0, _bounded(rows))
    with options.source.connect() as client:
        return StagedPart(part, _stage(client, options, number, part, rows))


def commit(options: SinkOptions, number: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make all parts visible."""
    parts = [message for message in messages if isinstance(message, StagedPart)]
    with options.source.connect(patiently=True) as client:
        for message in parts:
            if message.rows is not None:
                message.count = _stage(client, options, number, message.part, iter(message.rows))
        batch = client.batch(options.store, options.publisher, number)
        staged = sorted((message.part, message.count) for message in parts if message.count)
        patiently(lambda: batch.commit(staged), options.source.patience_s)  # a repeat is ignored


def _stage(client: BlockingClient, options: SinkOptions, number: int, part: str, rows: Iterator[Row]) -> int:
    batch = client.batch(options.store, options.publisher, number)
    count = 0
    for headers, group in groupby(rows, key=lambda row: row[2]):
        own = own_headers(headers)
        count += batch.stage(part, [(topic, payload) for topic, payload, _ in group], headers=own or None)
    return count


def _rows(batch: pa.RecordBatch, topic: str) -> Iterator[Row]:
    names = batch.schema.names
    values = batch.column("value").to_pylist()
    topics = batch.column("topic").to_pylist() if "topic" in names else [topic] * len(values)
    headers = batch.column("headers").to_pylist() if "headers" in names else [""] * len(values)
    for where, value, head in zip(topics, values, headers, strict=True):
        payload = value.encode() if isinstance(value, str) else bytes(value or b"")
        yield where or topic, payload, head or ""


def _bounded(rows: Iterator[Row]) -> list[Row]:
    found, size = [], 0
    for row in rows:
        size += len(row[0]) + len(row[1]) + len(row[2])
        if size > HANDED_BYTES_MAX:
            raise UsageError("this Spark does not tell tasks the number of a batch: use smaller batches")
        found.append(row)
    return found


def _part_name() -> str:
    context = TaskContext.get()
    assert context is not None
    return f"{context.partitionId()}.{context.taskAttemptId()}"
