"""The source ``format("heliograph")``: the content of stores, as a batch or as a stream.

In:    options (options.py); Spark's calls.
Out:   ranges for tasks, and the Arrow batches that tasks read. Executors read directly from stores, several ranges at
       once.
State: in the driver of a stream, one client, and the durable subscription that holds retention back.
Not here: offsets and ranges (offsets.py), what a task does (reading.py), writing (sink.py).

A store that has answered a stream and is away is waited for (patience.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.live.name_secret import secret_in
from heliograph.pipeline import table_options
from heliograph.pipeline.decode_option import check_stream, found_payload, kept_payload, wanted_payload, with_payload
from heliograph.pipeline.offsets import (
    DataLossError,
    LogRange,
    StoreLog,
    behind,
    check_none_away,
    check_stores,
    complete,
    limited,
    list_logs,
    missing,
    plan,
    resolve,
    unread,
)
from heliograph.pipeline.options import LATEST, LOG, OWN_READER, Offsets, SourceOptions, read_options, schema_for
from heliograph.pipeline.patience import patiently, without_those_away
from heliograph.pipeline.platforms import HAS_ARROW_STREAMS, HAS_LIMITS, check_fits
from heliograph.pipeline.pushdown import Narrowed, is_offered, narrowed
from heliograph.pipeline.reading import read_range
from heliograph.pipeline.sizes import Pieces, bounded, pieces_by

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from heliograph.live.blocking import BlockingClient

HOLDING = 1 << 31  # a channel that no reader of a client uses

_T = TypeVar("_T")


class HeliographSource(DataSource):
    """The data source, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format("heliograph")``."""
        return "heliograph"

    def schema(self) -> StructType:
        """The requested columns."""
        given = table_options.own(self.options)
        return table_options.carrying(with_payload(_columns(given), found_payload(given)), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch."""
        options = self._read(schema, False)
        return PushingReader(options) if is_offered() else RangeReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        """For a stream."""
        options = self._read(schema, True)
        return LogStreamReader(options) if HAS_LIMITS else WholeStreamReader(options)

    def _read(self, columns: StructType, streaming: bool) -> SourceOptions:
        given = table_options.of_query(self.options, columns)
        if streaming:
            check_fits(given)
            check_stream(wanted_payload(given))
        payload = kept_payload(columns, given)
        table_options.check_columns(columns, with_payload(_columns(given), payload))
        return replace(read_options(given, streaming), payload=payload)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For a batch."""
        from heliograph.pipeline.sink import BatchSink, sink_options

        if overwrite:
            raise UsageError('a store keeps what was published: rows are added to it, with mode("append")')
        return BatchSink(sink_options(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 Spark's name
        """For a stream."""
        from heliograph.pipeline.sink import RowStreamSink, StreamSink, sink_options

        options = sink_options(self.options, schema, streaming=True)
        return StreamSink(options) if HAS_ARROW_STREAMS else RowStreamSink(options, schema)


def _columns(given: Mapping[str, str]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema_for(given))


class RangeReader(DataSourceReader):
    """Reads from one set of offsets to another."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of positions, for tasks."""
        options = self._options
        with options.connect() as client:
            check_none_away(client, options)
            return self.plan(list_logs(client, options), pieces_by(client))

    def plan(self, logs: Sequence[StoreLog], pieces: Pieces | None = None) -> list[InputPartition]:
        """The same for given logs."""
        options = self._options
        check_stores([*options.since_ms_of, *options.until_ms_of], logs)
        return plan(options, logs, resolve(options.starting, logs), resolve(options.ending, logs, LATEST), pieces)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Runs in a task. Spark creates a task even if there is nothing to read."""
        return read_range(self._options, partition) if isinstance(partition, LogRange) else iter(())


class PushingReader(RangeReader):
    """The same if Spark passes filters: rows that they exclude are not read."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._narrowed = Narrowed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        """Use the filters that help; Spark checks all of them again."""
        self._narrowed = narrowed(filters)
        self._options = replace(self._options, filters=self._narrowed.filters(self._options.filters))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of positions, for tasks; none if no topic is left."""
        return super().partitions() if self._options.filters else []

    def plan(self, logs: Sequence[StoreLog], pieces: Pieces | None = None) -> list[InputPartition]:
        """Ranges within the positions that the filters leave."""
        options, kept = self._options, self._narrowed
        check_stores([*options.since_ms_of, *options.until_ms_of], logs)
        start, end = resolve(options.starting, logs), resolve(options.ending, logs, LATEST)
        for store in start:
            end[store] = {LOG: min(end[store][LOG], kept.end)}
            start[store] = {LOG: min(max(start[store][LOG], kept.start), end[store][LOG])}
        return plan(options, logs, start, end, pieces)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return map(self._narrowed.rows, super().read(partition))


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads continuously, a micro-batch at a time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: BlockingClient | None = None
        self._named: set[str] = set()  # stores that know the durable subscription that holds retention back
        self._last: Offsets | None = None  # with AvailableNow: where to stop
        self._began: float | None = None  # when the last micro-batch was planned
        self._is_met = False  # a store has answered: if it is away later, it comes back

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options, and connect by themselves."""
        return LogStreamReader(self._options).__dict__

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        """Where a new query begins. From then on, retention waits for its reader."""
        found = self._logs()
        check_stores(self._options.since_ms_of, found)
        check_none_away(self._connected(), self._options)
        begin = resolve(self._options.starting, found)
        for store, at in begin.items():
            self._release(store, at[LOG])
        return begin

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 Spark's name
        """The end of the next micro-batch."""
        known = self._last
        if known is None or not set(start) <= set(known):
            known = self._known(start)
            self._last = self._last and known
        count = behind(start, known)
        if isinstance(limit, ReadMinRows) and self._last is None and not self._is_due(count, limit.min_rows):
            return start
        if count:
            self._began = monotonic()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if isinstance(limit, ReadMinRows):
            most = self._options.positions_max
        end = limited(start, known, most)
        return self._patiently(lambda: bounded(self._connected(), start, end, self._options.bytes_max))

    def _is_due(self, count: int, least: int) -> bool:
        """A query that is started again does not wait: how long it has waited is not known."""
        return count >= least or self._began is None or monotonic() - self._began >= self._options.delay_s

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        """As set by ``minOffsetsPerTrigger`` and ``maxOffsetsPerTrigger``; Spark takes one limit, and passes it back.

        With the trigger "once" it passes another one: everything.
        """
        least, most = self._options.positions_min, self._options.positions_max
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 Spark's name
        """For Spark's progress report."""
        return {log.store: {LOG: log.next} for log in self._logs()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """Read everything present now, and no more."""
        self._last = self._known()

    def _known(self, started: Collection[str] = ()) -> Offsets:
        """Where the logs end, also of all stores of which this query has read something."""
        logs = self._logs(started)
        absent = missing(logs, () if self._options.stores else started)  # those that are named are there
        if absent and self._options.fail_on_loss:
            names = {store.id: store.name for store in self._connected().stores(away=True)}
            raise DataLossError(
                f"store {names.get(absent[0]) or absent[0]}, which this query has read, is away: start it again, or "
                "set failOnDataLoss to false to go on without it"
            )
        return {log.store: {LOG: log.next} for log in logs}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of positions, for tasks. Stores that these offsets name get time to come back."""
        logs = self._logs(unread(start, end))
        return self._patiently(lambda: plan(self._options, logs, start, end, pieces_by(self._connected())))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return read_range(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before these offsets has been processed: retention need not wait for it any longer."""
        for store, logs in end.items():
            with without_those_away():  # told with a later batch; until then, retention waits
                self._release(store, logs[LOG])

    def _release(self, store: str, before: int) -> None:
        name = self._options.reader
        if not name:
            return
        if store not in self._named:
            self._hold_back(store, name)
        try:
            self._acknowledge(store, name, before)
        except RefusedError as error:
            if error.reason is not Reason.NAME_UNKNOWN:
                raise
            self._hold_back(store, name)  # it was dropped, or the store was replaced
            self._acknowledge(store, name, before)

    def _hold_back(self, store: str, name: str) -> None:
        """Make the store know the name of a durable subscription, which nothing reads."""
        served = next((log.filters for log in self._logs() if log.store == store), self._options.filters)
        opening = {"do": "open", "store": store, "channel": HOLDING, "name": name, "filter": served[0]}
        shown = {"proof": self._proof(store, name), "owner": self._proof(store)}
        client = self._connected()
        try:
            client.ask("stores", opening | shown | {"start": "first", "window": 1})
        except RefusedError as error:
            # An archive's own name keeps the filter of its first run: only positions count, and nobody else reads it.
            if error.reason is not Reason.NAME_DIFFERS or not name.startswith(OWN_READER):
                raise
        else:
            client.ask("stores", {"do": "close", "store": store, "channel": HOLDING})
        self._named.add(store)

    def _acknowledge(self, store: str, name: str, before: int) -> None:
        proof = self._proof(store, name)
        self._connected().ask("stores", {"do": "ack", "store": store, "name": name, "before": before, "proof": proof})

    def _proof(self, store: str, name: str = "") -> str:
        """What shows that the name is this query's. Only the driver shows it: tasks read positions, without a name."""
        file = self._options.secret_file
        return self._connected().name_proof(store, name, secret=secret_in(Path(file)) if file else None)

    def stop(self) -> None:
        """The query ends."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> BlockingClient:
        if self._client is None:
            self._client = self._options.connect()
        return self._client

    def _logs(self, needed: Collection[str] = ()) -> list[StoreLog]:
        """The logs of the stores; among them those of ``needed``, unless they stay away."""
        found = self._patiently(self._list)
        self._is_met = True
        if missing(found, needed):
            with without_those_away():  # for good: the plan says so
                found = self._patiently(lambda: complete(self._list(), needed))
        return found

    def _list(self) -> list[StoreLog]:
        return list_logs(self._connected(), self._options)

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """The first answer must come at once: if there is none, the options are probably wrong."""
        return patiently(ask, self._options.patience_s) if self._is_met else ask()


class WholeStreamReader(LogStreamReader):
    """The same for a Spark that does not say where a stream was: a micro-batch has everything that is there."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 Spark's name
        """The end of the next micro-batch. The stores are named, so one that is away is waited for."""
        return self._known({})
