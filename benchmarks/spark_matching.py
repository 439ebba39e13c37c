"""Bulk matching beside Spark SQL's broadcast join, and the similarity of many requests.

In:    a Spark session, a folder.
Out:   rounds: events per second, or seconds. RunError if results are not those of SQL, or of brute force on a sample.
State: none.
Not here: budgets and medians (spark.py).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.field import say
from benchmarks.generator import RunError
from heliograph.matching.conditions import covers
from heliograph.matching.languages import compile
from heliograph.matching.similarity import Forest
from heliograph.matching.similarity import similarity as similarity_of

NAMES = ("a", "b", "c", "d", "e", "f")
MATCHES = ((1_000, 500_000), (100_000, 20_000))  # subscriptions and events; SQL compares each with each
MATCHES_QUICK = ((1_000, 200_000), (100_000, 5_000))
WORKLOADS = {  # attributes of a request, at least and at most; whether both ends are bounded; width
    "threshold": (1, 3, False, 0),
    "interval": (1, 3, True, 20),
    "uncovered": (4, 4, True, 20),  # so narrow that nothing covers anything
}
WIDTH = 0.09  # of a condition on an attribute between 0 and 1
FILES = 4
WARM_UP = 20_000  # requests of the run that is left out
SAMPLE = 250  # requests that are compared two by two
SCHEMA = "filter string, language string, where string"
Request = tuple[str, str, str]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def match(spark: Any, count: int, size: int) -> Iterator[dict[str, Any]]:
    """Subscriptions over events, ours and by Spark SQL's broadcast join. The first run, which builds the index, and
    the first of SQL on fewer events are left out."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    from heliograph.pipeline import history

    columns = [f.rand(seed).alias(name) for seed, name in enumerate(NAMES)]
    events = spark.range(0, count, 1, 2).select(f.col("id").alias("offset"), f.lit("t").alias("topic"), *columns)
    events = events.cache()
    events.count()
    wanted, conditions = _subscriptions(size)
    boxes = f.broadcast(spark.createDataFrame(pa.table(conditions)))
    inside = " and ".join(f"{n} >= {n}_lo and {n} < {n}_hi" for n in NAMES)
    ours = history.match(events, wanted, keep=["offset"], typed=NAMES)
    joined = events.join(boxes, f.expr(inside)).select("subscription", "offset")
    first = events.where("offset < 100").join(boxes, f.expr(inside)).select("subscription", "offset")
    say(f"matching {size:,} subscriptions with {count:,} events")
    _pairs(ours)
    _pairs(first)
    found = {}
    for system, frame in (("ours", ours), ("sql", joined)):
        seconds, found[system] = _timed(lambda frame=frame: _pairs(frame))  # type: ignore[misc]
        say(f"match_{size}, {system}: {count / seconds:,.0f} events a second")
        row = {"round": 1, "case": f"match_{size}", "system": system, "rows_s": count / seconds}
        yield row | {"pairs": found[system][0]}
    if found["ours"] != found["sql"]:
        raise RunError(f"bulk matching and SQL do not find the same pairs: {found}")
    events.unpersist()


def _pairs(frame: Any) -> tuple[int, int]:
    """How many pairs, and a sum over all of them that depends on each."""
    from pyspark.sql import functions as f

    row = frame.agg(f.count(f.lit(1)), f.bit_xor(f.xxhash64("subscription", "offset"))).first()
    return row[0], row[1] or 0


def _subscriptions(size: int) -> tuple[list[tuple[str, str, str, str]], dict[str, list[Any]]]:
    """Conditions on four of six attributes, as we read them and as columns. An event meets about 7 of 100,000."""
    chance = random.Random(1)
    wanted = []
    edges: dict[str, list[Any]] = {f"{name}_{end}": [] for name in NAMES for end in ("lo", "hi")}
    for number in range(size):
        bounds = {name: chance.uniform(0, 1 - WIDTH) for name in chance.sample(NAMES, 4)}
        where = " and ".join(f"{name} >= {low} and {name} < {low + WIDTH}" for name, low in bounds.items())
        wanted.append((str(number), "t", "predicates", where))
        for name in NAMES:
            edges[f"{name}_lo"].append(bounds.get(name, -1.0))
            edges[f"{name}_hi"].append(bounds.get(name, 2.0) + WIDTH)
    return wanted, {"subscription": [name for name, *_ in wanted], **edges}


def similarity(spark: Any, folder: Path, name: str, count: int) -> Iterator[dict[str, Any]]:
    """Blocks and similarity of many requests. First, a sample is compared with brute force, and some warm up."""
    from heliograph.pipeline import requests

    _check_sample(spark, name)
    requests.study(_table(spark, folder / f"{name}-first", name, WARM_UP))
    asked = _table(spark, folder / name, name, count)
    say(f"similarity of {count:,} requests, {name}")
    seconds, found = _timed(lambda: requests.study(asked).figures())
    say(f"similarity_{name}, ours: {seconds:.1f} s")
    yield {"round": 1, "case": f"similarity_{name}", "system": "ours", "seconds": seconds, **found}
    spark.catalog.clearCache()


def _table(spark: Any, place: Path, name: str, count: int) -> Any:
    """Requests in files of equal size, which tasks share."""
    place.mkdir()
    lines = [
        json.dumps({"filter": pattern, "language": language, "where": where}) + "\n"
        for pattern, language, where in some_requests(name, count)
    ]
    for number in range(FILES):
        (place / f"{number}.jsonl").write_text("".join(lines[number::FILES]), "utf-8")
    return spark.read.schema(SCHEMA).json(str(place))


def _check_sample(spark: Any, name: str) -> None:
    from heliograph.pipeline import requests

    rows = [*some_requests(name, SAMPLE)]
    found = requests.study(spark.createDataFrame(rows, SCHEMA))
    blocks, alike = brute_force(rows)
    if (found.blocks, round(found.similarity, 9)) != (blocks, round(alike, 9)):
        raise RunError(f"{name}: {found.blocks} blocks and {found.similarity}, by brute force {blocks} and {alike}")


def brute_force(rows: list[Request]) -> tuple[int, float]:
    """Blocks and similarity, two by two."""
    conditions = [compile(language, where) for _, language, where in rows]
    forest = Forest()
    for one, wide in enumerate(conditions):
        for other, narrow in enumerate(conditions):
            if one != other and covers(wide, narrow):
                forest.join(one, other)
    sizes: dict[int, int] = {}
    for place in range(len(rows)):
        sizes[forest.find(place)] = sizes.get(forest.find(place), 0) + 1
    return sum(1 for size in sizes.values() if size > 1), similarity_of(sizes.values(), len(rows))


def some_requests(name: str, count: int) -> Iterator[Request]:
    """Requests of a workload, the same ones each time."""
    least, most, is_bounded, width = WORKLOADS[name]
    chance = random.Random(2)
    for _ in range(count):
        parts = [f"kind = 'k{chance.randrange(20)}'"] if chance.random() < 0.9 else []
        for attribute in chance.sample(NAMES, chance.randint(least, most)):
            low = chance.uniform(0, 1_000) if name == "uncovered" else chance.randrange(100)
            high = low + (width if name == "uncovered" else chance.randrange(1, 100))
            parts.append(f"{attribute} > {low}" + (f" and {attribute} < {high}" if is_bounded else ""))
        yield "t", "predicates", " and ".join(parts)
