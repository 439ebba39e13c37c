"""The demo's scene of the pipeline ends well, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heliograph.cli.demo.pipeline_scene import play_pipeline
from heliograph.cli.demo.report import Report
from heliograph.pipeline import session


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.req("S8")
def test_the_scene_of_the_pipeline_ends_well(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "state"))
    report = Report()
    asyncio.run(play_pipeline(tmp_path / "demo", report))
    assert report.problems == []
    assert [name for name, _ in report.lines] == ["look at", "pipeline"]
    assert "readings/hall-1" in Path(dict(report.lines)["look at"]).read_text("utf-8")
    assert "hot: 1,350" in capsys.readouterr().out
