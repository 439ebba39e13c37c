"""What experiments measure becomes rows, a table and figures beside the papers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.cli.evaluate import save_measurements
from heliograph.errors import UsageError
from heliograph.evaluation.measurements import BASE_US, of_brokers, of_resources, of_topics
from heliograph.pipeline import evaluation, jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT: dict[str, Any] = {
    "how": "simulated", "seed": 1, "scale": [{"brokers": 10, "found": 3}],
    "topologies": [
        {"topology": "star", "client": "cardiff", "runs": 2, "found": 2, "ours": {"mean": 5.0, "sd": 1.0},
         "paper": {"mean": 480.0}, "share": {"ping": 0.25}},
    ],
    "costs": [{"what": "sign", "ours": {"mean": 0.1}, "paper": None}],
}  # fmt: skip


@pytest.mark.req("S7")
def test_every_value_of_a_report_is_a_row() -> None:
    rows = of_brokers(REPORT, "r", "0.1", 0)
    assert {row["metric"] for row in rows} == {
        "time to the choice, mean", "time to the choice, sd", "share of the time", "found", "cost of trust, mean",
        "scale: found",
    }  # fmt: skip
    first = rows[0]
    assert (first["value"], first["paper"], first["unit"], first["time_us"]) == (5.0, 480.0, "ms", BASE_US)
    assert first["parameters"] == {"topology": "star", "client": "cardiff", "runs": "2"}


def test_topics_are_measured_in_the_same_form() -> None:
    report = {
        "rows": [{"topology": "local", "what": "create", "ours": {"mean": 3.0}, "paper": {"mean": 211.3},
                  "network_ms": 0.6}],
        "steps": [{"step": "1 request", "mean_ms": 0.2}], "keys": [{"key": "P-256", "sign_ms": 0.03}],
        "checks": [{"check": "faster", "holds": True}],
    }  # fmt: skip
    rows = of_topics(report, "r", "0.1", 0)
    assert [(row["metric"], row["value"], row["paper"]) for row in rows] == [
        ("time, mean", 3.0, 211.3), ("of it network", 0.6, None), ("steps: mean", 0.2, None),
        ("keys: sign", 0.03, None),
    ]  # fmt: skip
    assert {tuple(row) for row in rows} == {tuple(of_brokers(REPORT, "r", "0.1", 0)[0])}, "the same columns"


def test_a_metric_over_sizes_is_a_line(tmp_path: Path) -> None:
    row = {"experiment": "brokers", "metric": "scale: found", "unit": "", "paper": None, "ours": 1.0}
    found = [{**row, "parameters": json.dumps({"brokers": str(size)})} for size in (10, 100, 1_000)]
    made = evaluation.draw(found, tmp_path)
    assert [path.name for path in made] == ["brokers-scale--found.svg", "brokers-scale--found.png"]
    assert evaluation.draw(found[:2], tmp_path) == [], "two points are no line"


def test_measurements_of_resources_are_lines_over_similarity(tmp_path: Path) -> None:
    row = {"resources": 10, "space": 2, "time": 1}
    report = {
        "seed": 1,
        "sharing": [
            {**row, "similarity": level, "deliver": deliver, "messages": 9 * level, "answer_ms": 1.0}
            for level in (0.1, 0.5, 0.9) for deliver in ("pull", "push")
        ] + [{**row, "similarity": 0.5, "deliver": "direct", "messages": 7, "answer_ms": 1.0, "wrong": 0}],
    }  # fmt: skip
    rows = of_resources(report, "r", "0.1", 0)
    table = [{**each, "ours": each["value"], "parameters": json.dumps(each["parameters"])} for each in rows]
    made = {path.name for path in evaluation.draw(table, tmp_path) if path.suffix == ".svg"}
    assert made == {"resources-sharing-messages.svg", "resources-sharing-answer-ms.svg"}
    over, lines = evaluation._lines([each for each in table if each["metric"] == "messages"])
    assert (over, len(lines), sorted(map(len, lines.values()))) == ("similarity", 2, [3, 3])
    assert sorted(lines) == ["pull", "push"], "one point is no line, and what never varies names none"


def test_a_figure_shows_ours_beside_the_papers(tmp_path: Path) -> None:
    row = {"experiment": "brokers", "metric": "time, mean", "unit": "ms", "label": "star", "ours": 5.0, "paper": 9.0}
    made = evaluation.draw([row, {**row, "metric": "found", "paper": None}], tmp_path)
    assert sorted(path.suffix for path in made) == [".png", ".svg"]
    assert all(path.stat().st_size > 1_000 for path in made)
    again = evaluation.draw([row], tmp_path / "..")
    assert again[0].read_bytes() == made[0].read_bytes(), "the same data make the same drawing"


@pytest.mark.spark
@pytest.mark.req("S7")
def test_the_job_makes_tables_and_figures(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no measurements"):
        jobs.evaluate(spark, str(tmp_path))
    for _ in range(2):
        save_measurements(REPORT, tmp_path)
    found = jobs.evaluate(spark, str(tmp_path))
    row = next(row for row in found["table"] if row["metric"] == "time to the choice, mean")
    assert (row["runs"], row["ours"], row["paper"], row["label"]) == (2, 5.0, 480.0, "star, cardiff")
    assert len(found["figures"]) == 2
    assert (tmp_path / "summary.csv").read_text().startswith("experiment,metric,unit,label")
    assert json.loads(next(tmp_path.glob("*.jsonl")).read_text().splitlines()[0])["seed"] == 1
