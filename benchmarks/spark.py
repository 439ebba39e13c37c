"""spark: how fast Spark reads from a running store, matches the past, and compares requests.

In:    nothing; a broker process with a store, one Spark session, a temporary folder.
Out:   rows per second of the source beside Spark's Parquet reader and Parquet file stream; events per second of bulk
       matching beside Spark SQL's broadcast join, with equal results; seconds for the similarity of many requests.
State: none.
Not here: brokers and stores by themselves (route, vault).
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import table
from benchmarks.generator import RunError

SAYS = "Spark: rows/s from a store beside Parquet, bulk matching beside SQL, similarity of requests"
READY_S = 30
NAMES = ("a", "b", "c", "d", "e", "f")
MATCHES = ((1_000, 500_000), (100_000, 20_000))  # subscriptions and events; SQL compares each with each
MATCHES_QUICK = ((1_000, 200_000), (100_000, 10_000))
WORKLOADS = {  # attributes of a request, at least and at most; whether both ends are bounded; width
    "threshold": (1, 3, False, 0),
    "interval": (1, 3, True, 20),
    "narrow": (4, 4, True, 20),
}


def run(quick: bool) -> dict[str, Any]:
    """Everything in one warm session; first runs are left out."""
    from heliograph.pipeline.session import session, stop

    folder = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    rounds: list[dict[str, Any]] = []
    try:
        say("starting Spark")
        spark = session("local[2]", settings={"spark.sql.shuffle.partitions": "4"})
        with _Broker(folder) as url:
            _read(spark, url, folder, 100_000 if quick else 1_000_000, 2 if quick else 5, rounds)
        for size, count in MATCHES_QUICK if quick else MATCHES:
            _match(spark, count, size, rounds)
        _similarity(spark, folder, 100_000 if quick else 1_000_000, rounds)
    finally:
        stop()
        shutil.rmtree(folder, ignore_errors=True)
    return _result(rounds) | {"quick": quick, "machine": machine.facts()}


def _note(rounds: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Keep a figure, and say it: a long run that is stopped has told something."""
    rounds.append(row)
    figure = f"{row['seconds']:.1f} s" if "seconds" in row else f"{row['rows_s']:,.0f} rows/s"
    say(f"{row['case']}, {row['system']}: {figure}")


class _Broker:
    """A broker process with a store."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "heliograph.cli.main", "broker", "run", "--log-format", "json"]
        command += ["--listen", "127.0.0.1:0", "--no-discovery", "--store", "--store-place", str(folder / "kept")]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)

    def __enter__(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            told = json.loads(line) if line.startswith("{") else {}
            if "listening" in str(told.get("text", "")) or "open on" in str(told.get("text", "")):
                return f"heliograph://{told['text'].split(' ')[2]}"
        raise RunError("the broker did not start")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def _read(spark: Any, url: str, folder: Path, count: int, times: int, rounds: list[dict[str, Any]]) -> None:
    import heliograph

    say(f"storing {count:,} publications")
    with heliograph.connect_blocking(url) as client:
        for topic in range(10):
            payloads = (b"%0100d" % number for number in range(count // 10))
            client.publish_batch(f"bench/{topic}", payloads, headers={"disk": topic}, reliable=True, wait=False)
        client.flush()
    source = spark.read.format("heliograph").options(url=url, subscribe="bench/#", minPartitions="2")
    rows = source.load()
    rows.write.parquet(str(folder / "parquet"))
    parquet = spark.read.parquet(str(folder / "parquet"))
    for number in range(times + 1):
        for system, frame in (("source", rows), ("parquet", parquet)):
            seconds, _ = _timed(lambda frame=frame: frame.write.format("noop").mode("overwrite").save())  # type: ignore[misc]
            if number:
                _note(rounds, {"round": number, "case": "batch", "system": system, "rows_s": count / seconds})
    for number in range(times):
        for system, stream in (
            (
                "source",
                spark.readStream.format("heliograph").options(url=url, subscribe="bench/#", startingOffsets="earliest"),
            ),
            ("parquet", spark.readStream.schema(parquet.schema).format("parquet")),
        ):
            loaded = stream.load() if system == "source" else stream.load(str(folder / "parquet"))
            check = str(folder / f"check-{system}-{number}")
            writing = loaded.writeStream.format("noop").option("checkpointLocation", check).trigger(availableNow=True)
            seconds, _ = _timed(lambda writing=writing: writing.start().awaitTermination())  # type: ignore[misc]
            if number:
                _note(rounds, {"round": number, "case": "stream", "system": system, "rows_s": count / seconds})


def _match(spark: Any, count: int, size: int, rounds: list[dict[str, Any]]) -> None:
    """Subscriptions over events, ours and by Spark SQL's broadcast join. The first run builds the index."""
    from pyspark.sql import functions as f

    from heliograph.pipeline import history

    columns = [f.rand(seed).alias(name) for seed, name in enumerate(NAMES)]
    events = spark.range(0, count, 1, 2).select(f.col("id").alias("offset"), f.lit("t").alias("topic"), *columns)
    events = events.cache()
    events.count()
    wanted, conditions = _subscriptions(size)
    schema = "subscription string, " + ", ".join(f"{n}_lo double, {n}_hi double" for n in NAMES)
    boxes = f.broadcast(spark.createDataFrame(conditions, schema))
    inside = " and ".join(f"{n} >= {n}_lo and {n} < {n}_hi" for n in NAMES)
    ours = history.match(events, wanted, keep=["offset"], typed=NAMES)
    joined = events.join(boxes, f.expr(inside)).select("subscription", "offset")
    say(f"matching {size:,} subscriptions with {count:,} events")
    ours.count()
    for system, frame in (("ours", ours), ("sql", joined)):
        seconds, pairs = _timed(frame.count)
        row = {"round": 1, "case": f"match_{size}", "system": system, "rows_s": count / seconds, "pairs": pairs}
        _note(rounds, row)
    if rounds[-1]["pairs"] != rounds[-2]["pairs"]:
        raise RunError("bulk matching and SQL do not find the same pairs")
    events.unpersist()


