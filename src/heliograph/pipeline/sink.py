"""The sink ``format("heliograph")``: rows become publications in a store, each batch as a whole or not at all.

In:    rows with ``topic`` and ``value``, and perhaps ``headers``; options ``store``, ``publisher``, ``topic``.
Out:   a staged part per task; the driver commits (publisher, batch).
State: none.
Not here: reading (source.py), rows (sink_rows.py), how a store keeps batches (stores/).

After a crash Spark repeats a batch with the same number; the store knows the last one of each publisher and ignores
the repeat. Each attempt of a task has a part of its own, with a random name: what an earlier attempt staged, in this
process or in one that crashed, is not committed, and the store drops it. The store notes which query committed a batch,
so that another one, which counts from 0 again, is refused instead of taken for a repeat. A batch write without a
publisher draws a name, which the store does not remember.

Tasks must know the number to stage under it. Spark passes it to tasks of a stream as a local property, which is
undocumented: if it is missing, tasks pass their rows to the driver, which stages them. Only the driver proves the
publisher's name, so tasks need no secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from heliograph.errors import UsageError
from heliograph.live.name_secret import secret_in
from heliograph.pipeline.option_names import BATCH_SINK, STREAM_SINK
from heliograph.pipeline.options import SourceOptions, read_number, read_options
from heliograph.pipeline.patience import patiently
from heliograph.pipeline.platforms import HAS_ARROW_STREAMS
from heliograph.pipeline.sink_rows import Row, check_columns, chunks, size_of
from heliograph.wire.stores import PARTS_MAX

if TYPE_CHECKING or HAS_ARROW_STREAMS:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    DataSourceStreamArrowWriter = DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.types import StructType

    from heliograph.live.blocking import BlockingClient
    from heliograph.live.stored import BatchCommitted

BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"  # of the checkpoint: the same after a restart
ROWS = 10_000  # that become one Arrow batch where Spark passes rows
HANDED_BYTES_MAX = 64 << 20  # that tasks may pass to the driver


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The destination, and the publisher's name."""

    source: SourceOptions
    store: str
    publisher: str
    topic: str
    batch: int | None  # None: Spark numbers them
    once: bool = False  # the publisher's name is for this write only
    key_header: str = ""  # what the column key becomes


@dataclass
class StagedPart(WriterCommitMessage):
    """The result of one task: the number of publications it staged, or the publications themselves."""

    partition: int
    part: str
    count: int
    query: str = ""
    rows: list[Row] | None = None


def sink_options(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Check the options and the columns."""
    words = {name.lower(): value for name, value in given.items()}
    source = read_options(given, streaming, STREAM_SINK if streaming else BATCH_SINK)
    key_header = words.get("keyheader", "")
    check_columns(schema, words.get("topic", ""), key_header)
    if len(source.stores) != 1:
        raise UsageError("the sink needs the option store: the name or id of the store that is to keep the rows")
    publisher, number = words.get("publisher", ""), read_number(words, "batch")
    if streaming and not publisher:
        raise UsageError("a stream needs the option publisher: a name of its own, under which batches are counted")
    if number is not None and not publisher:
        raise UsageError("the option batch needs the option publisher: the name under which batches are counted")
    once = not publisher
    if not streaming and number is None:
        number = 0 if once else time.time_ns() // 1_000
    name = publisher or f"spark-{token_hex(8)}"
    return SinkOptions(source, source.stores[0], name, words.get("topic", ""), number, once, key_header)


class StreamSink(DataSourceStreamArrowWriter):
    """For a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        told = _property(BATCH_PROPERTY)
        return stage(self._options, int(told) if told.isdigit() else None, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Runs in the driver: commit everything at once."""
        commit(self._options, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """The store drops staged parts when the batch, or a later one, is committed."""


class RowStreamSink(StreamSink):
    """The same for a Spark whose streams pass rows, not Arrow batches."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options)
        self._schema = schema

    def write(self, iterator: Iterator[SparkRow]) -> WriterCommitMessage:
        """Runs in a task."""
        return super().write(self._batches(iterator))

    def _batches(self, rows: Iterator[SparkRow]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.conversion import LocalDataToArrowConversion

        while some := list(islice(rows, ROWS)):
            yield from LocalDataToArrowConversion.convert(some, self._schema, False).to_batches()


class BatchSink(DataSourceArrowWriter):
    """For a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return stage(self._options, self._options.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs in the driver: commit everything at once."""
        assert self._options.batch is not None
        commit(self._options, self._options.batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The store drops staged parts when the batch, or a later one, is committed, or after a week."""


def stage(options: SinkOptions, number: int | None, batches: Iterable[pa.RecordBatch]) -> StagedPart:
    """Stage the rows of a task, not yet visible; without a number, pass them to the driver."""
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    part = StagedPart(partition, f"{partition}.{token_hex(8)}", 0, _property(QUERY_PROPERTY))
    pieces = chunks(batches, options.topic, options.key_header)
    if number is None:
        part.rows = _bounded(pieces)
        return part
    first = next(pieces, None)
    if first is not None:
        with options.source.connect() as client:
            part.count = _stage(client, options, number, part.part, [first])
            part.count += _stage(client, options, number, part.part, pieces)
    return part


def commit(options: SinkOptions, number: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make all parts visible. A batch without rows is not committed: it changes nothing."""
    parts = [message for message in messages if isinstance(message, StagedPart) and (message.count or message.rows)]
    if not parts:
        return
    if len(parts) > PARTS_MAX:
        raise UsageError(f"a batch of {len(parts)} tasks: at most {PARTS_MAX} are committed at once; use coalesce")
    source = options.source
    with source.connect(patiently=True) as client:
        for message in parts:
            if message.rows is not None:
                message.count = _stage(client, options, number, message.part, [message.rows])
        secret = secret_in(Path(source.secret_file)) if source.secret_file else None
        batch = client.batch(
            options.store, options.publisher, number, query=parts[0].query, once=options.once, secret=secret
        )
        parts.sort(key=lambda message: message.partition)
        staged = [(message.part, message.count) for message in parts]
        check_repeat(options, number, patiently(lambda: batch.commit(staged), source.patience_s))


def check_repeat(options: SinkOptions, number: int, done: BatchCommitted) -> None:
    """UsageError if the store took this batch for the repeat of one that is long past, and dropped it."""
    if done.repeated and done.number != number:
        raise UsageError(
            f"nothing of batch {number} was written: the publisher {options.publisher} has already committed batch "
            f"{done.number} in the store {options.store}. Queries and jobs that may overlap, and those that count from "
            "the beginning again, need a publisher of their own"
        )


def _stage(client: BlockingClient, options: SinkOptions, number: int, part: str, pieces: Iterable[list[Row]]) -> int:
    batch = client.batch(options.store, options.publisher, number)
    return sum(batch.stage(part, piece) for piece in pieces)


def _bounded(pieces: Iterator[list[Row]]) -> list[Row]:
    found: list[Row] = []
    size = 0
    for piece in pieces:
        size += sum(map(size_of, piece))
        if size > HANDED_BYTES_MAX:
            raise UsageError("this Spark does not tell tasks the number of a batch: use smaller batches")
        found += piece
    return found


def _property(name: str) -> str:
    """What the driver tells the tasks of a stream; empty if it does not."""
    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty(name) or ""
