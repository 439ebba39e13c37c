"""spark: how fast Spark reads from a running store, matches the past, and compares requests.

In:    nothing; a broker, a store in its own process, one Spark session, a temporary folder.
Out:   rows per second of the source beside Spark's Kafka source, Parquet reader and Parquet file stream, and who used
       the CPU; of the archive beside Kafka to Delta, and a file stream that becomes Parquet; events per second of bulk
       matching beside Spark SQL's broadcast join, with equal results; seconds for the similarity of many requests; live
       publications per second while the archive catches up.
State: none.
Not here: the measurements (spark_reading.py, spark_matching.py), brokers and stores by themselves (route, store).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine, spark_matching, spark_reading
from benchmarks.field import say
from benchmarks.figures import rounded, table

SAYS = "Spark: rows/s from a store beside Parquet, bulk matching beside SQL, similarity of requests, live delivery"
REQUESTS, REQUESTS_QUICK = 1_000_000, 100_000
LEAST = {  # ours by the peer's
    "batch": {"kafka": 1.0, "parquet": 0.5},
    "stream": {"kafka": 1.0, "parquet": 0.4},
    "archive": {"kafka_delta": 1.0, "parquet": 0.5},
    "match_1000": {"sql": 1.5},
    "match_100000": {"sql": 10.0},
}
SECONDS_MOST = {"similarity_threshold": 30.0, "similarity_interval": 30.0, "similarity_uncovered": 90.0}  # of 1M
SLOWER_MOST = 0.20
PEERS = ("kafka", "kafka_delta", "parquet", "sql")
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"  # not the default: idle workers then end with a stack
HOW = [
    "one warm session with two cores; the first batches, or the first run, of everything are left out",
    "Unix sockets between Java and its Python workers, which is not Spark's default",
    "the same rows, all columns of the source, written to noop; Parquet is zstd, as the archive writes it",
    "stream, archive: micro-batches of 500,000 rows, by Spark's own time of each but the first",
    "kafka: one broker with two partitions, Spark 4.0's Kafka source in a session of its own with the same settings; "
    "the same values, topics as keys, no headers",
    "kafka_delta: the same by delta-spark to a table without partitions; parquet: a file stream that becomes Parquet",
    "cpu_s: CPU seconds of the store's process, of Spark's Python workers and of its Java for a million rows",
    "live: delivered per second by another broker than the store's; the archive has the priority of an embedded job",
]


def run(quick: bool) -> dict[str, Any]:
    """Everything in one warm session; first runs are left out."""
    from heliograph.pipeline.session import session, stop

    folder = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    rounds: list[dict[str, Any]] = []
    facts = machine.facts()
    try:
        say("starting Spark")
        spark = session("local[2]", settings={"spark.sql.shuffle.partitions": "4", UNIX_SOCKETS: "true"})
        with spark_reading.stored_rows(folder, quick) as rows:
            spark_reading.write_parquet(spark, rows, folder)
            times = 3 if quick else 5
            with spark_reading.kafka_rows(rows, folder) as kafka:
                rounds += spark_reading.batches(spark, rows, folder, 5, kafka)
                rounds += spark_reading.streams(spark, rows, folder, times, kafka)
                rounds += spark_reading.archives(spark, rows, folder, times, kafka)
            for size, count in spark_matching.MATCHES_QUICK if quick else spark_matching.MATCHES:
                rounds += spark_matching.match(spark, count, size)
            for name in spark_matching.WORKLOADS:
                rounds += spark_matching.similarity(spark, folder, name, REQUESTS_QUICK if quick else REQUESTS)
            # The last one, since a process cannot take back that it gives way to others.
            rounds += spark_reading.beside_live(spark, rows, folder, 2 if quick else 5)
    finally:
        stop()
        shutil.rmtree(folder, ignore_errors=True)
    return _result(rounds, quick) | {"quick": quick, "how": HOW, "machine": facts}


def _result(rounds: list[dict[str, Any]], quick: bool) -> dict[str, Any]:
    by_case: dict[str, dict[str, list[float]]] = {}
    for each in rounds:
        found = by_case.setdefault(each["case"], {})
        found.setdefault(each["system"], []).append(each["seconds"] if "seconds" in each else each["rows_s"])
    cases = {case: {who: rounded(median(all_)) for who, all_ in found.items()} for case, found in by_case.items()}
    ratios = {
        case: {peer: rounded(found["ours"] / found[peer])}
        for case, found in cases.items()
        for peer in PEERS
        if peer in found
    }
    return {
        "name": "spark",
        "unit": "rows or events a second, or seconds for similarity; medians of rounds",
        "ours": {"cases": {case: found["ours"] for case, found in cases.items()}, "cpu_s": _shares(rounds)},
        "peers": {peer: {"cases": {c: f[peer] for c, f in cases.items() if peer in f}} for peer in PEERS},
        "ratios": ratios,
        "rounds": rounds,
        "budget": _budget(cases, ratios, (REQUESTS_QUICK if quick else REQUESTS) / REQUESTS),
    }


def _budget(
    cases: dict[str, dict[str, float]], ratios: dict[str, dict[str, float]], share: float
) -> list[dict[str, Any]]:
    found = []
    for case, by_peer in LEAST.items():
        for peer, ratio in ratios.get(case, {}).items():
            least = by_peer[peer]
            found.append({"case": case, "peer": peer, "least": least, "is": ratio, "met": ratio >= least})
    for case, most in SECONDS_MOST.items():
        if case in cases:
            seconds, limit = cases[case]["ours"], most * share
            found.append({"case": case, "peer": "", "most": limit, "is": seconds, "met": seconds <= limit})
    if "live_alone" in cases:
        slower = rounded(1 - cases["live_beside_archive"]["ours"] / cases["live_alone"]["ours"])
        most = SLOWER_MOST
        found.append({"case": "live_slower", "peer": "", "most": most, "is": slower, "met": slower <= most})
    return found


def _shares(rounds: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By case and system: CPU seconds of the store, the Python workers and Java for a million rows; medians."""
    spent: dict[str, dict[str, list[float]]] = {}
    for each in rounds:
        for who, seconds in each.get("cpu_s", {}).items():
            spent.setdefault(f"{each['case']} {each['system']}", {}).setdefault(who, []).append(seconds)
    return {case: {who: rounded(median(all_)) for who, all_ in found.items()} for case, found in spent.items()}


def show(result: dict[str, Any]) -> str:
    """The result as tables."""
    rows = [
        [case, figure, " ".join(f"{peer} {value}" for peer, value in result["ratios"].get(case, {}).items())]
        for case, figure in result["ours"]["cases"].items()
    ]
    shares = [[case, *found.values()] for case, found in result["ours"]["cpu_s"].items()]
    words = {True: "met", False: "MISSED"}
    budgets = [
        f"{words[entry['met']]:>8}  {entry['case']} {entry['peer']}: {entry['is']} "
        + (f"(at least {entry['least']})" if "least" in entry else f"(at most {entry['most']:g})")
        for entry in result["budget"]
    ]
    parts = [table(["case", "ours", "ratio to"], rows)]
    if shares:
        parts.append(table(["CPU s per million rows", "store", "workers", "java"], shares))
    return "\n\n".join([*parts, "\n".join(budgets)])
