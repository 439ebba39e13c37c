"""Measurements: what an experiment found, one value per row, for the pipeline that makes tables and figures of them.

In:    the report of an evaluation, as the command prints it.
Out:   rows: run, version, seed, experiment, parameters, metric, unit, value, paper.
State: none.
Not here: running experiments (simulated.py, resources/, live/), tables and figures (pipeline/evaluation.py).

Rows have a base date, so that nothing lies at the beginning of 1970, where a stream's watermark would drop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BASE_US = 1_577_836_800_000_000  # 2020-01-01: virtual time 0 of simulated runs
STATISTICS = ("mean", "sd", "max", "min", "se")
MS = "ms"


def of_brokers(report: dict[str, Any], run: str, version: str, time_us: int) -> list[dict[str, Any]]:
    """Every value of `heliograph evaluate brokers`."""
    head = {"run": run, "version": version, "seed": report["seed"], "time_us": max(time_us, BASE_US)}
    experiment = f"brokers {report['how']}"
    return [{**head, "experiment": experiment, **row} for row in _values(report)]


def of_resources(report: dict[str, Any], run: str, version: str, time_us: int) -> list[dict[str, Any]]:
    """Every value of `heliograph evaluate resources`. The paper prints no numbers for them, only pictures."""
    head = {"run": run, "version": version, "seed": report["seed"], "time_us": max(time_us, BASE_US)}
    tables = {
        "workloads": ("similarity",),
        "sharing": ("resources", "space", "time", "similarity", "deliver"),
        "architecture": ("model", "architecture", "result_size"),
        "live": ("similarity", "deliver", "how"),
    }
    return [
        {**head, "experiment": f"resources {name}", **_row(metric, {each: row[each] for each in names}, unit, value)}
        for name, names in tables.items()
        for row in report.get(name, ())
        for metric, value in row.items()
        if metric not in names
        for unit in (MS if metric.endswith("_ms") else "1",)
    ]


def _values(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in report["topologies"]:
        where = {"topology": row["topology"], "client": row["client"], "runs": row["runs"]}
        yield from _statistics("time to the choice", where, row)
        for part, share in row.get("share", {}).items():
            yield _row("share of the time", {**where, "part": part}, "1", share)
        yield _row("found", where, "1", row["found"] / row["runs"])
    for row in report["costs"]:
        yield from _statistics("cost of trust", {"what": row["what"]}, row)
    for row in report["scale"]:
        size = {"brokers": row.get("brokers")}
        for name, value in row.items():
            if name != "brokers" and isinstance(value, int | float) and not isinstance(value, bool):
                yield _row(f"scale: {name}", size, "", value)


def _statistics(metric: str, parameters: dict[str, Any], row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    ours, paper = row["ours"] or {}, row["paper"] or {}
    for name in STATISTICS:
        if ours.get(name) is not None:
            yield _row(f"{metric}, {name}", parameters, MS, ours[name], paper.get(name))


def _row(
    metric: str, parameters: dict[str, Any], unit: str, value: float, paper: float | None = None
) -> dict[str, Any]:
    named = {name: str(each) for name, each in parameters.items()}
    return {"parameters": named, "metric": metric, "unit": unit, "value": float(value), "paper": paper}
