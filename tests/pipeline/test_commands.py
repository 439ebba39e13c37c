"""The commands of the pipeline, as people call them, over one small archive."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from time import sleep
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.datasource import DataSource

import heliograph
from heliograph.cli import pipeline
from heliograph.cli.main import command
from heliograph.errors import UsageError
from heliograph.pipeline import archive, session
from heliograph.pipeline.plain import JAVA_GONE, PipelineError, meaning, plain_errors
from heliograph.pipeline.tables import LakeTables
from tests.live.processes import Process
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
    wanted = ({"filter": "t", "where": "a > 1"}, {"filter": "t", "where": "a > 2"}, {"filter": "u"})
    requests.write_text("".join(json.dumps({**each, "time": 5}) + "\n" for each in wanted))
    similarity = run("similarity", str(requests))
    assert similarity["similarity"] == 0.6667
    assert similarity["saved_by_caching"][0] == {"lifetime_s": 1, "requests": 3, "saved": 0, "share": 0.0}
    command()(["pipeline", "similarity", str(requests)], standalone_mode=False)
    numbers, _, savings = capsys.readouterr().out.partition("\n\nsaved_by_caching\n")
    assert [line.split()[0] for line in numbers.splitlines()] == [
        "requests", "unreadable", "never", "wishes", "maximal", "blocks", "similarity", "saved_by_sharing",
    ]  # fmt: skip
    assert savings.splitlines()[:2] == ["lifetime_s  requests  saved  share", "1           3         0      0.0"]
    with pytest.raises(PipelineError, match="there is no table nothing"):
        run("sql", "--tables", root, "select * from nothing")


def test_a_part_without_rows_says_none(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline._show_part("advice", [])
    assert capsys.readouterr().out == "\nadvice\nnone\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("An error occurred while calling o60.load.", JAVA_GONE),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.", JAVA_GONE),
        (
            "An error occurred while calling o60.load.\n: org.apache.spark.SparkException: Python worker exited "
            "unexpectedly (crashed)\n\tat org.apache.spark.api.python",
            "a Python worker of Spark has ended, perhaps for lack of memory: run the command again, nothing is lost",
        ),
        ("An error occurred while calling o60.load.\n: java.lang.OddException: odd\n\tat x", "odd"),
        ('[PATH_ALREADY_EXISTS] Path file:/a already exists. Set mode as "overwrite"', "file:/a is there already: "
         "choose another folder, or remove it"),
    ],
)  # fmt: skip
def test_errors_of_java_and_workers_are_told_in_words(text: str, told: str) -> None:
    assert meaning(text) == told


def test_a_link_from_java_that_broke_leaves_no_stack(capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark import accumulators

    session.quiet_counters()
    server = accumulators._start_update_server("token", False)
    with socket.create_connection(server.server_address) as java:
        java.sendall(b"token")
        java.shutdown(socket.SHUT_WR)
        assert java.recv(1) == b"", "the server has seen the end"
    server.shutdown()
    assert capfd.readouterr().err == ""


@pytest.mark.spark
def test_a_worker_that_is_killed_while_a_source_is_loaded_is_told_in_words(spark: SparkSession) -> None:
    class Killed(DataSource):
        @classmethod
        def name(cls) -> str:
            return "killed"

        def schema(self) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return "x long"

    spark.dataSource.register(Killed)
    with pytest.raises(PipelineError, match="a Python worker of Spark has ended, perhaps"), plain_errors():
        spark.read.format("killed").load()


def without_progress(told: str) -> list[str]:
    """The lines of standard error that do not depend on how busy this machine is."""
    return [line for line in told.splitlines() if not line.startswith("after ")]


def busy_java(command: int) -> psutil.Process | None:
    """The Java of a command, once it works on a question: that of the launcher has ended long before."""
    for each in psutil.Process(command).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "java" in each.name() and each.cpu_times().user >= 20:
                return each
    return None


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.req("S8")
def test_java_that_is_killed_is_told_in_one_line(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "numbers"), pa.table({"offset": [1]}))
    question = "select count(*) from range(1000000000000) where id % 7 = rand()"
    words = [sys.executable, "-m", "heliograph.cli", "pipeline", "sql", "--tables", str(tmp_path), question]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while (java := busy_java(process.pid)) is None:
            assert process.poll() is None, process.communicate()
            sleep(0.05)
        java.kill()
        out, told = process.communicate()
    lines = without_progress(told)
    assert (process.returncode, out, lines) == (1, "", ["starting Spark …", f"heliograph: {JAVA_GONE}"])


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
    assert (process.returncode, without_progress(told)) == (130, ["heliograph: stopped; what is archived is kept"])


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("select raise_error(concat('wrong at ', offset)) from measurements", "wrong at 1"),
        ("select colour from measurements", "`colour` cannot be resolved"),
    ],
    ids=["task", "query"],
)
def test_a_task_or_query_that_fails_is_told_in_one_line(question: str, told: str, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "measurements"), pa.table({"offset": [1]}))
    words = [sys.executable, "-m", "heliograph.cli", "pipeline", "sql", "--tables", str(tmp_path), question]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    first, *rest = without_progress(ended.stderr)
    assert (ended.returncode, ended.stdout, first, len(rest)) == (1, "", "starting Spark …", 1), ended.stderr
    assert told in rest[0]


FULL = """
mount -t tmpfs -o size=1m none full || exit 9
"$0" -m heliograph.cli pipeline archive --tables full/tables --url "$1" && exit 8
mount -o remount,size=64m full || exit 9
"$0" -m heliograph.cli pipeline archive --tables full/tables --url "$1" || exit 8
"$0" -c 'from deltalake import DeltaTable
offsets = DeltaTable("full/tables/events").to_pyarrow_table()["offset"].to_pylist()
print(sorted(offsets) == list(range(1_000)))' || exit 8
"""


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.live
@pytest.mark.req("S2")
def test_a_full_disk_is_told_in_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """On a small file system in memory, which only some users may mount."""
    (tmp_path / "full").mkdir()
    store = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *store) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            chance = Random(1)  # such bytes cannot be compressed
            client.publish_batch("t", [chance.randbytes(2_000) for _ in range(1_000)], reliable=True)
        script = ["unshare", "-m", "sh", "-c", FULL, sys.executable, url]
        if shutil.which("unshare") is None:
            pytest.skip("no file system can be mounted here")
        ended = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    if ended.returncode in (1, 9):  # of unshare, or of mount
        pytest.skip("no file system can be mounted here")
    lines = without_progress(ended.stderr)
    assert lines[:2] == ["starting Spark …", f"heliograph: {meaning('No space left on device')}"], ended.stderr
    assert lines[2:] == ["starting Spark …", "batch 0: events +1,000"], ended.stderr
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "True"), ended.stdout


def test_mistakes_are_told_before_spark_is_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--filter, or --subscriptions"):
        pipeline._subscriptions("", "", "", None)
    bad = tmp_path / "bad"
    bad.write_text("[1]\n")
    with pytest.raises(UsageError, match="each line should be like"):
        pipeline._subscriptions("", "", "", bad)
    with pytest.raises(UsageError, match="no tables yet"):
        command()(["pipeline", "compact", "--tables", str(tmp_path)], standalone_mode=False)
