"""The commands of the pipeline, as people call them, over one small archive."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from heliograph.cli import pipeline
from heliograph.cli.main import command
from heliograph.errors import UsageError
from heliograph.pipeline import archive, session
from heliograph.pipeline.plain import PipelineError
from heliograph.pipeline.tables import LakeTables
from tests.pipeline.test_archive import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000


@pytest.mark.spark
@pytest.mark.req("S8")
def test_commands_answer_over_an_archive(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    root = str(tmp_path / "tables")
    load = [("System/Brokers/b1/counters", {"time_us": t * S, "publications": t, "cpu_permille": 900}) for t in (1, 3)]
    archive.add(rows(spark, ("t/1", b"a"), ("t/2", b"b"), *load), LakeTables(root), "q", 0)

    def run(*words: str) -> Any:
        command()(["pipeline", *words, "--json"], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    assert run("sql", "--tables", root, "select topic from topics order by topic") == [
        {"topic": "t/1"},
        {"topic": "t/2"},
    ]
    assert {"events", "brokers", "topics", "broker_states"} <= {
        row["name"] for row in run("catalogue", "--tables", root)
    }
    matched = run("match", "--tables", root, "--filter", "t/#", "--where", "x = 1")
    assert matched == {"matches": 2, "subscriptions": [{"subscription": "1", "events": 2}]}
    assert [row["table"] for row in run("compact", "--tables", root)] == ["brokers", "events"]
    advice = run("network", "--tables", root)["advice"]
    assert [(each["kind"], each["about"]) for each in advice] == [("broker", "b1")]
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"filter":"t","where":"a > 1"}\n{"filter":"t","where":"a > 2"}\n{"filter":"u"}\n')
    assert run("similarity", str(requests))["similarity"] == 0.6667
    with pytest.raises(PipelineError, match="there is no table nothing"):
        run("sql", "--tables", root, "select * from nothing")


@pytest.mark.live
@pytest.mark.req("S8")
def test_ctrl_c_while_spark_starts_ends_java_too(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "events"), pa.table({"offset": [1]}))
    words = [sys.executable, "-m", "heliograph.cli", "pipeline", "sql", "--tables", str(tmp_path), "select 1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting Spark …\n"
        while not any("java" in each.name() for each in psutil.Process(process.pid).children(recursive=True)):
            sleep(0.01)
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()  # until Java, which has it too, has ended
    assert (process.returncode, told) == (130, "heliograph: stopped; what is archived is kept\n")


def test_mistakes_are_told_before_spark_is_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--filter, or --subscriptions"):
        pipeline._subscriptions("", "", "", None)
    bad = tmp_path / "bad"
    bad.write_text("[1]\n")
    with pytest.raises(UsageError, match="each line should be like"):
        pipeline._subscriptions("", "", "", bad)
    with pytest.raises(UsageError, match="no tables yet"):
        command()(["pipeline", "compact", "--tables", str(tmp_path)], standalone_mode=False)
