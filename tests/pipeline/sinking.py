"""A driver that writes a stream into a store, and a process that is killed, by SIGKILL, at a point of a micro-batch.

In:    the address of a broker with a store, the store and its process, a folder of Parquet files, the point and the
       victim; the address of a Spark cluster that the caller started, if executors are the victims.
Out:   publications, perhaps half done; a file ``killed`` in the folder once the victim was killed.
State: none.
Not here: what must be true afterwards (test_crashes.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heliograph.pipeline.sink import StreamSink, sink_options
from heliograph.pipeline.source import HeliographSource
from tests.pipeline.crashing import LOCAL, PATIENCE_S, begin, killing, processes

STAGE, COMMIT, COMMITTED = POINTS = ("stage", "before commit", "after commit")
FIRST_STAGE, FIRST_COMMIT, FIRST_COMMITTED = FIRST_POINTS = tuple(f"first {point}" for point in POINTS)
SCHEMA = "topic string, value string"


class DyingSink(StreamSink):
    """A sink in whose second batch, or first, a process dies."""

    def __init__(self, options: Any, point: str, victims: Sequence[int], mark: Path) -> None:
        super().__init__(options)
        self._point = point
        self._victims = victims
        self._mark = mark

    def write(self, iterator: Iterator[Any]) -> Any:
        found = super().write(iterator)
        has_begun = (self._mark.parent / "begun").exists()
        if self._point == (STAGE if has_begun else FIRST_STAGE):
            killing(self._victims, self._mark)()
        return found

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 Spark's name
        if (self._point, batchId) in ((COMMIT, 1), (FIRST_COMMIT, 0)):
            killing(self._victims, self._mark)()
        super().commit(messages, batchId)
        (self._mark.parent / "begun").touch()
        if (self._point, batchId) in ((COMMITTED, 1), (FIRST_COMMITTED, 0)):
            killing(self._victims, self._mark)()


class DyingSource(HeliographSource):
    """A data source of its own name, with that sink."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 Spark's name
        own = {"point", "victims", "mark"}
        options = sink_options({k: v for k, v in self.options.items() if k not in own}, schema, streaming=True)
        words = self.options
        return DyingSink(options, words["point"], [*map(int, words["victims"].split())], Path(words["mark"]))


def start(spark: Any, url: str, store: str, folder: Path, form: str = "heliograph", **more: str) -> Any:
    """Write the files into the store, one file in each batch."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows"))
    where = {"url": url, "store": store, "patience": str(PATIENCE_S), "checkpointLocation": str(folder / "check")}
    options = {**where, "publisher": "out", **more}
    return stream.writeStream.format(form).options(**options).trigger(availableNow=True).start()


def main(url: str, store: str, process: str, folder: str, point: str, victim: str, master: str = LOCAL) -> None:
    spark = begin(master)
    spark.dataSource.register(DyingSource)
    victims = processes(spark, victim, int(process))
    own = {"point": point, "victims": " ".join(map(str, victims)), "mark": f"{folder}/killed"}
    start(spark, url, store, Path(folder), "dying", **own).awaitTermination()


if __name__ == "__main__":
    from tests.pipeline import sinking  # its classes must be importable under this name in workers

    sinking.main(*sys.argv[1:])
