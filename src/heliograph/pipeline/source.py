"""The source ``format("heliograph")``: the content of stores, as a batch or as a stream.

In:    options (options.py).
Out:   Arrow batches in the columns of rows.py. Executors read directly from stores, several ranges at once.
State: in the driver of a stream, one client, and the durable subscription that holds retention back.
Not here: frames to columns (rows.py), writing (sink.py).

An offset is, per store and log, the next position: everything before it has been read. A range that is no longer kept
is a gap: it fails with one line, or is skipped if ``failOnDataLoss`` is false. A store that has answered and is away
is no gap: a stream waits for it (patience.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from heliograph.client.config import SECURE
from heliograph.errors import HeliographError, Reason, RefusedError, UsageError
from heliograph.model.topics import matches
from heliograph.pipeline.options import EARLIEST, LATEST, LOG, RANGE_POSITIONS, Offsets, SourceOptions, read_options
from heliograph.pipeline.patience import patiently, without_those_away
from heliograph.pipeline.pushdown import Narrowed, is_offered, narrowed
from heliograph.pipeline.rows import UNKNOWN, matching, parse_attributes, to_batch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from heliograph.live.blocking import BlockingClient
    from heliograph.model.publication import StoredRun

BATCH_BYTES = 2 << 20  # of frames that become one Arrow batch: it stays in the caches of the processes it passes
HOLDING = 1 << 31  # a channel that no reader of a client uses

_T = TypeVar("_T")


class DataLossError(HeliographError):
    """Requested positions are no longer kept."""


@dataclass(frozen=True, slots=True)
class StoreLog:
    """A log in its current state."""

    store: str
    address: str
    first: int
    next: int
    filters: tuple[str, ...] = ()  # of the query, those that this store serves something of; empty: all
    name: str = ""  # of the store


@dataclass
class LogRange(InputPartition):
    """What one task reads."""

    store: str
    address: str
    start: int
    end: int
    since_ms: int | None = None
    until_ms: int | None = None
    filters: tuple[str, ...] = ()  # as of the log


class HeliographSource(DataSource):
    """The data source, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format("heliograph")``."""
        return "heliograph"

    def schema(self) -> StructType:
        """The requested columns."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(read_options(self.options, False).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch."""
        options = read_options(self.options, False)
        return PushingReader(options) if is_offered() else RangeReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        """For a stream."""
        return LogStreamReader(read_options(self.options, True))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For a batch."""
        from heliograph.pipeline.sink import BatchSink, sink_options

        return BatchSink(sink_options(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 Spark's name
        """For a stream."""
        from heliograph.pipeline.sink import StreamSink, sink_options

        return StreamSink(sink_options(self.options, schema, streaming=True))


class RangeReader(DataSourceReader):
    """Reads from one set of offsets to another."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of positions, for tasks."""
        options = self._options
        with options.connect() as client:
            logs = list_logs(client, options)
        return self.plan(logs)

    def plan(self, logs: Sequence[StoreLog]) -> list[InputPartition]:
        """The same for given logs."""
        options = self._options
        return plan(options, logs, resolve(options.starting, logs), resolve(options.ending, logs, LATEST))

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

    def plan(self, logs: Sequence[StoreLog]) -> list[InputPartition]:
        """Ranges within the positions that the filters leave."""
        options, kept = self._options, self._narrowed
        start, end = resolve(options.starting, logs), resolve(options.ending, logs, LATEST)
        for store in start:
            end[store] = {LOG: min(end[store][LOG], kept.end)}
            start[store] = {LOG: min(max(start[store][LOG], kept.start), end[store][LOG])}
        return plan(options, logs, start, end)

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
        self._is_met = False  # a store has answered: if it is away later, it comes back

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options, and connect by themselves."""
        return LogStreamReader(self._options).__dict__

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        """Where a new query begins. From then on, retention waits for its reader."""
        begin = resolve(self._options.starting, self._logs())
        for store, logs in begin.items():
            self._release(store, logs[LOG])
        return begin

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 Spark's name
        """The end of the next micro-batch."""
        known = {log.store: {LOG: log.next} for log in self._logs()} if self._last is None else self._last
        if isinstance(limit, ReadMaxRows):
            return limited(start, known, limit.max_rows)
        return limited(start, known, None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        """As set by ``maxOffsetsPerTrigger``."""
        most = self._options.positions_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 Spark's name
        """For Spark's progress report."""
        return {log.store: {LOG: log.next} for log in self._logs()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """Read everything present now, and no more."""
        self._last = {log.store: {LOG: log.next} for log in self._logs()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of positions, for tasks. Stores that these offsets name get time to come back."""
        return plan(self._options, self._logs([store for store in end if start.get(store) != end[store]]), start, end)

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
        client = self._connected()
        client.ask("stores", opening | {"start": "first", "window": 1})
        client.ask("stores", {"do": "close", "store": store, "channel": HOLDING})
        self._named.add(store)

    def _acknowledge(self, store: str, name: str, before: int) -> None:
        self._connected().ask("stores", {"do": "ack", "store": store, "name": name, "before": before})

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
        if not _has(found, needed):
            with without_those_away():  # for good: the plan says so
                found = self._patiently(lambda: _complete(self._list(), needed))
        return found

    def _list(self) -> list[StoreLog]:
        return list_logs(self._connected(), self._options)

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """The first answer must come at once: if there is none, the options are probably wrong."""
        return patiently(ask, self._options.patience_s) if self._is_met else ask()


# -- offsets ----------------------------------------------------------------------------------------------------------


def list_logs(client: BlockingClient, options: SourceOptions) -> list[StoreLog]:
    """The logs of the stores that serve the requested topics. RefusedError if there is none."""
    addresses = {store.id: store.address for store in client.stores()}
    found: dict[str, StoreLog] = {}
    for pattern in options.filters:
        for log in client.logs(pattern):
            if log.log == "main" and options.store in ("", log.store, log.name):
                filters = (*found[log.store].filters, pattern) if log.store in found else (pattern,)
                address = addresses.get(log.store, "")
                found[log.store] = StoreLog(log.store, address, log.first, log.next, filters, log.name)
    if not found:
        asked = f"no store {options.store!r} serves" if options.store else "no store serves"
        text = f"{asked} {', '.join(options.filters)}: `heliograph store run` starts one"
        raise RefusedError(Reason.STORE_MISSING, text)
    return sorted(found.values(), key=lambda log: log.store)


def _has(logs: Iterable[StoreLog], needed: Iterable[str]) -> bool:
    return {log.store for log in logs}.issuperset(needed)


def _complete(logs: list[StoreLog], needed: Iterable[str]) -> list[StoreLog]:
    """The logs, if those of the needed stores are among them."""
    if not _has(logs, needed):
        raise RefusedError(Reason.STORE_MISSING)
    return logs


def resolve(wanted: str | Offsets, logs: Sequence[StoreLog], otherwise: str = EARLIEST) -> Offsets:
    """Offsets as positions, by id of the store. ``otherwise`` is that of stores which are not named."""
    if isinstance(wanted, str):
        return {log.store: {LOG: _position(log, wanted)} for log in logs}
    known = [name for log in logs for name in (log.store, log.name) if name]
    unknown = [store for store in wanted if store not in known]
    if unknown:
        raise UsageError(f"offsets for the store {unknown[0]!r}, which is not read: there are {', '.join(known)}")
    return {
        log.store: {LOG: _position(log, wanted.get(log.store, wanted.get(log.name, {})).get(LOG, otherwise))}
        for log in logs
    }


def _position(log: StoreLog, at: str | int) -> int:
    if at in (EARLIEST, -2):  # the numbers are those of Spark's Kafka source
        return log.first
    if at in (LATEST, -1):
        return log.next
    assert isinstance(at, int)
    if not 0 <= at <= log.next:
        raise UsageError(f"offset {at} of store {log.store}: it has {log.first} to {log.next - 1}, and -1 is its end")
    return at


def limited(start: Offsets, known: Offsets, most: int | None) -> Offsets:
    """From ``start`` toward ``known``, at most this many positions, divided among all stores in proportion."""
    behind = {store: max(0, logs[LOG] - start.get(store, {}).get(LOG, 0)) for store, logs in known.items()}
    total = sum(behind.values())
    end = {store: dict(logs) for store, logs in start.items()}
    left = total if most is None else min(most, total)
    for store, count in behind.items():
        share = count if total <= left else -(-count * left // total)
        at = start.get(store, {}).get(LOG, 0)
        end[store] = {LOG: at + min(share, count)}
    return end


def plan(options: SourceOptions, logs: Sequence[StoreLog], start: Offsets, end: Offsets) -> list[InputPartition]:
    """Ranges for tasks. DataLossError if some of it is gone, unless that is allowed."""
    ranges: list[InputPartition] = []
    total = sum(max(0, end[s][LOG] - start.get(s, {}).get(LOG, 0)) for s in end)
    step = max(1, min(RANGE_POSITIONS, -(-total // options.partitions_min)))
    for log in logs:
        last = end.get(log.store, {}).get(LOG, 0)
        first = start.get(log.store, {}).get(LOG, log.first)
        if first < log.first and first < last:
            _lost(options, log.store, first, min(log.first, last))
            first = log.first
        if last > log.next:
            _lost(options, log.store, log.next, last)
            last = log.next
        if first < last:
            cuts = [*range(first, last, step), last]
            ranges += [
                LogRange(log.store, log.address, low, high, options.since_ms, options.until_ms, log.filters)
                for low, high in pairwise(cuts)
            ]
    missing = [store for store in end if store not in {log.store for log in logs} and start.get(store) != end[store]]
    if missing and options.fail_on_loss:
        raise DataLossError(
            f"store {missing[0]}, of which this query has not read everything, is away: start it again, or set "
            "failOnDataLoss to false to go on without it"
        )
    return ranges


def _lost(options: SourceOptions, store: str, first: int, end: int) -> None:
    if options.fail_on_loss:
        raise DataLossError(
            f"store {store} no longer keeps positions {first} to {end - 1}, which this query has not read: set "
            "failOnDataLoss to false to go on without them, and give the query a reader so that retention waits"
        )


# -- reading in tasks -------------------------------------------------------------------------------------------------


def read_range(options: SourceOptions, part: LogRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range, in large batches."""
    attributes = parse_attributes(options.attributes)
    with options.connect(addresses(part.address, options), patiently=True) as client:
        patiently(lambda: _complete(list_logs(client, options), [part.store]), options.patience_s)
        filters = part.filters or options.filters  # the store would refuse others
        for number, pattern in enumerate(filters):
            runs = client.runs(
                pattern,
                where=options.where,
                language=options.language,
                store=part.store,
                position={part.store: part.start},
                end={part.store: part.end},
                since=None if part.since_ms is None else part.since_ms / 1_000,
                until=None if part.until_ms is None else part.until_ms / 1_000,
                times="stored" in options.columns,
            )
            for data, positions, taken in _joined(runs):
                batch = to_batch(part.store, data, positions, _read_columns(options), attributes, taken=taken)
                batch = _once(batch, filters[:number], options.pattern)
                yield batch if len(batch.schema) == len(options.schema) else batch.select(options.schema.names)


def addresses(address: str, options: SourceOptions) -> list[str]:
    """Where a task connects: the store's broker first, unless that would give up TLS; then the configured one."""
    given = options.connection.get("url", "")
    is_downgrade = given.startswith(f"{SECURE}://") and not address.startswith(f"{SECURE}://")
    near = [] if is_downgrade or not address else [address]
    return [*near, *([given] if given and given not in near else [])]


def _read_columns(options: SourceOptions) -> list[str]:
    needed = ["topic"] if options.pattern or len(options.filters) > 1 else []
    return [*options.columns, *(name for name in needed if name not in options.columns)]


def _joined(runs: Iterator[StoredRun]) -> Iterator[tuple[list[bytes], list[Sequence[int]], list[tuple[int, int]]]]:
    """Runs merged, so that small ones cost little: their frames, positions, and times of storing."""
    parts: list[bytes] = []
    positions: list[Sequence[int]] = []
    taken: list[tuple[int, int]] = []
    size = 0
    for run in runs:
        parts.append(run.data)
        positions.append(run.positions)
        taken += run.taken or [(run.before, UNKNOWN)]
        size += run.size
        if size >= BATCH_BYTES:
            yield parts, positions, taken
            parts, positions, taken, size = [], [], [], 0
    if parts:
        yield parts, positions, taken


def _once(batch: pa.RecordBatch, earlier: Sequence[str], pattern: str) -> pa.RecordBatch:
    """Rows whose topic matches the pattern and none of the filters read before."""
    if pattern:
        batch = matching(batch, pattern)
    if not earlier:
        return batch
    topics = batch.column("topic").to_pylist()
    known = {topic: any(matches(each.encode(), topic.encode()) for each in earlier) for topic in dict.fromkeys(topics)}
    return batch.filter(pa.array([not known[topic] for topic in topics], pa.bool_()))
