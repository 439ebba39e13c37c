"""Options of the source and the sink, read and checked in one place.

In:    what a program passed to ``.option(…)``. Names are case-insensitive, as in Spark.
Out:   SourceOptions, with a client for the driver and for tasks.
State: none. It is sent to tasks, so it holds plain values: names of files, never secrets.
Not here: which options there are (option_names.py), how they are used (source.py, sink.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heliograph.errors import UsageError
from heliograph.matching.languages import compile
from heliograph.matching.languages.patterns import pattern as check_pattern
from heliograph.model.topics import filter_fault
from heliograph.pipeline.created_topics import show_rights
from heliograph.pipeline.option_names import BATCH, STREAM, TABLE, check_names, written
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
RANGE_POSITIONS = 250_000  # that one task reads by default
OWN_READER = "archive-"  # how the names of readers begin that archives give themselves
TIMEOUT_S = 10.0
DELAY_S = 15 * 60  # as of Spark's Kafka source: the longest that a micro-batch waits for enough positions
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}

Offsets = dict[str, dict[str, int]]
"""Store -> log -> the next position."""
LOG = "0"  # a store has one log today; its number is the partition


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a program."""

    filters: tuple[str, ...] = ("#",)
    pattern: str = ""
    excepted: tuple[str, ...] = ()  # filters, whose publications are left out
    starting: str | Offsets = EARLIEST
    ending: str | Offsets = LATEST
    since_ms: int | None = None
    until_ms: int | None = None
    since_ms_of: Mapping[str, int] = field(default_factory=dict)  # of one store, by name or id; before ``since_ms``
    until_ms_of: Mapping[str, int] = field(default_factory=dict)
    positions_max: int | None = None  # per micro-batch
    positions_min: int | None = None  # the same; fewer wait, at most ``delay_s``
    delay_s: float = DELAY_S
    bytes_max: int | None = None  # per micro-batch
    partitions_min: int = 1
    fail_on_loss: bool = True
    fail_on_withheld: bool = False
    stores: tuple[str, ...] = ()  # by name or id; empty: all
    where: str = ""
    language: str = ""
    columns: tuple[str, ...] = ()
    attributes: str = ""
    reader: str = ""
    secret_file: str = ""  # with a reader or publisher, and without credentials: the secret of its name
    patience_s: int = PATIENCE_S  # with a store or broker that is away
    connection: Mapping[str, str] = field(default_factory=dict)
    grants: tuple[str, ...] = ()  # files
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
        client = connect_blocking(where, name="spark", timeout=timeout, give_up=give_up, **options)
        try:
            if self.grants or "certificate" in given:  # who is not proven has no right
                show_rights(client, self.filters, self.grants)
        except BaseException:
            client.close()
            raise
        return client


def read_options(given: Mapping[str, str], streaming: bool, use: str = "") -> SourceOptions:
    """Check all options; errors are reported in one line. ``use``, if it is not reading: see option_names.py."""
    words = {name.lower(): value for name, value in given.items()}
    check_names(words, use or (STREAM if streaming else BATCH))
    filters, excepted, stores = (_listed(words, name) for name in ("subscribe", "except", "store"))
    filters = filters if "subscribe" in words else ("#",)
    for each in (*filters, *excepted):
        fault = filter_fault(each.encode())
        if fault is not None:
            raise UsageError(f"subscribe: {each!r}: {fault}")
    where, language = words.get("where", ""), words.get("language", "")
    if where:
        compile(language or "predicates", where)
    pattern = words.get("subscribepattern", "")
    try:
        check_pattern(pattern)
    except ValueError as error:
        raise UsageError(f"subscribePattern: {error}") from None
    columns, attributes = _columns(words)
    patience_s = read_number(words, "patience")
    read = SourceOptions(
        filters=filters,
        excepted=excepted,
        pattern=pattern,
        starting=_offsets(words, "startingoffsets", LATEST if streaming else EARLIEST),
        ending=_offsets(words, "endingoffsets", LATEST),
        since_ms=read_number(words, "startingtimestamp"),
        until_ms=read_number(words, "endingtimestamp"),
        since_ms_of=_times(words, "startingoffsetsbytimestamp"),
        until_ms_of=_times(words, "endingoffsetsbytimestamp"),
        positions_max=read_number(words, "maxoffsetspertrigger", least=1),
        positions_min=read_number(words, "minoffsetspertrigger", least=1),
        delay_s=_duration(words, "maxtriggerdelay", DELAY_S),
        bytes_max=read_number(words, "maxbytespertrigger", least=1),
        partitions_min=read_number(words, "minpartitions", least=1) or 1,
        fail_on_loss=_flag(words, "failondataloss", True),
        fail_on_withheld=_flag(words, "failonwithheld", False),
        stores=stores,
        where=where,
        language=language,
        columns=columns,
        attributes=attributes,
        reader=words.get("reader", ""),
        secret_file=words.get("secretfile", ""),
        patience_s=PATIENCE_S if patience_s is None else patience_s,
        connection={name: words[name] for name in CONNECTION if name in words},
        grants=tuple(filter(None, (each.strip() for each in words.get("grants", "").split(",")))),
    )
    if not use:
        _check_sense(read, streaming, words)
    return read


