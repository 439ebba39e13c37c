"""A store that is away is told by name, wherever its rows would be missing; those that are named must be there."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import heliograph
from benchmarks.ports import free_ports
from heliograph.errors import RefusedError
from heliograph.pipeline.offsets import DataLossError
from heliograph.pipeline.options import SourceOptions, read_options
from heliograph.pipeline.source import LogStreamReader, RangeReader
from tests.live.processes import Process

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.req("S1")]


class TwoStores:
    """A broker, and the stores left and right at brokers of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(3)
        self.url = f"heliograph://127.0.0.1:{self._ports[0]}"
        (folder / "key").touch(0o600)
        (folder / "key").write_text("k" * 64)
        self.processes = [self._start(0, "broker")]
        self.processes += [self.start_store(number) for number in (1, 2)]
        with heliograph.connect_blocking(self.url, timeout=60) as client:
            while len(client.stores()) < 2:
                time.sleep(0.05)
            client.publish_batch("left/t", [b"1", b"2", b"3"], reliable=True)
            client.publish_batch("right/t", [b"4", b"5"], reliable=True)

    def start_store(self, number: int) -> Process:
        name = ("left", "right")[number - 1]
        store = ("--store", "--store-place", str(self._folder / name), "--store-pattern", f"{name}/#")
        config = self._folder / f"{name}.toml"
        config.write_text(f'[store]\nenabled = true\nname = "{name}"\n')
        return self._start(number, name, *store, "--config", str(config), "--link", f"127.0.0.1:{self._ports[0]}")

    def _start(self, number: int, name: str, *more: str) -> Process:
        key = ("--network-key-file", str(self._folder / "key"), "--no-discovery")
        listen = ("--listen", f"127.0.0.1:{self._ports[number]}", "--name", name)
        process = Process(self._folder, "--log-format", "json", *listen, *key, *more)
        process.line("ready in")
        return process

    def stop_right(self) -> None:
        """In order, so that it says at once that it is away."""
        self.processes[2].process.send_signal(signal.SIGTERM)
        self.processes[2].process.wait()
        with heliograph.connect_blocking(self.url) as client:
            while [store.name for store in client.stores(away=True)] != ["right"]:
                time.sleep(0.05)

    def options(self, streaming: bool, **more: str) -> SourceOptions:
        return read_options({"url": self.url, "patience": "1", **more}, streaming)

    def end(self) -> None:
        for process in self.processes:
            process.process.kill()
            process.process.wait()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoStores]:
    found = TwoStores(tmp_path)
    yield found
    found.end()


def rows(reader: RangeReader) -> list[bytes]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(value for batch in batches for value in batch.column("value").to_pylist())


def test_rows_of_a_store_that_is_away_are_missed_by_name_and_only_if_that_is_allowed(two: TwoStores) -> None:
    assert rows(RangeReader(two.options(False, store="left,right"))) == [b"1", b"2", b"3", b"4", b"5"]
    stream = LogStreamReader(two.options(True, startingOffsets="earliest"))
    allowed = LogStreamReader(two.options(True, startingOffsets="earliest", failOnDataLoss="false"))
    begin = stream.initialOffset()
    assert allowed.initialOffset() == begin
    two.stop_right()

    with pytest.raises(DataLossError, match="store right is away, so that its rows would be missing"):
        rows(RangeReader(two.options(False)))
    with pytest.raises(DataLossError, match="store right is away"):
        LogStreamReader(two.options(True)).initialOffset()
    with pytest.raises(DataLossError, match="store right, which this query has read, is away"):
        stream.latestOffset(begin, ReadAllAvailable())
    once = LogStreamReader(two.options(True))
    once.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="store right, which this query has read, is away"):
        once.latestOffset(begin, ReadAllAvailable())
    with pytest.raises(RefusedError, match="no store 'right' serves #"):
        rows(RangeReader(two.options(False, store="left,right", failOnDataLoss="false")))

    assert rows(RangeReader(two.options(False, store="left"))) == [b"1", b"2", b"3"], "nobody asked for the other"
    assert rows(RangeReader(two.options(False, failOnDataLoss="false"))) == [b"1", b"2", b"3"]
    end = allowed.latestOffset(begin, ReadAllAvailable())
    away = next(store for store in begin if end[store] == begin[store])
    two.processes[2] = two.start_store(2)
    while allowed.latestOffset(end, ReadAllAvailable())[away] == begin[away]:
        time.sleep(0.05)  # it is read from where it was
    for reader in (stream, once, allowed):
        reader.stop()
