"""Places of tables, as Spark spells them, and as delta-rs and pyarrow do."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.errors import UsageError
from heliograph.pipeline.places import absolute, for_others, for_spark, settings, uri

pytestmark = pytest.mark.req("S2", "S8")


@pytest.mark.parametrize("given", ["s3://b/t", "s3a://b/t"])
def test_s3_is_spelled_for_each(given: str) -> None:
    assert for_spark(absolute(given)) == "s3a://b/t"
    assert for_others(absolute(given)) == uri(given) == "s3://b/t"


@pytest.mark.parametrize("given", ["abfss://c@a.dfs.core.windows.net/t", "gs://b/t", "hdfs://h/t"])
def test_other_addresses_are_the_same_for_all(given: str) -> None:
    assert for_spark(absolute(given)) == for_others(given) == uri(given) == given


def test_folders_are_paths_for_spark_and_what_is_neither_is_refused(tmp_path: Path) -> None:
    assert for_spark(absolute(str(tmp_path))) == for_others(str(tmp_path)) == str(tmp_path)
    assert uri(str(tmp_path)) == tmp_path.as_uri()
    with pytest.raises(UsageError, match="dbfs:/x is no address"):
        absolute("dbfs:/x")


def test_an_endpoint_of_the_environment_is_sparks_too_and_no_key_is_copied() -> None:
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000", "AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert settings(given) == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:5000",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-1",
    }
    assert settings({}) == {}
