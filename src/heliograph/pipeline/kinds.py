"""Kinds: which publications become rows of which table. One entry per table.

In:    rows as the source has them (rows.py).
Out:   KINDS; TableKind.rows(): the part of a batch that belongs to a table, in the table's columns.
State: none.
Not here: writing tables (tables.py, archive.py), views over them (catalogue.py).

JSON is read by Spark's own ``from_json``, so that nothing here runs in Python per row. What a kind cannot read goes to
the table ``quarantine`` with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What every row of every table has: which publication it was.
KEYS = ("store", "partition", "offset", "stored")
EVENT = "events"
QUARANTINE = "quarantine"
PAYLOAD_BYTES_MAX = 8 << 20  # in a table; larger ones become files
_BROKER = "split(topic, '/')[2] as broker"
_TIME = "timestamp_micros(body.time_us) as time"


@dataclass(frozen=True, slots=True)
class TableKind:
    """One table."""

    name: str
    where: str  # SQL on the topic
    body: str  # the JSON that is expected in the payload; empty: any bytes
    columns: tuple[str, ...]  # SQL, over the row and ``body``
    by: tuple[str, ...] = ("date",)

    def rows(self, batch: DataFrame) -> DataFrame:
        """The rows of this kind, with ``reason``: null if they are good. They still have ``topic`` and ``value``."""
        from pyspark.sql import functions as f

        mine = batch.where(self.where)
        if not self.body:
            return mine.withColumn("reason", f.lit(None).cast("string"))
        text = f.decode(f.col("value"), "UTF-8")
        read = mine.withColumn("body", f.from_json(text, self.body))
        first = self.body.split()[0]
        unreadable = f.col(f"body.{first}").isNull()
        return read.withColumn("reason", f.when(unreadable, f.lit(f"not a {self.name} record: no {first} in its JSON")))

    def table(self, rows: DataFrame) -> DataFrame:
        """Good rows in the table's columns, with those that it is partitioned by."""
        return dated(rows.where("reason is null").selectExpr(*KEYS, *self.columns), self.by)


def dated(rows: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Rows with their partitions, which follow from when they were stored."""
    from pyspark.sql import functions as f

    found = rows.withColumn("date", f.to_date("stored"))
    return found.withColumn("hour", f.hour("stored")) if "hour" in by else found


def _about(*words: str) -> str:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"topic like 'System/Brokers/%' and split(topic, '/')[3] in ({listed})"


_EVENTS = TableKind(
    EVENT,
    "topic not like 'System/%' and topic not like 'Services/%'",
    "",
    ("topic", "value", "value_file", "length", "timestamp", "headers", "origin", "sequence", "synchronised"),
    ("date", "hour"),
)

_GAUGES = (
    "connections",
    "links",
    "sessions",
    "subscriptions",
    "publications",
    "duplicates",
    "denied",
    "dropped",
    "expired",
    "parcels_forwarded",
    "parcels_arrived",
    "parcels_unroutable",
    "backlog_bytes",
    "neighbours",
    "cpu_permille",
    "incarnation",
)

KINDS: tuple[TableKind, ...] = (
    _EVENTS,
    TableKind(
        "brokers",
        _about("load", "counters"),
        "time_us bigint, network string, draining boolean, full boolean, "
        + ", ".join(f"{name} bigint" for name in _GAUGES),
        (
            _BROKER,
            _TIME,
            "split(topic, '/')[3] as about",
            *(f"body.{name}" for name in ("network", "draining", "full", *_GAUGES)),
        ),
    ),
    TableKind(
        "hops",
        _about("hops"),
        "time_us bigint, topic string, origin string, sequence bigint, bytes bigint, published_us bigint, "
        "way array<string>",
        (
            _BROKER,
            _TIME,
            *(f"body.{name} as {name}" for name in ("topic", "origin", "sequence", "bytes", "way")),
            "timestamp_micros(body.published_us) as published",
            "size(body.way) as hops",
            "(body.time_us - body.published_us) / 1000.0 as delay_ms",
        ),
    ),
    TableKind(
        "links",
        _about("links", "joins"),
        "note string, time_us bigint, link bigint, entity string, name string, broker string, brokers array<string>, "
        "cluster string, reason string",
        (
            _BROKER,
            _TIME,
            "split(topic, '/')[3] as about",
            "body.note as what",
            "body.broker as other",
            "body.brokers as others",
            *(f"body.{name} as {name}" for name in ("link", "entity", "name", "cluster")),
            "body.reason as reason_word",
        ),
    ),
    TableKind(
        "denials",
        _about("denials"),
        "reason string, time_us bigint, note string, link bigint, entity string, subject string, detail string",
        (
            _BROKER,
            _TIME,
            "body.note as what",
            "body.reason as reason_word",
            *(f"body.{name} as {name}" for name in ("entity", "subject", "detail")),
        ),
    ),
    TableKind(
        "discovery",
        _about("discovery"),
        "outcome string, time_us bigint, request string, source string",
        (_BROKER, _TIME, *(f"body.{name} as {name}" for name in ("request", "source", "outcome"))),
    ),
    TableKind(
        "advice",
        "topic like 'System/Advice%'",
        "kind string, time_us bigint, about string, text string, value double",
        (_TIME, *(f"body.{name} as {name}" for name in ("kind", "about", "text", "value"))),
    ),
    TableKind(
        "advertisements",
        "topic like 'Services/%'",
        "",
        ("topic", "timestamp", "origin", "decode(value, 'UTF-8') as body", "length"),
    ),
)

QUARANTINE_COLUMNS = (*KEYS, "topic", "value", "reason")
