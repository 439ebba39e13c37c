"""Options of the source and the sink, read and checked in one place.

In:    what a program passed to ``.option(…)``. Names are case-insensitive, as in Spark.
Out:   SourceOptions, with a client for the driver and for tasks.
State: none. It is sent to tasks, so it holds plain values: names of files, never secrets.
Not here: how they are used (source.py, sink.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heliograph.errors import UsageError
from heliograph.matching.languages import compile
from heliograph.matching.languages.patterns import pattern as check_pattern
from heliograph.model.topics import filter_fault
from heliograph.pipeline.patience import PATIENCE_S
from heliograph.pipeline.payloads.formats import PayloadSchema
from heliograph.pipeline.rows import COLUMNS, parse_attributes, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

    from heliograph.live.blocking import BlockingClient

EARLIEST, LATEST = "earliest", "latest"
CONNECTION = {
    "url": "",
    "network": "network",
    "entity": "entity",
    "tokenfile": "token_file",
    "authority": "authority",
    "certificate": "certificate",
    "key": "key",
}
KNOWN = (
    *("subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "includeHeaders", "store", "where", "language"),
    *("columns", "attributes", "reader", "secretFile", "patience", "decode", "payloadSchema"),
    *("url", "network", "entity", "tokenFile", "authority", "certificate", "key"),
    *("publisher", "topic", "batch", "checkpointLocation", "path"),
)
RANGE_POSITIONS = 250_000  # that one task reads by default
TIMEOUT_S = 10.0

Offsets = dict[str, dict[str, int]]
"""Store -> log -> the next position."""
LOG = "0"  # a store has one log today; its number is the partition


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a program."""

    filters: tuple[str, ...] = ("#",)
    pattern: str = ""
    starting: str | Offsets = EARLIEST
    ending: str | Offsets = LATEST
    since_ms: int | None = None
    until_ms: int | None = None
    positions_max: int | None = None  # per micro-batch
    partitions_min: int = 1
    fail_on_loss: bool = True
    store: str = ""
    where: str = ""
    language: str = ""
    columns: tuple[str, ...] = ()
    attributes: str = ""
    reader: str = ""
    secret_file: str = ""  # with a reader or publisher, and without credentials: the secret of its name
    patience_s: int = PATIENCE_S  # with a store or broker that is away
    connection: Mapping[str, str] = field(default_factory=dict)
    payload: PayloadSchema | None = None  # with what payloads are decoded; it is found later than the rest

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return schema_of(self.columns, parse_attributes(self.attributes))

    def connect(self, urls: Sequence[str] = (), *, patiently: bool = False) -> BlockingClient:
        """A client at the configured broker or, if others are given, at the first of those that answers.

        ``patiently``: it waits for a broker as long as the options say, now and later, and then fails.
        """
        from heliograph.live.blocking import connect_blocking

        given = self.connection
        options: dict[str, Any] = {known: given[name] for name, known in CONNECTION.items() if known and name in given}
        where = list(urls) or given.get("url") or None
        give_up = max(1, self.patience_s) if patiently else None
        timeout = TIMEOUT_S if give_up is None else max(TIMEOUT_S, give_up)
        return connect_blocking(where, name="spark", timeout=timeout, give_up=give_up, **options)


def read_options(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Check all options; errors are reported in one line."""
    words = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(words) - {name.lower() for name in KNOWN})
    if unknown:
        raise UsageError(f"the option {unknown[0]!r} is not known; there are {', '.join(KNOWN)}")
    filters = tuple(filter(None, (each.strip() for each in words.get("subscribe", "#").split(","))))
    for each in filters:
        fault = filter_fault(each.encode())
        if fault is not None:
            raise UsageError(f"subscribe: {each!r}: {fault}")
    where, language = words.get("where", ""), words.get("language", "")
    if where:
        compile(language or "predicates", where)
    columns = [each.strip() for each in words.get("columns", "").split(",") if each.strip()]
    if not columns:
        columns = [name for name in COLUMNS if name != "headers" or _flag(words, "includeheaders", True)]
    pattern = words.get("subscribepattern", "")
    try:
        check_pattern(pattern)
    except ValueError as error:
        raise UsageError(f"subscribePattern: {error}") from None
    attributes = words.get("attributes", "")
    schema_of(columns, parse_attributes(attributes))
    patience_s = read_number(words, "patience")
    return SourceOptions(
        filters=filters,
        pattern=pattern,
        starting=_offsets(words, "startingoffsets", LATEST if streaming else EARLIEST),
        ending=_offsets(words, "endingoffsets", LATEST),
        since_ms=read_number(words, "startingtimestamp"),
        until_ms=read_number(words, "endingtimestamp"),
        positions_max=read_number(words, "maxoffsetspertrigger", least=1),
        partitions_min=read_number(words, "minpartitions", least=1) or 1,
        fail_on_loss=_flag(words, "failondataloss", True),
        store=words.get("store", ""),
        where=where,
        language=language,
        columns=tuple(columns),
        attributes=attributes,
        reader=words.get("reader", ""),
        secret_file=words.get("secretfile", ""),
        patience_s=PATIENCE_S if patience_s is None else patience_s,
        connection={name: words[name] for name in CONNECTION if name in words},
    )


def _flag(words: Mapping[str, str], name: str, default: bool) -> bool:
    value = words.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise UsageError(f"{_known(name)} must be true or false, not {value!r}")
    return value == "true"


def read_number(words: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """An option that is a number; None if it was not given."""
    text = words.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise UsageError(f"{_known(name)} must be a number from {least} on, not {text!r}")
    return int(text)


def _offsets(words: Mapping[str, str], name: str, default: str) -> str | Offsets:
    text = words.get(name, default)
    if text in (EARLIEST, LATEST):
        return text
    try:
        found = json.loads(text)
        offsets = {store: {str(log): int(at) for log, at in logs.items()} for store, logs in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'{_known(name)} must be "earliest", "latest" or JSON such as {{"STORE": {{"0": 17}}}}, not {text[:80]!r}'
        ) from None
    for store, logs in offsets.items():
        if set(logs) - {LOG}:
            raise UsageError(f"{_known(name)}: store {store} has one log, {LOG!r}, and not {', '.join(logs)}")
    return offsets


def _known(name: str) -> str:
    """An option as the documentation writes it."""
    return next(known for known in KNOWN if known.lower() == name)
