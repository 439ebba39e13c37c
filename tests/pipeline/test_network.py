"""Figures of a network, the catalogue over time, and the advice that follows."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.evaluation.topics import _Parties, _record
from heliograph.pipeline import archive, catalogue, kinds, network
from heliograph.pipeline.tables import LakeTables
from tests.pipeline.test_archive import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000


def load_row(broker: str, cpu: int, **more: Any) -> dict[str, Any]:
    return {"broker": broker, "cpu_permille": cpu, "dropped": 0, **more}


def way(entered: str, broker: str, brokers: int, **more: Any) -> dict[str, Any]:
    return {"entered": entered, "broker": broker, "brokers": brokers, "mean_ms": 1.0, "parcels_per_s": 1.0, **more}


def test_a_busy_broker_uneven_load_and_long_ways_are_told() -> None:
    found = {
        "load": [load_row("b1", 900), load_row("b2", 50)],
        "concentration": [
            {"broker": "b1", "connections": 90, "share_of_connections": 0.9},
            {"broker": "b2", "connections": 10, "share_of_connections": 0.1},
            *({"broker": name, "connections": 0, "share_of_connections": 0.0} for name in ("b3", "b4", "b5", "b9")),
        ],
        "links": [{"broker": "b1", "other": "b4"}],
        "ways": [
            way("b2", "b9", 5, samples=40, share_of_delay=0.3, mean_ms=10.0, parcels_per_s=4.0),
            way("b9", "b2", 3, samples=4, share_of_delay=0.1, mean_ms=3.0, parcels_per_s=4.0),
            way("b2", "b1", 2, samples=400, share_of_delay=0.4),
            way("b3", "b1", 3, samples=2, share_of_delay=0.1),
            way("b4", "b1", 3, samples=400, share_of_delay=0.2),
            way("b5", "b1", 3, samples=400, share_of_delay=0.1),
            way("gone", "b1", 3, samples=400, share_of_delay=0.2),
        ],
    }
    advice = network.advise(found)
    assert {(each.kind, each.about) for each in advice} == {
        ("broker", "b1"), ("weights", "load"), ("link", "b2 b9"),
    }  # fmt: skip
    link = next(each for each in advice if each.kind == "link")
    assert link.value == round(0.3 * 3 / 5 + 0.1 / 3, 4)
    assert link.text == (
        "link b2 and b9: 8 parcels a second between them pass 5 brokers; a direct link would save about 3.5 ms for "
        "each, 21% of all delay between brokers"
    )
    assert advice[0].value == max(each.value for each in advice)
    assert advice[0].row(5)["time_us"] == 5


def test_a_quiet_network_needs_no_advice() -> None:
    assert network.advise({"load": [load_row("b1", 100), load_row("b2", 120)]}) == []
    assert network.advise({}) == []


@pytest.mark.spark
@pytest.mark.req("S3", "S6")
def test_figures_and_catalogue_come_from_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    hops = [
        ("System/Brokers/b2/hops", {"time_us": S + 1_000 * n, "published_us": S, "topic": "t", "way": ["b1", "b2"]})
        for n in (1, 2, 3)
    ]
    load = [
        (
            "System/Brokers/b1/load",
            {"time_us": t * S, "connections": 4, "draining": t > 2, "network": "n", "full": False},
        )
        for t in (1, 2, 3)
    ]
    joins = [
        ("System/Brokers/b1/joins", {"time_us": t * S, "note": note, "broker": "b2", "cluster": "c"})
        for t, note in ((1, "neighbour_linked"), (5, "neighbour_lost"), (9, "neighbour_linked"))
    ]
    told = ((1, "registered", None), (2, "updated", {"disk": 7}), (4, "withdrawn", None))
    resources = [
        (f"System/Resources/r1/{what}", {"id": "r1", "what": what, "values": values, "at": t * S * 1_000, "owner": "o"})
        for t, what, values in told
    ]
    advertised = ("Services/Discovery/Topics", _record(_Parties(perf_counter), 1))
    given = (("t/1", b"abc"), ("t/1", b"d"), *hops, *load, *joins, *resources, advertised)
    archive.add(rows(spark, *given), tables, "q", 0)

    found = {name: [row.asDict() for row in table.collect()] for name, table in network.figures(spark, tables).items()}
    names = catalogue.register(spark, tables)

    assert {"delay", "load", "concentration", "topics", "ways"} <= set(found)
    (delay,) = found["delay"]
    assert (delay["broker"], delay["mean_ms"], delay["p50_ms"], delay["jitter_ms"], delay["most_hops"]) == (
        "b2", 2.0, 2.0, 1.0, 2,
    )  # fmt: skip
    assert {"topics", "broker_states", "broker_links", "sessions"} <= set(names)
    (topic,) = spark.sql("select * from topics").collect()
    assert (topic["topic"], topic["events"], topic["bytes"]) == ("t/1", 2, 4)
    states = spark.sql("select draining, valid_to is null as open from broker_states order by valid_from").collect()
    assert [tuple(row) for row in states] == [(False, False), (True, True)]
    links = spark.sql("select second(valid_from), second(valid_to) from broker_links order by valid_from").collect()
    assert [tuple(row) for row in links] == [(1, 5), (9, None)]
    lives = "select owner, attributes, second(valid_from), second(valid_to) from resources order by valid_from"
    assert [tuple(row) for row in spark.sql(lives).collect()] == [("o", None, 1, 2), ("o", '{"disk":7}', 2, 4)]
    (created,) = spark.sql("select *, valid_to = created + interval 1 hour as ends from created_topics").collect()
    assert (created["owner"], created["directory"], created["ends"]) == ("entity", "tdn-1", True)
    assert "plant/hall-3/temperature" in created["attributes"]
    assert [tuple(row) for row in spark.sql("select owner, topics from owners").collect()] == [("entity", 1)]
    assert [(row["cluster"], row["connections"]) for row in found["clusters"]] == [("", 4)]


@pytest.mark.spark
def test_an_archive_of_an_older_version_has_the_views_of_today(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    for name, lacked in (("brokers", ("incarnation", "interval_s")), ("links", ("incarnation",))):
        tables.add(name, kinds.empty(spark, name).drop(*lacked), ("date",), "q", 0)
    assert {"sessions", "incarnations", "broker_links", "counter_increases"} <= set(catalogue.register(spark, tables))
    assert spark.sql("select * from sessions").collect() == []
