"""Options: what means nothing is refused as Spark's Kafka source refuses it, and what Kafka's users know works."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import UsageError
from heliograph.pipeline import source
from heliograph.pipeline.offsets import LogRange, StoreLog, check_stores, plan
from heliograph.pipeline.option_names import BATCH_SINK, STREAM_SINK
from heliograph.pipeline.options import LOG, Offsets, SourceOptions, read_options, schema_for
from heliograph.pipeline.source import LogStreamReader

pytestmark = pytest.mark.req("S1")


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({"endingOffsets": "latest"}, True, "endingOffsets means nothing for a stream: a stream ends when"),
        ({"endingTimestamp": "5"}, True, "endingTimestamp means nothing for a stream"),
        ({"maxOffsetsPerTrigger": "5"}, False, "maxOffsetsPerTrigger means nothing for a batch"),
        ({"reader": "r"}, False, "reader means nothing for a batch"),
        ({"publisher": "p"}, True, "publisher means nothing for a stream"),
        ({"path": "x"}, False, "the option 'path' is not known: the option subscribe says what is read"),
        ({"assign": '{"a":[0]}'}, False, "'assign' is not known: a store has one log, so the option store says"),
        ({"kafka.bootstrap.servers": "h:1"}, True, "the option url says which broker"),
        ({"startingOffsets": "latest"}, False, "a batch that begins with the latest has no rows"),
        ({"startingOffsets": '{"s": {"0": -1}}'}, False, "a batch that begins with the latest has no rows"),
        ({"endingOffsets": '{"s": {"0": -2}}'}, False, "a batch that ends with the earliest has no rows"),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, False, "startingTimestamp is later"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, True, "is higher than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5m"}, True, "maxTriggerDelay needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"}, True, "must be a time such as 90s"),
        ({"startingOffsetsByTimestamp": "5"}, True, 'must be JSON such as {"STORE": {"0": 1763500000000}}'),
        ({"startingOffsetsByTimestamp": '{"s": {"1": 5}}'}, True, "store s has one log, '0', and not 1"),
        ({"secretFile": "f"}, True, "secretFile needs the option reader"),
        ({"language": "sql"}, False, "language needs the option where"),
        ({"attributes": "offset long"}, False, "there would be two columns 'offset'"),
        ({"attributes": "disk long, disk double"}, True, "there would be two columns 'disk'"),
        ({"columns": "topic,topic"}, False, "there would be two columns 'topic'"),
    ],
)
def test_what_means_nothing_is_refused(given: dict[str, str], streaming: bool, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_options(given, streaming)
    assert told in str(refused.value)


@pytest.mark.parametrize(("name", "value"), [("subscribe", "a"), ("startingOffsets", "earliest"), ("where", "a = 1")])
@pytest.mark.parametrize("use", [BATCH_SINK, STREAM_SINK])
def test_a_sink_refuses_what_is_for_reading(name: str, value: str, use: str) -> None:
    with pytest.raises(UsageError, match=f"{name} means nothing for {use}"):
        read_options({name: value}, False, use)


def test_columns_are_the_same_for_a_batch_and_a_stream() -> None:
    assert schema_for({"endingOffsets": "latest", "reader": "r", "columns": "topic"}).names == ["topic"]


# -- times of stores ----------------------------------------------------------------------------------------------


def test_each_store_may_have_times_of_its_own() -> None:
    by_store = {"startingOffsetsByTimestamp": '{"first": {"0": 0}}', "endingOffsetsByTimestamp": '{"b": {"0": 7}}'}
    read = read_options(by_store | {"startingTimestamp": "3"}, False)
    logs = [StoreLog("a", "h:1", 0, 4, name="first"), StoreLog("b", "h:2", 0, 4, name="second")]
    ends: Offsets = {"a": {LOG: 4}, "b": {LOG: 4}}
    ranges = [each for each in plan(read, logs, {}, ends) if isinstance(each, LogRange)]
    assert [(each.store, each.since_ms, each.until_ms) for each in ranges] == [("a", 0, None), ("b", 3, 7)]
    with pytest.raises(UsageError, match="the store 'third', which is not read"):
        check_stores(["third"], logs)


# -- how much a micro-batch has -----------------------------------------------------------------------------------


class Growing(LogStreamReader):
    """A stream over one log whose end the test moves."""

    end = 0

    def _logs(self, needed: Any = ()) -> list[StoreLog]:
        return [StoreLog("a", "h:1", 0, self.end)]

    def _connected(self) -> Any:
        return None

    def next(self, start: int) -> int:
        end: int = self.latestOffset({"a": {LOG: start}}, self.getDefaultReadLimit())["a"][LOG]
        return end


def test_a_micro_batch_waits_for_enough_positions_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000
    monkeypatch.setattr(source, "monotonic", lambda: now)
    given = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "15", "maxTriggerDelay": "2m"}
    stream = Growing(read_options(given, True))
    stream.end = 3
    assert stream.next(0) == 3, "how long a query that begins has waited is not known"
    stream.end = 12
    assert stream.next(3) == 3
    stream.end = 13
    assert stream.next(3) == 13
    stream.end = 40
    assert stream.next(13) == 28
    stream.end = 30
    now += 119
    assert stream.next(28) == 28
    now += 1
    assert stream.next(28) == 30
    stream.end = 31
    assert stream.next(30) == 30, "the time begins again with each micro-batch"


def test_available_now_waits_for_nothing() -> None:
    stream = Growing(SourceOptions(positions_min=10, positions_max=4))
    stream.end = 3
    assert stream.next(0) == 3
    stream.end = 8
    stream.prepareForTriggerAvailableNow()
    stream.end = 100
    assert (stream.next(3), stream.next(7)) == (7, 8)
