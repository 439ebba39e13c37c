"""Archives for years: files that are not opened, versions of the past, days that are removed, files that are merged."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from heliograph.pipeline import archive, jobs, tables
from heliograph.pipeline.file_stats import stats_of
from heliograph.pipeline.tables import LakeTables, moment
from tests.pipeline.test_archive import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.req("S9")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def stored_at(batch: DataFrame, when: datetime) -> DataFrame:
    return batch.selectExpr("* except (stored)", f"timestamp '{when.isoformat()}' as stored")


def test_statistics_hold_every_row_and_times_are_rounded_outward(tmp_path: Path) -> None:
    times = [NOON + timedelta(microseconds=each) for each in (1_001, 5_999, 3_000)]
    table = pa.table({
        "offset": [3, 1, 2],
        "stored": pa.array(times, pa.timestamp("us", tz="UTC")),
        "timestamp": pa.array([None, times[2], None], pa.timestamp("us", tz="UTC")),
        "topic": ["b", "a", "ü"],
        "value": [b"", b"", b""],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "f", row_group_size=1)
    told = json.loads(stats_of(pq.read_metadata(tmp_path / "f")))
    assert told["numRecords"] == 3
    assert told["nullCount"] == {"offset": 0, "stored": 0, "timestamp": 2, "topic": 0}
    day = "2026-11-16T12:00:00"
    assert told["minValues"] == {"offset": 1, "stored": f"{day}.001Z", "timestamp": f"{day}.003Z", "topic": "a"}
    assert told["maxValues"] == {"offset": 3, "stored": f"{day}.006Z", "timestamp": f"{day}.003Z", "topic": "ü"}


def test_what_cannot_be_told_is_left_out_of_the_statistics(tmp_path: Path) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    table = pa.table({"topic": ["x" * 1_000], "stored": pa.array([last], pa.timestamp("us", tz="UTC")), "other": [1]})
    pq.write_table(table, tmp_path / "f")
    told = json.loads(stats_of(pq.read_metadata(tmp_path / "f")))
    assert (told["minValues"], told["maxValues"]) == ({}, {})
    pq.write_table(pa.table({"offset": pa.array([None], pa.int64())}), tmp_path / "g")
    assert json.loads(stats_of(pq.read_metadata(tmp_path / "g")))["nullCount"] == {"offset": 1}


@pytest.mark.spark
def test_a_period_opens_no_other_files_and_versions_and_days_of_the_past_are_found_and_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "PAYLOAD_BYTES_MAX", 1_000)
    lake = LakeTables(str(tmp_path))
    hours = [timedelta(0), timedelta(microseconds=1), timedelta(hours=5), timedelta(days=1)]
    for number, later in enumerate(hours):
        batch = rows(spark, (f"t/{number}", b"x" * 2_000 if number == 0 else b"x"))
        archive.add(stored_at(batch, NOON + later), lake, "q", number)
    path = lake.path("events")

    def found(since: str = "", until: str = "") -> tuple[list[str], int]:
        read = lake.read(spark, "events", since, until)
        return sorted(row["topic"] for row in read.collect()), len(read.inputFiles())

    assert found("2026-11-16", "2026-11-16") == (["t/0", "t/1", "t/2"], 3)
    assert found("2026-11-16T13:00") == (["t/2", "t/3"], 2)
    assert found("2026-11-16T12:00:00.000001", "2026-11-16T13:00") == (["t/1"], 2), "a file may hold what is 1 ms away"
    assert found(until="2026-11-16T12:00:00.000001") == (["t/0"], 2)
    assert found(until="2026-11-16T12:00") == ([], 0)
    stats = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    assert {(each["min.topic"], each["max.topic"]) for each in stats} == {(f"t/{n}", f"t/{n}") for n in range(4)}

    def counted(**given: int | datetime) -> int:
        (row,) = jobs.ask(spark, str(tmp_path), "select count(*) as n from events", **given).collect()  # type: ignore[arg-type]
        return int(row["n"])

    three = max(each["timestamp"] for each in DeltaTable(path).history() if each["version"] <= 3) / 1_000
    assert counted(as_of=3) == 3
    assert counted(as_of=datetime.fromtimestamp(three, UTC)) == 3
    assert LakeTables(str(tmp_path), moment("2020-01-01")).names() == []
    assert LakeTables(str(tmp_path), 99).names() == []

    large = next((tmp_path / "_payloads").iterdir())
    assert jobs.expire(str(tmp_path), date(2026, 11, 17)) == [{"table": "events", "rows_removed": 3}]
    assert found() == (["t/3"], 1)
    assert not large.exists()
    assert counted(as_of=3) == 3, "until it is vacuumed"
    assert lake.has("events", "q/events", 3), "no batch is added again"


@pytest.mark.spark
def test_an_archive_that_goes_on_merges_its_small_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SMALL_FILES_MAX", 3)
    lake, said = LakeTables(str(tmp_path)), list[str]()
    for number in range(3):
        assert not said
        archive.add(rows(spark, ("t", b"x")), lake, "q", number)
        archive._tidy(lake, said.append)
    assert said == ["merged the small files of events"]
    assert len(DeltaTable(lake.path("events")).file_uris()) == 1
    assert lake.read(spark, "events").count() == 3
