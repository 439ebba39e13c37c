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
def test_the_papers_claims_are_judged_and_the_work_of_the_directory_adds_up() -> None:
    from time import process_time

    report = topics.evaluate(process_time, 5)
    longer, below, encrypted, growth = report["checks"]
    assert longer["holds"]
    assert below["holds"]
    assert encrypted["values"].endswith("of it")
    assert not growth["holds"], "here it is the signatures of the topics that take time"
    work = {row["work of the TDN"]: row["mean_ms"] for row in report["work"]}
    of_steps = sum(row["mean_ms"] for row in report["steps"] if row["share_in_tdn"] is not None)
    assert list(work) == ["encrypting", "decrypting", "signing", "verifying", "everything else"]
    assert sum(work.values()) == pytest.approx(of_steps, abs=0.01)
    assert all(ms > 0 for ms in work.values())


@pytest.mark.req("T15")
def test_work_inside_other_work_is_counted_once() -> None:
    ticks = count()
    parties = topics._Parties(lambda: next(ticks))
    timed = parties.timed
    timed.restart()
    timed.holder(timed.own.chain_hash, topics.WALL_NS)  # type: ignore[union-attr]
    signed = timed.sign(b"x", b"y")
    timed.verify(b"x", signed, topics.WALL_NS)
    assert timed.seconds == {"encrypting": 0.0, "decrypting": 0.0, "signing": 1.0, "verifying": 2.0}


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
