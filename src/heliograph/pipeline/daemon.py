"""The process that forks Python workers for an embedded Spark: PySpark's own, ready to work, silent about lost Java.

In:    as ``pyspark.daemon``; the setting ``spark.python.daemon.module`` names this module.
Out:   the same, but workers have loaded what they need before they are forked, which would take each of them most of a
       second; and no stack on standard error for each worker whose Java stopped reading, as when a query is stopped.
State: none.
Not here: what workers do.
"""

from __future__ import annotations

import gc
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import Any

from pyspark import daemon

from heliograph.live.process_memory import tune

NEEDED = (
    *("pandas", "pyarrow.compute", "pyspark.sql.pandas.serializers", "heliograph.live.blocking"),
    *("heliograph.pipeline.requests", "heliograph.pipeline.sink", "heliograph.pipeline.source"),
)
GONE = (BrokenPipeError, ConnectionResetError)
_print = traceback.print_exc


def _print_unless_gone(*arguments: Any, **options: Any) -> None:
    if not isinstance(sys.exc_info()[1], GONE):
        _print(*arguments, **options)


def main() -> None:
    """Fork workers until Java ends."""
    traceback.print_exc = _print_unless_gone
    for name in NEEDED:
        with suppress(ImportError):  # the worker that needs it says so
            import_module(name)
    gc.collect()
    tune()  # so that workers, which collect garbage after each task, skip what was loaded here: it would take 50 ms
    daemon.manager()


if __name__ == "__main__":
    main()
