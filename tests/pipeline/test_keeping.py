"""What an archive knows of itself: its reader, its filters over time, and the history that they lack."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import heliograph
from heliograph.cli.main import command
from heliograph.errors import HeliographError, UsageError
from heliograph.pipeline import archive, archiving, session
from heliograph.pipeline.archiving import bytes_of
from heliograph.pipeline.keeping import Checkpoint, Span, prepared
from heliograph.pipeline.options import LOG
from heliograph.pipeline.tables import LakeTables, moment
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("S2")


def batch(folder: Path, number: int, at: int, *, is_done: bool = True) -> None:
    """As Spark notes it."""
    for name in ("offsets", "commits") if is_done else ("offsets",):
        (folder / name).mkdir(exist_ok=True)
    (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"s": {{"0": {at}}}}}')
    if is_done:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_an_archive_remembers_its_reader_its_beginning_and_its_filters_over_time(tmp_path: Path) -> None:
    place = Checkpoint(str(tmp_path))
    first = prepared(place, ["a/#"], 5)
    assert first.reader.startswith("archive-")
    place.save(first)
    assert prepared(place, ["a/#"], None) == first
    assert prepared(place, ["b/#"], 7).spans == [Span(["b/#"])], "nothing was archived with the former filters"
    batch(tmp_path, 0, 10)
    with pytest.raises(UsageError, match="--since is for its first run"):
        prepared(place, ["a/#"], 6)
    wider = prepared(place, ["a/#", "b/#"], None)
    assert wider.spans == [Span(["a/#"], {"s": {LOG: 10}}), Span(["a/#", "b/#"])]
    assert wider.lacking() == ["b/#"]
    place.save(wider)
    batch(tmp_path, 1, 20)
    narrower = prepared(place, ["b/1"], None)
    assert (narrower.spans[1].until, narrower.lacking()) == ({"s": {LOG: 20}}, ["b/1"])
    assert prepared(place, ["a/1"], None).lacking() == []
    batch(tmp_path, 2, 30, is_done=False)
    with pytest.raises(UsageError, match="not finished: run it once with --filter 'a/#,b/#'"):
        prepared(place, ["a/#"], None)
    assert prepared(place, ["b/#", "a/#"], None) == wider, "in any order"
    unwritten = prepared(place, ["a/#"], None, has_rows=lambda number: number != 2)
    assert unwritten.spans[1].until == {"s": {LOG: 20}}


def test_sizes_and_times_are_read_as_people_write_them() -> None:
    assert [bytes_of(text) for text in ("7", "64M", "1g")] == [7, 64 << 20, 1 << 30]
    noon = moment("2026-11-16T12:30")
    assert moment("2026-11-16") + timedelta(hours=12.5) == noon == moment("2026-11-16T13:30+01:00")
    assert moment("2026-11-16", is_end=True) == moment("2026-11-17")
    for text in ("", "0", "-1", "many"):
        with pytest.raises(UsageError):
            bytes_of(text)
    with pytest.raises(UsageError, match="not a day or a time"):
        moment("yesterday")


def test_errors_name_the_options_of_the_command() -> None:
    def told(text: str) -> str:
        with pytest.raises(HeliographError) as raised, archiving.naming_options():
            raise HeliographError(text)
        return str(raised.value)

    lost = "no longer keeps positions 2 to 4: set failOnDataLoss to false to go on without them"
    assert told(f"{lost}, and give the query a reader so that retention waits") == (
        "no longer keeps positions 2 to 4: --skip-lost goes on without them"
    )
    assert "--skip-withheld" in told("some publications of # are withheld from bob")
    assert told("something else") == "something else"


@pytest.mark.live
def test_a_filter_that_may_not_be_read_is_refused_before_spark_starts(tmp_path: Path) -> None:
    place = ("--store", "--store-place", str(tmp_path / "kept"), "--store-pattern", "#", "--store-pattern", "System/#")
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        options = {"url": f"heliograph://127.0.0.1:{broker.port}", "subscribe": "#,System/#"}
        with pytest.raises(HeliographError, match=r"subscribe_denied.*may not subscribe to System/#"):
            archiving.begin(str(tmp_path / "tables"), options, print)
        assert not (tmp_path / "tables" / "_checkpoint").exists()
        begun = archiving.begin(str(tmp_path / "tables"), options | {"subscribe": "#"}, print, since="2026-11-16")
        again = archiving.begin(str(tmp_path / "tables"), options | {"subscribe": "#"}, print)
    assert begun.options == again.options
    assert begun.options["reader"] == begun.keeping.reader
    assert begun.options["startingTimestamp"] == "1794787200000"


SECRET = """
[store]
enabled = true

