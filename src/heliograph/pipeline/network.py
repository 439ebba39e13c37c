"""Network analytics: delay, jitter, hops, load and concentration of interest; and the resulting advice.

In:    the tables ``hops``, ``brokers``, ``links`` and ``events`` of an archive.
Out:   figures(): tables by name; advise(): Advice, the most important first.
State: none.
Not here: publishing advice (cli/pipeline.py), the raw observations (services/monitor.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from heliograph.pipeline.catalogue import register
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "System/Advice"
CPU_HIGH, CPU_LOW = 700, 100  # per mille, as a mean
SHARE_HIGH = 0.5  # of all connections at one broker of several
DETOUR_HOPS = 3  # brokers on a path from which a direct link is worth considering
DETOUR_SAMPLES = 5

_FIGURES: dict[str, tuple[tuple[str, ...], str]] = {
    "delay": (
        ("hops",),
        """select broker, count(*) as samples, round(avg(delay_ms), 3) as mean_ms,
                  round(percentile(delay_ms, 0.5), 3) as p50_ms, round(percentile(delay_ms, 0.99), 3) as p99_ms,
                  round(stddev_samp(delay_ms), 3) as jitter_ms, round(avg(hops), 2) as mean_hops, max(hops) as most_hops
             from hops where delay_ms is not null group by broker order by broker""",
    ),
    "load": (
        ("brokers",),
        """select broker, max(connections) as connections_max, round(avg(connections), 1) as connections,
                  round(avg(cpu_permille), 0) as cpu_permille, max(publications) - min(publications) as publications,
                  max(dropped) as dropped, max(backlog_bytes) as backlog_bytes_max, max(denied) as denied,
                  round((max(publications) - min(publications))
                        / nullif(unix_timestamp(max(time)) - unix_timestamp(min(time)), 0), 1) as publications_per_s
             from brokers group by broker order by broker""",
    ),
    "concentration": (
        ("brokers",),
        """with last as (select broker, max_by(connections, time) as connections, max_by(subscriptions, time) as subs
                           from brokers group by broker)
           select broker, connections, subs as subscriptions,
                  round(connections / nullif(sum(connections) over (), 0), 4) as share_of_connections
             from last order by connections desc""",
    ),
    "clusters": (
        ("brokers", "links"),
        """with placed as (select other as broker, max_by(cluster, time) as cluster
                             from links where cluster is not null and other is not null group by other),
                last as (select broker, max_by(connections, time) as connections, max_by(subscriptions, time) as subs,
                                max(publications) - min(publications) as publications,
                                avg(cpu_permille) as cpu_permille
                           from brokers group by broker)
           select coalesce(cluster, '') as cluster, count(*) as brokers, sum(connections) as connections,
                  sum(subs) as subscriptions, sum(publications) as publications,
                  round(avg(cpu_permille), 0) as cpu_permille,
                  round(sum(subs) / nullif(sum(sum(subs)) over (), 0), 4) as share_of_interest
             from last left join placed using (broker) group by 1 order by 1""",
    ),
    "topics": (
        ("events",),
        """select split(topic, '/')[0] as root, count(*) as events, sum(length) as bytes,
                  round(count(*) / sum(count(*)) over (), 4) as share
             from events group by 1 order by events desc limit 20""",
    ),
    "ways": (
        ("hops",),
        """select way[0] as entered, broker, size(way) as brokers, count(*) as samples,
                  round(percentile(delay_ms, 0.5), 3) as p50_ms
             from hops group by 1, 2, 3 order by samples desc limit 50""",
    ),
    "denied": (
        ("denials",),
        """select broker, reason_word as reason, entity, count(*) as times
             from denials group by 1, 2, 3 order by times desc""",
    ),
    "searches": (
        ("discovery",),
        "select broker, outcome, count(*) as times from discovery group by 1, 2 order by 1, times desc",
    ),
}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that an operator could do."""

    kind: str  # broker, link, weights
    about: str
    text: str
    value: float  # how much: the larger, the more important

    def row(self, time_us: int) -> dict[str, Any]:
        """The form in which it is published."""
        return {"time_us": time_us, **asdict(self)}


def figures(spark: SparkSession, tables: LakeTables) -> dict[str, DataFrame]:
    """Every figure whose tables exist."""
    there = set(register(spark, tables))
    return {name: spark.sql(sql) for name, (needs, sql) in _FIGURES.items() if set(needs) <= there}


def advise(found: dict[str, list[dict[str, Any]]]) -> list[Advice]:
    """What the figures suggest; a pure function, so that it can be tested without Spark."""
    advice = [*_brokers(found), *_links(found), *_weights(found)]
    return sorted(advice, key=lambda each: -each.value)


def _brokers(found: dict[str, list[dict[str, Any]]]) -> list[Advice]:
    load = found.get("load", [])
    advice = []
    for row in load:
        if (row["cpu_permille"] or 0) >= CPU_HIGH:
            text = f"add a broker beside {row['broker']}: its processor was {row['cpu_permille'] / 10:.0f} % busy"
            advice.append(Advice("broker", row["broker"], text, row["cpu_permille"] / 1_000))
        if row["dropped"]:
            text = f"{row['broker']} dropped {row['dropped']} publications for slow consumers: look at their backlog"
            advice.append(Advice("broker", row["broker"], text, 0.5))
    shares = found.get("concentration", [])
    for row in shares:
        share = row["share_of_connections"] or 0
        if len(shares) > 1 and share >= SHARE_HIGH and row["connections"] > len(shares):
            text = f"{share:.0%} of all clients are at {row['broker']}: add a broker near them, or let some move"
            advice.append(Advice("broker", row["broker"], text, share))
    return advice


def _links(found: dict[str, list[dict[str, Any]]]) -> list[Advice]:
    return [
        Advice(
            "link",
            f"{row['entered']} {row['broker']}",
            f"link {row['entered']} and {row['broker']}: {row['samples']} samples passed {row['brokers']} brokers",
            min(1.0, row["samples"] / 1_000) + row["brokers"] / 100,
        )
        for row in found.get("ways", [])
        if row["brokers"] >= DETOUR_HOPS and row["samples"] >= DETOUR_SAMPLES and row["entered"]
    ]


def _weights(found: dict[str, list[dict[str, Any]]]) -> list[Advice]:
    """If load is uneven, it should have more weight in the choice of a broker."""
    load = [row for row in found.get("load", []) if row["cpu_permille"] is not None]
    if len(load) < 2:
        return []
    busy, idle = max(row["cpu_permille"] for row in load), min(row["cpu_permille"] for row in load)
    if busy < CPU_HIGH or idle > CPU_LOW:
        return []
    text = f"load is uneven ({idle / 10:.0f} to {busy / 10:.0f} % of a processor): give load more weight in discovery"
    return [Advice("weights", "load", text, (busy - idle) / 1_000)]
