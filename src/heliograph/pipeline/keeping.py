"""Keeping: what an archive knows of itself beside its checkpoint, and what follows for its next run.

In:    the checkpoint folder; the filters and the time that a run was given.
Out:   Keeping: its reader, since when, which filters from which positions on; what history it lacks, piece by piece.
State: the file ``heliograph.json`` in the checkpoint folder.
Not here: Spark's files there, but for reading offsets; the runs themselves (jobs.py, backfill.py).

The log of a store is divided into spans: in each, the archive had one set of filters. A filter lacks history if a span
that is over had none that covers it. Backfill brings what the stores still keep of these spans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from msgspec.structs import replace
from pyarrow import fs

from heliograph.errors import UsageError
from heliograph.model.topics import covers
from heliograph.pipeline.options import OWN_READER, Offsets
from heliograph.pipeline.places import uri

FILE = "heliograph.json"


class Span(msgspec.Struct, frozen=True):
    """Positions that were archived with the same filters."""

    filters: list[str]
    until: Offsets | None = None  # where the next one begins; None: it goes on


class Piece(msgspec.Struct, frozen=True):
    """A part of what is being backfilled, which becomes one batch."""

    store: str
    start: int
    end: int
    filters: list[str]
    excepted: list[str]


class Backfill(msgspec.Struct, frozen=True):
    """One that was begun: its pieces never change, so that it can be repeated after a crash."""

    number: int
    filters: list[str]
    pieces: list[Piece]


class Keeping(msgspec.Struct, frozen=True):
    """What an archive knows of itself."""

    reader: str
    spans: list[Span]  # the last one goes on
    since_ms: int | None = None
    backfill: Backfill | None = None
    backfills: int = 0  # how many were begun

    @property
    def filters(self) -> list[str]:
        """Those of now."""
        return self.spans[-1].filters

    def lacking(self) -> list[str]:
        """The filters of now that lack history."""
        return [each for each in self.filters if any(each in lacks(span, self.filters) for span in self.spans[:-1])]


def lacks(span: Span, filters: Sequence[str]) -> list[str]:
    """Those of the filters that nothing covers which the span had."""
    return [each for each in filters if not any(covers(had.encode(), each.encode()) for had in span.filters)]


class Checkpoint:
    """The folder of a query."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._files, self._base = fs.FileSystem.from_uri(uri(place))

    def load(self) -> Keeping | None:
        """What is known; None of an archive that has not begun, or began with an older version."""
        data = self._read(FILE)
        return None if data is None else msgspec.json.decode(data, type=Keeping)

    def save(self, keeping: Keeping) -> None:
        """Replace what is known."""
        self._files.create_dir(self._base, recursive=True)
        with self._files.open_output_stream(f"{self._base}/{FILE}.new") as out:
            out.write(msgspec.json.format(msgspec.json.encode(keeping)))
        self._files.move(f"{self._base}/{FILE}.new", f"{self._base}/{FILE}")

    def committed(self) -> tuple[Offsets | None, int | None]:
        """Up to where batches are done, and the number of one that was begun after that."""
        begun, done = (self._numbers(name) for name in ("offsets", "commits"))
        return (self._offsets(done[-1]) if done else None), begun[-1] if begun and begun[-1:] != done[-1:] else None

    def _offsets(self, number: int) -> Offsets:
        """Spark's file has a version, a line about the batch, and then a line for each source."""
        data = self._read(f"offsets/{number}")
        if data is None:
            raise UsageError(f"{self.place}/offsets/{number} is not there: it belongs to the checkpoint")
        found: Offsets = json.loads(data.decode().splitlines()[2])
        return found

    def _numbers(self, name: str) -> list[int]:
        found = self._files.get_file_info(fs.FileSelector(f"{self._base}/{name}", allow_not_found=True))
        return sorted(int(info.base_name) for info in found if info.base_name.isdigit())

    def _read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._base}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None


def prepared(
    checkpoint: Checkpoint,
    filters: Sequence[str],
    since_ms: int | None,
    reader: str = "",
    has_rows: Callable[[int], bool] = lambda number: True,
) -> Keeping:
    """What is known before the next run, which has these filters. UsageError if it cannot be made with them.

    ``has_rows``: whether some table has rows of a batch that was not finished.
    """
    known = checkpoint.load()
    done, begun = checkpoint.committed()
    is_begun = begun is not None and has_rows(begun)
    if known is None:
        if since_ms is not None and (done is not None or is_begun):
            raise UsageError("this archive has begun: --since is for its first run")
        return Keeping(reader or f"{OWN_READER}{token_hex(6)}", [Span([*filters])], since_ms)
    if since_ms is not None and since_ms != known.since_ms and (done is not None or is_begun):
        raise UsageError("this archive has begun with another time, or none: --since is for its first run")
    known = replace(known, reader=reader or known.reader)
    if set(filters) == set(known.filters):
        return known
    if done is None and not is_begun:
        return replace(known, spans=[Span([*filters])], since_ms=known.since_ms if since_ms is None else since_ms)
    if is_begun:
        former = ",".join(known.filters)
        raise UsageError(
            f"the last batch of this archive was not finished: run it once with --filter '{former}', as before, and "
            "then with other filters"
        )
    assert done is not None
    last = replace(known.spans[-1], until=done)
    return replace(known, spans=[*known.spans[:-1], last, Span([*filters])])


def backfilled(keeping: Keeping) -> Keeping:
    """The backfill is done."""
    assert keeping.backfill is not None
    brought = keeping.backfill.filters
    spans = [
        replace(span, filters=[*span.filters, *lacks(span, brought)]) if span.until is not None else span
        for span in keeping.spans
    ]
    return replace(keeping, spans=spans, backfill=None)


def options_of(piece: Piece, keeping: Keeping) -> dict[str, Any]:
    """A piece as options of the source."""
    offsets = ({piece.store: {"0": at}} for at in (piece.start, piece.end))
    start, end = map(json.dumps, offsets)
    since = {} if keeping.since_ms is None else {"startingTimestamp": str(keeping.since_ms)}
    return since | {
        "store": piece.store,
        "startingOffsets": start,
        "endingOffsets": end,
        "subscribe": ",".join(piece.filters),
        "except": ",".join(piece.excepted),
        "failOnDataLoss": "false",  # it brings what the store still keeps
    }
