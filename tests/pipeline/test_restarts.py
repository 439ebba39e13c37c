"""Brokers and stores that restart while a stream reads from them: it waits, and loses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import heliograph
from benchmarks.ports import free_ports
from heliograph.errors import HeliographError, NotConnectedError, Reason, RefusedError
from heliograph.pipeline import patience
from heliograph.pipeline.offsets import DataLossError
from heliograph.pipeline.options import LOG, read_options
from heliograph.pipeline.source import LogStreamReader
from tests.live.processes import Process

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.req("S1")]


def test_one_that_is_away_is_asked_again_and_other_refusals_are_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0.0)
    away: list[HeliographError] = [RefusedError(Reason.TIME_OUT), RefusedError(Reason.STORE_MISSING)]
    answers = [*away, NotConnectedError(Reason.CLOSED), RefusedError(Reason.CREDENTIAL_MISSING), None]

    def ask() -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "here"

    with pytest.raises(RefusedError, match="credential_missing"):
        patience.patiently(ask, 60)
    assert patience.patiently(ask, 60) == "here"
    answers = [*away, None]
    with pytest.raises(RefusedError, match="time_out"):
        patience.patiently(ask, 0)


class Stage:
    """A broker, and a store in a process of its own, both of which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(2)
        self.url = f"heliograph://127.0.0.1:{self._ports[0]}"
        (folder / "key").touch(0o600)
        (folder / "key").write_text("k" * 64)
        self.broker = self.start_broker()
        self.store = self.start_store()

    def start_broker(self) -> Process:
        return self._start(0, "--no-discovery")

    def start_store(self) -> Process:
        store = ("--store", "--store-place", str(self._folder / "kept"), "--link", f"127.0.0.1:{self._ports[0]}")
        return self._start(1, "--no-discovery", *store)

    def _start(self, number: int, *more: str) -> Process:
        key = ("--network-key-file", str(self._folder / "key"))
        listen = ("--listen", f"127.0.0.1:{self._ports[number]}", "--name", f"b{number}")
        process = Process(self._folder, "--log-format", "json", *listen, *key, *more)
        process.line("ready in")
        return process

    def publish(self, *payloads: bytes) -> None:
        with heliograph.connect_blocking(self.url) as client:
            patience.patiently(lambda: client.publish_batch("t", payloads, reliable=True), 60)

    def end(self) -> None:
        for process in (self.broker, self.store):
            process.process.kill()
            process.process.wait()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    found = Stage(tmp_path)
    yield found
    found.end()


def later(start: Callable[[], Process]) -> Future[Process]:
    """Start a process while something waits for it."""
    found: Future[Process] = Future()

    def work() -> None:
        time.sleep(1.0)
        found.set_result(start())

    threading.Thread(target=work).start()
    return found


def values(reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_stream_waits_for_a_store_and_a_broker_that_restart(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.pipeline.options.TIMEOUT_S", 0.5)
    stage.publish(b"1", b"2")
    given = {"url": stage.url, "startingOffsets": "earliest", "reader": "spark", "failOnDataLoss": "false"}
    reader = LogStreamReader(read_options(given, True))
    begin = reader.initialOffset()
    middle = reader.latestOffset(begin, ReadAllAvailable())

    stage.store.process.kill()  # with rows that are planned, and that failOnDataLoss=false must not skip
    starting = later(stage.start_store)
    assert values(reader, begin, middle) == [b"1", b"2"]
    stage.store = starting.result()

    stage.store.process.kill()
    reader.commit(middle)  # cannot be told, which ends nothing
    stage.store = stage.start_store()
    stage.publish(b"3")

    stage.broker.process.kill()
    starting = later(stage.start_broker)
    end = reader.latestOffset(middle, ReadAllAvailable())
    stage.broker = starting.result()
    while end == middle:  # its store is not linked yet
        end = reader.latestOffset(middle, ReadAllAvailable())
    assert values(reader, middle, end) == [b"3"]
    reader.commit(end)
    with heliograph.connect_blocking(stage.url) as client:
        assert [(one.name, one.position) for one in client.durable_subscriptions()] == [("spark", 3)]
    reader.stop()


def test_a_store_that_stays_away_is_told_in_one_line(stage: Stage) -> None:
    stage.publish(b"1", b"2")
    reader = LogStreamReader(read_options({"url": stage.url, "startingOffsets": "earliest", "patience": "1"}, True))
    begin = reader.initialOffset()
    end = {**reader.latestOffset(begin, ReadAllAvailable()), "00000000000000aa": {LOG: 5}}
    with pytest.raises(DataLossError, match="has not read everything, is away: start it again, or set failOn"):
        reader.partitions(begin, end)
    stage.store.process.kill()
    with pytest.raises(RefusedError):
        reader.latestOffset(begin, ReadAllAvailable())
    reader.stop()
