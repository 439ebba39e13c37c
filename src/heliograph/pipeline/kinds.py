"""Kinds: which publications become rows of which table. One entry per table.

In:    rows in the columns of the source (rows.py).
Out:   KINDS; with_kind(): rows with the name of their table; TableKind.rows(): the rows of a table, in its columns.
State: none.
Not here: writing tables (tables.py, archive.py), views over them (catalogue.py), binary messages (topic_messages.py,
       broker_messages.py).

JSON is read by Spark's own ``from_json``, so that no Python runs per row except for binary payloads. Payloads that a
kind cannot read, and those without a kind, go to the table ``quarantine`` with the reason. Nothing here may fail on a
payload or a topic, because that would stop the archive for good. So no index into an array, and no decoding, is strict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.model.publication import STAMP_MAX, STAMP_MIN
from heliograph.pipeline.broker_messages import as_json as broker_as_json
from heliograph.pipeline.topic_messages import as_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The columns of every table, which identify the publication.
KEYS = ("store", "partition", "offset", "stored")
EVENT = "events"
# Topics of Heliograph itself; those of all others are the users' own.
SYSTEM = "'^(System|Services|Entity)(/|$)'"
QUARANTINE = "quarantine"
PAYLOAD_BYTES_MAX = 8 << 20  # in a table; larger ones become files
# What every kind reads from.
ROW_SCHEMA = (
    "store string, partition int, offset long, stored timestamp, topic string, value binary, timestamp timestamp, "
    "headers string, origin string, sequence long, synchronised boolean, length long, value_file string, kind string"
)
_BROKER = "get(split(topic, '/'), 2) as broker"
_ABOUT = "get(split(topic, '/'), 3) as about"
# Brokers and clients chose these numbers; Python cannot even print a table with the year 33658.
_MICROS = f"if({{0}} between {STAMP_MIN} and {STAMP_MAX}, {{0}}, null)"
_TIMESTAMP = f"timestamp_micros({_MICROS})"
_TIME = _TIMESTAMP.format("body.time_us") + " as time"
_DELAY_MS = "(double(body.time_us) - double(body.published_us)) / 1000"
DELAY_MS_MIN, DELAY_MS_MAX = -60_000, 3_600_000  # outside, it only shows that the publisher's clock is wrong
_HOUR_US = 3_600 * 1_000_000
_DAY_US = 24 * _HOUR_US
_TIME_OF_DAY = f"pmod(unix_micros(stored), {_DAY_US})"


@dataclass(frozen=True, slots=True)
class TableKind:
    """One table."""

    name: str
    where: str  # SQL on the topic
    body: str  # the JSON expected in the payload; empty: any bytes
    columns: tuple[str, ...]  # SQL, over the row and ``body``
    by: tuple[str, ...] = ("date",)
    as_json: Callable[[bytes], str] | None = None  # for payloads that are not JSON; errors are in "fault"

    def rows(self, batch: DataFrame) -> DataFrame:
        """The rows of this kind, with ``reason``: null if they are valid. They still have ``topic`` and ``value``."""
        from pyspark.sql import functions as f

        mine = batch.where(f.col("kind") == self.name)
        if not self.body:
            return mine.withColumn("reason", f.lit(None).cast("string"))
        read = mine.withColumn("text", self._text()).withColumn("body", f.from_json("text", self.body))
        first = self.body.split()[0]
        told = f.concat(f.lit(f"not a {self.name} record: "), f.coalesce(f.get_json_object("text", "$.fault"),
                        f.lit(f"no {first} in its JSON")))  # fmt: skip
        return read.withColumn("reason", f.when(f.col(f"body.{first}").isNull(), told))

    def _text(self) -> Column:
        """The payload as JSON. A cast checks nothing, whereas ``decode`` would fail on invalid UTF-8."""
        from pyspark.sql import functions as f

        plain = f.col("value").cast("string")
        return plain if self.as_json is None else _in_python(self.as_json)(f.col("value"))

    def table(self, rows: DataFrame) -> DataFrame:
        """Valid rows in the table's columns, including those that it is partitioned by."""
        return dated(rows.where("reason is null").selectExpr(*KEYS, *self.columns), self.by)


def empty(spark: SparkSession, name: str) -> DataFrame:
    """A table of this kind without rows, with the columns that it has today."""
    (kind,) = (each for each in KINDS if each.name == name)
    return kind.table(kind.rows(spark.createDataFrame([], ROW_SCHEMA)))


def dated(rows: DataFrame, by: tuple[str, ...]) -> DataFrame:
    """Rows with their partition columns, which are computed from when they were stored."""
    found = rows.withColumn("date", utc_date())
    return found.withColumn("hour", utc_hour()) if "hour" in by else found


def utc_date() -> Column:
    """The day of ``stored`` in UTC. ``to_date`` would follow the time zone of the session."""
    from pyspark.sql import functions as f

    return f.expr(f"date_from_unix_date(cast((unix_micros(stored) - {_TIME_OF_DAY}) div {_DAY_US} as int))")


