"""Tables and figures of evaluations, ours beside the papers'.

In:    a folder of measurements (`heliograph evaluate … --save FOLDER`).
Out:   ``measurements.csv``, and a figure as SVG and PNG for each metric that a paper has too.
State: none.
Not here: the experiments and their rows (evaluation/).
"""

from __future__ import annotations

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


def measurements(spark: SparkSession, folder: str) -> DataFrame:
    """Everything that was measured."""
    if not any(Path(folder).glob("*.jsonl")):
        raise UsageError(f"{folder} has no measurements: run `heliograph evaluate brokers --save {folder}` first")
    rows = spark.read.schema(SCHEMA).json(f"{folder}/*.jsonl")
    return rows.selectExpr("*", "timestamp_micros(time_us) as time")


def summary(rows: DataFrame) -> DataFrame:
    """One row per experiment, metric and parameters: the mean over runs, and the paper's."""
    from pyspark.sql import functions as f

    labelled = rows.withColumn(
        "label", f.concat_ws(", ", f.map_values(f.map_filter("parameters", lambda k, _: k != "runs")))
    )
    found = labelled.groupBy("experiment", "metric", "unit", "label").agg(
        f.count(f.lit(1)).alias("runs"),
        f.round(f.avg("value"), 4).alias("ours"),
        f.round(f.stddev_samp("value"), 4).alias("between_runs"),
        f.max("paper").alias("paper"),
    )
    return found.orderBy("experiment", "metric", "label")


def draw(table: list[dict[str, Any]], folder: Path) -> list[Path]:
    """A figure for each experiment and metric that a paper has too."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table:
        if row["paper"] is not None and row["metric"].endswith("mean"):
            groups.setdefault((row["experiment"], row["metric"]), []).append(row)
    return [path for (experiment, metric), rows in groups.items() for path in _bars(experiment, metric, rows, folder)]


def _bars(experiment: str, metric: str, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "heliograph"  # the same data make the same file
    rows = rows[:BARS_MAX]
    figure, axes = pyplot.subplots(figsize=(SIZE[0], max(SIZE[1], 0.32 * len(rows) + 1.2)))
    places = range(len(rows))
    axes.barh(
        [place - 0.2 for place in places], [row["ours"] for row in rows], height=0.4, label="here", color="#1f6f8b"
    )
    axes.barh(
        [place + 0.2 for place in places], [row["paper"] for row in rows], height=0.4, label="paper", color="#c9a227"
    )
    axes.set_yticks(list(places), [row["label"] for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric}, {rows[0]['unit']}")
    axes.set_title(experiment, fontsize=10)
    axes.legend(frameon=False)
    figure.tight_layout()
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{experiment}-{metric}")
    made = []
    for ending in ("svg", "png"):
        path = folder / f"{name}.{ending}"
        figure.savefig(path, dpi=120, metadata={"Date": None} if ending == "svg" else None)
        made.append(path)
    pyplot.close(figure)
    return made
