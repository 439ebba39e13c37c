"""The archive: publications are written to Delta tables, each exactly once.

In:    a stream or a batch with the columns of the source (format "heliograph").
Out:   rows in the tables of kinds.py, and in ``quarantine``.
State: a checkpoint folder of Spark; the tables themselves record which batches they contain.
Not here: the source (source.py), tables (tables.py), payloads as columns (decoded_tables.py).

In each micro-batch events are written first, then the other kinds that occur, each with the number of the batch. After
a crash Spark repeats the batch with the same number and the same rows, and tables that already have it skip it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow import fs

from heliograph.pipeline.decoded_tables import DecodedTables
from heliograph.pipeline.kinds import (
    EVENT,
    KEYS,
    KINDS,
    PAYLOAD_BYTES_MAX,
    QUARANTINE,
    QUARANTINE_COLUMNS,
    TableKind,
    dated,
    with_kind,
)
from heliograph.pipeline.places import for_spark, uri
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TIDY_EVERY = 20  # batches of an archive that goes on, before it looks for small files
CHECKPOINT = "_checkpoint"
PAYLOADS = "_payloads"
Progress = Callable[[str], None]


def start(
    stream: DataFrame,
    root: str,
    *,
    once: bool = True,
    seconds: int = 10,
    checkpoint: str = "",
    say: Progress | None = None,
    decoded: DecodedTables | None = None,
) -> StreamingQuery:
    """Archive a stream. ``once``: everything present, then stop; otherwise every few seconds."""
    tables = LakeTables(root)
    place = for_spark(checkpoint or f"{tables.root}/{CHECKPOINT}")

    def write(batch: DataFrame, number: int) -> None:
        counts = add(batch, tables, query_id(place), number, decoded)
        if say is not None and counts:
            say(f"batch {number}: " + ", ".join(f"{name} +{count:,}" for name, count in counts.items()))
        if not once and number % TIDY_EVERY == TIDY_EVERY - 1:
            _tidy(tables, say)

    writing = stream.writeStream.foreachBatch(write).option("checkpointLocation", place)
    writing = writing.queryName(f"archive in {checkpoint or tables.root}")  # in Spark's UI, and for listeners
    if once:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{seconds} seconds").start()


def _tidy(tables: LakeTables, say: Progress | None) -> None:
    """Merge small files where there are many. If that fails, as when something else merges them, it is for later."""
    for name in tables.names():
        try:
            if tables.tidy(name) and say is not None:
                say(f"merged the small files of {name}")
        except DeltaError as error:
            if say is not None:
                say(f"the small files of {name} are left for now: {str(error).splitlines()[0]}")


def add(
    batch: DataFrame, tables: LakeTables, query: str, number: int, decoded: DecodedTables | None = None
) -> dict[str, int]:
    """Add one batch to the tables. Returns the number of rows added, by table.

    Most batches are events alone: then one job writes them, and tells that there is nothing else.
    """
    from pyspark.sql import functions as f

    rows = _outfitted(batch)
    seen = _Seen(0, 1, 1) if decoded is not None else _add_events(rows, tables, query, number)
    counts = {EVENT: seen.events}
    if seen.others or seen.large:
        rest = rows if seen.large else rows.where(f.col("kind") != EVENT)
        counts |= _add_kinds(rest, tables, query, number, decoded, has_large=seen.large > 0)
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a batch has: events that are in their table now; others, and large payloads, for which more is to do."""

    events: int
    others: int
    large: int


