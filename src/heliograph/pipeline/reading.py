"""Reading: what a task does with its range of a store's log.

In:    options, a range.
Out:   Arrow batches, read directly from the store.
State: a client, for as long as the task runs.
Not here: which ranges there are (offsets.py), frames to columns (rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from heliograph.client.config import SECURE
from heliograph.model.topics import matches
from heliograph.pipeline.offsets import DataLossError, LogRange, complete, list_logs
from heliograph.pipeline.options import SourceOptions
from heliograph.pipeline.patience import patiently
from heliograph.pipeline.payloads.decoding import with_payloads
from heliograph.pipeline.rows import UNKNOWN, matching, parse_attributes, to_batch

if TYPE_CHECKING:
    from heliograph.model.publication import StoredRun

BATCH_BYTES = 2 << 20  # of frames that become one Arrow batch: it stays in the caches of the processes it passes


def read_range(options: SourceOptions, part: LogRange) -> Iterator[pa.RecordBatch]:
    """The rows of one range, in large batches."""
    attributes = parse_attributes(options.attributes)
    with options.connect(addresses(part.address, options), patiently=True) as client:
        patiently(lambda: complete(list_logs(client, options), [part.store]), options.patience_s)
        filters = part.filters or options.filters  # the store would refuse others
        for number, pattern in enumerate(filters):
            reading = client.replay(
                pattern,
                where=options.where,
                language=options.language,
                store=part.store,
                position={part.store: part.start},
                end={part.store: part.end},
                since=None if part.since_ms is None else part.since_ms / 1_000,
                until=None if part.until_ms is None else part.until_ms / 1_000,
                times="stored" in options.columns,
                whole=options.fail_on_withheld,
                raw=True,
            )
            with reading as runs:
                for data, positions, taken in _joined(cast("Iterable[StoredRun]", runs)):
                    batch = to_batch(part.store, data, positions, _read_columns(options), attributes, taken=taken)
                    batch = _once(batch, (*options.excepted, *filters[:number]), options.pattern)
                    batch = batch if len(batch.schema) == len(options.schema) else batch.select(options.schema.names)
                    yield from with_payloads(batch, options.payload)
                if runs.lost and options.fail_on_loss:
                    raise DataLossError(
                        f"store {part.store} cannot read {runs.lost} of the positions {part.start} to {part.end - 1}: "
                        "they are damaged, or no longer kept; set failOnDataLoss to false to go on without them"
                    )


def addresses(address: str, options: SourceOptions) -> list[str]:
    """Where a task connects: the store's broker first, unless that would give up TLS; then the configured one."""
    given = options.connection.get("url", "")
    is_downgrade = given.startswith(f"{SECURE}://") and not address.startswith(f"{SECURE}://")
    near = [] if is_downgrade or not address else [address]
    return [*near, *([given] if given and given not in near else [])]


def _read_columns(options: SourceOptions) -> list[str]:
    needed = ["topic"] if options.pattern or options.excepted or len(options.filters) > 1 else []
    return [*options.columns, *(name for name in needed if name not in options.columns)]


def _joined(runs: Iterable[StoredRun]) -> Iterator[tuple[list[bytes], list[Sequence[int]], list[tuple[int, int]]]]:
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
