"""Archiving: what is decided before the archive runs, without Spark, and how its errors name the command's options.

In:    the options of the source; the filters, the time and the reader that the command was given.
Out:   Archiving: the options of this run, what the archive knows of itself; errors in the words of the command.
State: none but the file beside the checkpoint (keeping.py).
Not here: the stream (archive.py), bringing history (backfill.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from heliograph.errors import HeliographError, UsageError
from heliograph.pipeline.archive import CHECKPOINT, query_id
from heliograph.pipeline.keeping import Checkpoint, Keeping, prepared
from heliograph.pipeline.offsets import away, check_none_away, list_logs
from heliograph.pipeline.options import SourceOptions, read_options
from heliograph.pipeline.plain import PipelineError
from heliograph.pipeline.tables import LakeTables, moment

Say = Callable[[str], None]
BYTES_PER_BATCH = 1 << 30
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAMED = (  # what errors of the source say, and what the command says instead
    (r"set failOnDataLoss to\s+false to go on without", "--skip-lost goes on without"),
    (r", and give the query a reader so that retention waits", ""),
    (r"(some publications of .* are withheld from \S+)", r"\1: show an identity that may read them, leave them out by "
     r"--filter, or go on without them by --skip-withheld"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Archiving:
    """One run of the archive."""

    checkpoint: Checkpoint
    keeping: Keeping
    options: dict[str, str]  # of the source


def begin(
    root: str,
    options: Mapping[str, str],
    say: Say,
    *,
    checkpoint: str = "",
    since: str = "",
    reader: str = "",
    holds: bool = True,
    backfills: bool = False,
) -> Archiving:
    """Check that everything can be read, and note what this run has. ``holds``: retention waits for its reader."""
    tables = LakeTables(root)
    place = checkpoint_of(root, checkpoint)
    read = read_options(options, True)

    def has_rows(batch: int) -> bool:
        query = query_id(place.place)
        return any(tables.has(name, f"{query}/{name}", batch) for name in tables.names())

    since_ms = int(moment(since).timestamp() * 1_000) if since else None
    keeping = prepared(place, read.filters, since_ms, reader, has_rows)
    _check(read, say)
    if not backfills:
        _say_what_is_lacking(keeping, say)
    place.save(keeping)
    own = dict(options) | ({"reader": keeping.reader} if holds else {})
    if keeping.since_ms is not None:
        own["startingTimestamp"] = str(keeping.since_ms)
    return Archiving(place, keeping, own)


def checkpoint_of(root: str, checkpoint: str = "") -> Checkpoint:
    """The checkpoint of an archive; by default that below its tables."""
    return Checkpoint(checkpoint or f"{LakeTables(root).root}/{CHECKPOINT}")


def _check(read: SourceOptions, say: Say) -> None:
    """An error if a filter may not be read, or a store is away; unless that is allowed, when its name is told."""
    with read.connect() as client:
        check_none_away(client, read)
        for name in away(client, read):
            say(f"store {name} is away: what it keeps is left out until it is back")
        for log in list_logs(client, read):
            here = {log.store: log.next}
            for pattern in log.filters:
                client.replay(pattern, store=log.store, position=here, end=here).close()


def _say_what_is_lacking(keeping: Keeping, say: Say) -> None:
    lacking = ", ".join(keeping.lacking())
    if keeping.backfill is not None:
        say("a backfill was not finished: --backfill goes on with it")
    elif lacking:
        say(f"{lacking} has no history before this filter was given: --backfill brings what stores still keep of it")


def bytes_of(text: str) -> int:
    """A number of bytes, such as 67108864 or 64M."""
    found = re.fullmatch(r"([0-9]+)([KMGT]?)", text.upper())
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is not a number of bytes, such as 67108864 or 64M")
    return int(found[1]) * _SIZES[found[2]]


@contextmanager
def naming_options() -> Iterator[None]:
    """Errors name the options of the command, rather than those of the source."""
    try:
        yield
    except HeliographError as error:
        text = told = str(error)
        for pattern, named in _NAMED:
            told = re.sub(pattern, named, told)
        if told == text:
            raise
        raise PipelineError(told) from error
