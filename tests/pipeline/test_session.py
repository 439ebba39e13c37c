"""The session: what spark-submit, spark-defaults.conf or --conf say wins, and a session that is there stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import heliograph
from heliograph.cli.spark_place import SparkPlace
from heliograph.errors import UsageError
from heliograph.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("S8")
APPLICATION = str(Path(heliograph.__file__).parent / "cli" / "__main__.py")
QUESTION = "select current_timezone() as zone"


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (SparkPlace(master="spark://h:1", remote="sc://h"), "--master or --remote, not both"),
        (SparkPlace(conf=("spark.ui.enabled",)), "it should be like spark.ui.enabled=true"),
        (SparkPlace(conf=("colour=red",)), "it should be like"),
        (SparkPlace(remote="sc://h", packages="a:b:1"), "give it to the Spark Connect server"),
    ],
)
def test_mistakes_in_where_spark_runs_are_told(at: SparkPlace, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        at.settings()


def test_settings_and_packages_are_spark_s() -> None:
    at = SparkPlace(conf=("spark.a=1", "spark.b = x=y"), packages="org:thing:1")
    assert at.settings() == {"spark.a": "1", "spark.b": "x=y", "spark.jars.packages": "org:thing:1"}


def test_spark_defaults_of_the_user_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._defaults() == {}
    text = "# ours\nspark.ui.enabled  true\nspark.master=yarn\nspark.driver.extraJavaOptions -Da=b -Dc\nother 1\n\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    assert session._defaults() == {
        "spark.ui.enabled": "true",
        "spark.master": "yarn",
        "spark.driver.extraJavaOptions": "-Da=b -Dc",
    }


@pytest.mark.spark
def test_a_session_that_the_program_made_is_used_as_it_is(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_made", [])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert session.session() is spark
        session.stop()
        assert spark.sql(QUESTION).collect() == [("Asia/Tokyo",)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.parametrize("submitted", [False, True], ids=["--conf", "spark-submit"])
def test_what_spark_was_told_wins(submitted: bool, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "numbers"), pa.table({"offset": [1]}))
    told = ["--conf", "spark.sql.session.timeZone=Asia/Tokyo", "--conf", "spark.ui.enabled=true"]
    told += ["--conf", "spark.ui.port=0"]
    words = ["pipeline", "sql", "--tables", str(tmp_path), QUESTION, "--json"]
    if submitted:
        submit = str(session.spark_home() / "bin" / "spark-submit")
        command = [submit, "--master", "local[1]", *told, APPLICATION, *words]
    else:
        command = [sys.executable, "-m", "heliograph.cli", *words, *told]
    session.prepare()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = ran.stdout[ran.stdout.index("[") :]  # spark-submit puts both outputs into one
    assert json.loads(rows) == [{"zone": "Asia/Tokyo"}]
    assert "Spark's UI: http://" in ran.stdout + ran.stderr
