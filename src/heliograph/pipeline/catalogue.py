"""The catalogue: topics, brokers, links and resources over time, as SQL views over the archive.

In:    the tables of an archive.
Out:   VIEWS: a name and its SQL each; register(): all views whose tables exist.
State: none.
Not here: the tables (kinds.py, tables.py); docs/reference/pipeline.md describes the columns.

``valid_from`` and ``valid_to`` are the period in which a row was true; ``valid_to`` is null if it still is.

What a broker says is true of one incarnation of it: after a restart the numbers of its links and its counters begin
again. An incarnation that is over ended when a neighbour lost the broker, or else with its last report, and with it
everything that was open at that broker. It is over if there is a later one, or if the broker is silent for
INTERVALS_SILENT of its intervals while others still report.

Equal times occur: a store tells the time to a millisecond, and a broker notes several things at once. Then the position
in the store decides. What two stores keep counts once where it would change a period.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from heliograph.pipeline.kinds import SYSTEM, empty
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVALS_SILENT = 3  # reports are not acknowledged: one or two may be lost
INTERVAL_S = 10  # of brokers that do not say theirs
MAY_BE_ABSENT = ("links",)  # then views take it as empty
GROWN = ("brokers", "links")  # with columns that archives of older versions lack

COUNTERS = (
    *("publications", "duplicates", "denied", "dropped", "expired"),
    *("parcels_forwarded", "parcels_arrived", "parcels_unroutable"),
)
_DIGEST = "sha2(concat('heliograph broker ', broker), 256)"

# What stands for ``$name`` in the views.
_WORDS = {
    "position": "struct(stored, store, partition, offset)",
    "system": SYSTEM,
    "intervals": str(INTERVALS_SILENT),
    "interval_s": str(INTERVAL_S),
    "counters": ", ".join(COUNTERS),
    "increases": ", ".join(
        f"greatest(0, {name} - if(before is null, 0, before.{name})) as {name}" for name in COUNTERS
    ),
    # a broker's id, as paths name it, from its name: broker_id in wire/broker_bodies.py
    "broker_id": f"concat({', '.join(f'substr({_DIGEST}, {2 * byte - 1}, 2)' for byte in range(8, 0, -1))})",
}


@dataclass(frozen=True, slots=True)
class SqlView:
    """A name, the tables that it needs, and its SQL."""

    name: str
    needs: tuple[str, ...]
    sql: str

    def statement(self) -> str:
        """Its SQL, complete."""
        return Template(self.sql).substitute(_WORDS)


VIEWS: tuple[SqlView, ...] = (
    SqlView(
        "topics",
        ("events",),
        """select topic, split(topic, '/')[0] as root, min(stored) as valid_from, max(stored) as last_event,
                  count(*) as events, sum(length) as bytes, count(distinct origin) as publishers,
                  min_by(origin, $position) as first_publisher, max_by(headers, $position) as last_headers
             from events group by topic""",
    ),
    SqlView(
        "topic_publishers",
        ("events",),
        """select topic, origin as publisher, min(stored) as valid_from, max(stored) as last_event, count(*) as events
             from events group by topic, origin""",
    ),
    SqlView(
        "incarnations",
        ("brokers", "links"),
        """with heard as (
               select broker, incarnation, min(time) as valid_from, max(time) as last_report,
                      coalesce(max_by(interval_s, time) filter (where interval_s is not null), $interval_s) as each_s
                 from brokers where incarnation is not null group by broker, incarnation),
             following as (
               select *, lead(valid_from) over (partition by broker order by incarnation) as next,
                      max(last_report) over () as last_of_all
                 from heard)
           select f.broker, f.incarnation, f.valid_from, last_report,
                  case when any_value(next) is not null
                         or last_report + make_dt_interval(0, 0, 0, $intervals * any_value(each_s))
                            < any_value(last_of_all)
                       then coalesce(min(lost.time), last_report) end as valid_to
             from following as f left join links as lost
               on lost.what = 'neighbour_lost' and lost.other = f.broker
                  and lost.time > last_report and lost.time <= coalesce(next, lost.time)
            group by 1, 2, 3, 4""",
    ),
    SqlView(
        "present_brokers",
        ("brokers", "incarnations"),
        """select broker, max(time) as last_report,
                  max_by(connections, struct(time, store, offset)) filter (where connections is not null)
                      as connections,
                  max_by(subscriptions, struct(time, store, offset)) filter (where subscriptions is not null)
                      as subscriptions,
                  round(avg(cpu_permille), 0) as cpu_permille
             from brokers
            where broker not in (select broker from incarnations group by broker having count(*) = count(valid_to))
            group by broker""",
    ),
    SqlView(
        "broker_states",
        ("brokers", "incarnations"),
        """with told as (
               select broker, incarnation, network, draining, full, time,
                      lag(struct(network, draining, full)) over state as before
                 from brokers where about = 'load'
               window state as (partition by broker, incarnation order by time, store, offset)),
             changes as (
               select *, lead(time) over (partition by broker, incarnation order by time) as next
                 from told where before is null or before != struct(network, draining, full))
           select broker, network, draining, full, time as valid_from,
                  coalesce(next, if(valid_to < time, time, valid_to)) as valid_to
             from changes left join (select broker, incarnation, valid_to from incarnations)
            using (broker, incarnation)""",
    ),
    SqlView(
        "broker_links",
        ("links", "incarnations"),
        """with told as (
               select broker, incarnation, other, what, cluster, time, min(struct(store, partition, offset)) as position
                 from links where what in ('neighbour_linked', 'neighbour_lost') group by 1, 2, 3, 4, 5, 6),
             following as (
               select *, lead(time) over (partition by broker, incarnation, other order by time, position) as next
                 from told)
           select broker, other, cluster, time as valid_from,
                  coalesce(next, if(valid_to < time, time, valid_to)) as valid_to
             from following left join (select broker, incarnation, valid_to from incarnations)
            using (broker, incarnation) where what = 'neighbour_linked'""",
    ),
    SqlView(
        "sessions",
        ("links", "incarnations"),
        """with told as (
               select broker, incarnation, link, entity, name, what, reason_word, time,
                      min(struct(store, partition, offset)) as position
                 from links where what in ('session_welcomed', 'link_detached') group by 1, 2, 3, 4, 5, 6, 7, 8),
             following as (
               select *, lead(time) over session as next, lead(reason_word) over session as reason
                 from told window session as (partition by broker, incarnation, link order by time, position))
           select broker, link, entity, name, time as valid_from,
                  coalesce(next, if(valid_to < time, time, valid_to)) as valid_to,
                  case when next is not null then reason when valid_to is not null then 'broker_ended' end as ended
             from following left join (select broker, incarnation, valid_to from incarnations)
            using (broker, incarnation) where what = 'session_welcomed'""",
    ),
    SqlView(
        "counter_increases",
        ("brokers",),
        """with told as (
               select broker, incarnation, time, $counters,
                      min(time) over () as first_of_all,
                      lag(time) over (partition by broker order by incarnation, time) as previous,
                      lag(struct($counters)) over (partition by broker, incarnation order by time) as before
                 from brokers where about = 'counters'),
             counted as (
               select *, timestamp_millis(incarnation) as started from told
                where before is not null or incarnation is not null
                  and (previous is not null or timestamp_millis(incarnation) >= first_of_all))
           select broker, incarnation,
                  if(before is not null, previous, least(time, greatest(started, previous))) as valid_from,
                  time as valid_to,
                  $increases
             from counted""",
    ),
    SqlView(
        "paths",
        ("hops", "brokers"),
        """with named as (select broker as entered, $broker_id as id from (select distinct broker from brokers))
           select coalesce(entered, get(way, 0)) as entered, broker, hops as brokers, time, topic, delay_ms,
                  topic rlike $system as is_system
             from hops left join named on id = get(way, 0) where size(way) > 0""",
    ),
    SqlView(
        "resources",
        ("resource_updates",),
        """with told as (
               select *, lead(time) over (partition by id order by time, store, offset) as next from resource_updates)
           select id, name, owner, host, model, condition, attributes, time as valid_from, next as valid_to
             from told where what in ('registered', 'updated')""",
    ),
    SqlView(
        "created_topics",
        ("topic_messages",),
        """with told as (
               select *, lead(time) over (partition by uuid order by time, store, offset) as next
                 from topic_messages where uuid is not null and what in ('advertise', 'withdraw'))
           select uuid, created_topic as topic, owner, institution, space, directory, attributes, readers, is_encrypted,
                  created, time as valid_from, least(coalesce(next, expires), expires) as valid_to
             from told where what = 'advertise'""",
    ),
    SqlView(
        "owners",
        ("topic_messages",),
        """select owner, count(distinct uuid) as topics, min(created) as valid_from, max(expires) as valid_to
             from topic_messages where what = 'advertise' and uuid is not null group by owner""",
    ),
    SqlView(
        "advertised_brokers",
        ("broker_messages",),
        """with told as (
               select *, lag(struct(host, ports, network, institution, geography, address, withdrawn))
                           over (partition by broker, incarnation order by number, store, offset) as before,
                      coalesce(time, stored) as at
                 from broker_messages where what = 'advertisement' and broker is not null),
             changes as (
               select *, lead(at) over (partition by broker order by incarnation, number, store, offset) as next
                 from told
                where before is null
                   or before != struct(host, ports, network, institution, geography, address, withdrawn))
           select broker, host, ports, network, institution, geography, address, at as valid_from, next as valid_to
             from changes where not withdrawn""",
    ),
    SqlView(
        "advertised",
        ("advertisements",),
        """with told as (
               select topic, origin as owner, body, timestamp, store, offset,
                      lag(body) over (partition by topic, origin order by timestamp, store, offset) as before
                 from advertisements),
             changes as (select * from told where before is null or before != body)
           select topic, owner, body as attributes, timestamp as valid_from,
                  lead(timestamp) over (partition by topic, owner order by timestamp, store, offset) as valid_to
             from changes""",
    ),
)


def register(spark: SparkSession, tables: LakeTables, since: str = "", until: str = "") -> list[str]:
    """Register all tables and views in SQL, and return their names. ``since``, ``until``: only what was stored then."""
    names = tables.names()
    for name in names:
        rows = tables.read(spark, name, since, until)
        (_grown(spark, name, rows) if name in GROWN else rows).createOrReplaceTempView(name)
    known = {*names, *MAY_BE_ABSENT}
    for name in MAY_BE_ABSENT:
        if name not in names:
            empty(spark, name).createOrReplaceTempView(name)
    for view in VIEWS:
        if set(view.needs) <= known:
            spark.sql(view.statement()).createOrReplaceTempView(view.name)
            known.add(view.name)
            names.append(view.name)
    return names


def _grown(spark: SparkSession, name: str, rows: DataFrame) -> DataFrame:
    """A table with all the columns of today. An archive of an older version lacks some; they are null."""
    from pyspark.sql import functions as f

    there = set(rows.columns)
    new = [field for field in empty(spark, name).schema.fields if field.name not in there]
    return rows.withColumns({field.name: f.lit(None).cast(field.dataType) for field in new}) if new else rows
