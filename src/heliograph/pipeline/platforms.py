"""Platforms: what the PySpark that is here lacks, and what is done instead. From 4.0 on the source and the sink work.

In:    the PySpark that this process imports, which may be the platform's own.
Out:   HAS_…: what it has; check_fits(): UsageError for options of a stream that cannot work with it.
State: none.
Not here: what is done instead (source.py, sink.py), the packages that commands need (doctor.py).

PySpark 4.0 has no filters that are pushed down and no Arrow writer for streams. Before 4.2, Spark does not tell a
stream where it was when it asks how far to read. So there are no limits; and since a store that is away could not be
told from one that never was, a stream names its stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

import pyspark
from pyspark.sql import datasource

from heliograph.errors import UsageError

HAS_FILTERS = hasattr(datasource, "EqualTo")
HAS_ARROW_STREAMS = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


def check_fits(given: Iterable[str], has_limits: bool = HAS_LIMITS) -> None:
    """UsageError if a stream with these options cannot work here."""
    if has_limits:
        return
    here = f"PySpark {pyspark.__version__}"
    names = [name.lower() for name in given]
    for limit in LIMITS:
        if limit.lower() in names:
            raise UsageError(
                f"{limit} does not work with {here}, which lets a source not limit a micro-batch: 4.2 does"
            )
    if "store" not in names:
        raise UsageError(f"with {here} a stream needs the option store: the names of the stores to read, with commas")
