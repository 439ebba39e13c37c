"""What Spark reads from a store: batches, streams and the archive beside Parquet and Kafka; live delivery meanwhile.

In:    a Spark session, a folder.
Out:   rounds: rows per second, and the CPU seconds of the store, of Spark's Python workers and of its Java.
State: a store with rows in its own process, and a broker for live traffic, for as long as ``stored_rows`` is open;
       Kafka with the same rows and a Spark that reads it, for as long as ``kafka_rows`` is.
Not here: budgets and medians (spark.py), Kafka (peers/kafka.py).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.field import say
from benchmarks.generator import RunError
from benchmarks.history import Live, start
from benchmarks.peers import kafka
from benchmarks.peers.kafka import Job
from benchmarks.store import OurPublisher, _connected
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.pipeline.java import find_java
from heliograph.vault import Append, Put, Vault
from heliograph.wire.frames import event
from heliograph.wire.stores import MAIN

ROWS, ROWS_QUICK = 4_000_000, 1_000_000
RUN = 1_000  # publications of a run
FILE_ROWS = 250_000  # of a Parquet file, and of a task
STREAM_ROWS = 500_000
ARCHIVE_ROWS = 50_000  # of a micro-batch while live traffic flows
WARM = 3  # batches of each that are left out: Java compiles what it runs often
PARTITIONS = 2  # of Kafka's topic: one for each core
LIVE_S = 2.0
WAIT_S = 60


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A running store with rows, and a broker beside it."""

    url: str  # of the store's broker
    live_port: int  # of the other broker
    count: int
    process: int


@contextmanager
def stored_rows(folder: Path, quick: bool) -> Iterator[StoredRows]:
    """A store in its own process that holds rows, linked to a broker."""
    count = ROWS_QUICK if quick else ROWS
    say(f"writing {count:,} publications")
    _fill(folder, count)
    with ExitStack() as stack:
        hub, port, process, _ = start(stack, folder, False)
        _connected(port).close()
        OurPublisher(port).sock.close()  # it waits until the store is found
        yield StoredRows(f"heliograph://127.0.0.1:{port}", hub, count, process.pid)


