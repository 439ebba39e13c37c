"""Questions: what a report shows, each with its SQL, how it is drawn, and a sentence for when there is nothing.

In:    nothing; the period of the report is filled in by ``ReportQuestion.statement``.
Out:   QUESTIONS, by section; Period.
State: none.
Not here: asking them (report.py), drawing (charts.py), the views that they read (../catalogue.py).

Names come from the network, so each question returns at most TOP of them; null stands for all others together. The
number of moments is bounded too, since a period has about STEPS steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from string import Template

from heliograph.pipeline.kinds import SYSTEM

TOP = 10
STEPS = 100
STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 7 * 86_400, 30 * 86_400)

ASK_FOR_SYSTEM = (
    "Brokers publish this on <code>System/#</code>. A store keeps it with <code>--store-pattern 'System/#'</code>, and "
    "<code>pipeline archive</code> reads it as an administrator."
)


@dataclass(frozen=True, slots=True)
class OverTime:
    """Values over time. ``series`` is the column with names; without one, each of ``values`` is a line."""

    label: str
    form: str  # area, lines, columns, steps
    series: str = ""
    values: tuple[str, ...] = ("value",)


@dataclass(frozen=True, slots=True)
class Bars:
    """A value for each name, the first row on top."""

    label: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Spans:
    """From one value to another for each name, such as a median and a high percentile."""

    label: str
    name: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Columns:
    """A value for each of a few numbers or words, in the order of the rows."""

    label: str
    name: str
    value: str
    names: str  # what the names are


Chart = OverTime | Bars | Spans | Columns


@dataclass(frozen=True, slots=True)
class ReportQuestion:
    """One figure of the report."""

    name: str
    title: str
    lead: str  # how to read it
    needs: tuple[str, ...]
    sql: str
    chart: Chart
    nothing: str  # HTML; what to say without rows

    def statement(self, period: Period) -> str:
        """Its SQL for a period, complete."""
        return period.filled(self.sql)


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a report covers, and the length of its steps."""

    first: datetime
    last: datetime

    @property
    def step_s(self) -> int:
        """The length of a step: a round number."""
        seconds = (self.last - self.first).total_seconds()
        return next((step for step in STEPS_S if step * STEPS >= seconds), STEPS_S[-1])

    def filled(self, sql: str) -> str:
        """SQL with this period in it. ``$step(…)`` cannot be written, so steps are ``$before time $after``."""
        first, last = (f"timestamp '{each:%Y-%m-%d %H:%M:%S.%f}'" for each in (self.first, self.last))
        words = {"first": first, "last": last, "s": self.step_s, "top": TOP, "system": SYSTEM}
        words |= {"before": "timestamp_seconds(unix_seconds(", "after": f") div {self.step_s} * {self.step_s})"}
        return Template(sql).substitute(words)


SUMMARY = """select count(*) as publications, coalesce(sum(length), 0) as bytes, count(distinct topic) as topics,
       count(distinct origin) as publishers
  from events"""

PRESENT = """with placed as (
       select other as broker, max_by(cluster, struct(time, store, offset)) as cluster
         from links where cluster is not null and other is not null group by other)
select broker, coalesce(cluster, '') as cluster, connections, subscriptions, cpu_permille
  from present_brokers left join placed using (broker) order by cluster, broker"""

WISHES = """select '#' as filter, get_json_object(query, '$$.language') as language,
       get_json_object(query, '$$.text') as `where`, coalesce(time, stored) as time
  from topic_messages
 where what = 'search' and get_json_object(query, '$$.text') != ''"""

