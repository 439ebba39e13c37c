"""Decoded tables: of the publications of a topic filter, the fields of their payloads as columns.

In:    rows of a micro-batch of the archive; which tables are wanted.
Out:   rows in these tables, and in ``quarantine`` those that do not fit, with the reason.
State: beside the tables, the schema of each (``_schemas/NAME.json``), written before its first row.
Not here: decoding (payloads/), the other tables (archive.py), where a schema is described (contracts.py).

``events`` has every publication as it was sent, whatever becomes of it here. What it has from before a table was named
is added when all batches are finished: then each row that the table lacks is one that no batch will bring.

A table and its part of the quarantine each note the query and the number of the batch, as all tables do, so that a
batch is in them once. The schema does not change between the two: a batch of which one of them has its rows already is
finished with the schema that it began with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from heliograph.errors import UsageError
from heliograph.model.topics import HIDDEN_ROOTS, filter_fault
from heliograph.pipeline.catalogue import VIEWS
from heliograph.pipeline.kinds import EVENT, KEYS, KINDS, QUARANTINE, QUARANTINE_COLUMNS, dated
from heliograph.pipeline.payloads.decoding import decode, known_reader, pieces
from heliograph.pipeline.payloads.formats import PayloadSchema, check_format, inferred
from heliograph.pipeline.payloads.inference import SAMPLE_BYTES, SAMPLE_ROWS
from heliograph.pipeline.payloads.layouts import Layout, columns_text, read_columns, struct
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMAS = "_schemas"
HISTORY = "history"
PLACE = ("store", "partition", "offset")
OTHERS = "other_fields"
BY = ("date",)
ROW = (*KEYS, "topic", "timestamp")  # of every such table, before the fields
RESERVED = (*ROW, OTHERS, "date", "hour")
PREFIX = "payload_"  # of fields that have such a name
RAW, REASON = "__value", "__reason"  # while rows are sorted; no field's column is named so
UNKNOWN = "nothing of the sample could be read, so there is no schema yet"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")

Say = Callable[[str], None]
Reject = Callable[["DataFrame", str, int], None]
"""Rows that did not fit, in the columns of the quarantine; the query and the number of the batch."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What is known of a table that there is."""

    schema: PayloadSchema
    columns: Layout  # all that it has had
    events: int = -1  # the version of ``events`` of which nothing is missing here


@dataclass(frozen=True, slots=True)
class DecodedTable:
    """A table that is wanted."""

    name: str
    filter: str
    schema: PayloadSchema  # if its text is empty: what is noted, or else what a sample says


def read_table(text: str) -> DecodedTable:
    """``readings=sensors/#:json``, or ``…:protobuf/plant.Reading`` with the name of a message."""
    name, _, rest = text.partition("=")
    pattern, _, kind = rest.rpartition(":")
    if not (name and pattern and kind):
        raise UsageError(f"--table {text!r}: write NAME=FILTER:FORMAT, such as 'readings=sensors/#:json'")
    taken = {QUARANTINE, *(each.name for each in KINDS), *(each.name for each in VIEWS)}
    if not _NAME.match(name) or name in taken:
        why = "that is a table or view of its own" if name in taken else "small letters, digits and _, at most 63"
        raise UsageError(f"--table {text!r}: the table cannot be named {name!r}: {why}")
    fault = filter_fault(pattern.encode())
    if fault is not None:
        raise UsageError(f"--table {text!r}: {pattern!r}: {fault}")
    format, _, message = kind.partition("/")
    return DecodedTable(name, pattern, PayloadSchema(format, message=message))


def topic_pattern(pattern: str) -> str:
    """A topic filter as a regular expression of Java for the whole topic."""
    levels = pattern.split("/")
    deep = levels[-1] == "#"
    wild = "".join(f"(?!{root.decode()}(?:/|\\z))" for root in HIDDEN_ROOTS) if levels[0] in ("+", "#") else ""
    words = ["[^/]*" if level == "+" else _quoted(level) for level in (levels[:-1] if deep else levels)]
    below = ("" if words else ".*") if not deep else "(?:/.*)?" if words else ".*"
    return rf"(?s)\A{wild}{'/'.join(words)}{below if deep else ''}\z"


def _quoted(word: str) -> str:
    return re.sub(r"([^\w]|_)", lambda found: f"\\x{{{ord(found[0]):x}}}", word)


