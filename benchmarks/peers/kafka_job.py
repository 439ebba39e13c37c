"""What a user of Kafka would run: Spark's Kafka source in batches and streams, and Kafka to Delta. It runs by itself.

In:    the broker's address, the folder of the jars, a folder for tables; orders as lines of JSON on standard input.
Out:   one line of JSON for each order: rows a second.
State: a Spark session.
Not here: who starts it (kafka.py). It runs in PySpark 4.0, so it imports nothing else from here.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

TOPIC = "bench"
COLUMNS = ("cast(key as string) as topic", "value", "partition", "offset", "timestamp")


class Session:
    """What can be ordered."""

    def __init__(self, broker: str, jars: str, folder: str) -> None:
        self._broker, self._folder = broker, folder
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.driver.extraClassPath": f"{jars}/*",
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        self._spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        self._queries = 0

    def fill(self, parquet: str) -> dict[str, Any]:
        """Publish the rows of a folder of Parquet."""
        rows = self._spark.read.parquet(parquet).selectExpr("topic as key", "value")
        self._to(rows.write.format("kafka")).option("topic", TOPIC).save()
        return {"rows": self._read().count()}

    def batch(self) -> dict[str, Any]:
        """Read everything."""
        began = time.perf_counter()
        self._read().write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def stream(self, rows: int) -> dict[str, Any]:
        """Read everything in micro-batches."""
        return self._run(self._stream(rows).writeStream.format("noop"))

    def archive(self, rows: int) -> dict[str, Any]:
        """Everything, into a new table of Delta."""
        table = f"{self._folder}/delta-{self._queries}"
        writing = self._stream(rows).selectExpr(*COLUMNS).writeStream.format("delta").option("path", table)
        found = self._run(writing)
        return found | {"kept": self._spark.read.format("delta").load(table).count()}

    def _to(self, what: Any) -> Any:
        return what.option("kafka.bootstrap.servers", self._broker)

    def _read(self) -> Any:
        return self._to(self._spark.read.format("kafka")).option("subscribe", TOPIC).load()

    def _stream(self, rows: int) -> Any:
        reading = self._to(self._spark.readStream.format("kafka")).option("subscribe", TOPIC)
        return reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows).load()

    def _run(self, writing: Any) -> dict[str, Any]:
        self._queries += 1
        check = f"{self._folder}/check-kafka-{self._queries}"
        query = writing.option("checkpointLocation", check).trigger(availableNow=True).start()
        query.awaitTermination()
        return {"batches": [(p.numInputRows, p.durationMs["triggerExecution"] / 1e3) for p in query.recentProgress]}


def main() -> None:
    """Answer until there are no more orders."""
    session = Session(*sys.argv[1:])
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(session, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    main()
