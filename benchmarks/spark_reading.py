"""What Spark reads from a store: batches and streams beside Parquet, and live delivery while the archive catches up.

In:    a Spark session, a folder.
Out:   rounds: rows per second, and the CPU seconds of the store, of Spark's Python workers and of its Java.
State: a store with rows in its own process, and a broker for live traffic, for as long as ``stored_rows`` is open.
Not here: budgets and medians (spark.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.field import say
from benchmarks.generator import RunError
from benchmarks.history import Live, start
from benchmarks.store import OurPublisher, _connected
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.vault import Append, Put, Vault
from heliograph.wire.frames import event
from heliograph.wire.stores import MAIN

ROWS, ROWS_QUICK = 4_000_000, 1_000_000
RUN = 1_000  # publications of a run
FILE_ROWS = 250_000  # of a Parquet file, and of a task
STREAM_ROWS = 500_000
ARCHIVE_ROWS = 50_000  # of a micro-batch while live traffic flows
WARM = 3  # batches of each that are left out: Java compiles what it runs often
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
    """CPU seconds of the store, of Spark's Python workers and of its Java from now on."""

    def __init__(self, store: int) -> None:
        own = psutil.Process().children(recursive=True)
        self._java = next(each for each in own if "java" in each.name())
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


def batches(spark: Any, rows: StoredRows, folder: Path, times: int) -> Iterator[dict[str, Any]]:
    """All rows, from the store and from Parquet in turn; the first of each are left out."""
    source = spark.read.format("heliograph").options(url=rows.url, subscribe="bench/#").load()
    say("writing the same rows as Parquet")
    source.write.option("maxRecordsPerFile", FILE_ROWS).parquet(str(folder / "parquet"))
    parquet = spark.read.parquet(str(folder / "parquet"))
    if parquet.count() != rows.count:
        raise RunError(f"{parquet.count()} of {rows.count} rows were read")
    for number in range(1 - WARM, times + 1):
        for system, frame in (("ours", source), ("parquet", parquet)):
            use, began = CpuUse(rows.process), time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            rows_s = rows.count / (time.perf_counter() - began)
            if number > 0:
                row = {"round": number, "case": "batch", "system": system, "rows_s": rows_s}
                yield _note(row | {"cpu_s": use.spent(rows.count)})


def streams(spark: Any, rows: StoredRows, folder: Path, times: int) -> Iterator[dict[str, Any]]:
    """Micro-batches of 500,000 rows, from the store and from Parquet files in turn; the first of each is left out."""
    options = {"url": rows.url, "subscribe": "bench/#", "startingOffsets": "earliest"}
    ours = spark.readStream.format("heliograph").options(**options, maxOffsetsPerTrigger=str(STREAM_ROWS)).load()
    schema = spark.read.parquet(str(folder / "parquet")).schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", STREAM_ROWS // FILE_ROWS)
    parquet = files.parquet(str(folder / "parquet"))
    for number in range(1, times + 1):
        for system, stream in (("ours", ours), ("parquet", parquet)):
            check = str(folder / f"check-{system}-{number}")
            use = CpuUse(rows.process)
            writing = stream.writeStream.format("noop").option("checkpointLocation", check)
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            spent = use.spent(rows.count)
            seconds = [each.durationMs["triggerExecution"] / 1e3 for each in query.recentProgress if each.numInputRows]
            if len(seconds) != rows.count // STREAM_ROWS:
                raise RunError(f"{len(seconds)} micro-batches instead of {rows.count // STREAM_ROWS}")
            rows_s = STREAM_ROWS * (len(seconds) - 1) / sum(seconds[1:])
            yield _note({"round": number, "case": "stream", "system": system, "rows_s": rows_s, "cpu_s": spent})


def beside_live(spark: Any, rows: StoredRows, folder: Path, times: int) -> Iterator[dict[str, Any]]:
    """Live publications per second, alone and while the archive catches up, in turn."""
    from heliograph.pipeline import archive

    _give_way()
    live = Live(rows.live_port)
    live.run(0.5)
    options = {"url": rows.url, "subscribe": "bench/#", "startingOffsets": "earliest"}
    stream = spark.readStream.format("heliograph").options(**options, maxOffsetsPerTrigger=str(ARCHIVE_ROWS)).load()
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