def _add_events(rows: DataFrame, tables: LakeTables, query: str, number: int) -> _Seen:
    """Add the events, unless some payload is large: then nothing is added."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if tables.has(EVENT, f"{query}/{EVENT}", number):
        return _Seen(0, 1, 1)  # an earlier attempt came so far: what else there is, is not known
    (kind,) = (each for each in KINDS if each.name == EVENT)
    told = Observation()
    is_event, is_large = f.col("kind") == EVENT, f.coalesce(f.col("length") > PAYLOAD_BYTES_MAX, f.lit(False))
    seen = {"events": is_event, "others": ~is_event, "large": is_large}
    small = rows.observe(told, *(f.count_if(each).alias(name) for name, each in seen.items())).where(~is_large)

    def count() -> int:
        return 0 if told.get["large"] else int(told.get["events"])

    added = tables.add(EVENT, kind.table(kind.rows(small)), kind.by, f"{query}/{EVENT}", number, count)
    return _Seen(added, told.get["others"], told.get["large"])


def _add_kinds(
    batch: DataFrame, tables: LakeTables, query: str, number: int, decoded: DecodedTables | None, *, has_large: bool
) -> dict[str, int]:
    """Add rows of any kinds, one kind after the other."""
    kept = batch.persist()
    try:
        rows = _filed(kept, tables) if has_large else kept
        present = _by_kind(rows)
        kinds = [kind for kind in KINDS if kind.name in present]
        bad = _quarantined(rows, kinds, QUARANTINE in present)
        unread = {} if bad is None else _by_kind(bad)
        counts = {
            kind.name: tables.add(
                *(kind.name, kind.table(kind.rows(rows)), kind.by, f"{query}/{kind.name}", number),
                count=present[kind.name] - unread.get(kind.name, 0),
            )
            for kind in kinds
        }
        if bad is not None and unread:
            apart = dated(bad.select(*QUARANTINE_COLUMNS), ("date",))
            all_bad = sum(unread.values())
            counts[QUARANTINE] = tables.add(QUARANTINE, apart, ("date",), f"{query}/{QUARANTINE}", number, all_bad)
        for name, count in ({} if decoded is None else decoded.add(rows, query, number)).items():
            counts[name] = counts.get(name, 0) + count
        return counts
    finally:
        kept.unpersist()


def query_id(checkpoint: str) -> str:
    """The id that Spark gave to the query of a checkpoint: a new checkpoint is a new query."""
    files, path = fs.FileSystem.from_uri(uri(checkpoint))
    with files.open_input_stream(f"{path}/metadata") as file:
        return str(json.loads(file.read())["id"])


def _by_kind(rows: DataFrame) -> dict[str, int]:
    """How many rows each kind has, of those that have any."""
    return {row["kind"]: row["count"] for row in rows.groupBy("kind").count().collect()}


def _quarantined(rows: DataFrame, kinds: list[TableKind], has_others: bool) -> DataFrame | None:
    """Rows that their kind cannot read, and rows without a kind, each with its kind; None if there can be none."""
    from pyspark.sql import functions as f

    parts = [kind.rows(rows).where("reason is not null") for kind in kinds if kind.body]
    if has_others:
        parts.append(rows.where(f.col("kind") == QUARANTINE).withColumn("reason", f.lit("no table takes this topic")))
    if not parts:
        return None
    union, *others = (part.select("kind", *QUARANTINE_COLUMNS) for part in parts)
    for each in others:
        union = union.union(each)
    return union


def _outfitted(batch: DataFrame) -> DataFrame:
    """Rows with their kind and the length of their payload."""
    from pyspark.sql import functions as f

    wanted = (*KEYS, "topic", "value", "timestamp", "headers", "origin", "sequence", "synchronised")
    for name in wanted:
        if name not in batch.columns:
            batch = batch.withColumn(name, f.lit(None).cast(_MISSING.get(name, "string")))
    # Not every store reports when it took a publication; the time of publication is the next best constant value.
    when = f.coalesce("stored", "timestamp", f.timestamp_seconds(f.lit(0)))
    rows = batch.select(*wanted).withColumn("stored", when).withColumn("length", f.length("value").cast("long"))
    return with_kind(rows.withColumn("value_file", f.lit(None).cast("string")))


def _filed(rows: DataFrame, tables: LakeTables) -> DataFrame:
    """The same with large payloads moved to files. It reads the rows twice, so they should be kept in memory."""
    from pyspark.sql import functions as f

    large = f.col("length") > PAYLOAD_BYTES_MAX
    filed = rows.where(large).mapInArrow(_filing(f"{tables.root}/{PAYLOADS}"), rows.schema)
    return rows.where(~large | f.col("length").isNull()).unionByName(filed)


_MISSING = {"synchronised": "boolean", "sequence": "long", "partition": "int", "offset": "long"}
_MISSING |= {"stored": "timestamp", "timestamp": "timestamp", "value": "binary"}


def _filing(folder: str) -> Any:
    """Write payloads to files. Returns the rows with file names in place of the payloads."""

    def file(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, base = fs.FileSystem.from_uri(uri(folder))
        for batch in batches:
            names = []
            for row in batch.select(["store", "partition", "offset", "value"]).to_pylist():
                name = f"{row['store']}-{row['partition']}-{row['offset']}"
                files.create_dir(base, recursive=True)
                with files.open_output_stream(f"{base}/{name}") as out:
                    out.write(row["value"])
                names.append(f"{PAYLOADS}/{name}")
            yield batch.set_column(
                batch.schema.get_field_index("value"), "value", pa.nulls(len(batch), batch.column("value").type)
            ).set_column(batch.schema.get_field_index("value_file"), "value_file", pa.array(names, pa.string()))

    return file
