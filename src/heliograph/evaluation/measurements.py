"""Measurements: the results of an experiment, one value per row, for the pipeline's tables and figures.

In:    the report of an evaluation, as the command prints it.
Out:   rows: run, version, seed, time_us, experiment, parameters, metric, unit, value, paper.
State: none.
Not here: running experiments (simulated.py, resources/, live/), tables and figures (pipeline/evaluation.py).

Rows have a base date, so that none is at the beginning of 1970, where a stream's watermark would drop it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

BASE_US = 1_577_836_800_000_000  # 2020-01-01: virtual time 0 of simulated runs
STATISTICS = ("mean", "sd", "max", "min", "se")
MS = "ms"


def measured(
    experiment: str, seed: int, run: str, version: str, time_us: int, values: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows of any experiment; ``values`` come from value() and statistics()."""
    head = {"run": run, "version": version, "seed": seed, "time_us": max(time_us, BASE_US), "experiment": experiment}
    return [{**head, **each} for each in values]


def of_brokers(report: dict[str, Any], run: str, version: str, time_us: int) -> list[dict[str, Any]]:
    """Every value of `heliograph evaluate brokers`."""
    return measured(f"brokers {report['how']}", report["seed"], run, version, time_us, _of_brokers(report))


def of_resources(report: dict[str, Any], run: str, version: str, time_us: int) -> list[dict[str, Any]]:
    """Every value of `heliograph evaluate resources`. The paper prints no numbers for them, only figures."""
    tables = {
        "workloads": ("similarity",),
        "sharing": ("resources", "space", "time", "similarity", "deliver"),
        "gaussians": ("time", "deliver"),
        "ages": ("allowed_age_s",),
        "architecture": ("model", "architecture", "result_size"),
        "live": ("similarity", "deliver", "how"),
    }
    return [
        row
        for name, names in tables.items()
        for row in measured(f"resources {name}", report["seed"], run, version, time_us, _of_table(report, name, names))
    ]


def _of_table(report: dict[str, Any], name: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in report.get(name, ()):
        where = {each: row[each] for each in names}
        for metric, each in row.items():
            if metric not in names:
                yield value(metric, where, MS if metric.endswith("_ms") else "1", each)


def of_topics(report: dict[str, Any], run: str, version: str, time_us: int) -> list[dict[str, Any]]:
    """Every value of `heliograph evaluate topics`."""
    return measured("topics live" if report.get("live") else "topics", 0, run, version, time_us, _of_topics(report))


def _of_topics(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in report["rows"]:
        where = {"topology": row["topology"], "what": row["what"]}
        yield from statistics("time", where, row)
        yield value("of it network", where, MS, row["network_ms"])
    for name in ("steps", "work", "keys", "checks", "many", "languages"):
        for row in report.get(name, ()):
            words = {key: each for key, each in row.items() if isinstance(each, str)}
            numbers = {key: each for key, each in row.items() if type(each) in (int, float)}
            for key, each in numbers.items():
                yield value(f"{name}: {key.removesuffix('_ms')}", words, MS if key.endswith("_ms") else "", each)


def _of_brokers(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in report["topologies"]:
        where = {"topology": row["topology"], "client": row["client"], "runs": row["runs"]}
        yield from statistics("time to the choice", where, row)
        for part, share in row.get("share", {}).items():
            yield value("share of the time", {**where, "part": part}, "1", share)
        yield value("found", where, "1", row["found"] / row["runs"])
    for row in report["costs"]:
        yield from statistics("cost of trust", {"what": row["what"]}, row)
    for row in report["scale"]:
        size = {"brokers": row.get("brokers")}
        for name, each in row.items():
            if name != "brokers" and isinstance(each, int | float) and not isinstance(each, bool):
                yield value(f"scale: {name}", size, "", each)


def statistics(metric: str, parameters: dict[str, Any], row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Mean, spread and so on of ``ours``, each beside that of ``paper`` if there is one."""
    ours, paper = row["ours"] or {}, row["paper"] or {}
    for name in STATISTICS:
        if ours.get(name) is not None:
            yield value(f"{metric}, {name}", parameters, MS, ours[name], paper.get(name))


def value(
    metric: str, parameters: dict[str, Any], unit: str, ours: float, paper: float | None = None
) -> dict[str, Any]:
    """One value of a metric, for these parameters."""
    named = {name: str(each) for name, each in parameters.items()}
    return {"parameters": named, "metric": metric, "unit": unit, "value": float(ours), "paper": paper}
