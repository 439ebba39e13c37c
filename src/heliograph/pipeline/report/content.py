"""The content of a report: its questions, asked of an archive.

In:    a session, the folder of an archive, perhaps days, and perhaps a file of requests.
Out:   ReportContent: plain values, ready to be drawn.
State: none.
Not here: the questions (questions.py), drawing and HTML (charts.py, page.py).

Without a file, the requests whose similarity is shown are the searches for topics that the archive has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from heliograph.errors import UsageError
from heliograph.pipeline import network, requests
from heliograph.pipeline.answers import all_rows
from heliograph.pipeline.catalogue import register
from heliograph.pipeline.jobs import read_requests
from heliograph.pipeline.network import Advice
from heliograph.pipeline.report.questions import (
    PRESENT,
    QUESTIONS,
    SUMMARY,
    TOP,
    WISHES,
    Bars,
    Chart,
    Columns,
    Period,
)
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMED = ("events", "brokers", "hops", "links", "discovery", "resource_updates", "topic_messages")  # say the period
KEPT = ("incarnations", "counter_increases", "paths", "present_brokers")  # views that several questions read
_DELAY = """select round(percentile(delay_ms, 0.5), 2) as p50, round(percentile(delay_ms, 0.99), 2) as p99
  from paths where not is_system"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One figure: what was asked, and the rows that came back; None if the archive lacks a table for it."""

    name: str
    title: str
    lead: str
    sql: str
    chart: Chart
    rows: Sequence[dict[str, Any]] | None
    nothing: str = ""


@dataclass(frozen=True, slots=True)
class ReportContent:
    """Everything that a report shows. Texts of the network are as they came."""

    root: str
    period: Period
    made: datetime
    days: tuple[str, str] = ("", "")  # --since and --until, as given
    summary: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, list[Answer]] = field(default_factory=dict)
    brokers: Sequence[dict[str, Any]] = ()
    links: Sequence[dict[str, Any]] = ()
    advice: Sequence[Advice] = ()
    similarity: dict[str, Any] = field(default_factory=dict)
    requests: str = ""  # the file of requests, if one was given


def collect(
    spark: SparkSession, root: str, made: datetime, *, since: str = "", until: str = "", file: str = ""
) -> ReportContent:
    """Ask everything. UsageError if there is nothing to ask."""
    tables = LakeTables(root)
    there = set(register(spark, tables, since, until))
    kept = [spark.table(name).persist() for name in KEPT if name in there]
    try:
        return _collected(spark, root, made, there, since, until, file)
    finally:
        for each in kept:
            each.unpersist()


def _collected(
    spark: SparkSession, root: str, made: datetime, there: set[str], since: str, until: str, file: str
) -> ReportContent:
    if not there:
        raise UsageError(f"{root} has no tables yet: run `heliograph pipeline archive` first")
    period = _period(spark, [name for name in TIMED if name in there])
    if period is None:
        raise UsageError(f"{root} has no rows of these days" if since or until else f"{root} has no rows yet")

    def ask(sql: str, *needs: str) -> list[dict[str, Any]] | None:
        return all_rows(spark.sql(period.filled(sql))) if there.issuperset(needs) else None

    found = {name: ask(sql, *needs) or [] for name, (needs, sql) in network.FIGURES.items() if name in network.ADVISING}
    sections = {
        section: [
            Answer(each.name, each.title, each.lead, each.statement(period), each.chart, ask(each.sql, *each.needs),
                   each.nothing)
            for each in questions
        ]
        for section, questions in QUESTIONS.items()
    }  # fmt: skip
    similarity, shared = _similarity(spark, there, period, file)
    sections["Requests"] = shared
    totals = ask(SUMMARY, "events") or [{}]
    delays = ask(_DELAY, "paths") or [{}]
    return ReportContent(
        root=root,
        period=period,
        made=made,
        days=(since, until),
        summary=totals[0] | delays[0],
        sections=sections,
        brokers=ask(PRESENT, "present_brokers", "links") or [],
        links=found.get("links", []),
        advice=network.advise(found),
        similarity=similarity,
        requests=file,
    )


def _period(spark: SparkSession, names: list[str]) -> Period | None:
    """From the first to the last row of all tables, by when stores took them."""
    each = " union all ".join(f"select min(stored) as first, max(stored) as last from {name}" for name in names)  # noqa: S608 our own names
    found = all_rows(spark.sql(f"select min(first) as first, max(last) as last from ({each})")) if names else []  # noqa: S608
    if not found or found[0]["first"] is None:
        return None
    first, last = (datetime.fromisoformat(found[0][name]) for name in ("first", "last"))
    return Period(first, max(last, first + timedelta(seconds=1)))


def _similarity(spark: SparkSession, there: set[str], period: Period, file: str) -> tuple[dict[str, Any], list[Answer]]:
    """How alike requests are, and what it would save to share and to keep answers."""
    if file:
        table, sql = read_requests(spark, file), ""
    elif "topic_messages" in there:
        sql = period.filled(WISHES)
        table = spark.sql(sql)
    else:
        return {}, []
    study = requests.study(table)
    if not study.requests:
        return {}, []
    return study.figures(), [_blocks(study, sql), *([_caching(table, sql)] if "time" in table.columns else [])]


def _blocks(study: requests.RequestStudy, sql: str) -> Answer:
    sizes = study.block_sizes().orderBy("requests", ascending=False).limit(TOP)
    rows = [{"block": f"block {number}", **row} for number, row in enumerate(_without_ids(sizes), 1)]
    return Answer(
        "blocks",
        "Blocks of requests",
        "Requests that cover each other are a block; brokers pass on only the widest of them. The largest blocks.",
        sql,
        Bars("requests", "block", "requests"),
        rows,
        "No two requests are alike: none covers another.",
    )


def _without_ids(sizes: DataFrame) -> list[dict[str, Any]]:
    return all_rows(sizes.select("requests"))


def _caching(table: DataFrame, sql: str) -> Answer:
    rows = [row | {"percent": 100 * (row["share"] or 0)} for row in all_rows(requests.savings(table))]
    return Answer(
        "caching",
        "What kept answers save",
        "The share of requests that an answer to an equal request would have served, by how long it is kept.",
        sql,
        Columns("% of requests", "lifetime_s", "percent", "seconds that an answer is kept"),
        rows,
        "No request has a time.",
    )


def as_plain(content: ReportContent) -> dict[str, Any]:
    """The content for JSON."""
    sections = {
        name: {each.name: {"sql": each.sql, "rows": each.rows} for each in answers}
        for name, answers in content.sections.items()
    }
    return {
        "summary": content.summary,
        "advice": [asdict(each) for each in content.advice],
        "brokers": list(content.brokers),
        "links": list(content.links),
        "similarity": content.similarity,
        "sections": sections,
    }
