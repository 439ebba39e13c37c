"""Sizes: ranges of positions that are bounded in bytes, since publications may have a byte or a megabyte.

In:    offsets, ranges of positions; what stores say about their bytes.
Out:   the end of a micro-batch; where tasks end.
State: none.
Not here: what a store counts (stores/measuring.py), offsets (offsets.py).

The bytes are those of all publications in a range, whatever their topics. An older store does not tell them: then
ranges are bounded in positions only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from heliograph.errors import RefusedError
from heliograph.pipeline.options import LOG, Offsets
from heliograph.pipeline.patience import is_away
from heliograph.wire.limits import PAYLOAD_BYTES_MAX

if TYPE_CHECKING:
    from heliograph.live.blocking import BlockingClient

TASK_BYTES = 64 << 20  # that one task reads
Pieces = Callable[[str, int, int], list[int]]
"""Of a store: where tasks end that read from one position to another."""


def pieces_by(client: BlockingClient) -> Pieces:
    """Tasks of at most TASK_BYTES."""

    def pieces(store: str, first: int, last: int) -> list[int]:
        if (last - first) * PAYLOAD_BYTES_MAX <= TASK_BYTES:
            return [last]
        return cut(client, store, first, last, TASK_BYTES)

    return pieces


def cut(client: BlockingClient, store: str, first: int, last: int, piece_bytes: int) -> list[int]:
    """Where pieces of so many bytes end."""
    told = _measured(client, store, first, last, piece_bytes)
    return [last] if told is None else [end for end, _ in told]


def bounded(client: BlockingClient, start: Offsets, end: Offsets, bytes_max: int | None) -> Offsets:
    """From ``start`` toward ``end``, at most so many bytes, or one run of each store. Stores with less give way."""
    if bytes_max is None:
        return end
    found, left = dict(end), bytes_max
    behind = {store: logs[LOG] - start.get(store, {}).get(LOG, 0) for store, logs in end.items()}
    waiting = sorted((store for store in behind if behind[store] > 0), key=lambda store: behind[store])
    for number, store in enumerate(waiting):
        share = max(1, left // (len(waiting) - number))
        told = _measured(client, store, start.get(store, {}).get(LOG, 0), end[store][LOG], share, most=1)
        if told:
            found[store] = {LOG: told[0][0]}
            left -= told[0][1]
    return found


def _measured(
    client: BlockingClient, store: str, first: int, last: int, piece_bytes: int, most: int | None = None
) -> list[tuple[int, int]] | None:
    try:
        return client.measure(store, first, last, piece_bytes, most=most)
    except RefusedError as error:
        if is_away(error):
            raise
        return None
