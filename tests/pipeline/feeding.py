"""A driver that writes a stream into a store, slowly enough that it can be killed at any moment.

In:    the address of a broker, a folder of Parquet files.
Out:   publications; the file ``begun`` in the folder, with its process id, once the stream has started.
State: none.
Not here: what is killed, and what must be true afterwards (test_sink_kills.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

from tests.pipeline.crashing import LOCAL, begin

SCHEMA = "topic string, value string"
STORE, PUBLISHER = "store", "feeding"
PIECE_ROWS, PAUSE_S = 200, 0.03  # how fast rows pass in a task


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows pass in pieces, so that a part is staged for a while."""
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS):
            sleep(PAUSE_S)
            yield batch.slice(start, PIECE_ROWS)


def main(url: str, folder: str) -> None:
    spark = begin(LOCAL)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).parquet(f"{folder}/rows")
    options = {"url": url, "store": STORE, "publisher": PUBLISHER, "checkpointLocation": f"{folder}/check"}
    rows = stream.mapInArrow(slowly, stream.schema).writeStream.format("heliograph").options(**options)
    query = rows.option("patience", "20").trigger(availableNow=True).start()
    part = Path(folder) / "begun.part"
    part.write_text(f"{os.getpid()}")
    part.rename(Path(folder) / "begun")
    query.awaitTermination()


if __name__ == "__main__":
    from tests.pipeline import feeding  # its functions must be importable under this name in workers

    feeding.main(*sys.argv[1:])
