"""Ranges that are bounded in bytes: tasks and micro-batches, of several stores."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import heliograph
from heliograph.errors import Reason, RefusedError
from heliograph.pipeline import sizes
from heliograph.pipeline.offsets import LogRange
from heliograph.pipeline.options import LOG, read_options
from heliograph.pipeline.source import LogStreamReader, RangeReader
from tests.live.processes import Process

pytestmark = pytest.mark.req("S1")


class Stores:
    """Stores, as far as they tell bytes: the publications of each have one size."""

    def __init__(self, **sizes: int) -> None:
        self._sizes = sizes

    def measure(self, store: str, start: int, end: int, piece_bytes: int, *, most: int | None = None) -> Any:
        if store not in self._sizes:
            raise RefusedError(Reason.BODY_MALFORMED, "an older store does not know this request")
        size = self._sizes[store]
        step = max(1, piece_bytes // size)
        cuts = [*range(start, end, step), end]
        return [(high, size * (high - low)) for low, high in pairwise(cuts)][:most]


def test_a_micro_batch_has_no_more_bytes_than_asked_for_and_what_one_store_leaves_another_gets() -> None:
    stores: Any = Stores(small=1, large=100)
    start = {"small": {LOG: 0}, "large": {LOG: 5}}
    end = {"small": {LOG: 200}, "large": {LOG: 905}}
    assert sizes.bounded(stores, start, end, None) == end
    assert sizes.bounded(stores, start, end, 1_000) == {"small": {LOG: 200}, "large": {LOG: 13}}
    assert sizes.bounded(stores, start, end, 1_000_000) == end
    assert sizes.bounded(stores, start, end, 1) == {"small": {LOG: 1}, "large": {LOG: 6}}, "each gets on"
    assert sizes.bounded(stores, end, end, 1) == end


def test_an_older_store_that_tells_no_bytes_is_bounded_in_positions_only() -> None:
    stores: Any = Stores()
    assert sizes.bounded(stores, {}, {"old": {LOG: 9}}, 1) == {"old": {LOG: 9}}
    assert sizes.pieces_by(stores)("old", 0, 1_000_000) == [1_000_000]


@pytest.mark.live
def test_tasks_and_batches_are_cut_where_they_have_enough_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "TASK_BYTES", 50_000)
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            for number in range(60):
                client.publish("t", b"x" * (20_000 if number >= 50 else 1_000), reliable=True)
            store = client.stores()[0].id
        batch = [(part.start, part.end) for part in RangeReader(read_options({"url": url}, False)).partitions()
                 if isinstance(part, LogRange)]  # fmt: skip
        reader = LogStreamReader(
            read_options({"url": url, "maxBytesPerTrigger": "100000", "startingOffsets": "earliest"}, True)
        )
        ends = [reader.initialOffset()]
        while ends[-1][store][LOG] < 60:
            ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
        rows = [
            sum(len(found) for part in reader.partitions(*each) for found in reader.read(part))
            for each in pairwise(ends)
        ]
        few = reader.latestOffset(ends[0], ReadMaxRows(7))
        reader.stop()
    assert batch[0][0] == 0
    assert all(high == low for (_, high), (low, _) in pairwise(batch)), "they cover everything once"
    assert batch[-1][1] == 60
    assert all(high - low <= (50 if low < 50 else 2) for low, high in batch), batch
    assert all(
        later[store][LOG] - early[store][LOG] <= (4 if early[store][LOG] >= 50 else 100)
        for early, later in pairwise(ends)
    )
    assert sum(rows) == 60
    assert len(rows) >= 3
    assert few[store][LOG] == 7, "whichever limit is reached first"