def schema_for(given: Mapping[str, str]) -> pa.Schema:
    """The schema of the rows, for a batch or a stream: Spark asks before it says which."""
    words = {name.lower(): value for name, value in given.items()}
    check_names(words, TABLE)
    columns, attributes = _columns(words)
    return schema_of(columns, parse_attributes(attributes))


def _columns(words: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The columns, and the attributes as they were given."""
    columns = [each.strip() for each in words.get("columns", "").split(",") if each.strip()]
    if not columns:
        columns = [name for name in COLUMNS if name != "headers" or _flag(words, "includeheaders", True)]
    attributes = words.get("attributes", "")
    schema_of(columns, parse_attributes(attributes))
    return tuple(columns), attributes


def _check_sense(read: SourceOptions, streaming: bool, words: Mapping[str, str]) -> None:
    """UsageError for what could be read, and cannot be meant."""
    if not streaming and _has(read.starting, LATEST, -1):
        raise UsageError("startingOffsets: a batch that begins with the latest has no rows")
    if not streaming and _has(read.ending, EARLIEST, -2):
        raise UsageError("endingOffsets: a batch that ends with the earliest has no rows")
    if read.since_ms is not None and read.until_ms is not None and read.since_ms > read.until_ms:
        raise UsageError("startingTimestamp is later than endingTimestamp")
    if read.positions_min is not None and read.positions_max is not None and read.positions_min > read.positions_max:
        raise UsageError("minOffsetsPerTrigger is higher than maxOffsetsPerTrigger")
    if "maxtriggerdelay" in words and read.positions_min is None:
        raise UsageError("maxTriggerDelay needs minOffsetsPerTrigger: without it, no micro-batch waits")
    if read.secret_file and not read.reader:
        raise UsageError("secretFile needs the option reader: it has the secret of that name")
    if "language" in words and not read.where:
        raise UsageError("language needs the option where: the condition in that language")


def _has(at: str | Offsets, word: str, number: int) -> bool:
    return at == word if isinstance(at, str) else any(number in logs.values() for logs in at.values())


def _listed(words: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in words.get(name, "").split(","))))


def _flag(words: Mapping[str, str], name: str, default: bool) -> bool:
    value = words.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise UsageError(f"{written(name)} must be true or false, not {value!r}")
    return value == "true"


def read_number(words: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """An option that is a number; None if it was not given."""
    text = words.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise UsageError(f"{written(name)} must be a number from {least} on, not {text!r}")
    return int(text)


def _offsets(words: Mapping[str, str], name: str, default: str) -> str | Offsets:
    text = words.get(name, default)
    if text in (EARLIEST, LATEST):
        return text
    return _by_store(words, name, '"earliest", "latest" or JSON such as {"STORE": {"0": 17}}')


def _times(words: Mapping[str, str], name: str) -> dict[str, int]:
    """Times in milliseconds, by name or id of a store."""
    found = _by_store(words, name, 'JSON such as {"STORE": {"0": 1763500000000}}') if name in words else {}
    return {store: logs[LOG] for store, logs in found.items() if logs}


def _by_store(words: Mapping[str, str], name: str, like: str) -> Offsets:
    try:
        found = json.loads(words[name])
        numbers = {store: {str(log): int(at) for log, at in logs.items()} for store, logs in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f"{written(name)} must be {like}, not {words[name][:80]!r}") from None
    for store, logs in numbers.items():
        if set(logs) - {LOG}:
            raise UsageError(f"{written(name)}: store {store} has one log, {LOG!r}, and not {', '.join(logs)}")
    return numbers


def _duration(words: Mapping[str, str], name: str, default: float) -> float:
    """Seconds; as in Spark, a number without a unit is milliseconds."""
    if name not in words:
        return default
    found = re.fullmatch(r"([0-9]+) *(ms|s|m|min|h|d)?", words[name].strip())
    if found is None:
        raise UsageError(f"{written(name)} must be a time such as 90s, 15m or 2h, not {words[name]!r}")
    return int(found[1]) * _SECONDS[found[2] or "ms"]
