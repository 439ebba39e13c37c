"""Lag: how much a stream has still to read, by store, for logs and metrics.

In:    what Spark reports of a query; with the options of the source also what its stores say of bytes.
Out:   for each report, the lag of each store of the source ``heliograph``.
State: a client, once it is needed.
Not here: the source, which cannot report figures of its own to Spark 4.3 (source.py).

It is told from where the last micro-batch ended to where the log ended when it was planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from heliograph.errors import NotConnectedError, RefusedError
from heliograph.pipeline.option_names import TABLE
from heliograph.pipeline.options import LOG, read_options

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from heliograph.live.blocking import BlockingClient

OURS = "PythonMicroBatchStream"  # in the description of a source in Python
PIECE_BYTES = 1 << 40  # of what is measured: as one piece


@dataclass(frozen=True, slots=True)
class StoreLag:
    """What a query has still to read of a store: rows of all topics, and their bytes (None: not told)."""

    store: str
    rows: int
    bytes: int | None = None


Tell = Callable[[str, list[StoreLag]], None]
"""Gets the name of a query, or its id if it has none, and the lag of each store."""


class LagListener(StreamingQueryListener):
    """For ``spark.streams.addListener``. With the ``options`` of the source it also tells bytes."""

    def __init__(self, tell: Tell, options: Mapping[str, str] | None = None) -> None:
        self._tell = tell
        self._options = None if options is None else read_options(dict(options), True, TABLE)
        self._client: BlockingClient | None = None

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 Spark's name
        """After a micro-batch, or after some time without one."""
        progress = event.progress
        found = [lag for source in progress.sources for lag in self._lags(source)]
        if found:
            self._tell(progress.name or str(progress.id), found)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 Spark's name
        """A query has ended."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's name
        """A query begins: nothing is known yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 Spark's name
        """Nothing new."""

    def _lags(self, source: Any) -> Iterator[StoreLag]:
        if not (OURS in source.description and source.endOffset and source.latestOffset):
            return
        reached, known = json.loads(source.endOffset), json.loads(source.latestOffset)
        for store, logs in known.items():
            end, last = reached.get(store, {}).get(LOG, 0), logs[LOG]
            yield StoreLag(store, max(0, last - end), self._measured(store, end, last))

    def _measured(self, store: str, first: int, last: int) -> int | None:
        if self._options is None:
            return None
        if last <= first:
            return 0
        try:
            if self._client is None:
                self._client = self._options.connect()
            return sum(size for _, size in self._client.measure(store, first, last, PIECE_BYTES))
        except (RefusedError, NotConnectedError):  # away, or older: the rows are told all the same
            return None