class DecodedTables:
    """What an archive decodes."""

    def __init__(
        self,
        tables: LakeTables,
        wanted: Sequence[DecodedTable],
        say: Say | None = None,
        reject: Reject | None = None,
    ) -> None:
        names = [each.name for each in wanted]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"--table: {name} is there twice")
        self._tables, self.wanted, self._say, self._reject = tables, wanted, say, reject
        for each in wanted:
            self._check(each)
        self._lacking = self._incomplete()

    def add(self, rows: DataFrame, query: str, number: int) -> dict[str, int]:
        """Add what a batch has for these tables. Returns how many rows were added to each, and to the quarantine."""
        from pyspark.sql import functions as f

        if not self.wanted:
            return {}
        there = rows.agg(*(f.count_if(_is_of(each)).alias(each.name) for each in self.wanted)).first()
        assert there is not None, "an aggregate has a row"
        counts: dict[str, int] = {}
        for each in self.wanted:
            if there[each.name]:
                good, bad = self._add(each, rows.where(_is_of(each)), query, number, self._reject)
                counts[each.name] = good
                counts[QUARANTINE] = counts.get(QUARANTINE, 0) + bad
        return counts

    def complete(self, spark: SparkSession) -> None:
        """Add what ``events`` has from when a table was not named. All batches must be finished."""
        for each in self.wanted:
            events = self._tables.open(EVENT)
            if events is None:
                return
            if each.name in self._lacking:
                good, bad = self._add(each, self._missing(spark, each), HISTORY, events.version(), None)
                if self._say is not None and (good or bad):
                    self._say(f"{each.name} +{good:,} of older {EVENT}, {QUARANTINE} +{bad:,}")
            noted = self._noted(each.name)
            if noted is not None:
                self._note(each.name, replace(noted, events=events.version()))
        self._lacking = []

    def follow(self) -> None:
        """Say what is missing as long as batches come."""
        if self._say is not None and self._lacking:
            names = ", ".join(self._lacking)
            self._say(f"{names}: older {EVENT} are added when the archive is run without --follow")

    def _incomplete(self) -> list[str]:
        """Tables that may lack what ``events`` has."""
        events = self._tables.open(EVENT)
        if events is None:
            return []
        noted = {each.name: self._noted(each.name) for each in self.wanted}
        return [name for name, one in noted.items() if one is None or one.events != events.version()]

    def _missing(self, spark: SparkSession, each: DecodedTable) -> DataFrame:
        """Events of a table's topics that are neither in it nor in its part of the quarantine."""
        from pyspark.sql import functions as f

        missing = self._tables.read(spark, EVENT).where(_is_of(each))
        for name, where in ((each.name, f.lit(True)), (QUARANTINE, f.col("reason").startswith(f"{each.name}: "))):
            if self._tables.open(name) is not None:
                there = self._tables.read(spark, name).where(where).select(*PLACE)
                missing = missing.join(there, list(PLACE), "left_anti")
        return missing

    def _add(
        self, each: DecodedTable, mine: DataFrame, query: str, number: int, reject: Reject | None
    ) -> tuple[int, int]:
        from pyspark.sql import functions as f

        schema = self._schema(each, mine, query, number)
        read = (_unread(mine) if schema is None else decoded(mine, schema)).persist()
        try:
            found = read.groupBy(f.col(REASON).isNull().alias("fits")).count().collect()
            good, bad = (sum(row["count"] for row in found if row["fits"] is fits) for fits in (True, False))
            table, apart = _transactions(each.name, query)
            if good or (schema is not None and self._tables.open(each.name) is None):
                fitting = dated(read.where(f.col(REASON).isNull()).drop(RAW, REASON), BY)
                good = self._tables.add(each.name, fitting, BY, table, number, good)
            if bad:
                reason = f.concat(f.lit(f"{each.name}: "), f.col(REASON))
                rest = (
                    read.where(f.col(REASON).isNotNull()).withColumn("value", f.col(RAW)).withColumn("reason", reason)
                )
                rest = rest.select(*QUARANTINE_COLUMNS)
                bad = self._tables.add(QUARANTINE, dated(rest, BY), BY, apart, number, bad)
                if reject is not None:  # also if the batch is repeated: they may not have been sent
                    reject(rest, f"{query}/{each.name}", number)
            return good, bad
        finally:
            read.unpersist()

    # -- schemas ------------------------------------------------------------------------------------------------------

    def _check(self, each: DecodedTable) -> None:
        """UsageError if the table is not one that this schema can be added to."""
        check_format(each.schema.format)
        noted = self._noted(each.name)
        if each.schema.is_known:
            _compatible(each.name, None if noted is None else noted.columns, known_reader(each.schema).layout)
        elif noted is None:
            inferred(each.schema, [])  # or it must be given
        elif noted.schema.format != each.schema.format:
            before = noted.schema.format
            raise UsageError(f"the table {each.name} is of {before}: name another table for {each.schema.format}")

    def _schema(self, each: DecodedTable, mine: DataFrame, query: str, number: int) -> PayloadSchema | None:
        """With what this batch is read; None if that is not known yet."""
        noted = self._noted(each.name)
        before, columns = (None, None) if noted is None else (noted.schema, noted.columns)
        wanted = each.schema if each.schema.is_known else before or self._sampled(each, mine)
        if wanted is None or wanted == before:
            return wanted
        if before is not None and self._has_begun(each.name, query, number):
            return before
        layout = known_reader(wanted).layout
        self._note(each.name, Noted(wanted, _together(columns, layout), -1 if noted is None else noted.events))
        if self._say is not None:
            self._say(f"{each.name}: {columns_text(layout)}")
        return wanted

    def _sampled(self, each: DecodedTable, mine: DataFrame) -> PayloadSchema | None:
        from pyspark.sql import functions as f

        rows = mine.where(f.length("value") <= SAMPLE_BYTES).select("value").limit(SAMPLE_ROWS).collect()
        found = inferred(each.schema, [bytes(row["value"]) for row in rows])
        return found and replace(found, text=columns_text(_distinct(read_columns(found.text))))

    def _has_begun(self, name: str, query: str, number: int) -> bool:
        table, apart = _transactions(name, query)
        return self._tables.has(name, table, number) or self._tables.has(QUARANTINE, apart, number)

    def _noted(self, name: str) -> Noted | None:
        told = self._tables.note(f"{SCHEMAS}/{name}.json")
        if told is None:
            return None
        read = json.loads(told)
        columns, events = read_columns(read.pop("columns")), read.pop("events")
        return Noted(PayloadSchema(**read), columns, events)

    def _note(self, name: str, noted: Noted) -> None:
        told = asdict(noted.schema) | {"columns": columns_text(noted.columns), "events": noted.events}
        self._tables.keep_note(f"{SCHEMAS}/{name}.json", json.dumps(told, indent=1).encode())


