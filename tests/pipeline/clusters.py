"""A Spark cluster and a Spark Connect server on this machine, from what pip installed.

In:    a folder for their files.
Out:   their addresses; the processes end with the block.
State: the processes.
Not here: what runs on them (test_clusters.py).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from heliograph.pipeline.session import prepare, spark_home

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for Java that runs for a minute, beside much other Java


def environment(folder: Path, *, is_local: bool = True) -> dict[str, str]:
    """What daemons of Spark need; their log goes to standard error, as they come."""
    prepare(is_local=is_local)
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("spark.master.rest.enabled false\n")  # it would take a fixed port
    own = {"SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_DIRS": str(folder / "local")}
    return {**os.environ, **own, "SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": BRIEF}


class Daemon:
    """One process of Spark."""

    def __init__(self, folder: Path, name: str, *words: str, on: tuple[str, ...] = (), is_local: bool = True) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*on, str(spark_home() / "bin" / "spark-class"), *words],
                stdout=log, stderr=log, cwd=folder, env=environment(folder, is_local=is_local),
            )  # fmt: skip

    def told(self, pattern: str) -> str:
        """What its log says, waiting for it."""
        while True:
            log = self.log.read_text(errors="replace")
            found = re.search(pattern, log, re.MULTILINE)
            if found is not None:
                return found.group(1)
            assert self.process.poll() is None, log
            sleep(0.1)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A master and its workers; its address."""
    begun = [Daemon(folder, "master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")]
    try:
        url = begun[0].told(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            begun.append(Daemon(folder, f"worker-{number}", WORKER, *words, "-d", str(folder / f"w{number}"), url))
        for each in begun[1:]:
            each.told(r"(Successfully registered with master)")
        yield url
    finally:
        for each in reversed(begun):
            each.end()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server; its address."""
    conf = ("--conf", "spark.connect.grpc.binding.port=0", "--conf", "spark.ui.enabled=false")
    server = Daemon(folder, "connect", SUBMIT, "--master", "local[2]", *conf, "--class", CONNECT)
    try:
        yield "sc://127.0.0.1:" + server.told(r"Spark Connect server started at: \S*?:(\d+)$")
    finally:
        server.end()
