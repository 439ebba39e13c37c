"""A driver that archives, and a process that is killed, by SIGKILL, at a point of a micro-batch.

In:    the address of a broker with a store and its process, the folder of tables, the point and the victim.
Out:   an archive, perhaps half done; a file ``killed`` beside the tables once the victim was killed.
State: none.
Not here: what must be true afterwards (test_crashes.py).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from heliograph.pipeline import archive
from heliograph.pipeline.session import session
from heliograph.pipeline.tables import LakeTables

READ, FILES, COMMIT, COMMITTED = "read", "before files", "before commit", "after commit"
POINTS = (READ, FILES, COMMIT, COMMITTED)
DRIVER, JAVA, WORKER, STORE = "driver", "java", "worker", "store"
BATCH_ROWS = 100


def killing(victim: int, mark: Path) -> Callable[[], None]:
    """Kill a process, the first time; 0: the one that calls."""

    def kill() -> None:
        if not mark.exists():
            mark.touch()
            os.kill(victim or os.getpid(), signal.SIGKILL)

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

    def dying_add(self: LakeTables, name: str, rows: Any, by: Any, query: str, batch: int) -> int:
        if point == FILES and batch == 1:
            kill()
        added = add(self, name, rows, by, query, batch)
        if point == COMMITTED and batch == 1:
            kill()
        return added

    def dying_commit(self: LakeTables, name: str, folder: str, schema: Any, by: Any, query: str, batch: int) -> int:
        if point == COMMIT and batch == 1:
            kill()
        return commit(self, name, folder, schema, by, query, batch)

    LakeTables.add, LakeTables.commit = dying_add, dying_commit  # type: ignore[method-assign]


def options(url: str) -> dict[str, str]:
    """Of a stream with three batches."""
    return {"url": url, "subscribe": "#", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH_ROWS)}


def main(url: str, store: str, root: str, point: str, victim: str) -> None:
    spark = session("local[2,3]", settings={"spark.sql.shuffle.partitions": "2"})  # a task is tried three times
    java = next(each.pid for each in psutil.Process().children(recursive=True) if "java" in each.name())
    victims = {DRIVER: os.getpid(), JAVA: java, WORKER: 0, STORE: int(store)}
    kill = killing(victims[victim], Path(root).parent / "killed")
    stream = spark.readStream.format("heliograph").options(**options(url)).load()
    if point == READ:
        stream = stream.mapInArrow(in_tasks(kill), stream.schema)
    else:
        in_driver(point, kill)
    archive.start(stream, root).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