def _subscriptions(size: int) -> tuple[list[tuple[str, str, str, str]], list[list[Any]]]:
    """Conditions on four of six attributes, as we read them and as columns."""
    chance = random.Random(1)
    wanted, conditions = [], []
    for number in range(size):
        bounds = {name: chance.uniform(0, 0.7) for name in chance.sample(NAMES, 4)}
        where = " and ".join(f"{name} >= {low} and {name} < {low + 0.3}" for name, low in bounds.items())
        wanted.append((str(number), "t", "predicates", where))
        edges = [edge for n in NAMES for edge in (bounds.get(n, -1.0), bounds.get(n, 1.7) + 0.3)]
        conditions.append([str(number), *edges])
    return wanted, conditions


def _similarity(spark: Any, folder: Path, count: int, rounds: list[dict[str, Any]]) -> None:
    from heliograph.pipeline import requests

    for name in WORKLOADS:
        file = folder / f"{name}.jsonl"
        with file.open("w", encoding="utf-8") as out:
            out.writelines(f"{json.dumps(request)}\n" for request in _requests(name, count))
        table_ = spark.read.schema("filter string, language string, where string").json(str(file)).repartition(4)
        say(f"similarity of {count:,} requests, {name}")
        seconds, found = _timed(lambda table_=table_: requests.study(table_).figures())  # type: ignore[misc]
        _note(rounds, {"round": 1, "case": f"similarity_{name}", "system": "ours", "seconds": seconds, **found})
        spark.catalog.clearCache()


def _requests(name: str, count: int) -> Iterator[dict[str, str]]:
    least, most, is_bounded, width = WORKLOADS[name]
    chance = random.Random(2)
    for _ in range(count):
        parts = [f"kind = 'k{chance.randrange(20)}'"] if chance.random() < 0.9 else []
        for attribute in chance.sample(NAMES, chance.randint(least, most)):
            low = chance.uniform(0, 1_000) if name == "narrow" else chance.randrange(100)
            high = low + (width if name == "narrow" else chance.randrange(1, 100))
            parts.append(f"{attribute} > {low}" + (f" and {attribute} < {high}" if is_bounded else ""))
        yield {"filter": "t", "language": "predicates", "where": " and ".join(parts)}


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    cases: dict[str, dict[str, float]] = {}
    for each in rounds:
        best = cases.setdefault(each["case"], {})
        if "seconds" in each:
            best["seconds"] = round(each["seconds"], 1)
        else:
            best[each["system"]] = max(best.get(each["system"], 0), round(each["rows_s"]))
    pairs = (("source", "parquet"), ("ours", "sql"))
    ratios = {
        case: {peer: round(found[own] / found[peer], 2)}
        for case, found in cases.items()
        for own, peer in pairs
        if own in found and peer in found
    }
    return {
        "name": "spark",
        "unit": "rows a second (best round), or seconds",
        "ours": {
            "cases": {
                case: found.get("source", found.get("ours", found.get("seconds"))) for case, found in cases.items()
            }
        },
        "peers": {peer: {"cases": {c: f[peer] for c, f in cases.items() if peer in f}} for peer in ("parquet", "sql")},
        "ratios": ratios,
        "rounds": rounds,
        "budget": [],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [case, figure, *(f"{peer} {value}" for peer, value in result["ratios"].get(case, {}).items())]
        for case, figure in result["ours"]["cases"].items()
    ]
    return table(["case", "ours", "ratio to"], [[*row, ""][:3] for row in rows])
