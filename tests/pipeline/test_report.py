"""A report of an archive says what is in it; each of its questions can be asked again as it is written there."""

from __future__ import annotations

import json
from datetime import timedelta
from html import unescape
from pathlib import Path
from re import DOTALL, findall
from typing import TYPE_CHECKING, Any

import pytest

from heliograph.cli.main import command
from heliograph.errors import UsageError
from heliograph.pipeline import archive, session
from heliograph.pipeline.answers import all_rows
from heliograph.pipeline.catalogue import register
from heliograph.pipeline.report.questions import STEPS, TOP, Period
from heliograph.pipeline.tables import LakeTables
from tests.pipeline.test_archive import NOON, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.req("S9")]
US = 1_000_000
TOPICS = 13  # the first has 13 publications, the last one


def published() -> list[tuple[str, Any]]:
    """More topics than a figure names, one of them hostile; resources that come, change and go; searches."""
    names = ["<script>alert(1)</script>", *(f"t/{number}" for number in range(1, TOPICS))]
    events = [(name, b"x") for number, name in enumerate(names) for _ in range(TOPICS - number)]
    at = int(NOON.timestamp()) * US * 1_000
    changes = [("r1", "registered"), ("r2", "registered"), ("r1", "updated"), ("r3", "registered"), ("r2", "expired")]
    resources = [
        (
            f"System/Resources/{id}/{what}",
            {"id": id, "what": what, "name": f"name {id}", "at": at + number * US * 1_000},
        )
        for number, (id, what) in enumerate(changes)
    ]
    outcomes = ["answered"] * 3 + ["busy"] * 2
    searches = [("System/Brokers/b/discovery", {"outcome": outcome, "time_us": 1}) for outcome in outcomes]
    return [*events, *resources, *searches]


@pytest.mark.spark
def test_a_report_says_what_the_archive_has_and_how_to_ask_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    root, out = str(tmp_path / "archive"), tmp_path / "r.html"
    archive.add(rows(spark, *published()), LakeTables(root), "q", 0)

    command()(["pipeline", "report", "--tables", root, "--out", str(out), "--json"], standalone_mode=False)

    found = json.loads(capsys.readouterr().out)
    sections, text = found["sections"], out.read_text("utf-8")
    topics = {row["topic"]: row["publications"] for row in sections["Traffic"]["topics"]["rows"]}
    assert len(topics) == TOP + 1
    assert topics.pop(None) == sum(range(1, TOPICS - TOP + 1)), "all others together"
    assert topics == {"<script>alert(1)</script>": 13} | {f"t/{number}": 13 - number for number in range(1, TOP)}
    assert found["summary"] == {"publications": 91, "bytes": 91, "topics": 13, "publishers": 1}
    assert [row["resources"] for row in sections["Resources"]["resources"]["rows"]][-1] == 2
    assert sections["Resources"]["updates"]["rows"][0] == {"resource": "name r1", "updates": 2}
    searches = {row["outcome"]: row["searches"] for row in sections["Searches"]["searches"]["rows"]}
    assert searches == {"answered": 3, "busy": 2}
    assert sections["Delay"]["delay"]["rows"] is None
    assert "<script" not in text
    register(spark, LakeTables(root))
    asked = [unescape(each) for each in findall(r"<pre>(.*?)</pre>", text, DOTALL)]
    assert asked.count(sections["Resources"]["resources"]["sql"]) == 1
    assert sections["Traffic"]["topics"]["sql"] in asked, "the page shows it as it was asked"
    assert all_rows(spark.sql(sections["Traffic"]["topics"]["sql"])) == sections["Traffic"]["topics"]["rows"]


@pytest.mark.spark
def test_a_report_of_days_without_rows_says_so_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)
    root, out = str(tmp_path / "archive"), tmp_path / "r.html"
    words = ["pipeline", "report", "--tables", root, "--out", str(out)]
    with pytest.raises(UsageError, match="no tables yet"):
        command()(words, standalone_mode=False)
    archive.add(rows(spark, ("t", b"x")), LakeTables(root), "q", 0)
    with pytest.raises(UsageError, match="no rows of these days"):
        command()([*words, "--until", "2026-11-15"], standalone_mode=False)
    with pytest.raises(UsageError, match="is not a folder"):
        command()([*words[:-1], str(tmp_path / "gone" / "r.html")], standalone_mode=False)
    assert [each.name for each in tmp_path.iterdir()] == ["archive"]


def test_a_period_has_a_bounded_number_of_round_steps() -> None:
    first = NOON.replace(tzinfo=None)
    for seconds in (1, 30, 99, 3_600, 86_400, 7 * 86_400, 365 * 86_400):
        step = Period(first, first + timedelta(seconds=seconds)).step_s
        assert seconds / step <= STEPS
        assert step == 1 or seconds / step > STEPS / 5
