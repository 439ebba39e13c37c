"""Backfill: what an archive lacks because its filters were narrower once, as far as stores still keep it.

In:    a run of the archive (archiving.py); a client for the sizes of ranges.
Out:   rows in the tables, each once, however often it is tried.
State: none; the pieces, and which filters lack nothing any longer, are in the Keeping.
Not here: what is lacking (keeping.py), how rows become those of tables (archive.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from heliograph.errors import UsageError
from heliograph.pipeline import archive
from heliograph.pipeline.archiving import Archiving
from heliograph.pipeline.decoded_tables import DecodedTables
from heliograph.pipeline.keeping import Backfill, Keeping, Piece, backfilled, lacks, options_of
from heliograph.pipeline.offsets import StoreLog, list_logs, missing
from heliograph.pipeline.options import LOG, Offsets, read_options
from heliograph.pipeline.sizes import cut
from heliograph.pipeline.tables import LakeTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from heliograph.live.blocking import BlockingClient

Say = Callable[[str], None]


def run(
    spark: SparkSession,
    tables: LakeTables,
    begun: Archiving,
    piece_bytes: int,
    say: Say,
    decoded: DecodedTables | None = None,
) -> None:
    """Bring what is lacking, or what is left of a backfill that was begun."""
    keeping, options = begun.keeping, begun.options
    if keeping.backfill is None:
        if not keeping.lacking():
            say("no filter lacks history: there is nothing to backfill")
            return
        keeping = _begun(keeping, options, piece_bytes)
        begun.checkpoint.save(keeping)
    todo = keeping.backfill
    assert todo is not None
    query = f"{archive.query_id(begun.checkpoint.place)}/backfill-{todo.number}"
    for number, piece in enumerate(todo.pieces):
        reading = spark.read.format("heliograph").options(**_shared(options), **options_of(piece, keeping))
        counts = archive.add(reading.load(), tables, query, number, decoded)
        if counts:
            told = ", ".join(f"{name} +{count:,}" for name, count in counts.items())
            say(f"backfill {number + 1} of {len(todo.pieces)}: {told}")
    begun.checkpoint.save(backfilled(keeping))


def _begun(keeping: Keeping, options: Mapping[str, str], piece_bytes: int) -> Keeping:
    """The pieces of what is lacking; all stores must be there to tell their sizes."""
    wanted = keeping.lacking()
    with read_options(_shared(options), False).connect() as client:
        pieces = list(_pieces(client, keeping, wanted, options, piece_bytes))
    number = keeping.backfills + 1
    return replace(keeping, backfill=Backfill(number, wanted, pieces), backfills=number)


def _pieces(
    client: BlockingClient, keeping: Keeping, wanted: list[str], options: Mapping[str, str], piece_bytes: int
) -> Iterator[Piece]:
    before: Offsets = {}
    for span in keeping.spans[:-1]:
        assert span.until is not None
        filters = lacks(span, wanted)
        if filters:
            logs = list_logs(client, read_options({**_shared(options), "subscribe": ",".join(filters)}, False))
            absent = missing(logs, span.until)
            served = {store for store in absent if any(store == one.id for one in client.stores(away=True))}
            if served:
                raise UsageError(f"store {min(served)} is away: start it again, then backfill what it keeps")
            for log in logs:
                yield from _of(client, log, before, span.until, filters, span.filters, piece_bytes)
        before = span.until


def _of(
    client: BlockingClient, log: StoreLog, before: Offsets, until: Offsets, filters: list[str], had: list[str],
    piece_bytes: int,
) -> Iterator[Piece]:  # fmt: skip
    end = min(log.next, until.get(log.store, {}).get(LOG, 0))
    start = max(log.first, before.get(log.store, {}).get(LOG, 0))
    if start < end:
        for low, high in pairwise([start, *cut(client, log.store, start, end, piece_bytes)]):
            yield Piece(log.store, low, high, filters, had)


def _shared(options: Mapping[str, str]) -> dict[str, str]:
    """Of the options of an archive, those that say how to connect, and what must not be left out."""
    own = ("url", "network", "entity", "tokenFile", "authority", "certificate", "key", "failOnWithheld", "patience")
    return {name: value for name, value in options.items() if name in own}
