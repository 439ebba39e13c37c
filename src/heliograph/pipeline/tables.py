"""Tables: folders of Parquet files with a Delta Lake log, a standard format that any tool reads.

In:    DataFrames to add, each under the number of a batch.
Out:   LakeTables: add, read as of now, compact, vacuum.
State: on disk only; the log of each table lists its content.
Not here: which rows go where (kinds.py, archive.py).

Executors write Parquet with Spark's own writer into a folder of the batch. The driver then commits these files with
delta-rs in one transaction that carries (query, batch). It checks first whether that batch is present, so a batch that
Spark repeats after a crash is added once, and whether the files have the rows of the batch. Files of a batch that was
never committed are in no table; vacuum removes them when nothing was added to them for at least an hour.
Spark reads the files that the log names as plain Parquet, at native speed and without a jar.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import Schema as DeltaSchema
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow import fs

from heliograph.errors import HeliographError, UsageError
from heliograph.pipeline.file_stats import stats_of
from heliograph.pipeline.kinds import utc_date, utc_hour
from heliograph.pipeline.places import absolute, for_others, for_spark, uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FILE_BYTES = 128 << 20  # target size for compaction
SMALL_FILES_MAX = 64  # of a partition, before they are merged
MILLISECOND = timedelta(milliseconds=1)
KEPT_HOURS = 168  # of files that no version needs
OPEN_HOURS = 1  # a batch whose newest file is older is not being written any longer
BATCHES = "data"  # the folder of the batches of a table
GLOB_PATHS = "__globPaths__"  # an option of Spark's: whether ? * [ { have a meaning in paths
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class RowsLostError(HeliographError):
    """The files of a batch do not have the rows that were written to them."""


class LakeTables:
    """The tables below one folder: a path, or an address in an object store."""

    def __init__(self, root: str, as_of: int | datetime | None = None) -> None:
        self.root = for_others(absolute(root.rstrip("/")))
        self._as_of = as_of  # a version of each table, or a time, for reading
        for sign in "\\%":
            if "://" not in self.root and sign in self.root:
                raise UsageError(
                    f"{self.root!r} has the sign {sign}, which Spark or Delta would misread: use another folder"
                )
        self._files, self._base = fs.FileSystem.from_uri(uri(self.root))

    def path(self, name: str) -> str:
        """Where a table is."""
        return f"{self.root}/{name}"

    def names(self) -> list[str]:
        """The existing tables."""
        listed = self._files.get_file_info(fs.FileSelector(self._base, allow_not_found=True))
        found = sorted(
            info.base_name
            for info in listed
            if info.type == fs.FileType.Directory
            and self._files.get_file_info(f"{info.path}/_delta_log").type == fs.FileType.Directory
        )
        return found if self._as_of is None else [name for name in found if self.open(name) is not None]

    def open(self, name: str) -> DeltaTable | None:
        """A table in its current state, or as of the given version or time; None if it does not, or did not, exist."""
        try:
            table = DeltaTable(self.path(name))
        except TableNotFoundError:
            return None
        if isinstance(self._as_of, datetime):
            begun = min(each["timestamp"] for each in table.history())
            if begun > self._as_of.timestamp() * 1_000:
                return None
            table.load_as_version(self._as_of)
        elif self._as_of is not None:
            if self._as_of > table.version():
                return None
            table.load_as_version(self._as_of)
        return table

    def payload(self, name: str) -> bytes:
        """A payload that was too large for a row, by the name in the row."""
        with self._files.open_input_stream(f"{self._base}/{name}") as file:
            return bytes(file.read())

    def note(self, name: str) -> bytes | None:
        """A small file that was kept beside the tables; None if there is none of this name."""
        path = f"{self._base}/{name}"
        if self._files.get_file_info(path).type != fs.FileType.File:
            return None
        with self._files.open_input_stream(path) as file:
            return bytes(file.read())

    def keep_note(self, name: str, data: bytes) -> None:
        """Keep a small file beside the tables. It is there as a whole, or as it was before."""
        path = f"{self._base}/{name}"
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(f"{path}.new") as out:
            out.write(data)
        self._files.move(f"{path}.new", path)

    def rows(self, name: str) -> int:
        """The number of rows of a table, from its log."""
        return self._opened(name).count()

    def has(self, name: str, query: str, batch: int) -> bool:
        """True if the table contains this batch of this query."""
        table = self.open(name)
        last = None if table is None else table.transaction_version(query)
        return last is not None and last >= batch

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        rows: DataFrame,
        by: Sequence[str],
        query: str,
        batch: int,
        count: int | Callable[[], int] | None = None,
    ) -> int:
        """Add the rows of a batch once, however often it is tried. Returns the number of rows added now.

        ``count``: how many rows there are, or what tells it once they are written. RowsLostError, and nothing is added,
        if the files have another number. If that tells 0, the files are removed.
        """
        if self.has(name, query, batch):
            return 0
        folder = f"{BATCHES}/{_plain(query)}-{batch}"
        writing = rows.write.options(partitionOverwriteMode="static", compression="zstd").mode("overwrite")
        writing.partitionBy(*by).parquet(for_spark(f"{self.path(name)}/{folder}"))
        told = count() if callable(count) else count
        if told == 0 and callable(count):
            place = f"{self._base}/{name}/{folder}"
            if self._files.get_file_info(place).type == fs.FileType.Directory:  # object stores have none
                self._files.delete_dir(place)
            return 0
        return self.commit(name, folder, rows.schema, by, query, batch, told)

    def commit(
        self,
        name: str,
        folder: str,
        schema: StructType,
        by: Sequence[str],
        query: str,
        batch: int,
        count: int | None = None,
    ) -> int:
        """Add the files of a folder to a table, together with the number of their batch."""
        actions: list[AddAction | RemoveAction] = [*self._actions(name, folder, by)]
        listed: int = sum(json.loads(each.stats)["numRecords"] for each in actions if isinstance(each, AddAction))
        if count is not None and listed != count:
            raise RowsLostError(
                f"{self.path(name)}/{folder} has {listed:,} of the {count:,} rows that were written, so they are not "
                "in the table: something removed files; run it again, and the batch is written again"
            )
        table = self.open(name) or self._create(name, schema, by)
        _grow(table, schema)
        done = CommitProperties(app_transactions=[Transaction(query, batch)])
        table.create_write_transaction(actions, "append", table.schema(), list(by), commit_properties=done)
        return listed

    def _create(self, name: str, schema: StructType, by: Sequence[str]) -> DeltaTable:
        return DeltaTable.create(
            uri(self.path(name)),
            DeltaSchema.from_json(_delta_json(schema)),
            mode="ignore",
            partition_by=list(by),
            name=name,
        )

    def _actions(self, name: str, folder: str, by: Sequence[str]) -> Iterator[AddAction]:
        base = f"{self._base}/{name}"
        for info in self._files.get_file_info(fs.FileSelector(f"{base}/{folder}", recursive=True)):
            if info.type != fs.FileType.File or not info.base_name.endswith(".parquet"):
                continue
            with self._files.open_input_file(info.path) as file:
                footer = pq.ParquetFile(file).metadata
            if footer.num_rows:
                yield AddAction(
                    path=info.path[len(base) + 1 :],
                    size=info.size,
                    partition_values=_partition(info.path, by),
                    modification_time=int(info.mtime_ns // 1_000_000),
                    data_change=True,
                    stats=stats_of(footer),
                )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, spark: SparkSession, name: str, since: str = "", until: str = "") -> DataFrame:
        """A table in its current state, limited to what was stored from ``since`` to ``until`` if given.

        These are days (2026-11-16), the last included, or UTC times. Files that have nothing of it are not opened.
        """
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        table = self.open(name)
        if table is None:
            there = ", ".join(self.names()) or "none"
            raise UsageError(f"there is no table {name!r} in {self.root} (there are: {there})")
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        by = table.metadata().partition_columns
        stored = StructType([field for field in schema.fields if field.name not in by])
        low, high = moment(since) if since else None, moment(until, is_end=True) if until else None
        files = self._files_of(table, name, low, high)
        if files:
            reading = spark.read.schema(stored).options(recursiveFileLookup="true", **{GLOB_PATHS: "false"})
            rows = reading.parquet(*map(for_spark, files))
        else:
            rows = spark.createDataFrame([], stored)
        for column in by:  # computed from the files' content, which delta-rs may have rewritten
            rows = rows.withColumn(column, utc_date() if column == "date" else utc_hour())
        for limit, keeps in ((low, f.col("stored").__ge__), (high, f.col("stored").__lt__)):
            if limit is not None:
                rows = rows.where(keeps(f.timestamp_micros(f.lit(_micros(limit)))))
        return rows

    def _files_of(self, table: DeltaTable, name: str, low: datetime | None, high: datetime | None) -> list[str]:
        """Those that may have rows of a period: by their partition, and by their statistics if they have any."""
        files = table.file_uris()
        if low is not None or high is not None:
            idle = {f"{self.path(name)}/{unquote(path)}" for path in _outside(table, low, high)}
            files = [each for each in files if unquote(each) not in idle]
        return files if "://" in self.root else [unquote(each) for each in files]  # Spark takes paths as they are

    # -- maintenance --------------------------------------------------------------------------------------------------

    def compact(self, name: str, file_bytes: int = FILE_BYTES) -> dict[str, Any]:
        """Merge small files."""
        table = self._opened(name)
        done = table.optimize.compact(target_size=file_bytes)
        table.create_checkpoint()
        return {"table": name, "files_removed": done["numFilesRemoved"], "files_added": done["numFilesAdded"]}

    def tidy(self, name: str, file_bytes: int = FILE_BYTES) -> bool:
        """Merge small files if some partition has many of them. Returns whether it had."""
        table = self._opened(name)
        by = [f"partition.{column}" for column in table.metadata().partition_columns]
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        small = Counter(tuple(each[column] for column in by) for each in files if each["size_bytes"] < file_bytes // 2)
        if max(small.values(), default=0) < SMALL_FILES_MAX:
            return False
        self.compact(name, file_bytes)
        return True

    def expire(self, name: str, before: date) -> int:
        """Remove the rows that were stored before a day, and their large payloads. Returns how many rows.

        Earlier versions keep these rows, but for large payloads, until their files are vacuumed.
        """
        table = self._opened(name)
        if "value_file" in {field.name for field in table.schema().fields}:
            is_old = pc.field("date") < pc.scalar(before)
            large = table.to_pyarrow_dataset().to_table(["value_file"], is_old & pc.field("value_file").is_valid())
            payloads = large.column("value_file").to_pylist()
        else:
            payloads = []
        done = table.delete(f"date < '{before:%Y-%m-%d}'")
        for payload in payloads:
            with suppress(FileNotFoundError):
                self._files.delete_file(f"{self._base}/{payload}")
        return int(done["num_deleted_rows"] or 0)

    def vacuum(self, name: str, kept_hours: int = KEPT_HOURS, *, force: bool = False) -> int:
        """Remove files that no version of the last hours needs. Returns how many.

        Files that are in no version stay as long as their batch may be open: until nothing was added to it for
        ``kept_hours``, and at least for an hour, ``force`` or not. ``force`` is for less than an hour.
        """
        if kept_hours < OPEN_HOURS and not force:
            raise UsageError(
                f"--vacuum {kept_hours}: files of the last {OPEN_HOURS} h may be in use by a query; --force removes "
                "those that no version needs any longer"
            )
        table = self._opened(name)
        replaced, unused = (
            table.vacuum(kept_hours, dry_run=True, enforce_retention_duration=False, full=full)
            for full in (False, True)
        )
        in_log = set(replaced)
        is_open = self._open_batches(name, max(kept_hours, OPEN_HOURS))
        gone = [each for each in dict.fromkeys([*replaced, *unused]) if each in in_log or _batch(each) not in is_open]
        for each in gone:
            self._files.delete_file(f"{self._base}/{name}/{unquote(each)}")
        return len(gone)

    def _open_batches(self, name: str, hours: int) -> set[str]:
        """Those to which something was added in the last hours."""
        base, since = f"{self._base}/{name}", datetime.now(UTC) - timedelta(hours=hours)
        found = self._files.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        written = [info for info in found if info.type == fs.FileType.File]
        return {_batch(info.path[len(base) + 1 :]) for info in written if info.mtime is None or info.mtime >= since}

    def _opened(self, name: str) -> DeltaTable:
        table = self.open(name)
        if table is None:
            raise UsageError(f"there is no table {name!r} in {self.root}")
        return table


def moment(text: str, *, is_end: bool = False) -> datetime:
    """A day or a time, in UTC unless it says otherwise. ``is_end``: of a day, when it is over."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a day or a time, such as 2026-11-16 or 2026-11-16T12:30") from None
    if is_end and len(text) <= len("2026-11-16"):
        read += timedelta(days=1)
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def _micros(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _outside(table: DeltaTable, low: datetime | None, high: datetime | None) -> list[str]:
    """The files that have nothing of a period, as their days and their statistics say.

    delta-rs, which compacts, rounds the greatest time down to a millisecond.
    """
    return [
        each["path"]
        for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if (low is not None and _is_below(each.get("partition.date"), low.date()))
        or (high is not None and _is_below(high.date(), each.get("partition.date")))
        or (low is not None and _is_below(each.get("max.stored"), low - MILLISECOND))
        or (high is not None and each.get("min.stored") is not None and each["min.stored"] >= high)
    ]


def _is_below(one: Any, other: Any) -> bool:
    return one is not None and other is not None and bool(one < other)


def _grow(table: DeltaTable, schema: StructType) -> None:
    """Add the columns that a table lacks. They are null in existing rows."""
    known = {field.name for field in table.schema().fields}
    new = [field for field in DeltaSchema.from_json(_delta_json(schema)).fields if field.name not in known]
    if new:
        table.alter.add_columns(new)


def _delta_json(schema: StructType) -> str:
    """A Spark schema in Delta's form: the same JSON, all columns nullable."""
    fields = [dict(field.jsonValue(), nullable=True, metadata={}) for field in schema.fields]
    return json.dumps({"type": "struct", "fields": fields})


def _partition(path: str, by: Sequence[str]) -> dict[str, str | None]:
    named = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    return {name: None if named[name] == NULL_PARTITION else unquote(named[name]) for name in by}


def _batch(file: str) -> str:
    """The folder of a file's batch; a file that compaction made is one by itself."""
    parts = unquote(file).split("/")
    return "/".join(parts[:2]) if parts[0] == BATCHES else unquote(file)


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
