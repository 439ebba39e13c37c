"""Places of tables: a folder, or an address in an object store, which Spark spells another way than everybody else.

In:    what a user wrote; the environment.
Out:   the same place for Spark, and for delta-rs and pyarrow; Spark's settings for a store like S3 elsewhere.
State: none.
Not here: the tables (tables.py).

Spark reads and writes by its own file systems, which know S3 as ``s3a://``; delta-rs and pyarrow know it as ``s3://``.
``abfss://`` and ``gs://`` are the same for all. Credentials come from the environment, which all three read. Nothing
here calls Java, which a client of Spark Connect does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from heliograph.errors import UsageError

S3A, S3 = "s3a://", "s3://"
_ONE_SLASH = re.compile(r"[a-z][a-z0-9]+:/(?!/)")


def absolute(place: str) -> str:
    """A path from the root, since Java may have been started in another folder; an address as it is."""
    if _ONE_SLASH.match(place):
        raise UsageError(f"{place} is no address, which has //, and no folder: give s3a://, abfss://, gs:// or a path")
    return place if "://" in place else str(Path(place).absolute())


def for_spark(place: str) -> str:
    """A place as Spark spells it."""
    return S3A + place.removeprefix(S3) if place.startswith(S3) else place


def for_others(place: str) -> str:
    """A place as delta-rs and pyarrow spell it."""
    return S3 + place.removeprefix(S3A) if place.startswith(S3A) else place


def uri(place: str) -> str:
    """The address of a place for delta-rs and pyarrow, of folders too."""
    return for_others(place) if "://" in place else Path(place).absolute().as_uri()


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for S3, from what delta-rs and pyarrow read. Keys Spark reads by itself."""
    found = {}
    if address := environment.get("AWS_ENDPOINT_URL"):
        found["spark.hadoop.fs.s3a.endpoint"] = address
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(address.startswith("https")).lower()
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    return found
