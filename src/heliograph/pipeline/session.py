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
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.errors import UsageError
from heliograph.pipeline import places
from heliograph.pipeline.doctor import misfit
from heliograph.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
MASTER = f"{LOCAL}[*]"
WHERE = "spark.master"
PACKAGES = "spark.jars.packages"
DAEMON = "heliograph.pipeline.daemon"
HEAP = "2g"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
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
    # A process killed while it wrote its first offset leaves a temporary file, after which no restart would be allowed.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
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

    ``settings`` go first, then what spark-submit or spark-defaults.conf say, then ours. A session that the program made
    by itself is used as it is. If it ``gives_way``, this process and an embedded Spark have a low priority.
    """
    if _made:
        return _made[0]
    given, told = dict(settings or {}), _defaults()
    is_submitted = SUBMITTED in os.environ
    where = master or given.get(WHERE) or ("" if is_submitted else told.get(WHERE, MASTER))  # spark-submit has set it
    is_local = where.startswith(LOCAL) and not remote
    if is_submitted and PACKAGES in given:
        raise UsageError("give --packages to spark-submit: it has to fetch them before it starts this command")
    prepare(is_local=is_local)
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        return active
    if gives_way and is_local:
        give_way()
    builder = SparkSession.builder.appName(name)
    if remote:
        made = builder.remote(remote).getOrCreate()
        for key, value in {**SETTINGS, **given}.items():
            if key.startswith("spark.sql."):  # the others belong to the server
                made.conf.set(key, value)
    else:
        wanted = {**_own(is_local), **(_submitted() if is_submitted else told), **given}
        wanted |= {WHERE: where} if where else {}
        if not is_submitted and STACK not in wanted[JAVA_OPTIONS]:
            wanted[JAVA_OPTIONS] += f" {STACK}"
        for key, value in wanted.items():
            builder = builder.config(key, value)
        with _ending_together():
            made = builder.getOrCreate()
        made.sparkContext.setLogLevel("ERROR")
    _made.append(made)
    return made


def _own(is_local: bool) -> dict[str, str]:
    """Our settings. What Java itself needs to know is too late if spark-submit has started it."""
    work = work_folder()
    found = {
        **SETTINGS,
        **places.settings(os.environ),
        "spark.sql.warehouse.dir": f"{work}/warehouse",
        "spark.local.dir": f"{work}/local",
    }
    if SUBMITTED not in os.environ:
        found |= {"spark.driver.memory": HEAP, JAVA_OPTIONS: f"-Dderby.system.home={work} -XX:+UseParallelGC {STACK}"}
    if is_local:
        found |= {"spark.python.daemon.module": DAEMON}
        found |= {"spark.executor.heartbeatInterval": "2s"}  # rows of running tasks, for progress.py
    return found


def _submitted() -> dict[str, str]:
    """What spark-submit was told, also by its files."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # the Java that spark-submit started
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def _defaults() -> dict[str, str]:
    """What the user's spark-defaults.conf says."""
    folder = os.environ.get("SPARK_CONF_DIR")
    file = Path(folder or ".") / "spark-defaults.conf"
    if not folder or not file.is_file():
        return {}
    lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    pairs = [re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and line[0] not in "#!"]
    return {name: "".join(value) for name, *value in pairs if name.startswith("spark.")}


def ui_address(spark: SparkSession) -> str | None:
    """Where Spark's own pages are, if they are on."""
    return None if is_remote(spark) else spark.sparkContext.uiWebUrl


def is_remote(spark: SparkSession) -> bool:
    """True for a session of a Spark Connect server."""
    return not hasattr(spark, "_jsparkSession")


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


def prepare(*, is_local: bool = True) -> None:
    """Set the environment variables that PySpark reads. UsageError if Spark cannot run here.

    A driver whose executors are in this process is reached by loopback; others must find it from other machines.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("Spark is not installed: `pip install 'heliograph[spark]'`")
    if (told := misfit()) is not None:
        raise UsageError(told)
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    if is_local:
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


def _quiet_folder() -> Path:
    """A configuration folder whose only file keeps Spark's log messages off standard error."""
    folder = work_folder()
    (folder / "log4j2.properties").write_text(_LOG4J, "utf-8")
    return folder