_TRAFFIC = (
    ReportQuestion(
        "topics",
        "Publications by topic",
        "How many publications stores took each second, for the busiest topics; all others together are grey.",
        ("events",),
        """with top as (select topic from events group by topic order by count(*) desc, topic limit $top)
select $before stored $after as time, top.topic, round(count(*) / $s, 4) as per_s, count(*) as publications
  from events left join top on events.topic = top.topic
 group by 1, 2 order by 1, publications desc, 2""",
        OverTime("publications/s", "area", "topic", ("per_s",)),
        "No store has kept a publication of this period.",
    ),
    ReportQuestion(
        "brokers",
        "Publications by broker",
        "How many publications each broker counted a second, from its own reports. A restart does not make them less.",
        ("counter_increases",),
        """with told as (
       select broker, publications, valid_to, unix_micros(valid_to) - unix_micros(valid_from) as us
         from counter_increases where valid_to between $first and $last),
     top as (select broker from told group by broker order by sum(publications) desc, broker limit $top),
     rates as (
       select $before valid_to $after as time, broker, 1e6 * sum(publications) / nullif(sum(us), 0) as per_s
         from told group by 1, 2)
select time, top.broker, round(sum(per_s), 3) as per_s
  from rates left join top on rates.broker = top.broker
 where per_s is not null group by 1, 2 order by 1, 2 nulls last""",
        OverTime("publications/s", "lines", "broker", ("per_s",)),
        f"No broker has reported what it counted. {ASK_FOR_SYSTEM}",
    ),
)

_DELAY = (
    ReportQuestion(
        "delay",
        "Transit delay",
        "From publisher to the last broker, of sampled publications: half took less than p50, 1 in 100 more than p99.",
        ("paths",),
        """select $before time $after as time, round(percentile(delay_ms, 0.5), 3) as p50,
       round(percentile(delay_ms, 0.95), 3) as p95, round(percentile(delay_ms, 0.99), 3) as p99, count(*) as samples
  from paths where not is_system and delay_ms is not null and time between $first and $last
 group by 1 order by 1""",
        OverTime("ms", "lines", "", ("p50", "p95", "p99")),
        f"No path of a publication was sampled. {ASK_FOR_SYSTEM}",
    ),
    ReportQuestion(
        "slowest",
        "Delay by broker",
        "From the median (dot) to the 99th percentile (bar) of what arrived at each broker; the slowest ones.",
        ("paths",),
        """select broker, count(*) as samples, round(percentile(delay_ms, 0.5), 3) as p50_ms,
       round(percentile(delay_ms, 0.99), 3) as p99_ms
  from paths where not is_system and delay_ms is not null
 group by broker order by p99_ms desc, broker limit $top""",
        Spans("ms", "broker", "p50_ms", "p99_ms"),
        "No path of a publication was sampled.",
    ),
    ReportQuestion(
        "jitter",
        "Jitter by broker",
        "The standard deviation of the delay of what arrived at each broker; the largest ones.",
        ("paths",),
        """select broker, count(*) as samples, round(stddev_samp(delay_ms), 3) as jitter_ms
  from paths where not is_system and delay_ms is not null
 group by broker having count(*) > 1 order by jitter_ms desc, broker limit $top""",
        Bars("ms", "broker", "jitter_ms"),
        "No broker has two sampled publications, which jitter needs.",
    ),
    ReportQuestion(
        "hops",
        "Brokers on the way",
        "How many brokers a sampled publication passed, from its publisher's to the last one.",
        ("paths",),
        """select brokers, count(*) as samples, round(100 * count(*) / sum(count(*)) over (), 2) as percent
  from paths where not is_system group by 1 order by 1 limit 40""",
        Columns("% of samples", "brokers", "percent", "brokers"),
        "No path of a publication was sampled.",
    ),
    ReportQuestion(
        "pairs",
        "The longest ways",
        "Mean delay between the broker of the publisher and the last one, for the pairs that are farthest apart.",
        ("paths",),
        """select concat(entered, ' to ', broker) as way, max(brokers) as brokers, count(*) as samples,
       round(avg(delay_ms), 3) as mean_ms
  from paths where not is_system and delay_ms is not null and entered != broker
 group by entered, broker order by mean_ms desc, way limit $top""",
        Bars("ms", "way", "mean_ms"),
        "No sampled publication came from another broker.",
    ),
)

