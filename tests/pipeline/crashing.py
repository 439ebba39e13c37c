"""A driver that archives, and a process that is killed, by SIGKILL, at a point of a micro-batch.

In:    the address of a broker with a store and its process, the folder of tables, the point and the victim; the address
       of a Spark cluster that the caller started, if executors are the victims.
Out:   an archive, perhaps half done; a file ``killed`` beside the tables once the victim was killed.
State: none.
Not here: what must be true afterwards (test_crashes.py).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import psutil

from heliograph.pipeline import archive
from heliograph.pipeline.session import session
from heliograph.pipeline.tables import LakeTables
from tests.pipeline.clusters import BRIEF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ, FILES, COMMIT, COMMITTED = "read", "before files", "before commit", "after commit"
POINTS = (READ, FILES, COMMIT, COMMITTED)
DRIVER, JAVA, WORKER, EXECUTOR, STORE = "driver", "java", "worker", "executor", "store"
BATCH_ROWS = 100
PATIENCE_S = 2  # a store that is killed here is started again when all this has ended
LOCAL = "local[2,3]"  # a task is tried three times
EXECUTORS, EXECUTOR_CLASS = 2, "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def begin(master: str) -> SparkSession:
    """A session in this process, or on a cluster whose executors can import the tests."""
    own = {
        "spark.sql.shuffle.partitions": "2",
        "spark.cores.max": str(EXECUTORS),
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return session(master, settings=own)


def processes(spark: SparkSession, victim: str, store: int = 0) -> list[int]:
    """The ids of the processes to kill; none: the one that calls."""
    if victim == EXECUTOR:
        return executors(spark.sparkContext.applicationId)
    java = next(each.pid for each in psutil.Process().children(recursive=True) if "java" in each.name())
    return {DRIVER: [os.getpid()], JAVA: [java], WORKER: [], STORE: [store]}[victim]


def executors(application: str) -> list[int]:
    """Those of an application, among the processes of our parent's cluster; waits until all have started."""
    while True:
        begun = psutil.Process(os.getppid()).children(recursive=True)
        found = [each.pid for each in begun if {EXECUTOR_CLASS, application} <= set(command(each))]
        if len(found) == EXECUTORS:
            return found
        sleep(0.1)


def command(process: psutil.Process) -> list[str]:
    """Its command line; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def killing(victims: Sequence[int], mark: Path) -> Callable[[], None]:
    """Kill the victims, the first time: in a task on one of them only that one; if there are none, the caller."""

    def kill() -> None:
        if not mark.exists():
            mark.touch()
            above = {each.pid for each in psutil.Process().parents()}
            for victim in above.intersection(victims) or victims or [os.getpid()]:
                os.kill(victim, signal.SIGKILL)

    return kill


def in_tasks(kill: Callable[[], None]) -> Any:
    """Rows pass; with the first of the second batch, a process is killed."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if any(offset >= BATCH_ROWS for offset in batch.column("offset").to_pylist()):
                kill()
            yield batch

    return run


def in_driver(point: str, kill: Callable[[], None]) -> None:
    """Kill there, in the second batch."""
    add, commit = LakeTables.add, LakeTables.commit

    def dying_add(self: LakeTables, name: str, rows: Any, by: Any, query: str, batch: int, count: Any) -> int:
        if point == FILES and batch == 1:
            kill()
        added = add(self, name, rows, by, query, batch, count)
        if point == COMMITTED and batch == 1:
            kill()
        return added

    def dying_commit(self: LakeTables, name: str, folder: str, schema: Any, by: Any, query: str, *batch: int) -> int:
        if point == COMMIT and batch[0] == 1:
            kill()
        return commit(self, name, folder, schema, by, query, *batch)

    LakeTables.add, LakeTables.commit = dying_add, dying_commit  # type: ignore[method-assign]


def options(url: str) -> dict[str, str]:
    """Of a stream with three batches."""
    batches = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)}
    return {"url": url, "subscribe": "#", "patience": str(PATIENCE_S), **batches}


def main(url: str, store: str, root: str, point: str, victim: str, master: str = LOCAL) -> None:
    spark = begin(master)
    kill = killing(processes(spark, victim, int(store)), Path(root).parent / "killed")
    stream = spark.readStream.format("heliograph").options(**options(url)).load()
    if point == READ:
        stream = stream.mapInArrow(in_tasks(kill), stream.schema)
    else:
        in_driver(point, kill)
    archive.start(stream, root).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