def decoded(rows: DataFrame, schema: PayloadSchema) -> DataFrame:
    """Rows with a column for each field, the others as JSON, the payload, and the reason if it does not fit."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    layout = known_reader(schema).layout
    given = rows.select(*ROW, f.col("value").alias(RAW))
    fields = [(table_column(each.column), each.layout.arrow()) for each in layout.fields]
    new = pa.schema([(REASON, pa.string()), *fields, (OTHERS, pa.string())])
    made = StructType([*given.schema.fields, *from_arrow_schema(new).fields])
    names = made.names

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in pieces(batch, RAW):
                found = decode(schema, piece.column(RAW))
                arrays = [*piece.columns, found.faults, *found.values.flatten(), found.others]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    return given.mapInArrow(run, made)


def table_column(column: str) -> str:
    """The column of a field in a table, which has columns of its own."""
    return f"{PREFIX}{column}" if column.lower() in RESERVED or column.startswith("__") else column


def _unread(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.select(*ROW, f.col("value").alias(RAW), f.lit(UNKNOWN).alias(REASON))


def _is_of(each: DecodedTable) -> Column:
    from pyspark.sql import functions as f

    return f.col("topic").rlike(topic_pattern(each.filter))


def _transactions(name: str, query: str) -> tuple[str, str]:
    """The names under which a table, and its part of the quarantine, note their batches."""
    return f"{query}/{name}", f"{query}/{name}/{QUARANTINE}"


def _distinct(layout: Layout) -> Layout:
    """Without fields whose columns an earlier one has: a sample may have any names."""
    kept = {table_column(each.column).lower(): each for each in reversed(layout.fields)}
    return struct(each for each in layout.fields if kept[table_column(each.column).lower()] is each)


def _compatible(name: str, before: Layout | None, layout: Layout) -> None:
    """UsageError if two fields would be one column, or a column would have another type than before."""
    seen: dict[str, str] = {}
    known = {} if before is None else {table_column(each.column).lower(): each for each in before.fields}
    for each in layout.fields:
        column = table_column(each.column)
        if seen.setdefault(column.lower(), each.name) != each.name:
            raise UsageError(f"the fields {seen[column.lower()]!r} and {each.name!r} would both be {name}.{column}")
        old = known.get(column.lower())
        if old is not None and old.layout.arrow() != each.layout.arrow():
            raise UsageError(
                f"{name}.{column} is {old.layout}, and the schema says {each.layout}: a column keeps its type, so name "
                f"another table for the new one"
            )


def _together(before: Layout | None, layout: Layout) -> Layout:
    """All columns that a table has had."""
    now = {table_column(each.column).lower() for each in layout.fields}
    gone = [] if before is None else [each for each in before.fields if table_column(each.column).lower() not in now]
    return struct([*layout.fields, *gone])
