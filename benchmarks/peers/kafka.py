"""Kafka: a broker, and the program of Spark that reads it. For benchmarks/spark_peers.py.

In:    a folder for its files.
Out:   a running broker; a Spark session of PySpark 4.0 that answers one order after another.
State: their processes, for as long as the blocks last.
Not here: what Spark does there (kafka_job.py), fetching both (benchmarks/install-spark-peers.sh).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.generator import RunError
from benchmarks.peers.server import plain_environment
from benchmarks.ports import free_port

PLACE = Path(__file__).parents[2] / ".peers"
PYTHON = PLACE / "spark" / "bin" / "python"
BROKER_JARS, CONNECTORS = PLACE / "kafka" / "jars", PLACE / "connectors" / "jars"
READY_S = 60.0
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"  # any 16 bytes, in base64
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def absent() -> str | None:
    """Why it cannot be measured here; None if it can."""
    return None if (PLACE / ".stamp").exists() else "`make bench-peers` fetches it"


@contextmanager
def running(folder: Path, java: Path, partitions: int) -> Iterator[tuple[int, int]]:
    """A broker with its files in a folder; its port and its process."""
    folder.mkdir()
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        SETTINGS.format(port=port, controller=controller, folder=folder, partitions=partitions), "utf-8"
    )
    (scala,) = PLACE.glob("spark/lib/python*/site-packages/pyspark/jars/scala-library-*.jar")  # Ivy leaves it to Spark
    program = [str(java / "bin" / "java"), "-Xmx1G", "-Xms1G", "-cp", f"{BROKER_JARS}/*:{scala}"]
    format = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
    with (folder / "log").open("ab") as log:
        subprocess.run([*program, *format], cwd=folder, stdout=log, stderr=log, check=True)
        process = subprocess.Popen([*program, "kafka.Kafka", str(settings)], cwd=folder, stdout=log, stderr=log)
    try:
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


class Job:
    """The other Spark session. A context manager: it ends with the block."""

    def __init__(self, folder: Path, java: Path, port: int) -> None:
        environment = plain_environment() | {
            "JAVA_HOME": str(java),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(PYTHON),
            "PYSPARK_DRIVER_PYTHON": str(PYTHON),
        }
        for ours in ("SPARK_HOME", "SPARK_CONF_DIR", "PYTHONPATH"):
            environment.pop(ours, None)
        self._log = (folder / "kafka-job.log").open("ab")
        program = Path(__file__).with_name("kafka_job.py")
        self._process = subprocess.Popen(
            [str(PYTHON), str(program), f"127.0.0.1:{port}", str(CONNECTORS), str(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends by itself, and its Java with it
        try:
            self._process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def ask(self, what: str, **how: Any) -> dict[str, Any]:
        """Have it do something; what it says then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **how}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RunError(f"the session that reads Kafka ended: see {self._log.name}")
        answer: dict[str, Any] = json.loads(line)
        return answer
