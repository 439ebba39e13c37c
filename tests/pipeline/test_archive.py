"""The archive: every publication becomes one row of the table of its kind, however often a batch is repeated."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from heliograph.discovery.brokers.messages import BrokerAdvertisement, write
from heliograph.errors import UsageError
from heliograph.pipeline import archive, kinds
from heliograph.pipeline.plain import PipelineError, plain_errors
from heliograph.pipeline.tables import LakeTables, RowsLostError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.req("S2")]
SCHEMA = (
    "topic string, value binary, partition int, offset long, timestamp timestamp, headers string, store string, "
    "origin string, sequence long, synchronised boolean, stored timestamp"
)
ADVERTISED = write(BrokerAdvertisement("b1", 3, 7, 60, "h", {"tcp": 7417}), pad=False)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def rows(spark: SparkSession, *values: tuple[str, Any]) -> DataFrame:
    made = [
        (topic, value if isinstance(value, bytes) else json.dumps(value).encode(), 0, offset, NOON, '{"x":1}', "s1",
         "00ff", offset, True, NOON)
        for offset, (topic, value) in enumerate(values)
    ]  # fmt: skip
    return spark.createDataFrame(made, SCHEMA)


def test_each_kind_has_its_table_and_what_cannot_be_read_is_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    batch = rows(
        spark,
        ("sensors/1", b"21.5"),
        ("sensors/2", b"\xff\x00"),
        ("System/Brokers/b1/load", {"time_us": 1_700_000_000_000_000, "connections": 3, "links": 2}),
        ("System/Brokers/b1/counters", {"time_us": 1_700_000_000_000_000, "publications": 7}),
        ("System/Brokers/b1/hops", {"time_us": 2_000, "published_us": 500, "topic": "a", "way": ["1", "2"]}),
        ("System/Brokers/b1/denials", {"time_us": 5, "reason": "publish_denied", "entity": "ada"}),
        ("System/Brokers/b1/discovery", {"time_us": 5, "outcome": "answered", "request": "aa"}),
        ("System/Brokers/b1/joins", {"time_us": 5, "note": "neighbour_linked", "broker": "b2"}),
        ("System/Brokers/b1/hops", b"not json"),
        ("System/Brokers/b1/hops", b"\xff\xfe"),
        ("System/Brokers", {"time_us": 5}),
        (
            "System/Resources/r1/updated",
            {
                "id": "r1",
                "what": "updated",
                "name": "host",
                "model": "dynamic",
                "where": "disk in 0..9",
                "values": {"disk": 7},
                "at": 5_000_000,
            },
        ),
        ("Services/Discovery/Topics", b"HGT\x09rest"),
        ("Services/BrokerDiscoveryNodes/BrokerAdvertisement", ADVERTISED),
        ("Services/Stores/Advertisement", b"\xff\x01"),
        ("Entity/ada/1", b"for ada"),
    )

    counts = archive.add(batch, tables, "q", 0)

    assert counts == {
        "events": 2, "brokers": 2, "hops": 1, "links": 1, "denials": 1, "discovery": 1, "resource_updates": 1,
        "broker_messages": 1, "advertisements": 2, "quarantine": 4,
    }  # fmt: skip
    assert tables.names() == sorted([*counts, "topic_messages"]), "the last one is empty"
    event = tables.read(spark, "events").orderBy("offset").first()
    assert event is not None
    assert (event["topic"], bytes(event["value"]), event["headers"], str(event["date"]), event["hour"]) == (
        "sensors/1", b"21.5", '{"x":1}', "2026-11-16", 12,
    )  # fmt: skip
    hop = tables.read(spark, "hops").first()
    assert hop is not None
    assert (hop["hops"], hop["delay_ms"], hop["broker"]) == (2, 1.5, "b1")
    resource = tables.read(spark, "resource_updates").first()
    assert resource is not None
    assert (resource["id"], resource["attributes"], resource["condition"]) == ("r1", '{"disk":7}', "disk in 0..9")
    broker = tables.read(spark, "broker_messages").first()
    assert broker is not None
    assert (broker["what"], broker["broker"], broker["ports"]) == ("advertisement", "b1", '{"tcp":7417}')
    bad = tables.read(spark, "quarantine").orderBy("offset").collect()
    assert [row["reason"] for row in bad] == [
        "not a hops record: no time_us in its JSON",
        "not a hops record: no time_us in its JSON",
        "no table takes this topic",
        "not a topic_messages record: version_unsupported known here: HGT version 1",
    ]


def test_wrong_clocks_and_empty_payloads_are_rows_like_others(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    early, late = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)
    odd = rows(spark, ("t", b""), ("t", b"x"), ("t", b"y"))
    odd = odd.selectExpr(
        *(name for name in odd.columns if name not in ("stored", "timestamp", "value")),
        "nullif(value, binary('')) as value", "cast(null as timestamp) as stored",
        f"case offset when 0 then null when 1 then timestamp '{early}' else timestamp '{late}' end as timestamp",
    )  # fmt: skip
    hops = [
        ("System/Brokers/b/hops", {"time_us": at, "published_us": said, "way": []})
        for at, said in ((2**63 - 1, -(2**62)), (2_000, 10**18), (2_000, 10**17), (2_000, 500))
    ]
    assert archive.add(odd, tables, "q", 0) == {"events": 3}
    assert archive.add(rows(spark, *hops), tables, "q", 1) == {"hops": 4}
    assert len([*(tmp_path / "events" / "data").iterdir()]) == 1, "a batch without events leaves nothing there"
    passed = (
        tables.read(spark, "hops").selectExpr("time", "year(published) as year", "delay_ms").orderBy("offset").collect()
    )
    assert [row["year"] for row in passed] == [None, None, 5138, 1970]
    assert [row["delay_ms"] for row in passed] == [None, None, None, 1.5]
    with pytest.raises(PipelineError, match="beyond the year 9999"), plain_errors():
        spark.sql("select timestamp_micros(1000000000000000000)").collect()
    found = tables.read(spark, "events").selectExpr("string(date) as day", "length").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [("1970-01-01", None), ("1970-01-01", 1), ("9999-12-31", 1)]
    assert DeltaTable(tables.path("events")).count() == 3


def test_a_batch_that_is_repeated_is_in_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    assert archive.add(rows(spark, ("a", b"1"), ("b", b"2")), tables, "q", 0) == {"events": 2}
    assert archive.add(rows(spark, ("b", b"2"), ("a", b"1")), tables, "q", 0) == {}
    assert archive.add(rows(spark, ("a", b"3")), tables, "q", 1) == {"events": 1}
    assert archive.add(rows(spark, ("a", b"4")), tables, "another query", 0) == {"events": 1}
    assert tables.read(spark, "events").count() == 4


@pytest.mark.parametrize("name", ["ü [1] {x,y}*", "a?b#c"])
def test_tables_may_be_in_a_folder_of_any_name(spark: SparkSession, name: str, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path / name))
    archive.add(rows(spark, ("a", b"1"), ("b", b"2")), tables, "q", 0)
    archive.add(rows(spark, ("a", b"3")), tables, "q", 1)
    tables.compact("events")
    tables.vacuum("events", 0, force=True)
    assert sorted(row.value for row in tables.read(spark, "events").collect()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("name", ["a\\b", "a%20b"])
def test_a_folder_that_spark_would_not_find_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="use another folder"):
        LakeTables(str(tmp_path / name))


def test_a_crash_between_files_and_commit_leaves_no_row_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = LakeTables(str(tmp_path))
    batch = rows(spark, ("a", b"1"), ("System/Brokers/b/load", {"time_us": 1}))
    with monkeypatch.context() as patch:
        patch.setattr(LakeTables, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            archive.add(batch, tables, "q", 0)
    assert list(tmp_path.rglob("*.parquet")), "files were written"
    assert tables.names() == [], "and are in no table"

    archive.add(batch, tables, "q", 0)

    assert {name: tables.read(spark, name).count() for name in tables.names()} == {"brokers": 1, "events": 1}


def test_any_tool_reads_the_tables_and_compaction_keeps_every_row(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    for number in range(3):
        archive.add(rows(spark, *((f"t/{n}", b"x") for n in range(10))), tables, "q", number)
    files = len(DeltaTable(tables.path("events")).file_uris())

    done = tables.compact("events")
    removed = tables.vacuum("events", 0, force=True)

    assert done["files_removed"] == files > done["files_added"]
    assert removed >= files
    assert DeltaTable(tables.path("events")).to_pyarrow_table().num_rows == 30, "without Spark"
    assert tables.read(spark, "events").groupBy("topic").count().count() == 10
    assert tables.has("events", "q/events", 2), "compaction forgets no batch"


@pytest.mark.parametrize("hours", [0, 1])
def test_vacuum_leaves_what_an_open_batch_wrote(
    spark: SparkSession, hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = LakeTables(str(tmp_path))
    archive.add(rows(spark, ("a", b"1")), tables, "q", 0)
    with monkeypatch.context() as patch:
        patch.setattr(LakeTables, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            archive.add(rows(spark, ("a", b"2")), tables, "q", 1)
    begun = next((tmp_path / "events" / "data" / "q-events-1").rglob("*.parquet"))

    tables.vacuum("events", hours, force=True)
    assert begun.exists(), "it may be committed at any moment"

    for path in begun.parent.parent.parent.rglob("*"):
        os.utime(path, (0, 0))
    tables.vacuum("events", hours, force=True)
    assert not begun.exists(), "it was given up long ago"
    assert tables.read(spark, "events").count() == 1


def test_vacuum_of_less_than_an_hour_must_be_forced(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    archive.add(rows(spark, ("a", b"1")), tables, "q", 0)
    with pytest.raises(UsageError, match="--force removes"):
        tables.vacuum("events", 0)


def test_a_batch_whose_files_were_removed_is_not_committed_and_comes_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = LakeTables(str(tmp_path))
    batch = rows(spark, ("a", b"1"), ("System/Brokers/b/load", {"time_us": 1}), ("System/Brokers/b/load", b"bad"))
    listed = LakeTables._actions
    for name in ("events", "brokers", "quarantine"):

        def robbed(self: LakeTables, table: str, folder: str, by: Any, robs: str = name) -> Any:
            if table == robs:
                for path in (tmp_path / table / folder).rglob("*.parquet"):
                    path.unlink()
            return listed(self, table, folder, by)

        with monkeypatch.context() as patch:
            patch.setattr(LakeTables, "_actions", robbed)
            with pytest.raises(RowsLostError, match="has 0 of the 1 rows that were written"):
                archive.add(batch, tables, "q", 0)
        assert not tables.has(name, f"q/{name}", 0)

    archive.add(batch, tables, "q", 0)
    assert {name: tables.rows(name) for name in tables.names()} == {"brokers": 1, "events": 1, "quarantine": 1}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Los_Angeles"])
def test_dates_and_hours_are_utc_whatever_the_session_says(spark: SparkSession, zone: str, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    late = "timestamp_micros(1763333999999999)"  # 2025-11-16 22:59:59.999999 UTC
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        archive.add(rows(spark, ("a", b"1")).selectExpr("* except (stored)", f"{late} as stored"), tables, "q", 0)
        read = tables.read(spark, "events").selectExpr("string(date) as date", "hour").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert read is not None
    assert tuple(read) == ("2025-11-16", 22)
    assert "date=2025-11-16/hour=22" in DeltaTable(tables.path("events")).file_uris()[0]


def test_columns_can_be_added_and_old_rows_lack_them(spark: SparkSession, tmp_path: Path) -> None:
    tables = LakeTables(str(tmp_path))
    one = kinds.dated(spark.createDataFrame([(1, NOON)], "x long, stored timestamp"), ("date",))
    two = kinds.dated(spark.createDataFrame([(2, "new", NOON)], "x long, y string, stored timestamp"), ("date",))
    tables.add("t", one, ("date",), "q", 0)
    tables.add("t", two, ("date",), "q", 1)
    assert [(row["x"], row["y"]) for row in tables.read(spark, "t").orderBy("x").collect()] == [(1, None), (2, "new")]
    with pytest.raises(UsageError, match="there is no table 'u'"):
        tables.read(spark, "u")


def test_a_large_payload_becomes_a_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PAYLOAD_BYTES_MAX", 1_000)
    tables = LakeTables(str(tmp_path))
    archive.add(rows(spark, ("small", b"x" * 1_000), ("large", b"y" * 1_001)), tables, "q", 0)
    found = {row["topic"]: row for row in tables.read(spark, "events").collect()}
    assert found["small"]["value_file"] is None
    assert (found["large"]["value"], found["large"]["length"]) == (None, 1_001)
    assert (tmp_path / found["large"]["value_file"]).read_bytes() == b"y" * 1_001


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    source, root = str(tmp_path / "source"), str(tmp_path / "tables")
    for number in range(2):
        rows(spark, (f"t/{number}", b"x")).write.mode("append").parquet(source)
        said: list[str] = []
        query = archive.start(spark.readStream.schema(SCHEMA).parquet(source), root, say=said.append)
        query.awaitTermination()
        assert said == [f"batch {number}: events +1"]
        assert sum(each.numInputRows for each in query.recentProgress) == 1, "rows are read once"
    assert LakeTables(root).read(spark, "events").count() == 2
