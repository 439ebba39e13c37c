"""The process that forks Python workers for an embedded Spark: PySpark's own, silent about a Java that has gone.

In:    as ``pyspark.daemon``; the setting ``spark.python.daemon.module`` names this module.
Out:   the same, but no stack on standard error for each worker whose Java stopped reading, as when a query is stopped.
State: none.
Not here: what workers do.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pyspark import daemon

GONE = (BrokenPipeError, ConnectionResetError)
_print = traceback.print_exc


def _print_unless_gone(*arguments: Any, **options: Any) -> None:
    if not isinstance(sys.exc_info()[1], GONE):
        _print(*arguments, **options)


def main() -> None:
    """Fork workers until Java ends."""
    traceback.print_exc = _print_unless_gone
    daemon.manager()


if __name__ == "__main__":
    main()
