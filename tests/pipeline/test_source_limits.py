"""The source and the sink at their limits: times, gaps, nothing to read, payloads too large, a shared checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any

import pytest

import heliograph
from benchmarks.ports import free_port
from heliograph.errors import UsageError
from heliograph.pipeline.plain import PipelineError, plain_errors
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.req("S1")]
EARLY, LATE = 30, 20
SECONDS = 120.0


def broker(folder: Path, port: int = 0, settings: str = "") -> Process:
    config = folder / "heliograph.toml"
    config.write_text(f'[store]\nenabled = true\nplace = "{folder / "kept"}"\n{settings}')
    listen = ("--listen", f"127.0.0.1:{port or free_port()}")
    return Process(folder, *listen, "--log-format", "json", "--no-discovery", "--config", str(config), "--store")


def address(process: Process) -> str:
    return f"heliograph://127.0.0.1:{process.port}"


def publish(url: str, count: int, topic: str = "t") -> None:
    with heliograph.connect_blocking(url) as client:
        client.publish_batch(topic, [b"%d" % number for number in range(count)], reliable=True)


def store_of(url: str) -> str:
    with heliograph.connect_blocking(url) as client:
        return client.stores()[0].id


def read(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("heliograph").options(url=url, **options).load()


@pytest.fixture(scope="module")
def two_times(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A store with publications from before and after a moment, and that moment in milliseconds."""
    with broker(tmp_path_factory.mktemp("times")) as process:
        url = address(process)
        publish(url, EARLY)
        time.sleep(0.05)
        moment = time.time_ns() // 1_000_000
        time.sleep(0.05)
        publish(url, LATE)
        yield url, moment


def test_a_batch_by_the_time_of_storing(spark: SparkSession, two_times: tuple[str, int]) -> None:
    url, moment = two_times
    late = read(spark, url, startingTimestamp=str(moment), minPartitions="3")
    assert sorted(row["offset"] for row in late.collect()) == list(range(EARLY, EARLY + LATE))
    early = read(spark, url, endingTimestamp=str(moment)).collect()
    assert sorted(row["offset"] for row in early) == list(range(EARLY))
    of_store = read(spark, url, endingOffsetsByTimestamp=f'{{"{store_of(url)}": {{"0": {moment}}}}}')
    assert of_store.count() == EARLY
    split = read(spark, url).selectExpr(f"stored >= timestamp_millis({moment}) as is_late", "offset").collect()
    assert all(row["is_late"] == (row["offset"] >= EARLY) for row in split), "each row says when it was stored"


def test_offsets_of_both_ends_and_rows_without_headers(spark: SparkSession, two_times: tuple[str, int]) -> None:
    url, _ = two_times
    store = store_of(url)
    rows = read(
        spark,
        url,
        startingOffsets=f'{{"{store}": {{"0": 5}}}}',
        endingOffsets=f'{{"{store}": {{"0": 9}}}}',
        includeHeaders="false",
    )
    assert "headers" not in rows.columns
    assert [row["offset"] for row in rows.orderBy("offset").collect()] == [5, 6, 7, 8]
    none = read(
        spark,
        url,
        startingOffsets=f'{{"{store}": {{"0": {EARLY + LATE}}}}}',
        endingOffsets=f'{{"{store}": {{"0": -1}}}}',
    )
    assert none.count() == 0


def test_an_empty_store_and_a_topic_without_publications_have_no_rows(
    spark: SparkSession, two_times: tuple[str, int], tmp_path: Path
) -> None:
    assert read(spark, two_times[0], subscribe="nothing/here").count() == 0
    with broker(tmp_path) as process:
        url = address(process)
        assert read(spark, url).count() == 0
        stream = spark.readStream.format("heliograph").options(url=url, startingOffsets="earliest").load()
        check = str(tmp_path / "check")
        writing = stream.writeStream.format("noop").option("checkpointLocation", check).trigger(availableNow=True)
        writing.start().awaitTermination()


