"""The Spark session: one per process, embedded, on a cluster, or through Spark Connect.

In:    where to run (``--master``, ``--remote``), Spark settings.
Out:   session(): a session that is ready for every job of the pipeline; stop().
State: the session of this process, and a folder for Spark's files that is removed with the process.
Not here: which Java (java.py), the jobs (archive.py, requests.py, …).

PySpark must be told which Python its workers run (otherwise they use the system's), and where Spark is (otherwise
spark-submit finds nothing outside an active environment). Files that Spark would put into the working folder go to a
temporary folder. Times are UTC.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.errors import UsageError
from heliograph.pipeline.doctor import misfit
from heliograph.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
MASTER = f"{LOCAL}[*]"
DAEMON = "heliograph.pipeline.daemon"
HEAP = "2g"
STACK = "-Xss32m"  # of a thread, at most: Spark searches the text of a stopped query's error with deep recursion
NICE = 5  # what else runs gets three quarters of a processor that both want; with 15, starting could take minutes
GATEWAY = "py4j"  # the package through which PySpark calls Java
QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # PySpark's, for errors in queries
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit starts Java first, and passes its port to the application
SETTINGS: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
}
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = spark: %c{1}: %m%n
appender.err.layout.alwaysWriteExceptions = false
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.plans.name = org.apache.spark.sql.execution
logger.plans.level = off
logger.tasks.name = org.apache.spark.executor.Executor
logger.tasks.level = off
logger.stages.name = org.apache.spark.scheduler.TaskSetManager
logger.stages.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
"""  # a query, stage or task that fails is told by the exception that it ends with, in one line (plain.py)
_made: list[SparkSession] = []


def session(
    master: str = "",
    remote: str = "",
    *,
    name: str = "heliograph",
    settings: Mapping[str, str] | None = None,
    gives_way: bool = False,
) -> SparkSession:
    """The session of this process; created on first use. ``remote`` is a Spark Connect server (``sc://host:port``).

    If it ``gives_way``, this process and an embedded Spark have a low priority.
    """
    if _made:
        return _made[0]
    prepare()
    if gives_way and not remote:
        give_way()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote:
        made = builder.remote(remote).getOrCreate()
        for key, value in SETTINGS.items():
            if key.startswith("spark.sql."):  # the others belong to the server
                made.conf.set(key, value)
    else:
        folder = work_folder()
        wanted = {**SETTINGS, **_folders(folder), **(settings or {})}
        if "spark.driver.memory" not in wanted:
            wanted["spark.driver.memory"] = HEAP
        if master or SUBMITTED not in os.environ:  # otherwise spark-submit has set it
            builder = builder.master(master or MASTER)
            if (master or MASTER).startswith(LOCAL):
                wanted.setdefault("spark.python.daemon.module", DAEMON)
                wanted.setdefault("spark.executor.heartbeatInterval", "2s")  # rows of running tasks, for progress.py
        for key, value in wanted.items():
            builder = builder.config(key, value)
        with _ending_together():
            made = builder.getOrCreate()
        made.sparkContext.setLogLevel("ERROR")
    _made.append(made)
    return made


@contextmanager
def _ending_together() -> Iterator[None]:
    """If Ctrl-C comes while Java starts, it ends with us: by itself it would end later, and print a stack."""
    import psutil  # type: ignore[import-untyped]

    before = psutil.Process().children(recursive=True)
    try:
        yield
    except KeyboardInterrupt:
        for child in psutil.Process().children(recursive=True):
            if child not in before:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        raise


def stop() -> None:
    """End the session; a new one can be created afterwards."""
    while _made:
        with suppress(ConnectionError):  # Java has ended by itself
            _made.pop().stop()


def prepare() -> None:
    """Set the environment variables that PySpark reads. UsageError if Spark cannot run here."""
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("Spark is not installed: `pip install 'heliograph[spark]'`")
    if (told := misfit()) is not None:
        raise UsageError(told)
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["SPARK_CONF_DIR"] = os.environ.get("SPARK_CONF_DIR") or str(_quiet_folder())


def quiet_logs() -> None:
    """For a command, which tells errors itself: nothing about failed calls of Java, logged with their stacks."""
    root = logging.getLogger()
    if _not_by_py4j not in root.filters:
        root.addFilter(_not_by_py4j)
    for name in (GATEWAY, *QUERIES):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def quiet_counters() -> None:
    """For a command, once PySpark is there: nothing about links from Java that broke because Java has ended."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        setattr(server, "handle_error", _without_stack)  # noqa: B010 of a method


def _without_stack(*_: object) -> None:
    """The next call of Java says it, in one line (plain.py)."""


def _not_by_py4j(record: logging.LogRecord) -> bool:
    return GATEWAY not in Path(record.pathname).parts


def give_way() -> None:
    """This process, and what it starts, gets less of a processor that others want too: brokers hardly wait."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    except (AttributeError, OSError):
        pass  # then it competes like any other process


def spark_home() -> Path:
    """Where pip installed Spark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "prepare() says that it is missing"
    assert found.origin is not None
    return Path(found.origin).parent


def work_folder() -> Path:
    """A folder for Spark's files that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="heliograph-spark-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def _folders(folder: Path) -> dict[str, str]:
    """Spark settings for files that would otherwise be in the working folder."""
    return {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder / 'derby'} -XX:+UseParallelGC {STACK}",
    }


def _quiet_folder() -> Path:
    """A configuration folder whose only file keeps Spark's log messages off standard error."""
    folder = work_folder()
    (folder / "log4j2.properties").write_text(_LOG4J, "utf-8")
    return folder
