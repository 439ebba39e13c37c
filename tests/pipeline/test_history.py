"""Subscriptions over the past, on Spark: the same pairs as the brokers' own matching finds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import heliograph
from heliograph.cli.main import command
from heliograph.errors import UsageError
from heliograph.matching.condition import Event
from heliograph.matching.conditions import matches
from heliograph.matching.languages import compile
from heliograph.model.topics import matches as topic_matches
from heliograph.pipeline import archive, history, session
from heliograph.pipeline.tables import LakeTables
from tests.live.processes import Process
from tests.pipeline.test_archive import rows as archived_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.req("S4")]
SCHEMA = "topic string, headers string, value binary, store string, partition int, offset long, x double, kind string"


def test_spark_finds_what_the_brokers_would_have_sent(spark: SparkSession) -> None:
    chance = random.Random(5)
    rows = []
    for offset in range(400):
        headers = {"x": chance.uniform(0, 9), "kind": chance.choice("ab")} if chance.random() < 0.9 else {}
        text = json.dumps(headers)
        topic = chance.choice(["t/1", "t/2", "u"])
        rows.append((topic, text, b"", "s", 0, offset, headers.get("x"), headers.get("kind")))
    wanted = [
        (f"{n}", chance.choice(["t/#", "t/1", "#"]), "predicates", f"x > {n / 5} and kind = 'a'") for n in range(40)
    ]
    wanted += [("or", "t/+", "sql", "x < 1 OR kind = 'b'"), ("all", "u", "", "")]
    events = spark.createDataFrame(rows, SCHEMA)

    found = {(row["subscription"], row["offset"]) for row in history.match(events, wanted).collect()}
    typed = {(row[0], row[1]) for row in history.match(events, wanted, keep=["offset"], typed=["x", "kind"]).collect()}

    expected = {
        (id, offset)
        for id, pattern, language, where in wanted
        for topic, headers, value, _, _, offset, _, _ in rows
        if topic_matches(pattern.encode(), topic.encode())
        and (not where or matches(compile(language, where), Event(topic.encode(), headers.encode(), value)))
    }
    assert found == typed == expected
    assert len(expected) > 500


def test_a_wrong_condition_is_told_before_anything_runs(spark: SparkSession) -> None:
    events = spark.createDataFrame([], SCHEMA)
    with pytest.raises(UsageError, match="expected"):
        history.match(events, [("a", "t", "predicates", "x >")])
    with pytest.raises(UsageError, match="'#' stands alone"):
        history.match(events, [("a", "t/#/u", "", "")])


@pytest.mark.live
def test_what_a_subscription_would_have_got_is_replayed_to_one_subscriber(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    monkeypatch.setattr(archive, "PAYLOAD_BYTES_MAX", 1_000)
    root = str(tmp_path / "tables")
    events = [(f"hosts/{n % 2}", b"%d" % n * (2_000 if n == 4 else 1)) for n in range(8)]
    archive.add(archived_rows(spark, *events, ("other", b"no")), LakeTables(root), "q", 0)
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery") as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client, client.subscribe("again/#") as subscription:
            words = ["pipeline", "match", "--url", url, "--tables", root, "--filter", "hosts/#", "--where", "x = 1"]
            command()([*words, "--replay", "again", "--json"], standalone_mode=False)
            told = json.loads(capsys.readouterr().out)
            got = [subscription.next(timeout=30) for _ in events]
    assert (told["matches"], told["replayed"]) == (8, 8)
    assert [(each.topic, each.payload) for each in got] == [(f"again/{topic}", value) for topic, value in events]
    assert got[0].headers == {"x": 1}
