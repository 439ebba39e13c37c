"""Standing: how far an archive is behind the stores, how many rows it has, and when it last added some.

In:    the tables and the checkpoint of an archive; what its stores say of their logs.
Out:   rows of plain values, by store and by table. Spark is not needed.
State: none.
Not here: what the archive notes of itself (keeping.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from heliograph.errors import UsageError
from heliograph.pipeline.keeping import Checkpoint
from heliograph.pipeline.offsets import list_logs
from heliograph.pipeline.options import LOG, read_options
from heliograph.pipeline.tables import LakeTables


def of_stores(checkpoint: Checkpoint, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """By store: the position up to which it is archived, and how many positions are behind that."""
    done = checkpoint.committed()[0] or {}
    keeping = checkpoint.load()
    filters = {} if keeping is None else {"subscribe": ",".join(keeping.filters)}
    read = read_options({**options, **filters}, True)
    with read.connect() as client:
        logs = {log.store: log for log in list_logs(client, read)}
        names = {store.id: store.name for store in client.stores(away=True)}
    rows = []
    for store in sorted({*logs, *done}):
        log = logs.get(store)
        at = done.get(store, {}).get(LOG, 0 if log is None else log.first)
        rows.append({
            "store": (names.get(store) if log is None else log.name) or store,
            "archived": at,
            "behind": None if log is None else max(0, log.next - at),
            "state": "away" if log is None else "lost some" if at < log.first else "open",
        })  # fmt: skip
    return rows


def of_tables(tables: LakeTables) -> list[dict[str, Any]]:
    """By table: rows, files, and the time of the last version."""
    names = tables.names()
    if not names:
        raise UsageError(f"{tables.root} has no tables yet: run `heliograph pipeline archive` first")
    rows = []
    for name in names:
        table = tables.open(name)
        assert table is not None
        (last,) = table.history(1)
        when = datetime.fromtimestamp(last["timestamp"] / 1_000, UTC)
        rows.append({
            "table": name,
            "rows": table.count(),
            "files": len(table.file_uris()),
            "version": table.version(),
            "last_commit": when.isoformat(timespec="seconds").replace("+00:00", "Z"),
        })  # fmt: skip
    return rows
