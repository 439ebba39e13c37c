"""One Spark session for all tests with the marker ``spark``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from heliograph.pipeline.session import session, stop

    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    yield session("local[2]", name="tests", settings=settings)
    stop()
