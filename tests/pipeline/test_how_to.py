"""The guide docs/how-to/from-broker-to-sql.md works as written: its commands, in its order, and its Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from heliograph.cli.main import command
from heliograph.pipeline import session
from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "from-broker-to-sql.md").read_text("utf-8")
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
REQUEST = re.compile(r"`(\{\"filter\".*?\})`")


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S3", "S8")
def test_the_guide_works_as_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [(kind, text) for kind, text in BLOCK.findall(PAGE)]
    start, *_ = blocks[0][1].splitlines()
    words = shlex.split(start)[4:]  # after "$ heliograph broker run"
    request = REQUEST.search(PAGE)
    assert request is not None
    (tmp_path / "requests.jsonl").write_text(f"{request[1]}\n" * 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    place = (
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--no-discovery",
        "--store-place",
        str(tmp_path / "kept"),
    )
    said: list[str] = []
    with Process(tmp_path, *words, *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        monkeypatch.setenv("HELIOGRAPH_URL", url)
        monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
        for kind, text in blocks:
            if kind == "python":
                asked = text.replace('format("heliograph")', f'format("heliograph").option("url", "{url}")')
                exec(compile(asked, "page", "exec"), {})
            else:
                for line in text.splitlines():
                    if line != start:
                        command()(shlex.split(line)[2:], standalone_mode=False)
            said.append(capsys.readouterr().out)
    told = "\n".join(said)
    assert "hosts/h1" in told
    assert re.search(r"events\s+1\b", told), "the archive counts its rows"
    assert len([text for kind, text in blocks if kind == "console"]) == 8
    assert re.search(r"subscription.*\n.*1\s+1\b", told), "one event of the past would have matched"
