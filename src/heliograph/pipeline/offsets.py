"""Offsets: how far the logs of stores have been read, and which ranges of them tasks read next.

In:    the logs that a broker knows of; offsets as Spark keeps them; options.
Out:   positions, ranges for tasks; DataLossError if positions are no longer kept, or their store is away.
State: none.
Not here: Spark's calls (source.py), reading a range (reading.py), the options (options.py).

An offset is, per store and log, the next position: everything before it has been read. A range that is no longer kept
is a gap: it fails with one line, or is skipped if ``failOnDataLoss`` is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from heliograph.errors import HeliographError, Reason, RefusedError, UsageError
from heliograph.pipeline.options import EARLIEST, LATEST, LOG, RANGE_POSITIONS, Offsets, SourceOptions

if TYPE_CHECKING:
    from heliograph.live.blocking import BlockingClient
    from heliograph.pipeline.sizes import Pieces


class DataLossError(HeliographError):
    """Requested positions are no longer kept, or their store stays away."""


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


def list_logs(client: BlockingClient, options: SourceOptions) -> list[StoreLog]:
    """The logs of the stores that serve the requested topics. RefusedError if none is there, or a named one is not."""
    addresses = {store.id: store.address for store in client.stores()}
    found: dict[str, StoreLog] = {}
    for pattern in options.filters:
        for log in client.logs(pattern):
            if log.log == "main" and _is_wanted(options, log.store, log.name):
                filters = (*found[log.store].filters, pattern) if log.store in found else (pattern,)
                address = addresses.get(log.store, "")
                found[log.store] = StoreLog(log.store, address, log.first, log.next, filters, log.name)
    there = {name for log in found.values() for name in (log.store, log.name)}
    absent = [store for store in options.stores if store not in there]
    if absent or not found:
        asked = f"no store {absent[0]!r} serves" if absent else "no store serves"
        text = f"{asked} {', '.join(options.filters)}: `heliograph store run` starts one"
        raise RefusedError(Reason.STORE_MISSING, text)
    return sorted(found.values(), key=lambda log: log.store)


def away(client: BlockingClient, options: SourceOptions) -> list[str]:
    """The names of stores that served some of the requested topics within the last hour, and are not there now."""
    found = {
        store.id: store.name
        for pattern in options.filters
        for store in client.stores(pattern, away=True)
        if _is_wanted(options, store.id, store.name)
    }
    return [found[store] or store for store in sorted(found)]


def check_none_away(client: BlockingClient, options: SourceOptions) -> None:
    """DataLossError if a store is away that this query would have read, unless that is allowed."""
    absent = away(client, options) if options.fail_on_loss else []
    if absent:
        raise DataLossError(
            f"store {absent[0]} is away, so that its rows would be missing: start it again, or set failOnDataLoss to "
            f"false to go on without it; `heliograph store forget {absent[0]}` says that it will not come back"
        )


def _is_wanted(options: SourceOptions, store: str, name: str) -> bool:
    return not options.stores or store in options.stores or name in options.stores


def missing(logs: Iterable[StoreLog], needed: Iterable[str]) -> list[str]:
    """The stores of ``needed`` that have none of these logs."""
    known = {log.store for log in logs}
    return [store for store in needed if store not in known]


def complete(logs: list[StoreLog], needed: Iterable[str]) -> list[StoreLog]:
    """The logs, if those of the needed stores are among them; otherwise RefusedError."""
    away = missing(logs, needed)
    if away:
        raise RefusedError(Reason.STORE_MISSING, f"store {away[0]} is away: start it again")
    return logs


def resolve(wanted: str | Offsets, logs: Sequence[StoreLog], otherwise: str = EARLIEST) -> Offsets:
    """Offsets as positions, by id of the store. ``otherwise`` is that of stores which are not named."""
    if isinstance(wanted, str):
        return {log.store: {LOG: _position(log, wanted)} for log in logs}
    check_stores(wanted, logs)
    return {
        log.store: {LOG: _position(log, wanted.get(log.store, wanted.get(log.name, {})).get(LOG, otherwise))}
        for log in logs
    }


def check_stores(named: Iterable[str], logs: Sequence[StoreLog]) -> None:
    """UsageError if one of these is neither the id nor the name of a store that is read."""
    known = [name for log in logs for name in (log.store, log.name) if name]
    unknown = [store for store in named if store not in known]
    if unknown:
        raise UsageError(f"offsets for the store {unknown[0]!r}, which is not read: there are {', '.join(known)}")


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


def behind(start: Offsets, known: Offsets) -> int:
    """How many positions there are from ``start`` to ``known``."""
    return sum(max(0, logs[LOG] - start.get(store, {}).get(LOG, 0)) for store, logs in known.items())


def unread(start: Offsets, end: Offsets) -> list[str]:
    """The stores of which something is to be read."""
    return [store for store in end if start.get(store) != end[store]]


def plan(
    options: SourceOptions, logs: Sequence[StoreLog], start: Offsets, end: Offsets, pieces: Pieces | None = None
) -> list[InputPartition]:
    """Ranges for tasks. DataLossError if something is no longer kept or its store is away, unless that is allowed.

    ``pieces``: where tasks end that have enough bytes.
    """
    ranges: list[InputPartition] = []
    total = behind(start, end)
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
            ends = [last] if pieces is None else pieces(log.store, first, last)
            begins = [first, *ends[:-1]]
            cuts = [*(cut for low, high in zip(begins, ends, strict=True) for cut in range(low, high, step)), last]
            since_ms = _time(log, options.since_ms_of, options.since_ms)
            until_ms = _time(log, options.until_ms_of, options.until_ms)
            ranges += [
                LogRange(log.store, log.address, low, high, since_ms, until_ms, log.filters)
                for low, high in pairwise(cuts)
            ]
    absent = missing(logs, unread(start, end))
    if absent and options.fail_on_loss:
        raise DataLossError(
            f"store {absent[0]}, of which this query has not read everything, is away: start it again, or set "
            "failOnDataLoss to false to go on without it"
        )
    return ranges


def _time(log: StoreLog, of_stores: Mapping[str, int], otherwise: int | None) -> int | None:
    return of_stores.get(log.store, of_stores.get(log.name, otherwise))


def _lost(options: SourceOptions, store: str, first: int, end: int) -> None:
    if options.fail_on_loss:
        raise DataLossError(
            f"store {store} no longer keeps positions {first} to {end - 1}, which this query has not read: set "
            "failOnDataLoss to false to go on without them, and give the query a reader so that retention waits"
        )
