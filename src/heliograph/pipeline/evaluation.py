"""Tables and figures of evaluations, our results beside the papers'.

In:    a folder of measurements (`heliograph evaluate … --save FOLDER`).
Out:   a summary, and figures as SVG and PNG: our results beside the paper's, or lines over sizes.
State: none.
Not here: the experiments and their rows (evaluation/).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "run string, version string, seed long, time_us long, experiment string, parameters map<string,string>, "
    "metric string, unit string, value double, paper double"
)
SIZE = (7.5, 4.0)  # inches
BARS_MAX = 40
POINTS_MIN = 3
LINES_MAX = 12  # in one figure
RUNS = "runs"  # a parameter that says how often something was measured
SPREADS = (", sd", ", max", ", min", ", se")  # suffixes of metrics that belong to a mean
OURS, THEIRS = "#1f6f8b", "#c9a227"


def measurements(spark: SparkSession, folder: str) -> DataFrame:
    """All measurements."""
    if not any(Path(folder).glob("*.jsonl")):
        raise UsageError(f"{folder} has no measurements: run `heliograph evaluate brokers --save {folder}` first")
    rows = spark.read.schema(SCHEMA).json(f"{Path(folder).absolute()}/*.jsonl")
    return rows.selectExpr("*", "timestamp_micros(time_us) as time")


def summary(rows: DataFrame) -> DataFrame:
    """One row per experiment, metric and parameters: the mean over runs, and the paper's."""
    from pyspark.sql import functions as f

    labelled = rows.withColumn(
        "label", f.concat_ws(", ", f.map_values(f.map_filter("parameters", lambda k, _: k != RUNS)))
    )
    found = labelled.groupBy("experiment", "metric", "unit", "label").agg(
        f.count(f.lit(1)).alias("runs"),
        f.round(f.avg("value"), 4).alias("ours"),
        f.round(f.stddev_samp("value"), 4).alias("between_runs"),
        f.max("paper").alias("paper"),
        f.to_json(f.first("parameters")).alias("parameters"),
    )
    return found.orderBy("experiment", "metric", "label")


def draw(table: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Bars for each metric that a paper reports too; lines for each that was measured at three or more sizes."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table:
        if not row["metric"].endswith(SPREADS):
            groups.setdefault((row["experiment"], row["metric"]), []).append(row)
    made: list[Path] = []
    for (experiment, metric), rows in groups.items():
        beside = [row for row in rows if row["paper"] is not None]
        if beside:
            made += _bars(experiment, metric, beside, folder)
        else:
            over, lines = _lines(rows)
            if over:
                made += _drawn_lines(experiment, metric, rows[0]["unit"], over, lines, folder)
    return made


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _lines(rows: list[dict[str, Any]]) -> tuple[str, dict[str, list[tuple[float, float]]]]:
    """The parameter to draw over, and a line for each combination of the others that has enough points."""
    parameters = [json.loads(row.get("parameters") or "{}") for row in rows]
    over, most = "", POINTS_MIN - 1
    for name in parameters[0]:
        found = {_number(each.get(name, "")) for each in parameters}
        if name != RUNS and None not in found and len(found) > most:
            over, most = name, len(found)
    varied = [name for name in parameters[0] if len({each.get(name) for each in parameters}) > 1]
    found_lines: dict[str, list[tuple[float, float]]] = {}
    for row, each in zip(rows, parameters, strict=True):
        if over and row["ours"] is not None:
            others = ", ".join(str(each.get(name, "")) for name in varied if name not in (over, RUNS))
            found_lines.setdefault(others, []).append((float(each[over]), row["ours"]))
    lines = {name: points for name, points in found_lines.items() if len(points) >= POINTS_MIN}
    says_something = any(y for points in lines.values() for _, y in points)
    return (over if says_something and len(lines) <= LINES_MAX else ""), lines


def _drawn_lines(
    experiment: str, metric: str, unit: str, over: str, lines: dict[str, list[tuple[float, float]]], folder: Path
) -> list[Path]:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=SIZE)
    for name, points in lines.items():
        colour = {"color": OURS} if len(lines) == 1 else {}
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name, **colour)
    sizes = sorted(x for points in lines.values() for x, _ in points)
    if sizes[0] > 0 and sizes[-1] >= 100 * sizes[0]:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(over)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=7)
    axes.set_ylabel(f"{metric}, {unit}" if unit not in ("", "1") else metric)
    axes.set_title(experiment, fontsize=10)
    return _written(figure, experiment, metric, folder)


def _bars(experiment: str, metric: str, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    pyplot = _pyplot()
    rows = rows[:BARS_MAX]
    figure, axes = pyplot.subplots(figsize=(SIZE[0], max(SIZE[1], 0.32 * len(rows) + 1.2)))
    places = range(len(rows))
    axes.barh([place - 0.2 for place in places], [row["ours"] for row in rows], height=0.4, label="here", color=OURS)
    axes.barh(
        [place + 0.2 for place in places], [row["paper"] for row in rows], height=0.4, label="paper", color=THEIRS
    )
    axes.set_yticks(list(places), [row["label"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric}, {rows[0]['unit']}")
    axes.set_title(experiment, fontsize=10)
    axes.legend(frameon=False)
    return _written(figure, experiment, metric, folder)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "heliograph"  # the same data produce the same file
    return pyplot


def _written(figure: Any, experiment: str, metric: str, folder: Path) -> list[Path]:
    figure.tight_layout()
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{experiment}-{metric}")
    made = []
    for ending in ("svg", "png"):
        path = folder / f"{name}.{ending}"
        figure.savefig(path, dpi=120, metadata={"Date": None} if ending == "svg" else None)
        made.append(path)
    _pyplot().close(figure)
    return made
