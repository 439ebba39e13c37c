"""Jobs: what `heliograph pipeline` and spark-submit run. Each takes plain values and returns plain values.

In:    a Spark session, folders, files of requests or subscriptions.
Out:   rows as dicts, ready for a table or JSON.
State: none.
Not here: options (cli/pipeline.py), the session (session.py), the work itself (archive.py, requests.py, …).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.errors import UsageError
from heliograph.pipeline import archive, catalogue, evaluation, history, network, requests
from heliograph.pipeline.answers import all_rows
from heliograph.pipeline.contracts import CONTRACT, contract_of
from heliograph.pipeline.decoded_tables import DecodedTable, DecodedTables
from heliograph.pipeline.options import read_options
from heliograph.pipeline.places import absolute, for_spark
from heliograph.pipeline.rejected import rejected_to
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from heliograph.live.blocking import BlockingClient

PUBLISHED_MAX = 1_000_000
WAIT_S = 1


def keep(
    spark: SparkSession,
    root: str,
    options: Mapping[str, str],
    *,
    follow: bool,
    seconds: int,
    say: archive.Progress,
    decoded: DecodedTables | None = None,
    checkpoint: str = "",
) -> dict[str, Any]:
    """Archive what stores keep: everything present, or continuously until Ctrl-C."""
    stream = spark.readStream.format("heliograph").options(**options).load()
    query = archive.start(
        stream, root, once=not follow, seconds=seconds, checkpoint=checkpoint, say=say, decoded=decoded
    )
    if decoded is not None and follow:
        decoded.follow()
    try:
        while not query.awaitTermination(WAIT_S):
            pass
    except KeyboardInterrupt:
        query.stop()
        raise
    if decoded is not None:
        decoded.complete(spark)
    tables = LakeTables(root)
    return {"tables": {name: tables.rows(name) for name in tables.names()}}


def decoded_tables(
    root: str, options: Mapping[str, str], wanted: Sequence[DecodedTable], rejected: str, say: archive.Progress
) -> DecodedTables:
    """Tables of payloads, checked; contracts are asked for. ``rejected``: the topic for payloads that do not fit."""
    if rejected and not wanted:
        raise UsageError("--rejected-to is for payloads that fit no --table")
    if any(each.schema.format == CONTRACT for each in wanted):
        with read_options(options, True).connect() as client:
            wanted = [_described(client, each) for each in wanted]
    reject = rejected_to(rejected, options, [each.filter for each in wanted]) if rejected else None
    return DecodedTables(LakeTables(root), wanted, say, reject)


def _described(client: BlockingClient, table: DecodedTable) -> DecodedTable:
    if table.schema.format != CONTRACT:
        return table
    return replace(table, schema=contract_of(client, table.filter, table.schema.message))


def compact(root: str, kept_hours: int | None, *, force: bool = False) -> list[dict[str, Any]]:
    """Merge small files; remove old ones if hours are given. This does not need Spark."""
    tables = LakeTables(root)
    found = []
    for name in _names(tables):
        row = tables.compact(name)
        if kept_hours is not None:
            row["vacuumed"] = tables.vacuum(name, kept_hours, force=force)
        found.append(row)
    return found


def expire(root: str, before: date) -> list[dict[str, Any]]:
    """Remove what was stored before a day. This does not need Spark."""
    tables = LakeTables(root)
    return [{"table": name, "rows_removed": tables.expire(name, before)} for name in _names(tables)]


def list_views(spark: SparkSession, root: str) -> list[dict[str, Any]]:
    """The tables and views of an archive, with their columns."""
    names = catalogue.register(spark, LakeTables(root))
    return [{"name": name, "columns": ", ".join(spark.table(name).columns)} for name in names]


def ask(
    spark: SparkSession, root: str, query: str, since: str = "", until: str = "", as_of: int | datetime | None = None
) -> DataFrame:
    """An SQL query over the tables and views. answers.py makes plain rows of it."""
    catalogue.register(spark, LakeTables(root, as_of), since, until)
    return spark.sql(query)


def match(
    spark: SparkSession, root: str, subscriptions: list[history.Subscription], since: str, until: str, save: str
) -> dict[str, Any]:
    """Count the archived events that each subscription would have received. ``save``: the pairs, as Parquet."""
    events = LakeTables(root).read(spark, "events", since, until)
    found = history.match(events, subscriptions, keep=[*history.KEY, "topic", "timestamp"]).persist()
    if save:
        found.write.mode("overwrite").parquet(for_spark(absolute(save)))
    counts = {row["subscription"]: row["count"] for row in found.groupBy("subscription").count().collect()}
    matched = [{"subscription": id, "events": counts.get(id, 0)} for id, *_ in subscriptions]
    return {"matches": sum(counts.values()), "subscriptions": matched}


def matched_events(
    spark: SparkSession, root: str, subscription: history.Subscription, since: str, until: str
) -> DataFrame:
    """The events that one subscription would have received, in order."""
    events = LakeTables(root).read(spark, "events", since, until)
    kept = [*history.KEY, "topic", "value", "value_file", "headers"]
    return history.match(events, [subscription], keep=kept).orderBy("store", "partition", "offset").limit(PUBLISHED_MAX)


def similarity(spark: SparkSession, path: str) -> dict[str, Any]:
    """Blocks and similarity of the requests in a file, and what caching would save if they have times."""
    table = read_requests(spark, path)
    figures = requests.study(table).figures()
    if "time" in table.columns:
        figures["saved_by_caching"] = all_rows(requests.savings(table))
    return figures


def network_figures(spark: SparkSession, root: str) -> dict[str, Any]:
    """Delay, load and other figures, and the resulting advice."""
    found = {name: all_rows(table) for name, table in network.figures(spark, LakeTables(root)).items()}
    if not found:
        raise UsageError(f"{root} has no tables yet: run `heliograph pipeline archive` first")
    return {"figures": found, "advice": network.advise(found)}


def evaluate(spark: SparkSession, folder: str) -> dict[str, Any]:
    """Tables and figures of measurements, written to the same folder."""
    table = all_rows(evaluation.summary(evaluation.measurements(spark, folder)))
    figures = [str(path) for path in evaluation.draw(table, Path(folder))]
    with (Path(folder) / "summary.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return {"table": table, "figures": figures}


def read_requests(spark: SparkSession, path: str) -> DataFrame:
    """Requests from Parquet, JSON lines or CSV: filter, language, where, and optionally time."""
    if not Path(path).exists() and "://" not in path:
        raise UsageError(f"{path} is not there")
    ending, path = Path(path).suffix, for_spark(absolute(path))
    if ending == ".csv":
        table = spark.read.option("header", "true").csv(path)
    elif ending in (".json", ".jsonl"):
        table = spark.read.json(path)
    else:
        table = spark.read.parquet(path)
    if "filter" not in table.columns:
        raise UsageError(f"{path} has no column filter; it should have filter, language, where, and perhaps time")
    for name in ("language", "where"):
        if name not in table.columns:
            table = table.selectExpr("*", f"cast(null as string) as `{name}`")
    return table


def _names(tables: LakeTables) -> list[str]:
    names = tables.names()
    if not names:
        raise UsageError(f"{tables.root} has no tables yet: run `heliograph pipeline archive` first")
    return names
