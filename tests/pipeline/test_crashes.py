"""kill -9 of driver, Java, Python worker and store at each point of a micro-batch: nothing lost, nothing twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import heliograph
from heliograph.pipeline import archive
from tests.live.processes import Process
from tests.pipeline import sinking
from tests.pipeline.crashing import (
    COMMIT,
    COMMITTED,
    DRIVER,
    FILES,
    JAVA,
    POINTS,
    READ,
    STORE,
    WORKER,
    options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
ROWS = 250
TRIES, TOO_BUSY = 3, "Python worker failed to connect back"  # Spark gives it 10 s, whatever the machine has to do
ALWAYS = ((COMMIT, DRIVER),)
SWEPT = ((READ, WORKER), (READ, STORE), (COMMITTED, JAVA))
ALL = [(point, victim) for point in POINTS for victim in (DRIVER, JAVA, STORE)] + [(READ, WORKER)]
CASES = [
    *(pytest.param(*case) for case in ALWAYS),
    *(pytest.param(*case, marks=pytest.mark.sweep) for case in SWEPT),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in ALL if case not in ALWAYS + SWEPT),
]


def broker(folder: Path) -> Process:
    place = ("--store", "--store-place", str(folder / "kept"))
    return Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place)


def crash(program: str, *words: object) -> tuple[int, str]:
    command = [sys.executable, "-m", f"tests.pipeline.{program}", *map(str, words)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=500, text=True)
    return ended.returncode, ended.stderr


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S2")
@pytest.mark.parametrize(("point", "victim"), CASES)
def test_a_killed_archive_goes_on_with_every_row_once(
    spark: SparkSession, point: str, victim: str, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    with broker(tmp_path) as first:
        url = f"heliograph://127.0.0.1:{first.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [b"%d" % number for number in range(ROWS)], reliable=True)
        for _ in range(TRIES):
            code, told = crash("crashing", url, first.process.pid, tables, point, victim)
            if TOO_BUSY not in told:
                break
    assert (tmp_path / "killed").exists(), told
    assert victim != DRIVER or code == -signal.SIGKILL
    assert victim != WORKER or code == 0, "Spark runs the task again"

    with broker(tmp_path) as second:
        there = options(f"heliograph://127.0.0.1:{second.port}")
        stream = spark.readStream.format("heliograph").options(**there).load()
        archive.start(stream, str(tables)).awaitTermination()

    offsets = DeltaTable(str(tables / "events")).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(offsets) == list(range(ROWS))


SINK_CASES = [
    pytest.param(sinking.COMMIT, DRIVER, marks=pytest.mark.sweep),
    *(
        pytest.param(*case, marks=pytest.mark.soak)
        for case in (
            (sinking.STAGE, WORKER),
            (sinking.STAGE, JAVA),
            (sinking.COMMIT, JAVA),
            (sinking.COMMITTED, DRIVER),
            (sinking.COMMITTED, JAVA),
        )
    ),
]


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
@pytest.mark.parametrize(("point", "victim"), SINK_CASES)
def test_a_killed_stream_into_the_network_is_there_once(
    spark: SparkSession, point: str, victim: str, tmp_path: Path
) -> None:
    numbers = [(f"out/{number % 3}", f"{number}") for number in range(ROWS)]
    rows = spark.createDataFrame(numbers, sinking.SCHEMA).repartition(3)
    rows.write.parquet(str(tmp_path / "rows"))
    with broker(tmp_path) as process:
        url = f"heliograph://127.0.0.1:{process.port}"
        with heliograph.connect_blocking(url) as client:
            (store,) = client.stores()
        for _ in range(TRIES):
            code, told = crash("sinking", url, store.name, tmp_path, point, victim)
            if TOO_BUSY not in told:
                break
        assert (tmp_path / "killed").exists(), told
        assert victim != DRIVER or code == -signal.SIGKILL
        assert victim != WORKER or code == 0, "Spark runs the task again"
        sinking.start(spark, url, store.name, tmp_path).awaitTermination()
        with heliograph.connect_blocking(url) as client, client.replay("out/#") as replay:
            assert sorted(int(one.payload) for one in replay) == list(range(ROWS))


def test_every_point_and_victim_is_among_the_cases() -> None:
    assert len(CASES) == len(ALL) == 13
    assert {FILES, READ, COMMIT, COMMITTED} == set(POINTS)
