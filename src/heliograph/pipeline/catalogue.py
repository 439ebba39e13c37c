"""The catalogue: topics, brokers, links and resources over time, as SQL views over the archive.

In:    the tables of an archive.
Out:   VIEWS: a name and its SQL each; register(): all views whose tables exist.
State: none.
Not here: the tables (kinds.py, tables.py); docs/reference/pipeline.md describes the columns.

``valid_from`` and ``valid_to`` are the period in which a row was true; ``valid_to`` is null if it still is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SqlView:
    """A name, the tables that it needs, and its SQL."""

    name: str
    needs: tuple[str, ...]
    sql: str


VIEWS: tuple[SqlView, ...] = (
    SqlView(
        "topics",
        ("events",),
        """select topic, split(topic, '/')[0] as root, min(stored) as valid_from, max(stored) as last_event,
                  count(*) as events, sum(length) as bytes, count(distinct origin) as publishers,
                  min_by(origin, stored) as first_publisher, max_by(headers, stored) as last_headers
             from events group by topic""",
    ),
    SqlView(
        "topic_publishers",
        ("events",),
        """select topic, origin as publisher, min(stored) as valid_from, max(stored) as last_event, count(*) as events
             from events group by topic, origin""",
    ),
    SqlView(
        "broker_states",
        ("brokers",),
        """with told as (
               select broker, network, draining, full, time,
                      lag(struct(network, draining, full)) over (partition by broker order by time) as before
                 from brokers where about = 'load'),
             changes as (select * from told where before is null or before != struct(network, draining, full))
           select broker, network, draining, full, time as valid_from,
                  lead(time) over (partition by broker order by time) as valid_to
             from changes""",
    ),
    SqlView(
        "broker_links",
        ("links",),
        """with told as (
               select broker, other, what, cluster, time as valid_from,
                      lead(time) over (partition by broker, other order by time) as valid_to
                 from links where what in ('neighbour_linked', 'neighbour_lost'))
           select broker, other, cluster, valid_from, valid_to from told where what = 'neighbour_linked'""",
    ),
    SqlView(
        "sessions",
        ("links",),
        """with told as (
               select broker, link, entity, name, what, reason_word, time as valid_from,
                      lead(time) over (partition by broker, link order by time) as valid_to,
                      lead(reason_word) over (partition by broker, link order by time) as ended
                 from links where what in ('session_welcomed', 'link_detached'))
           select broker, link, entity, name, valid_from, valid_to, ended from told where what = 'session_welcomed'""",
    ),
    SqlView(
        "resources",
        ("resource_updates",),
        """with told as (
               select *, lead(time) over (partition by id order by time, offset) as next from resource_updates)
           select id, name, owner, host, model, condition, attributes, time as valid_from, next as valid_to
             from told where what in ('registered', 'updated')""",
    ),
    SqlView(
        "created_topics",
        ("topic_messages",),
        """with told as (
               select *, lead(time) over (partition by uuid order by time, offset) as next
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
                           over (partition by broker, incarnation order by number, offset) as before,
                      coalesce(time, stored) as at
                 from broker_messages where what = 'advertisement' and broker is not null),
             changes as (
               select *, lead(at) over (partition by broker order by incarnation, number, offset) as next from told
                where before is null
                   or before != struct(host, ports, network, institution, geography, address, withdrawn))
           select broker, host, ports, network, institution, geography, address, at as valid_from, next as valid_to
             from changes where not withdrawn""",
    ),
    SqlView(
        "advertised",
        ("advertisements",),
        """with told as (
               select topic, origin as owner, body, timestamp,
                      lag(body) over (partition by topic, origin order by offset) as before
                 from advertisements),
             changes as (select * from told where before is null or before != body)
           select topic, owner, body as attributes, timestamp as valid_from,
                  lead(timestamp) over (partition by topic, owner order by timestamp) as valid_to
             from changes""",
    ),
)


def register(spark: SparkSession, tables: LakeTables) -> list[str]:
    """Register all tables and views in SQL, and return their names."""
    names = tables.register(spark)
    for view in VIEWS:
        if set(view.needs) <= set(names):
            spark.sql(view.sql).createOrReplaceTempView(view.name)
            names.append(view.name)
    return names
