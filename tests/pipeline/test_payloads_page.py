"""The page docs/how-to/payloads-as-columns.md works as written: its commands, in its order, and its Python."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from heliograph.cli.main import command
from heliograph.cli.network_secure import environment
from heliograph.pipeline import session
from heliograph.pipeline.tables import LakeTables
from tests.docs.test_topics import Walk
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "payloads-as-columns.md").read_text("utf-8")
BLOCK = re.compile(r"```(console|python|sql)\n(.*?)```", re.DOTALL)


CONTRACT = re.compile(r"```console alice\n(.*?)```", re.DOTALL)


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.live
@pytest.mark.req("S9")
def test_the_page_works_as_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    until, _ = PAGE.split("## A contract")
    blocks = BLOCK.findall(until)
    start, *_ = blocks[0][1].splitlines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    place = ("--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery", "--store-place", "kept")
    with Process(tmp_path, *shlex.split(start)[4:], *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        monkeypatch.setenv("HELIOGRAPH_URL", url)
        monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
        said = ""
        for kind, text in blocks:
            if kind == "sql":
                (tmp_path / "readings.sql").write_text(text)
            elif kind == "python":
                exec(compile(text.replace('format("heliograph")', f'format("heliograph").option("url", "{url}")'),
                             "page", "exec"), {})  # fmt: skip
                said = capsys.readouterr().out
            for line in text.splitlines() if kind == "console" else ():
                if not line.startswith("$ "):
                    assert words(line) in map(words, said.splitlines()), f"{line}\nis not in\n{said}"
                elif line != start:
                    command()(shlex.split(line)[2:], standalone_mode=False)
                    said = capsys.readouterr().out
                    if "replay" in line:
                        (rejected,) = map(json.loads, said.splitlines())
        assert "text 'cold' where double is expected" in said, "the program shows the fault"
    assert rejected["headers"]["from_topic"] == "sensors/cellar"
    assert rejected["headers"]["reason"] == "readings: celsius: text 'cold' where double is expected"
    assert "cold" in str(rejected)


@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.live
@pytest.mark.req("S9")
def test_its_contract_works_as_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)
    create, publish, archive = CONTRACT.findall(PAGE)
    walk = Walk(tmp_path)
    try:
        walk.play("", "$ heliograph network up 1 --stores 1 --secure --detach --dir trial")
        settings = tmp_path / "trial" / "store-1.toml"
        (store,) = [each for each in json.loads((tmp_path / "trial" / "network.json").read_text())["brokers"]
                    if each["name"] == "store-1"]  # fmt: skip
        os.kill(store["pid"], signal.SIGKILL)
        pattern = '[store]\npatterns = ["#", "Topics/#"]\n'
        settings.write_text(settings.read_text().replace("[store]\n", pattern))
        with Process(tmp_path / "trial", "--config", "store-1.toml", "--log-format", "json") as again:
            again.line("ready in")
            walk.play("alice", create)
            walk.play("alice", publish)
            monkeypatch.chdir(tmp_path)
            for name, value in environment(tmp_path / "trial", walk.url, "alice").items():
                monkeypatch.setenv(name, value)
            command()(shlex.split(archive.replace("$TOPIC", walk.topic))[2:], standalone_mode=False)
    finally:
        walk.run("heliograph network down --dir trial", "")
    assert "readings: celsius double not null" in capsys.readouterr().err
    tables = LakeTables("archive")
    assert [row["celsius"] for row in tables.read(spark, "readings").collect()] == [21.5]
    assert [row["reason"] for row in tables.read(spark, "quarantine").collect()] == ["readings: celsius: null"]
