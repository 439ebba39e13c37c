"""Historic subscriptions: which archived events a subscription would have received.

In:    a table of events (topic, headers, value), and subscriptions: id, filter, language, where.
Out:   match(): a table with one row per event and subscription that accepts it.
State: in each Python worker the latest matchers, each built once.
Not here: the matching itself (matching/bulk.py), sending the result to a subscriber (cli/pipeline.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heliograph.errors import UsageError
from heliograph.matching.boxes.batch import EventColumn, NumberColumn, ValueColumn, WordColumn
from heliograph.matching.bulk import BulkMatcher
from heliograph.matching.condition import Condition, Event
from heliograph.matching.languages import compile
from heliograph.model.topics import filter_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUBSCRIPTIONS_MAX = 2_000_000
MATCHERS_MAX = 2  # kept in a worker
KEY = ("store", "partition", "offset")  # identifies an event

Subscription = tuple[str, str, str, str]
"""Id, topic filter, language and condition (both may be empty)."""

_Packed = tuple[str, str, Condition | None, str, str]
"""Id, topic filter, condition; or language and text of a condition that tasks read themselves."""

_matchers: dict[str, tuple[BulkMatcher, pa.Array]] = {}


def match(
    events: DataFrame,
    subscriptions: Iterable[Subscription],
    *,
    keep: Sequence[str] = KEY,
    typed: Sequence[str] = (),
) -> DataFrame:
    """One row per event and subscription: ``subscription``, then the columns of the event to keep.

    ``typed`` names columns of ``events`` that hold the attributes of these names; otherwise headers are read.
    """
    wanted = list(subscriptions)
    if len(wanted) > SUBSCRIPTIONS_MAX:
        raise UsageError(f"{len(wanted):,} subscriptions at once; at most {SUBSCRIPTIONS_MAX:,}")
    packed = pickle.dumps([_checked(each) for each in wanted])
    number = sha256(packed).hexdigest()
    used = dict.fromkeys(("topic", "headers", "value", *keep, *typed))
    there = [name for name in used if name in events.columns]
    schema = "subscription string, " + ", ".join(
        f"`{name}` {events.schema[name].dataType.simpleString()}" for name in keep
    )

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher, ids = _matcher(number, packed)
        for batch in batches:
            found, places = match_batch(matcher, batch, typed)
            kept = [batch.column(name).take(pa.array(found)) for name in keep]
            yield pa.RecordBatch.from_arrays([ids.take(pa.array(places)), *kept], ["subscription", *keep])

    return events.select(*there).mapInArrow(run, schema)


def _checked(subscription: Subscription) -> _Packed:
    """A subscription for tasks; mistakes are reported here, not there.

    Its condition is read once, here, unless it has a residue: that may hold what cannot be sent, such as a compiled
    expression of another library.
    """
    id, pattern, language, where = subscription
    fault = filter_fault(pattern.encode())
    if fault is not None:
        raise UsageError(f"subscription {id!r}: the filter {pattern!r}: {fault}")
    condition = compile(language or "predicates", where) if where else None
    is_plain = condition is None or condition.residue is None
    return (id, pattern, condition, "", "") if is_plain else (id, pattern, None, language or "predicates", where)


def match_batch(matcher: BulkMatcher, batch: pa.RecordBatch, typed: Sequence[str] = ()) -> tuple[Any, Any]:
    """Pairs of row numbers of a batch and indexes of subscriptions."""
    encoded = pc.dictionary_encode(batch.column("topic"))
    topics = [topic.encode() for topic in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    columns: dict[str, EventColumn] | None = None
    if typed:
        columns = {name: column_of(batch.column(name)) for name in typed}
    return matcher.match(topics, codes, _EventReader(batch).read, columns)


def column_of(values: pa.Array) -> EventColumn:
    """A Spark column in the form that the index reads."""
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        present = np.asarray(values.is_valid())
        filled = values.fill_null(0).to_numpy(zero_copy_only=False)
        return NumberColumn(filled if filled.dtype.kind in "fi" else filled.astype(np.int64), present)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        encoded = pc.dictionary_encode(values)
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return WordColumn(codes, encoded.dictionary.to_pylist())
    return ValueColumn(values.to_pylist())


class _EventReader:
    """The events of a batch, each decoded once, when it is first needed."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._columns: Mapping[str, Any] = {
            name: batch.column(name) for name in ("topic", "headers", "value") if name in batch.schema.names
        }
        self._rows: dict[str, list[Any]] = {}
        self._events: dict[int, Event] = {}

    def read(self, place: int) -> Event:
        event = self._events.get(place)
        if event is None:
            topic, headers, value = (self._value(name, place) for name in ("topic", "headers", "value"))
            event = self._events[place] = Event(topic.encode(), (headers or "").encode(), value or b"")
        return event

    def _value(self, name: str, place: int) -> Any:
        if name not in self._columns:
            return None
        rows = self._rows.get(name)
        if rows is None:
            rows = self._rows[name] = self._columns[name].to_pylist()
        return rows[place]


def _matcher(number: str, packed: bytes) -> tuple[BulkMatcher, pa.Array]:
    """The matcher of these subscriptions, built once in this worker, and their ids."""
    found = _matchers.get(number)
    if found is None:
        while len(_matchers) >= MATCHERS_MAX:
            del _matchers[next(iter(_matchers))]
        subscriptions: list[_Packed] = pickle.loads(packed)  # noqa: S301 our own driver packed it
        matcher = BulkMatcher(
            [
                (pattern.encode(), compile(language, where) if where else condition)
                for _, pattern, condition, language, where in subscriptions
            ]
        )
        found = _matchers[number] = (matcher, pa.array([id for id, *_ in subscriptions], pa.string()))
    return found
