"""Names of options: which there are, for what each is meant, and what to say of others.

In:    the names of options that a program gave, and what it does with the source or the sink.
Out:   UsageError in one line for a name that is unknown, or means nothing there; a name as the documentation writes it.
State: none.
Not here: what is behind the names (options.py, sink.py).

What Spark's Kafka source refuses is refused here too: an option that has no effect is a mistake about what a query
does.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.errors import UsageError

_SHARED = ("url", "network", "entity", "tokenFile", "authority", "certificate", "key", "store", "patience")
_READ = (
    *("subscribe", "subscribePattern", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("minPartitions", "failOnDataLoss", "includeHeaders", "where", "language", "columns", "attributes"),
    *("except", "failOnWithheld", "grants", "decode", "payloadSchema"),
)
_READ_ONCE = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_READ_ON = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "reader", "secretFile"),
)
_WRITE = ("publisher", "topic", "keyHeader", "secretFile")

BATCH, STREAM, TABLE = "a batch", "a stream", "a batch or a stream"
BATCH_SINK, STREAM_SINK = "a batch that is written", "a stream that is written"
USES = {
    BATCH: (*_SHARED, *_READ, *_READ_ONCE),
    STREAM: (*_SHARED, *_READ, *_READ_ON),
    TABLE: (*_SHARED, *_READ, *_READ_ONCE, *_READ_ON),  # of which only the columns are asked for
    BATCH_SINK: (*_SHARED, *_WRITE, "batch"),
    STREAM_SINK: (*_SHARED, *_WRITE, "checkpointLocation"),
}
SAMPLED = [
    name.lower() for name in (*_SHARED, "subscribe", "subscribePattern", "where", "language")
]  # as to read a few
KNOWN = tuple(dict.fromkeys(name for names in USES.values() for name in names))
_HINTS = {
    "assign": "a store has one log, so the option store says which are read",
    "kafka.bootstrap.servers": "the option url says which broker",
    "batch": "Spark numbers the batches of a stream",
    "kafka.group.id": "the option reader names a durable subscription, which holds retention back",
    "path": "the option subscribe says what is read, and the options store and topic where rows go",
    "endingoffsets": 'a stream ends when it is stopped, or with trigger(availableNow=True) when all that is there '
    "has been read",
}  # fmt: skip
_HINTS |= {"endingtimestamp": _HINTS["endingoffsets"], "endingoffsetsbytimestamp": _HINTS["endingoffsets"]}


def check_names(given: Iterable[str], use: str) -> None:
    """UsageError if one of these, in lower case, is not an option of this use."""
    allowed = [name.lower() for name in USES[use]]
    for name in sorted(given):
        if name in allowed:
            continue
        hint = f": {_HINTS[name]}" if name in _HINTS else ""
        if name in (each.lower() for each in KNOWN):
            raise UsageError(f"the option {written(name)} means nothing for {use}{hint}")
        raise UsageError(f"the option {name!r} is not known{hint or '; there are ' + ', '.join(USES[use])}")


def written(name: str) -> str:
    """An option as the documentation writes it."""
    return next(known for known in KNOWN if known.lower() == name)
