"""A driver that archives and is killed, by SIGKILL, at a point of a micro-batch.

In:    the address of a broker with a store, the folder of tables, and the point ("" for none).
Out:   an archive, perhaps half done.
State: none.
Not here: what must be true afterwards (test_crashes.py).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from heliograph.pipeline import archive
from heliograph.pipeline.session import session
from heliograph.pipeline.tables import LakeTables

POINTS = ("before files", "before commit", "after commit")


def die_at(point: str) -> None:
    """Kill this process there, the first time that it gets there in the second batch."""
    add, commit = LakeTables.add, LakeTables.commit

    def dying_add(self: LakeTables, name: str, rows: Any, by: Any, query: str, batch: int) -> int:
        if point == "before files" and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        added = add(self, name, rows, by, query, batch)
        if point == "after commit" and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return added

    def dying_commit(self: LakeTables, name: str, folder: str, schema: Any, by: Any, query: str, batch: int) -> int:
        if point == "before commit" and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return commit(self, name, folder, schema, by, query, batch)

    LakeTables.add, LakeTables.commit = dying_add, dying_commit  # type: ignore[method-assign]


def main(url: str, root: str, point: str) -> None:
    die_at(point)
    spark = session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    options = {"url": url, "subscribe": "#", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    stream = spark.readStream.format("heliograph").options(**options).load()
    archive.start(stream, root).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