_LOAD = (
    ReportQuestion(
        "cpu",
        "Processor",
        "How much of one processor each broker used; the busiest brokers, and the mean of the others.",
        ("brokers",),
        """with told as (
       select broker, stored, cpu_permille / 10 as percent from brokers where cpu_permille is not null),
     top as (select broker from told group by broker order by avg(percent) desc, broker limit $top)
select $before stored $after as time, top.broker, round(avg(percent), 2) as percent
  from told left join top on told.broker = top.broker
 group by 1, 2 order by 1, 2 nulls last""",
        OverTime("% of a processor", "lines", "broker", ("percent",)),
        f"No broker has reported its load. {ASK_FOR_SYSTEM}",
    ),
    ReportQuestion(
        "connections",
        "Connections",
        "Clients and services that were connected to each broker, and those of all others together.",
        ("brokers",),
        """with told as (
       select $before stored $after as time, broker, avg(connections) as connections
         from brokers where connections is not null group by 1, 2),
     top as (select broker from told group by broker order by avg(connections) desc, broker limit $top)
select time, top.broker, round(sum(connections), 1) as connections
  from told left join top on told.broker = top.broker
 group by 1, 2 order by 1, 2 nulls last""",
        OverTime("connections", "lines", "broker", ("connections",)),
        f"No broker has reported its connections. {ASK_FOR_SYSTEM}",
    ),
    ReportQuestion(
        "dropped",
        "Dropped for slow consumers",
        "Publications that a broker dropped because a consumer did not keep up.",
        ("counter_increases",),
        """select broker, sum(dropped) as dropped
  from counter_increases group by broker having sum(dropped) > 0 order by dropped desc, broker limit $top""",
        Bars("publications", "broker", "dropped"),
        "Nothing was dropped, as far as brokers have reported.",
    ),
    ReportQuestion(
        "denied",
        "Denied",
        "What clients and peers tried to do and may not, by reason.",
        ("denials",),
        """select concat(reason_word, coalesce(concat(', ', nullif(entity, '')), '')) as reason, count(*) as times
  from denials group by 1 order by times desc, reason limit $top""",
        Bars("times", "reason", "times"),
        "Nothing was denied, as far as brokers have reported.",
    ),
)

_SEARCHES = (
    ReportQuestion(
        "searches",
        "Searches for a broker",
        "Discovery requests that reached a broker, by what became of them. One search may reach several brokers.",
        ("discovery",),
        """with top as (select outcome from discovery group by outcome order by count(*) desc, outcome limit $top)
select $before stored $after as time, top.outcome, count(*) as searches
  from discovery left join top on discovery.outcome = top.outcome
 group by 1, 2 order by 1, 3 desc, 2""",
        OverTime("searches", "columns", "outcome", ("searches",)),
        f"No broker was searched for in this period. {ASK_FOR_SYSTEM}",
    ),
    ReportQuestion(
        "topic-messages",
        "Messages to topic directories",
        "Searches for topics, and topics that were advertised and withdrawn.",
        ("topic_messages",),
        """with top as (select what from topic_messages group by what order by count(*) desc, what limit $top)
select $before stored $after as time, top.what, count(*) as messages
  from topic_messages left join top on topic_messages.what = top.what
 group by 1, 2 order by 1, 3 desc, 2""",
        OverTime("messages", "columns", "what", ("messages",)),
        "No message to a topic directory is in the archive. A store keeps them with "
        "<code>--store-pattern 'Services/#'</code>.",
    ),
)

_RESOURCES = (
    ReportQuestion(
        "resources",
        "Registered resources",
        "How many resources were registered at the end of each step.",
        ("resources",),
        """with changes as (
       select valid_from as at, 1 as change from resources
        union all select valid_to, -1 from resources where valid_to is not null),
     summed as (
       select $before least(greatest(at, $first), $last) $after as time, sum(change) as change from changes group by 1)
select time, sum(change) over (order by time) as resources from summed order by time""",
        OverTime("resources", "steps", "", ("resources",)),
        "No resource is in the archive. Brokers publish what changes with <code>resources.publish_updates</code>.",
    ),
    ReportQuestion(
        "updates",
        "What changes most",
        "The resources with most updates.",
        ("resource_updates",),
        """select coalesce(nullif(max_by(name, struct(time, store, offset)), ''), id) as resource, count(*) as updates
  from resource_updates group by id order by updates desc, resource limit $top""",
        Bars("updates", "resource", "updates"),
        "No resource is in the archive.",
    ),
)

QUESTIONS: dict[str, tuple[ReportQuestion, ...]] = {
    "Traffic": _TRAFFIC,
    "Delay": _DELAY,
    "Load": _LOAD,
    "Searches": _SEARCHES,
    "Resources": _RESOURCES,
}
