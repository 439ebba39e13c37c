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
DETOUR_SAMPLES = 3  # fewer say little about delay
SAVED_LEAST = 0.05  # of all delay between brokers, by a direct link

FIGURES: dict[str, tuple[tuple[str, ...], str]] = {
    "delay": (
        ("hops",),
        """select broker, count(*) as samples, round(avg(delay_ms), 3) as mean_ms,
                  round(percentile(delay_ms, 0.5), 3) as p50_ms, round(percentile(delay_ms, 0.99), 3) as p99_ms,
                  round(stddev_samp(delay_ms), 3) as jitter_ms, round(avg(hops), 2) as mean_hops, max(hops) as most_hops
             from hops where delay_ms is not null group by broker order by broker""",
    ),
    "load": (
        ("brokers", "counter_increases"),
        """with told as (
               select broker, max(connections) as connections_max, round(avg(connections), 1) as connections,
                      round(avg(cpu_permille), 0) as cpu_permille, max(backlog_bytes) as backlog_bytes_max
                 from brokers group by broker),
             counted as (
               select broker, sum(publications) as publications, sum(dropped) as dropped, sum(denied) as denied,
                      sum(unix_micros(valid_to) - unix_micros(valid_from)) / 1e6 as seconds
                 from counter_increases group by broker)
           select broker, connections_max, connections, cpu_permille, publications, dropped, backlog_bytes_max, denied,
                  round(publications / nullif(seconds, 0), 1) as publications_per_s
             from told left join counted using (broker) order by broker""",
    ),
    "concentration": (
        ("present_brokers",),
        """select broker, connections, subscriptions,
                  round(connections / nullif(sum(connections) over (), 0), 4) as share_of_connections
             from present_brokers order by connections desc, broker""",
    ),
    "clusters": (
        ("present_brokers", "links", "counter_increases"),
        """with placed as (select other as broker, max_by(cluster, struct(time, store, offset)) as cluster
                             from links where cluster is not null and other is not null group by other),
                counted as (select broker, sum(publications) as publications from counter_increases group by broker)
           select coalesce(cluster, '') as cluster, count(*) as brokers, sum(connections) as connections,
                  sum(subscriptions) as subscriptions, sum(publications) as publications,
                  round(avg(cpu_permille), 0) as cpu_permille,
                  round(sum(subscriptions) / nullif(sum(sum(subscriptions)) over (), 0), 4) as share_of_interest
             from present_brokers left join placed using (broker) left join counted using (broker)
            group by 1 order by 1""",
    ),
    "topics": (
        ("events",),
        """select split(topic, '/')[0] as root, count(*) as events, sum(length) as bytes,
                  round(count(*) / sum(count(*)) over (), 4) as share
             from events group by 1 order by events desc, root limit 20""",
    ),
    "ways": (
        ("paths", "counter_increases"),
        """with passed as (
               select entered, broker, brokers, count_if(not is_system) as samples,
                      round(percentile(delay_ms, 0.5) filter (where not is_system), 3) as p50_ms,
                      avg(delay_ms) filter (where not is_system) as mean_ms,
                      count_if(not is_system) / sum(count(*)) over (partition by broker) as share
                 from paths group by 1, 2, 3),
             arrived as (
               select broker, sum(parcels_arrived) * 1e6
                              / nullif(sum(unix_micros(valid_to) - unix_micros(valid_from)), 0) as per_s
                 from counter_increases group by broker)
           select entered, broker, brokers, samples, p50_ms, round(mean_ms, 3) as mean_ms,
                  round(per_s * share, 2) as parcels_per_s,
                  round(mean_ms * per_s * share / nullif(sum(mean_ms * per_s * share) over (), 0), 4) as share_of_delay
             from passed left join arrived using (broker) where samples > 0
            order by share_of_delay desc nulls last, entered, broker, brokers limit 50""",
    ),
    "links": (
        ("broker_links",),
        """select distinct least(broker, other) as broker, greatest(broker, other) as other
             from broker_links where valid_to is null order by 1, 2""",
    ),
    "denied": (
        ("denials",),
        """select broker, reason_word as reason, entity, count(*) as times
             from denials group by 1, 2, 3 order by times desc, 1, 2, 3""",
    ),
    "searches": (
        ("discovery",),
        "select broker, outcome, count(*) as times from discovery group by 1, 2 order by 1, times desc, 2",
    ),
}

ADVISING = ("concentration", "links", "load", "ways")  # the figures that advice is made of


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that an operator could do."""

    kind: str  # broker, link, weights
    about: str
    text: str
    value: float  # of a link: the share of all delay that it would save; else a share of load. Sorted by it

    def row(self, time_us: int) -> dict[str, Any]:
        """The form in which it is published."""
        return {"time_us": time_us, **asdict(self)}


def figures(spark: SparkSession, tables: LakeTables) -> dict[str, DataFrame]:
    """Every figure whose tables exist."""
    there = set(register(spark, tables))
    return {name: spark.sql(sql) for name, (needs, sql) in FIGURES.items() if set(needs) <= there}


def advise(found: dict[str, list[dict[str, Any]]]) -> list[Advice]:
    """What the figures suggest; a pure function, so that it can be tested without Spark."""
    advice = [*_brokers(found), *_links(found), *_weights(found)]
    return sorted(advice, key=lambda each: (-each.value, each.kind, each.about))


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
    """Direct links for detours, each with what it would save of all the time that publications are under way.

    A publication that passes n brokers also passed n links, that of its publisher included; with a direct link these
    would be two.
    """
    here = {row["broker"] for row in found.get("concentration", [])}
    linked = {(row["broker"], row["other"]) for row in found.get("links", [])}
    detours: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found.get("ways", []):
        ends = (min(row["entered"], row["broker"]), max(row["entered"], row["broker"]))
        is_long = row["brokers"] >= DETOUR_HOPS and row["share_of_delay"] and row["parcels_per_s"]
        if is_long and ends not in linked and here.issuperset(ends):
            detours.setdefault(ends, []).append(row)
    advice = []
    for (one, other), rows in detours.items():
        saved = sum(row["share_of_delay"] * (1 - 2 / row["brokers"]) for row in rows)
        if saved < SAVED_LEAST or sum(row["samples"] for row in rows) < DETOUR_SAMPLES:
            continue
        often = sum(row["parcels_per_s"] for row in rows)
        each_ms = sum(row["mean_ms"] * (1 - 2 / row["brokers"]) * row["parcels_per_s"] for row in rows) / often
        passed = max(rows, key=lambda row: row["share_of_delay"])["brokers"]
        text = (
            f"link {one} and {other}: {_short(often)} parcels a second between them pass {passed} brokers; a direct "
            f"link would save about {_short(each_ms)} ms for each, {saved:.0%} of all delay between brokers"
        )
        advice.append(Advice("link", f"{one} {other}", text, round(saved, 4)))
    return advice


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


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
