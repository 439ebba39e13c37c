"""The lag of a stream, by store, in rows and bytes."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest

import heliograph
from heliograph.pipeline.lag import LagListener, StoreLag
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, SIZE, BATCH = 9, 1_000, 4


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
def test_a_listener_tells_rows_and_bytes_behind_by_store(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[str, list[StoreLag]]] = []
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [bytes(SIZE) for _ in range(ROWS)], reliable=True)
            store = client.stores()[0].id
        options = {"url": url, "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": f"{BATCH}"}
        listener = LagListener(lambda name, lags: told.append((name, lags)), options)
        spark.streams.addListener(listener)
        try:
            writing = spark.readStream.format("heliograph").options(**options).load().writeStream.format("noop")
            writing = writing.queryName("lagging").option("checkpointLocation", str(tmp_path / "check"))
            writing.trigger(availableNow=True).start().awaitTermination()
            until = monotonic() + 60
            while len([lags for name, lags in told if name == "lagging"]) < 3 and monotonic() < until:
                sleep(0.05)
        finally:
            spark.streams.removeListener(listener)
    lags = [lag for name, found in told if name == "lagging" for lag in found]
    assert [(lag.store, lag.rows) for lag in lags[:3]] == [(store, ROWS - BATCH), (store, ROWS - 2 * BATCH), (store, 0)]
    sizes = [lag.bytes for lag in lags[:3]]
    assert sizes[0] is not None
    assert sizes[0] >= (ROWS - BATCH) * SIZE
    assert sizes[2] == 0
