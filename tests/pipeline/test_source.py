"""The source and the sink, against a real broker with a real store: each row once, whatever is repeated."""

from __future__ import annotations

import json
import pickle
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph
from heliograph.errors import HeliographError, RefusedError, UsageError
from heliograph.pipeline import archive, reading
from heliograph.pipeline.offsets import DataLossError, LogRange, StoreLog, limited, plan, resolve
from heliograph.pipeline.options import LATEST, LOG, Offsets, SourceOptions, read_options
from heliograph.pipeline.source import LogStreamReader, RangeReader
from heliograph.pipeline.tables import LakeTables
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a store that has some publications."""
    folder = tmp_path_factory.mktemp("store")
    place = ("--store", "--store-place", str(folder / "kept"))
    arguments = ("--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place)
    with Process(folder, *arguments) as broker:
        address = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(address) as client:
            for number in range(ROWS):
                headers = {"disk": number, "system": "linux" if number % 2 else "other"}
                client.publish(f"hosts/{number % 3}", f"{number}", headers=headers, reliable=True, wait=False)
            client.flush()
        yield address


# -- offsets, without Spark -------------------------------------------------------------------------------------------


def test_options_have_the_names_of_the_kafka_source_and_mistakes_are_told() -> None:
    read = read_options(
        {"subscribe": "a/#, b", "startingOffsets": '{"s": {"0": 5}}', "maxOffsetsPerTrigger": "7"}, True
    )
    assert (read.filters, read.starting, read.positions_max) == (("a/#", "b"), {"s": {"0": 5}}, 7)
    assert read_options({}, True).starting == "latest"
    assert read_options({}, False).starting == "earliest"
    assert "headers" not in read_options({"includeHeaders": "false"}, False).columns
    for given, told in (
        ({"subscirbe": "a"}, "the option 'subscirbe' is not known"),
        ({"subscribe": "a/#/b"}, "'#' stands alone"),
        ({"startingOffsets": "soon"}, 'must be "earliest", "latest" or JSON'),
        ({"startingOffsets": '{"s": {"1": 5}}'}, "startingOffsets: store s has one log, '0', and not 1"),
        ({"subscribePattern": "a("}, "subscribePattern: RE2 says: missing"),
        ({"subscribePattern": "(?=a)b"}, "subscribePattern: RE2 says: invalid"),
        ({"minPartitions": "0"}, "minPartitions must be a number from 1 on"),
        ({"where": "disk >"}, "expected"),
        ({"failOnDataLoss": "perhaps"}, "must be true or false"),
        ({"columns": "topic,colour"}, "there is no 'colour'"),
    ):
        with pytest.raises(UsageError, match=told):
            read_options(given, False)


def test_a_micro_batch_takes_its_share_of_each_store() -> None:
    start = {"a": {LOG: 10}, "b": {LOG: 0}}
    known = {"a": {LOG: 110}, "b": {LOG: 300}}
    assert limited(start, known, None) == known
    assert limited(start, known, 40) == {"a": {LOG: 20}, "b": {LOG: 30}}
    assert limited(known, known, 40) == known
    assert limited({}, {"a": {LOG: 3}}, 2) == {"a": {LOG: 2}}


def test_however_small_a_micro_batch_is_every_store_with_something_new_gets_on() -> None:
    known = {"a": {LOG: 1}, "b": {LOG: 1_000_000}, "c": {LOG: 7}, "d": {LOG: 0}}
    start: Offsets = {}
    for _ in range(3):
        end = limited(start, known, 2)
        for store, logs in known.items():
            before = start.get(store, {}).get(LOG, 0)
            assert end[store][LOG] > before or before == logs[LOG], f"{store} stands still at {before}"
        start = end


def test_ranges_cover_what_was_asked_once_and_gaps_are_told() -> None:
    logs = [StoreLog("a", "h:1", 5, 25)]
    options = SourceOptions(partitions_min=3)
    ranges = plan(options, logs, {"a": {LOG: 5}}, {"a": {LOG: 25}})
    assert [(each.start, each.end) for each in ranges if isinstance(each, LogRange)] == [(5, 12), (12, 19), (19, 25)]
    with pytest.raises(DataLossError, match="no longer keeps positions 2 to 4"):
        plan(options, logs, {"a": {LOG: 2}}, {"a": {LOG: 25}})
    with pytest.raises(DataLossError, match="positions 25 to 29"):
        plan(options, logs, {"a": {LOG: 5}}, {"a": {LOG: 30}})
    with pytest.raises(DataLossError, match="store b, of which this query has not read everything, is away"):
        plan(options, logs, {}, {"b": {LOG: 9}})
    allowed = SourceOptions(fail_on_loss=False)
    assert [(r.start, r.end) for r in plan(allowed, logs, {"a": {LOG: 2}}, {"a": {LOG: 9}})] == [(5, 9)]  # type: ignore[attr-defined]
    assert resolve({"a": {LOG: -1}}, logs) == {"a": {LOG: 25}}


def test_offsets_are_of_stores_that_are_read_by_id_or_name_and_others_keep_their_ends() -> None:
    logs = [StoreLog("a", "h:1", 5, 25, name="first"), StoreLog("b", "h:2", 3, 7, name="second")]
    assert resolve({"first": {LOG: 9}}, logs) == {"a": {LOG: 9}, "b": {LOG: 3}}
    assert resolve({"a": {LOG: 9}}, logs, LATEST) == {"a": {LOG: 9}, "b": {LOG: 7}}
    with pytest.raises(UsageError, match="the store 'third', which is not read: there are a, first, b, second"):
        resolve({"third": {LOG: 9}}, logs)
    for wrong in (-3, 26):
        with pytest.raises(UsageError, match=f"offset {wrong} of store a: it has 5 to 24"):
            resolve({"a": {LOG: wrong}}, logs)


@pytest.mark.live
@pytest.mark.req("S1")
def test_filters_may_overlap_though_a_store_serves_only_one_of_them(tmp_path: Path) -> None:
    place = ("--store", "--store-place", str(tmp_path / "kept"), "--store-pattern", "b/#")
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("b/1", [b"1", b"2"], reliable=True)
        reader = RangeReader(read_options({"url": url, "subscribe": "a/#,b/#,#"}, False))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"1", b"2"]


@pytest.mark.live
@pytest.mark.req("S1")
def test_retention_waits_for_a_query_at_a_store_of_any_of_its_filters(tmp_path: Path) -> None:
    place = ("--store", "--store-place", str(tmp_path / "kept"), "--store-pattern", "b/#")
    arguments = ("--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place)
    with Process(tmp_path, *arguments) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        reader = LogStreamReader(read_options({"url": url, "subscribe": "a/#,b/#", "reader": "spark"}, True))
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("b/1", [b"x"] * 9, reliable=True)
            (store,) = client.stores()
            for position in (4, 7):
                reader.commit({store.id: {LOG: position}})
                assert [(one.name, one.position) for one in client.durable_subscriptions()] == [("spark", position)]
                client.drop_subscription("spark")  # as retention does with a name that is idle for too long
        reader.stop()


@pytest.mark.live
@pytest.mark.req("S1", "O6")
def test_only_the_driver_of_a_query_proves_the_name_of_its_reader(tmp_path: Path) -> None:
    secret = tmp_path / "spark.secret"
    secret.touch(0o600)
    secret.write_text("a secret of several drivers")
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        options = {"url": url, "subscribe": "t", "reader": "spark"}
        reader = LogStreamReader(read_options(options | {"secretFile": str(secret)}, True))
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [b"x"] * 9, reliable=True)
            (store,) = client.stores()
            reader.commit({store.id: {LOG: 4}})
            assert client.durable_subscriptions() == []  # it is not of this user's own secret
            found = client.durable_subscriptions(secret=secret.read_bytes())
            assert [(one.name, one.position) for one in found] == [("spark", 4)]
            proof = client.name_proof(store.id, "spark", secret=secret.read_bytes())
        sent = pickle.dumps(reader)
        assert secret.read_bytes() not in sent
        assert proof.encode() not in sent
        other = LogStreamReader(read_options(options, True))
        with pytest.raises(RefusedError, match="name_foreign"):
            other.commit({store.id: {LOG: 7}})
        other.stop()
        (part,) = reader.partitions({store.id: {LOG: 0}}, {store.id: {LOG: 9}})
        secret.unlink()  # tasks read without it
        assert sum(batch.num_rows for batch in pickle.loads(sent).read(part)) == 9
        reader.stop()


@pytest.mark.live
@pytest.mark.req("S1")
def test_a_task_whose_store_does_not_come_back_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [b"x" * (1 << 16)] * 160, reliable=True)  # more than is sent ahead
        options = read_options({"url": url, "subscribe": "t", "patience": "1"}, False)
        (part,) = RangeReader(options).partitions()
        batches = reading.read_range(options, part)  # type: ignore[arg-type]
        assert next(batches).num_rows
        broker.process.kill()
        with pytest.raises(HeliographError):
            list(batches)


# -- with Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
def test_a_batch_reads_what_the_store_keeps(spark: SparkSession, url: str) -> None:
    options = {"url": url, "subscribe": "hosts/#", "minPartitions": "2", "attributes": "disk long, system string"}
    rows = spark.read.format("heliograph").options(**options).load().orderBy("offset").collect()
    assert [row["offset"] for row in rows] == list(range(ROWS))
    assert [(row["topic"], bytes(row["value"]).decode(), row["disk"]) for row in rows] == [
        (f"hosts/{n % 3}", f"{n}", n) for n in range(ROWS)
    ]
    assert {row["system"] for row in rows} == {"linux", "other"}
    assert all(row["timestamp"] is not None for row in rows)
    wanted = {**options, "where": "disk >= 290 and system = 'linux'", "columns": "offset"}
    assert [row[0] for row in spark.read.format("heliograph").options(**wanted).load().collect()] == [
        291,
        293,
        295,
        297,
        299,
    ]
    two = {"url": url, "subscribe": "hosts/1,hosts/+", "subscribePattern": "hosts/[12]"}
    assert spark.read.format("heliograph").options(**two).load().count() == 200


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1", "S2")
def test_a_stream_becomes_a_table_and_an_aggregate_comes_back(spark: SparkSession, url: str, tmp_path: Path) -> None:
    options = {"url": url, "subscribe": "hosts/#", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "120"}
    said: list[str] = []
    stream = spark.readStream.format("heliograph").options(**options, reader="archive").load()
    archive.start(stream, str(tmp_path / "tables"), say=said.append).awaitTermination()
    events = LakeTables(str(tmp_path / "tables")).read(spark, "events")
    assert events.count() == ROWS
    assert [line.split(": ")[1] for line in said] == ["events +120", "events +120", "events +60"]
    with heliograph.connect_blocking(url) as client:
        (store,) = client.stores()
        (reader,) = client.durable_subscriptions()
        told = "retention need not wait for it; Spark tells of a batch when it begins the next one"
        assert (reader.name, reader.position) == ("archive", 240), told

    counted = events.groupBy("topic").count().selectExpr("concat('totals/', topic) as topic", "string(count) as value")
    for _ in range(2):  # the second is a repeat of the same batch
        counted.write.format("heliograph").options(url=url, store=store.name, publisher="totals", batch="1").mode(
            "append"
        ).save()

    with heliograph.connect_blocking(url) as client, client.replay("totals/#") as replay:
        assert sorted((one.topic, one.payload) for one in replay) == [(f"totals/hosts/{n}", b"100") for n in range(3)]


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
def test_a_stream_into_the_network_is_there_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with heliograph.connect_blocking(url) as client:
        (store,) = client.stores()
    source = str(tmp_path / "source")
    spark.createDataFrame([(f"out/{n}", f"{n}") for n in range(20)], "topic string, value string").write.parquet(source)

    def run() -> None:
        stream = spark.readStream.schema("topic string, value string").parquet(source)
        options = {"url": url, "store": store.name, "publisher": "out", "checkpointLocation": str(tmp_path / "check")}
        stream.writeStream.format("heliograph").options(**options).trigger(availableNow=True).start().awaitTermination()

    run()
    (tmp_path / "check" / "commits" / "0").unlink()  # as if the driver had died before it wrote that down
    (tmp_path / "check" / "commits" / ".0.crc").unlink()
    run()

    with heliograph.connect_blocking(url) as client, client.replay("out/#") as replay:
        assert sorted(int(one.payload) for one in replay) == list(range(20))


@pytest.mark.spark
@pytest.mark.live
def test_without_a_store_one_line_says_what_to_do(spark: SparkSession, url: str) -> None:
    from heliograph.pipeline.plain import PipelineError, plain_errors

    options: dict[str, Any] = {"url": url, "subscribe": "hosts/#", "store": "nowhere"}
    with (
        pytest.raises(PipelineError, match="no store 'nowhere' serves hosts/#: `heliograph store run` starts one"),
        plain_errors(),
    ):
        spark.read.format("heliograph").options(**options).load().count()


def test_the_package_that_spark_looks_for_needs_no_registration() -> None:
    code = "import pyspark_heliograph as p, json; print(json.dumps([p.DefaultSource.name()]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == ["heliograph"]


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1", "S2")
def test_the_example_runs(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "pipeline.py"
    monkeypatch.setattr(sys, "argv", [str(example), url])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert {"means/plant/hall-0 33.5", "means/plant/hall-1 34.5", "means/plant/hall-2 35.5"} <= set(printed)
