"""The same jobs on a standalone cluster, by spark-submit and by Spark Connect; and Ctrl-C ends one cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.pipeline.session import spark_home
from tests.live.processes import Process
from tests.pipeline.clusters import cluster, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.sweep, pytest.mark.req("S8")]
ROWS = 60
HELIOGRAPH = [sys.executable, "-m", "heliograph.cli"]
APPLICATION = str(Path(heliograph.__file__).parent / "cli" / "__main__.py")
PATIENCE_S = 400


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    place = ("--store", "--store-place", str(folder / "kept"))
    with Process(folder, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        address = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(address) as client:
            for number in range(ROWS):
                client.publish(f"hosts/{number % 3}", b"x", headers={"disk": number}, reliable=True, wait=False)
            client.flush()
        yield address


def run(*words: str, **environment: str) -> Any:
    ran = subprocess.run(
        [*words, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **environment}
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout if ran.stdout.startswith("[") else ran.stdout.splitlines()[-1])


def test_a_cluster_archives_and_matches(url: str, tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    with cluster(tmp_path) as master:
        archived = run(*HELIOGRAPH, "pipeline", "archive", "--url", url, "--tables", tables, "--filter", "hosts/#",
                       "--master", master)  # fmt: skip
        assert archived == {"tables": {"events": ROWS}}
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", master, APPLICATION]
        matched = run(*submit, "pipeline", "match", "--tables", tables, "--filter", "hosts/#", "--where", "disk >= 30",
                      SPARK_CONF_DIR=str(tmp_path / "conf"))  # fmt: skip
        assert matched["matches"] == ROWS - 30


def test_spark_connect_archives(url: str, tmp_path: Path) -> None:
    tables = str(tmp_path / "tables")
    with connect_server(tmp_path) as remote:
        archived = run(*HELIOGRAPH, "pipeline", "archive", "--url", url, "--tables", tables, "--filter", "hosts/#",
                       "--remote", remote)  # fmt: skip
        assert archived == {"tables": {"events": ROWS}}
        again = run(*HELIOGRAPH, "pipeline", "sql", "--tables", tables, "--remote", remote,
                    "select count(*) as n from events")  # fmt: skip
        assert again == [{"n": ROWS}]


def test_ctrl_c_ends_an_archive_that_follows(url: str, tmp_path: Path) -> None:
    words = [*HELIOGRAPH, "pipeline", "archive", "--url", url, "--tables", str(tmp_path / "tables"), "--follow"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("batch "):
                process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130, lines
    assert lines[-1] == "heliograph: stopped; what is archived is kept\n"
    expected = ("starting", "after ", "System/# is left out", "batch ", "heliograph: ")
    assert [line for line in lines if not line.startswith(expected)] == []
