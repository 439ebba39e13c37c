"""``CREATE TABLE … USING heliograph``, keys and modes, as Spark's users try them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

import heliograph
from heliograph.pipeline.plain import PipelineError, plain_errors
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.req("S1")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    place = ("--store", "--store-place", str(folder / "kept"))
    with Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        address = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(address) as client:
            for number in range(9):
                client.publish(f"t/{number % 3}", b"x", headers={"disk": number}, reliable=True, wait=False)
            client.flush()
        yield address


def test_a_table_of_the_catalogue_keeps_its_options(spark: SparkSession, url: str, tmp_path: Path) -> None:
    options = f"URL '{url}', subscribe 't/1,t/2', attributes 'disk long'"
    spark.sql(f"create table places using heliograph options ({options}, includeHeaders 'false') comment 'of t'")
    try:
        assert [row[0] for row in spark.sql("select disk from places order by disk").collect()] == [1, 2, 4, 5, 7, 8]
        assert spark.sql("select * from places with (subscribe = 't/2')").count() == 3
        stream = spark.readStream.option("startingOffsets", "earliest").table("places").select("topic")
        writing = stream.writeStream.format("memory").queryName("of_places").trigger(availableNow=True)
        writing.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
        assert spark.table("of_places").count() == 6
        with pytest.raises(PipelineError, match="the sink needs the option store"), plain_errors():
            spark.sql("insert into places select * from places limit 0")
        wanted = f"(url = '{url}', store = 'store')"
        row = "'new/1', binary('y'), 0, 0L, null, '', '', 0L, true, null, 5L"
        spark.sql(f"insert into places with {wanted} values ({row})")
    finally:
        spark.sql("drop table places")
    with heliograph.connect_blocking(url) as client, client.replay("new/#") as replay:
        assert [one.payload for one in replay] == [b"y"]


def test_a_table_whose_options_are_lost_or_whose_columns_are_others_is_refused(spark: SparkSession, url: str) -> None:
    spark.sql(f"create table named (topic string, value binary) using heliograph options (url '{url}')")
    try:
        with pytest.raises(PipelineError, match="create the table without naming columns"), plain_errors():
            spark.table("named").collect()
    finally:
        spark.sql("drop table named")
    reading = spark.read.format("heliograph").schema("topic string, colour string").option("url", url)
    with pytest.raises(PipelineError, match="choose with the options columns and attributes"), plain_errors():
        reading.load().collect()


def test_overwriting_is_refused_and_a_key_needs_a_header(spark: SparkSession, url: str) -> None:
    rows = spark.createDataFrame([("k/1", "x", "one"), ("k/2", "y", None)], "topic string, value string, key string")
    writing = rows.write.format("heliograph").options(url=url, store="store")
    with pytest.raises(PipelineError, match="rows are added to it, with mode"), plain_errors():
        writing.mode("overwrite").save()
    with pytest.raises(PipelineError, match="publications have no key: drop the column key, or name"), plain_errors():
        writing.mode("append").save()
    writing.option("keyHeader", "id").mode("append").save()
    with heliograph.connect_blocking(url) as client, client.replay("k/#") as replay:
        found = {one.topic: one.headers.get("id") for one in replay}
    assert found == {"k/1": "one", "k/2": None}


def test_a_thread_of_python_writes_if_it_says_which_session(spark: SparkSession, url: str) -> None:
    """PySpark finds no source in Python for a thread without an active session; a page says what helps."""
    rows = spark.createDataFrame([("thread/1", "x")], "topic string, value string")
    told: list[str] = []

    def write(active: bool) -> None:
        if active:
            spark.createDataFrame([], "n int")
        try:
            rows.write.format("heliograph").options(url=url, store="store").mode("append").save()
        except Exception as error:
            told.append(str(error))

    for active in (False, True):
        thread = Thread(target=write, args=(active,))
        thread.start()
        thread.join()
    assert ["DATA_SOURCE_NOT_FOUND" in each for each in told] == [True], "if it is empty, PySpark was mended"
    with heliograph.connect_blocking(url) as client, client.replay("thread/#") as replay:
        assert [one.payload for one in replay] == [b"x"]