[[access.rules]]
effect = "deny"
who = ["anonymous"]
verbs = ["subscribe"]
topics = ["secret/#"]
"""


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
def test_an_archive_loses_no_history_and_passes_over_nothing_that_is_withheld(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "no token here"))
    root, tables = str(tmp_path / "tables"), LakeTables(str(tmp_path / "tables"))
    (tmp_path / "heliograph.toml").write_text(SECRET)
    place = ("--store-place", str(tmp_path / "kept"), "--config", str(tmp_path / "heliograph.toml"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"

        def run(*words: str) -> str:
            command()(["pipeline", "archive", "--tables", root, "--url", url, *words], standalone_mode=False)
            return capsys.readouterr().err

        def publish(*topics: str) -> None:
            for topic in topics:
                client.publish(topic, topic, reliable=True)

        def topics() -> list[str]:
            return sorted(row["topic"] for row in tables.read(spark, "events").collect())

        with heliograph.connect_blocking(url) as client:
            publish("a/1", "b/1", "b/2", "secret/1")
            run("--filter", "a/#,b/1", "--rows-per-batch", "2")
            (name,) = client.durable_subscriptions()
            assert (name.position, name.name[:8]) == (2, "archive-"), (
                "retention waits: Spark commits with the next batch"
            )
            assert "b/# has no history before" in run("--filter", "a/#,b/#")
            publish("d/1")
            words = ["pipeline", "status", "--tables", root, "--url", url, "--json"]
            command()(words, standalone_mode=False)
            told = json.loads(capsys.readouterr().out)
            assert [(each["archived"], each["behind"], each["state"]) for each in told["stores"]] == [(4, 1, "open")]
            assert [(each["table"], each["rows"]) for each in told["tables"]] == [("events", 2)]
            publish("b/3")
            assert topics() == ["a/1", "b/1"]
            added = archive.add

            def crashing(*given: Any) -> dict[str, int]:
                added(*given)
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(archive, "add", crashing)
                with pytest.raises(SystemExit):
                    run("--filter", "a/#,b/#", "--backfill")
            assert "--backfill goes on with it" in run("--filter", "a/#,b/#")
            run("--filter", "a/#,b/#", "--backfill")
            assert topics() == ["a/1", "b/1", "b/2", "b/3"], "each once"
            assert "nothing to backfill" in run("--filter", "a/#,b/#", "--backfill")

            publish("secret/2", "c/1")
            before = _committed(tmp_path)
            with pytest.raises(HeliographError, match=r"withheld from anonymous: show an identity .* --skip-withheld"):
                run()
            assert _committed(tmp_path) == before, "no offset has moved"
            run("--filter", "a/#,b/#")
            assert topics() == ["a/1", "b/1", "b/2", "b/3"]
            run("--skip-withheld")
            assert topics() == ["a/1", "b/1", "b/2", "b/3"], "the offset is behind c/1: its filter was not there"
            run("--skip-withheld", "--backfill")
            assert topics() == ["a/1", "b/1", "b/2", "b/3", "c/1", "d/1"]


def _committed(folder: Path) -> str:
    found = Checkpoint(str(folder / "tables" / "_checkpoint")).committed()
    return json.dumps(found[0])
