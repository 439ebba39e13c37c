"""Rejected: payloads that fit no schema go back into the network, on a topic of their own, each exactly once.

In:    rows in the columns of the quarantine, with the query and the number of their batch.
Out:   publications in the store that each row is from, with the reason in their headers.
State: none; the store knows which batches it has.
Not here: the quarantine (decoded_tables.py), the sink (sink.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliograph.errors import UsageError
from heliograph.model.topics import matches, topic_fault
from heliograph.pipeline.options import CONNECTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Rejected:
    """Where rejected payloads go."""

    topic: str
    connection: Mapping[str, str]

    def __call__(self, rows: DataFrame, query: str, number: int) -> None:
        """Publish the rows of a batch. A batch that is repeated is there once."""
        from pyspark.sql import functions as f

        told = f.struct("reason", f.col("topic").alias("from_topic"), "store", "offset")
        sent = rows.select("store", f.lit(self.topic).alias("topic"), f.coalesce("value", f.lit(b"")).alias("value"),
                           f.to_json(told).alias("headers"))  # fmt: skip
        for row in rows.select("store").distinct().collect():
            mine = sent.where(f.col("store") == row["store"]).drop("store")
            writing = mine.write.format("heliograph").options(**self.connection)
            writing = writing.option("store", row["store"]).option("publisher", f"rejected.{query.replace('/', '.')}")
            writing.option("batch", str(number)).mode("append").save()


def rejected_to(topic: str, options: Mapping[str, str], filters: Iterable[str]) -> Rejected:
    """What sends rejected payloads to a topic; ``options`` are those of the source."""
    fault = topic_fault(topic.encode())
    if fault is not None:
        raise UsageError(f"--rejected-to {topic!r}: {fault}")
    for each in filters:
        if matches(each.encode(), topic.encode()):
            raise UsageError(f"--rejected-to {topic!r}: a table of {each!r} would take them in again, for ever")
    return Rejected(topic, {name: value for name, value in options.items() if name.lower() in CONNECTION})