def test_a_gap_fails_in_one_line_or_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    with broker(tmp_path, settings="retain_bytes = 1\n") as process:
        url = address(process)
        for _ in range(3):
            publish(url, 10)
        store = store_of(url)
        first = trimmed(url)
        missed: dict[str, Any] = {"startingOffsets": f'{{"{store}": {{"0": 0}}}}'}
        with pytest.raises(PipelineError, match=r"no longer keeps positions 0 to \d+.*failOnDataLoss"), plain_errors():
            read(spark, url, **missed).count()
        found = [row["offset"] for row in read(spark, url, **missed, failOnDataLoss="false").collect()]
    assert all(offset >= first for offset in found)
    assert sorted(found) == sorted(set(found))


def trimmed(url: str) -> int:
    """Wait until retention has removed something; the first position that is left."""
    until = time.monotonic() + SECONDS
    with heliograph.connect_blocking(url) as client:
        while time.monotonic() < until:
            (log,) = client.logs()
            if log.first:
                return log.first
            time.sleep(0.1)
    raise AssertionError("retention removed nothing")


def test_a_payload_that_no_broker_takes_fails_in_one_line(spark: SparkSession, two_times: tuple[str, int]) -> None:
    url, _ = two_times
    row = spark.range(1).selectExpr("'big' as topic", "repeat('x', 100 * 1024 * 1024) as value")
    writing = row.write.format("heliograph").options(url=url, store=store_of(url), publisher="big", batch="1")
    with pytest.raises(PipelineError) as told, plain_errors():
        writing.mode("append").save()
    assert "104857600 bytes" in str(told.value).replace(",", "")
    assert "\n" not in str(told.value)
    assert read(spark, url, subscribe="big").count() == 0


def test_two_queries_on_one_checkpoint_are_told(
    spark: SparkSession, two_times: tuple[str, int], tmp_path: Path
) -> None:
    offsets = tmp_path / "check" / "offsets"

    def other_query(batch: DataFrame, number: int) -> None:
        """As if another process had begun the next batch."""
        copyfile(offsets / str(number), offsets / str(number + 1))

    options = {"url": two_times[0], "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    stream = spark.readStream.format("heliograph").options(**options).load()
    writing = stream.writeStream.foreachBatch(other_query).option("checkpointLocation", str(tmp_path / "check"))
    with pytest.raises(PipelineError, match="another process works with the same checkpoint"), plain_errors():
        writing.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.sweep
def test_a_stream_goes_on_after_its_store_was_killed_and_retention_waits_for_its_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The driver and tasks connect again; if the store is away for too long, one line says so."""
    seen: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        seen.extend(row["offset"] for row in batch.select("offset").collect())

    def stream(url: str) -> Any:
        options = {"url": url, "startingOffsets": "earliest", "reader": "follower", "maxOffsetsPerTrigger": "15"}
        loaded = spark.readStream.format("heliograph").options(**options).load()
        writing = loaded.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "check"))
        return writing.trigger(processingTime="200 milliseconds").start()

    retained = "retain_bytes = 1\n"
    with broker(tmp_path, settings=retained) as process:
        url, port = address(process), process.port
        with heliograph.connect_blocking(url) as client:
            client.subscribe("#", durable="follower", start="first", acknowledge="manual").close()
        publish(url, 30)
        query = stream(url)
        wait_for(seen, 30)
    with broker(tmp_path, port, retained):
        publish(url, 30)
        try:
            wait_for(seen, 60, query)
        except UsageError:
            with pytest.raises(Exception, match="heliograph"):  # it ended while nobody answered; it says why
                query.awaitTermination()
            query = stream(url)
            wait_for(seen, 60)
        query.stop()
    assert sorted(set(seen)) == list(range(60)), "nothing is lost"


def wait_for(seen: list[int], count: int, query: Any = None) -> None:
    until = time.monotonic() + SECONDS
    while len(set(seen)) < count:
        if query is not None and not query.isActive:
            raise UsageError("the query ended")
        assert time.monotonic() < until, seen
        time.sleep(0.1)
