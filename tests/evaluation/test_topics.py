"""The experiment on topics: every step is timed, and the paper's statements hold."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from heliograph.evaluation import costs, topics


@pytest.mark.req("T15")
def test_the_table_has_both_topologies_and_every_step_beside_the_papers() -> None:
    ticks = count()
    report = topics.evaluate(lambda: next(ticks) / 1_000, 3)
    assert [(row["topology"], row["what"]) for row in report["rows"]] == [
        (place, what) for place in ("local", "wide") for what in ("create", "find 1", "find 10", "find 100")
    ]
    assert report["rows"][0]["paper"]["mean"] == 211.26
    assert [row["step"] for row in report["steps"]] == list(topics.STEPS)
    assert sum(row["share"] for row in report["steps"]) == pytest.approx(1, abs=0.01)
    assert report["rows"][4]["network_ms"] > report["rows"][0]["network_ms"]


@pytest.mark.req("T15")
def test_more_topics_take_longer() -> None:
    from time import process_time

    assert topics.evaluate(process_time, 5)["checks"][0]["holds"]


@pytest.mark.req("T15")
def test_rsa_stands_beside_our_keys() -> None:
    ticks = count()
    rows = costs.keys(lambda: next(ticks) / 1_000, 3)
    assert [row["key"] for row in rows] == ["P-256 (ours)", "RSA-2048 (as then)"]
    assert all(row["sign_ms"] == row["verify_ms"] == 1.0 for row in rows), "one tick each"


@pytest.mark.req("T15")
@pytest.mark.sweep
def test_real_processes_fill_the_same_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "heliograph.cli.main", "evaluate", "topics", "--live", "--runs", "1"]
    subprocess.run([*command, "--save", str(tmp_path)], check=True, capture_output=True, timeout=300)
    (file,) = tmp_path.glob("topics-*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["experiment"] for row in rows} == {"topics live"}
    means = [row for row in rows if row["metric"] == "time, mean"]
    assert [row["parameters"]["what"] for row in means] == ["create", "find 1", "find 10", "find 100"] * 2
    assert all(row["value"] > 0 for row in means)