def utc_hour() -> Column:
    """The hour of ``stored`` in UTC."""
    from pyspark.sql import functions as f

    return f.expr(f"cast({_TIME_OF_DAY} div {_HOUR_US} as int)")


def with_kind(rows: DataFrame) -> DataFrame:
    """Rows with ``kind``: the name of the first kind that accepts their topic, or the quarantine."""
    from pyspark.sql import functions as f

    fitting = (f.when(f.expr(kind.where), f.lit(kind.name)) for kind in KINDS)
    return rows.withColumn("kind", f.coalesce(*fitting, f.lit(QUARANTINE)))


def _in_python(read: Callable[[bytes], str]) -> Any:
    """Wrap a function on payloads as a Spark function on columns."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def run(values: pa.Array) -> pa.Array:
        return pa.array([None if value is None else read(value) for value in values.to_pylist()], pa.string())

    run.__annotations__ = {"values": pa.Array, "return": pa.Array}  # Spark needs types here, not strings
    make: Any = arrow_udf  # its stubs only know the older form, which warns
    return make(run, "string")


def _about(*words: str) -> str:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"topic like 'System/Brokers/%' and get(split(topic, '/'), 3) in ({listed})"


_EVENTS = TableKind(
    EVENT,
    f"not (topic rlike {SYSTEM})",
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
    "interval_s",
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
            _ABOUT,
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
            _TIMESTAMP.format("body.published_us") + " as published",
            "size(body.way) as hops",
            f"if({_DELAY_MS} between {DELAY_MS_MIN} and {DELAY_MS_MAX}, {_DELAY_MS}, null) as delay_ms",
        ),
    ),
    TableKind(
        "links",
        _about("links", "joins"),
        "note string, time_us bigint, link bigint, entity string, name string, broker string, brokers array<string>, "
        "cluster string, reason string, incarnation bigint",
        (
            _BROKER,
            _TIME,
            _ABOUT,
            "body.note as what",
            "body.broker as other",
            "body.brokers as others",
            *(f"body.{name} as {name}" for name in ("link", "entity", "name", "cluster")),
            "body.reason as reason_word",
            "body.incarnation as incarnation",
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
        "resource_updates",
        "topic like 'System/Resources/%'",
        "id string, at bigint, what string, name string, owner string, host string, model string, `where` string, "
        "`values` string",
        (
            _TIMESTAMP.format("body.at div 1000") + " as time",
            *(f"body.{name} as {name}" for name in ("id", "what", "name", "owner", "host", "model")),
            "body.`where` as condition",
            "body.`values` as attributes",
        ),
    ),
    TableKind(
        "topic_messages",
        "topic like 'Services/Discovery/%'",
        "what string, time_us bigint, id string, is_sealed boolean, uuid string, created_topic string, owner string, "
        "institution string, space string, directory string, created_us bigint, expires_us bigint, "
        "is_encrypted boolean, readers array<string>, attributes string, query string",
        (
            _TIME,
            *(f"body.{name} as {name}" for name in ("what", "id", "is_sealed", "uuid", "created_topic", "owner")),
            *(f"body.{name} as {name}" for name in ("institution", "space", "directory", "is_encrypted", "readers")),
            _TIMESTAMP.format("body.created_us") + " as created",
            _TIMESTAMP.format("body.expires_us") + " as expires",
            *(f"body.{name} as {name}" for name in ("attributes", "query")),
            "origin as publisher",
        ),
        as_json=as_json,
    ),
    TableKind(
        "broker_messages",
        "topic like 'Services/BrokerDiscoveryNodes/%'",
        "what string, is_sealed boolean, broker string, incarnation bigint, number bigint, lifetime_s bigint, "
        "host string, ports string, address string, island string, brokers bigint, geography string, "
        "institution string, network string, withdrawn boolean, distances string, request string, requester string, "
        "role string, issued_us bigint, by string, directory string",
        (
            "timestamp as time",
            *(f"body.{name} as {name}" for name in ("what", "is_sealed", "broker", "incarnation", "number")),
            *(f"body.{name} as {name}" for name in ("lifetime_s", "host", "ports", "address", "island", "brokers")),
            *(f"body.{name} as {name}" for name in ("geography", "institution", "network", "withdrawn", "distances")),
            *(f"body.{name} as {name}" for name in ("request", "requester", "role", "by", "directory")),
            _TIMESTAMP.format("body.issued_us") + " as issued",
            "origin as publisher",
        ),
        as_json=broker_as_json,
    ),
    TableKind(
        "advertisements",
        "topic rlike '^(Services|Entity)(/|$)'",
        "",
        ("topic", "timestamp", "origin", "if(is_valid_utf8(value), string(value), null) as body", "value", "length"),
    ),
)

QUARANTINE_COLUMNS = (*KEYS, "topic", "value", "reason")