def _fill(folder: Path, count: int) -> None:
    """A vault as a store would have written it: readings of a weather station, headers as clients write them."""
    chance = Random(5)
    backend = SqliteVault(Vault(name="bench", place=str(folder)))
    backend.open()
    backend.commit([[Put("id", (7).to_bytes(8, "little"))]])
    begin = time.time_ns() - count * 1_000
    for first in range(0, count, RUN):
        at = begin + first * 1_000
        frames = b"".join(
            event(
                b"bench/%d" % (number // RUN % 10),
                reading(chance),
                5,
                number + 1,
                b'{"disk":%d,"$t":%d,"$q":["0000000000000007",%d]}' % (number % 1_000, at // 1_000, number),
            )
            for number in range(first, first + RUN)
        )
        backend.commit([[Append(MAIN, frames, RUN, at, at)]])
    backend.tidy(True)
    backend.close()


def reading(chance: Random) -> bytes:
    """A payload of about 100 bytes. Measured values repeat no more than real ones: Parquet (zstd) needs 16 bytes."""
    bits = chance.getrandbits(64)
    temperature, humidity, pressure, wind = bits % 30_000, bits >> 16 & 0x1FFF, bits >> 32 & 0xFFF, bits >> 48 & 0x3FF
    return b'{"station":"s%03d","temperature":%.3f,"humidity":%.2f,"pressure":%.2f,"wind":%.2f,"valid":true}' % (
        bits % 500,
        temperature / 1e3,
        humidity / 1e2,
        1e3 + pressure / 1e2,
        wind / 1e2,
    )


def _note(row: dict[str, Any]) -> dict[str, Any]:
    """Say a figure: a long run that is stopped has told something."""
    say(f"{row['case']}, {row['system']}: {row['rows_s']:,.0f} a second")
    return row


class CpuUse:
    """CPU seconds of a store, of Spark's Python workers and of its Java from now on. ``spark``: the session's."""

    def __init__(self, store: int, spark: int) -> None:
        self._java = next(each for each in psutil.Process(spark).children() if "java" in each.name())
        self._store = psutil.Process(store)
        self._before = self._now()

    def spent(self, rows: int) -> dict[str, float]:
        """Since it was made, for a million rows."""
        return {who: max(0.0, s - self._before[who]) * 1e6 / rows for who, s in self._now().items()}

    def _now(self) -> dict[str, float]:
        workers = 0.0
        for each in self._java.children(recursive=True):
            try:
                times = each.cpu_times()
            except psutil.NoSuchProcess:
                continue  # its parent counts it
            workers += times.user + times.system + times.children_user + times.children_system
        return {"store": _seconds(self._store), "workers": workers, "java": _seconds(self._java)}


def _seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class KafkaRows:
    """The same rows in Kafka, and the session that reads them."""

    job: Job
    broker: int  # its process

    def use(self) -> CpuUse:
        """As of our own store and session."""
        return CpuUse(self.broker, self.job.pid)


@contextmanager
def kafka_rows(rows: StoredRows, folder: Path) -> Iterator[KafkaRows | None]:
    """Kafka with the rows that are in Parquet already; None if it is not installed."""
    if (why := kafka.absent()) is not None:
        say(f"Kafka is left out: {why}")
        yield None
        return
    java = find_java().home
    with kafka.running(folder / "kafka", java, PARTITIONS) as (port, broker), Job(folder, java, port) as job:
        _connected(port).close()
        say("publishing the same rows to Kafka")
        if (found := job.ask("fill", parquet=str(folder / "parquet"))["rows"]) != rows.count:
            raise RunError(f"Kafka has {found} of {rows.count} rows")
        yield KafkaRows(job, broker)


def write_parquet(spark: Any, rows: StoredRows, folder: Path) -> None:
    """The rows of the store as Parquet."""
    say("writing the same rows as Parquet")
    _source(spark, rows).write.option("maxRecordsPerFile", FILE_ROWS).parquet(str(folder / "parquet"))


def _source(spark: Any, rows: StoredRows) -> Any:
    return spark.read.format("heliograph").options(url=rows.url, subscribe="bench/#").load()


def _stream(spark: Any, rows: StoredRows, most: int) -> Any:
    options = {"url": rows.url, "subscribe": "bench/#", "startingOffsets": "earliest"}
    return spark.readStream.format("heliograph").options(**options, maxOffsetsPerTrigger=str(most)).load()


def _files(spark: Any, folder: Path) -> Any:
    """The rows in Parquet, as a stream of as many rows a micro-batch as the others."""
    schema = spark.read.parquet(str(folder / "parquet")).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", STREAM_ROWS // FILE_ROWS)
    return files.parquet(str(folder / "parquet"))


def batches(spark: Any, rows: StoredRows, folder: Path, times: int, peer: KafkaRows | None) -> Iterator[dict[str, Any]]:
    """All rows, from the store, from Parquet and from Kafka in turn; the first of each are left out."""
    parquet = spark.read.parquet(str(folder / "parquet"))
    if parquet.count() != rows.count:
        raise RunError(f"{parquet.count()} of {rows.count} rows were read")

    def read(frame: Any) -> float:
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    reads: dict[str, Callable[[], float]] = {
        "ours": lambda: read(_source(spark, rows)),
        "parquet": lambda: read(parquet),
        "kafka": lambda: float(peer.job.ask("batch")["seconds"]) if peer else 0.0,
    }
    for number in range(1 - WARM, times + 1):
        for system, go in reads.items():
            if system == "kafka" and peer is None:
                continue
            use = peer.use() if peer and system == "kafka" else CpuUse(rows.process, os.getpid())
            rows_s = rows.count / go()
            if number > 0:
                row = {"round": number, "case": "batch", "system": system, "rows_s": rows_s}
                yield _note(row | {"cpu_s": use.spent(rows.count)})


def streams(spark: Any, rows: StoredRows, folder: Path, times: int, peer: KafkaRows | None) -> Iterator[dict[str, Any]]:
    """Micro-batches of 500,000 rows, from the store, from files and from Kafka in turn."""

    def run(stream: Any, check: str) -> list[tuple[int, float]]:
        writing = stream.writeStream.format("noop").option("checkpointLocation", check)
        return _batches(writing.trigger(availableNow=True).start())

    for number in range(1, times + 1):
        use = CpuUse(rows.process, os.getpid())
        found = run(_stream(spark, rows, STREAM_ROWS), f"{folder}/check-ours-{number}")
        yield _round("stream", "ours", number, rows, use, found)
        use = CpuUse(rows.process, os.getpid())
        found = run(_files(spark, folder), f"{folder}/check-parquet-{number}")
        yield _round("stream", "parquet", number, rows, use, found)
        if peer is not None:
            use = peer.use()
            yield _round("stream", "kafka", number, rows, use, peer.job.ask("stream", rows=STREAM_ROWS)["batches"])


def archives(
    spark: Any, rows: StoredRows, folder: Path, times: int, peer: KafkaRows | None
) -> Iterator[dict[str, Any]]:
    """The archive in micro-batches of 500,000 rows, beside a file stream that becomes Parquet, and Kafka to Delta."""
    from heliograph.pipeline import archive
    from heliograph.pipeline.tables import LakeTables

    for number in range(1, times + 1):
        place = folder / f"archive-{number}"
        use = CpuUse(rows.process, os.getpid())
        found = _batches(archive.start(_stream(spark, rows, STREAM_ROWS), str(place)))
        yield _round("archive", "ours", number, rows, use, found)
        if (kept := LakeTables(str(place)).rows("events")) != rows.count:
            raise RunError(f"the archive has {kept} of {rows.count} rows")
        use = CpuUse(rows.process, os.getpid())
        writing = _files(spark, folder).writeStream.format("parquet").option("path", f"{place}-parquet")
        writing = writing.option("checkpointLocation", f"{folder}/check-archive-{number}")
        found = _batches(writing.trigger(availableNow=True).start())
        yield _round("archive", "parquet", number, rows, use, found)
        if peer is not None:
            use, said = peer.use(), peer.job.ask("archive", rows=STREAM_ROWS)
            if said["kept"] != rows.count:
                raise RunError(f"Delta has {said['kept']} of {rows.count} rows")
            yield _round("archive", "kafka_delta", number, rows, use, said["batches"])
        for each in (place, Path(f"{place}-parquet")):
            shutil.rmtree(each)


def _batches(query: Any) -> list[tuple[int, float]]:
    """Rows and seconds of each micro-batch."""
    query.awaitTermination()
    return [(each.numInputRows, each.durationMs["triggerExecution"] / 1e3) for each in query.recentProgress]


def _round(
    case: str, system: str, number: int, rows: StoredRows, use: CpuUse, found: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Rows a second after the first micro-batch."""
    spent = use.spent(rows.count)
    counted = [(count, seconds) for count, seconds in found if count]
    if sum(count for count, _ in counted) != rows.count:
        raise RunError(f"{system}: {sum(count for count, _ in counted)} of {rows.count} rows came")
    rows_s = sum(count for count, _ in counted[1:]) / sum(seconds for _, seconds in counted[1:])
    return _note({"round": number, "case": case, "system": system, "rows_s": rows_s, "cpu_s": spent})


def beside_live(spark: Any, rows: StoredRows, folder: Path, times: int) -> Iterator[dict[str, Any]]:
    """Live publications per second, alone and while the archive catches up, in turn."""
    from heliograph.pipeline import archive

    _give_way()
    live = Live(rows.live_port)
    live.run(0.5)
    stream = _stream(spark, rows, ARCHIVE_ROWS)
    for number in range(1, times + 1):
        yield _note({"round": number, "case": "live_alone", "system": "ours", "rows_s": live.run(LIVE_S)[0]})
        query = archive.start(stream, str(folder / f"tables-{number}"))
        _wait_for_a_batch(query)
        rate = live.run(LIVE_S)[0]
        if not query.isActive:
            raise RunError("the archive had caught up before live delivery was measured")
        query.stop()
        yield _note({"round": number, "case": "live_beside_archive", "system": "ours", "rows_s": rate})


def _wait_for_a_batch(query: Any) -> None:
    until = time.monotonic() + WAIT_S
    while not query.recentProgress:
        if not query.isActive or time.monotonic() > until:
            raise RunError(f"the archive did not start: {query.exception()}")
        time.sleep(0.05)


def _give_way() -> None:
    """Java and its Python workers get the priority that an embedded job has."""
    from heliograph.pipeline.session import NICE

    for each in psutil.Process().children(recursive=True):
        if "java" in each.name():
            for one in (each, *each.children(recursive=True)):
                for thread in one.threads():
                    nice = max(NICE, os.getpriority(os.PRIO_PROCESS, thread.id))
                    os.setpriority(os.PRIO_PROCESS, thread.id, nice)
