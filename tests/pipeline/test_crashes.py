"""kill -9 of driver, Java, Python worker, executor and store at each point of a micro-batch: every row comes once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

import heliograph
from heliograph.pipeline import archive
from tests.live.processes import Process
from tests.many import cases
from tests.pipeline import sinking
from tests.pipeline.clusters import cluster
from tests.pipeline.crashing import (
    COMMIT,
    COMMITTED,
    DRIVER,
    EXECUTOR,
    FILES,
    JAVA,
    LOCAL,
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
OUTLIVED = (WORKER, EXECUTOR)  # the driver goes on: Spark runs their tasks again
ALWAYS = ((COMMIT, DRIVER),)
SWEPT = ((READ, EXECUTOR),)
ALL = [(point, victim) for point in POINTS for victim in (DRIVER, JAVA, EXECUTOR, STORE)] + [(READ, WORKER)]
CASES = cases(always=ALWAYS, sweep=SWEPT, soak=[case for case in ALL if case not in ALWAYS + SWEPT])


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster, for the cases that kill executors; its master starts a killed executor again."""
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def where(victim: str, request: pytest.FixtureRequest) -> str:
    """A cluster, if executors are the victims; it starts when the first of these cases does."""
    return str(request.getfixturevalue("master")) if victim == EXECUTOR else LOCAL


def broker(folder: Path) -> Process:
    place = ("--store", "--store-place", str(folder / "kept"))
    return Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place)


def crash(program: str, *words: object) -> tuple[int, str]:
    command = [sys.executable, "-m", f"tests.pipeline.{program}", *map(str, words)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=500, text=True)
    return ended.returncode, ended.stderr


def archived(tables: Path) -> list[int]:
    """The offsets in the archive."""
    return sorted(DeltaTable(str(tables / "events")).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def published(url: str) -> list[int]:
    """The numbers that the stream published, as the store keeps them."""
    with heliograph.connect_blocking(url) as client, client.replay("out/#") as replay:
        return sorted(int(one.payload) for one in replay)


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S2")
@pytest.mark.parametrize(("point", "victim"), CASES)
def test_a_killed_archive_goes_on_with_every_row_once(
    spark: SparkSession, point: str, victim: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tables = tmp_path / "tables"
    with broker(tmp_path) as first:
        url = f"heliograph://127.0.0.1:{first.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [b"%d" % number for number in range(ROWS)], reliable=True)
        for _ in range(TRIES):
            code, told = crash("crashing", url, first.process.pid, tables, point, victim, where(victim, request))
            if TOO_BUSY not in told:
                break
    assert (tmp_path / "killed").exists(), told
    assert victim != DRIVER or code == -signal.SIGKILL
    assert victim not in OUTLIVED or (code, archived(tables)) == (0, list(range(ROWS))), told

    with broker(tmp_path) as second:
        there = options(f"heliograph://127.0.0.1:{second.port}")
        stream = spark.readStream.format("heliograph").options(**there).load()
        archive.start(stream, str(tables)).awaitTermination()

    assert archived(tables) == list(range(ROWS))


SINK_SWEPT = ((sinking.COMMIT, DRIVER),)
SINK_ALL = [(point, victim) for point in sinking.POINTS for victim in (DRIVER, JAVA, EXECUTOR, STORE)]
SINK_ALL += [(sinking.STAGE, WORKER)]
SINK_CASES = cases(sweep=SINK_SWEPT, soak=[case for case in SINK_ALL if case not in SINK_SWEPT])


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
@pytest.mark.parametrize(("point", "victim"), SINK_CASES)
def test_a_killed_stream_into_the_network_is_there_once(
    spark: SparkSession, point: str, victim: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    numbers = [(f"out/{number % 3}", f"{number}") for number in range(ROWS)]
    rows = spark.createDataFrame(numbers, sinking.SCHEMA).repartition(3)
    rows.write.parquet(str(tmp_path / "rows"))
    with broker(tmp_path) as first:
        url = f"heliograph://127.0.0.1:{first.port}"
        with heliograph.connect_blocking(url) as client:
            (store,) = client.stores()
        words = (url, store.name, first.process.pid, tmp_path, point, victim, where(victim, request))
        for _ in range(TRIES):
            code, told = crash("sinking", *words)
            if TOO_BUSY not in told:
                break
        assert (tmp_path / "killed").exists(), told
        assert victim != DRIVER or code == -signal.SIGKILL
        assert victim not in OUTLIVED or (code, published(url)) == (0, list(range(ROWS))), told

    with broker(tmp_path) as second:
        url = f"heliograph://127.0.0.1:{second.port}"
        sinking.start(spark, url, store.name, tmp_path).awaitTermination()
        assert published(url) == list(range(ROWS))


FIRST_SWEPT = (sinking.FIRST_STAGE,)
FIRST_CASES = cases(sweep=FIRST_SWEPT, soak=[point for point in sinking.FIRST_POINTS if point not in FIRST_SWEPT])


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S1")
@pytest.mark.parametrize("point", FIRST_CASES)
def test_a_stream_that_is_killed_in_its_first_batch_goes_on_in_a_fresh_process(point: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for part in range(3):
        numbers = range(part, ROWS, 3)
        rows = pa.table({"topic": [f"out/{part}"] * len(numbers), "value": [str(number) for number in numbers]})
        parquet.write_table(rows, tmp_path / "rows" / f"{part}.parquet")
    with broker(tmp_path) as running:
        url = f"heliograph://127.0.0.1:{running.port}"
        words = (url, "store", running.process.pid, tmp_path, point, DRIVER)
        for expected in (-signal.SIGKILL, 0):
            for _ in range(TRIES):
                code, told = crash("sinking", *words)
                if TOO_BUSY not in told:
                    break
            assert code == expected, told
        assert published(url) == list(range(ROWS))


def test_every_point_and_victim_is_among_the_cases() -> None:
    assert len(CASES) == len(ALL) == 17
    assert {FILES, READ, COMMIT, COMMITTED} == set(POINTS)
    assert {point for point, victim in ALL if victim == EXECUTOR} == set(POINTS)
    assert len(SINK_CASES) == len(SINK_ALL) == 13
    assert {point for point, victim in SINK_ALL if victim == EXECUTOR} == set(sinking.POINTS)
