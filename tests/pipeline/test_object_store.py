"""An archive in an object store: Spark, delta-rs and pyarrow get one place and the keys of the environment."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import heliograph
from heliograph.pipeline.session import spark_home
from tests.live.processes import Process

ROWS = 50
KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """That of a command for which a server on this machine is S3, with a bucket ``lake``."""
    server = shutil.which("moto_server")
    if server is None:
        pytest.skip("there is no moto_server on the path: pip install 'moto[s3,server]' in an environment of its own")
    address = f"http://127.0.0.1:{(port := free_port())}"
    quiet = subprocess.DEVNULL
    with subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], stdout=quiet, stderr=quiet) as process:
        try:
            while True:
                try:
                    urllib.request.urlopen(urllib.request.Request(f"{address}/lake", method="PUT"))
                    break
                except OSError:
                    assert process.poll() is None
                    sleep(0.1)
            yield {**os.environ, **KEYS, "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}
        finally:
            process.terminate()


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.soak
@pytest.mark.req("S2", "S8")
def test_an_archive_in_s3_is_written_continued_compacted_and_queried(
    environment: dict[str, str], tmp_path: Path
) -> None:
    hadoop = next(spark_home().glob("jars/hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    packages = ["--packages", f"org.apache.hadoop:hadoop-aws:{hadoop}"]

    def run(*words: str) -> Any:
        command = [sys.executable, "-m", "heliograph.cli", "pipeline", *words, "--tables", "s3a://lake/archive"]
        ran = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr[-5_000:]
        return json.loads(ran.stdout[ran.stdout.index("[") if words[0] != "archive" else ran.stdout.index("{") :])

    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        for time in (1, 2):
            with heliograph.connect_blocking(url) as client:
                client.publish_batch("t", [b"x"] * ROWS, reliable=True)
            archived = run("archive", "--url", url, "--filter", "t", *packages)
            assert archived["tables"]["events"] == time * ROWS
    compacted = run("compact")
    assert [(row["table"], row["files_removed"], row["files_added"]) for row in compacted] == [("events", 2, 1)]
    question = "select count(*) as n, count(distinct offset) as offsets from events"
    assert run("sql", question, *packages) == [{"n": 2 * ROWS, "offsets": 2 * ROWS}]
