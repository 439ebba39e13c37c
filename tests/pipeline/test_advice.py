"""Advice goes back into the network: published for administrators, kept by a store, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.cli import pipeline
from heliograph.cli.connection import Connection
from heliograph.cli.main import command
from heliograph.pipeline.network import Advice
from tests.live.processes import Process


@pytest.mark.live
@pytest.mark.req("S6")
def test_advice_is_published_kept_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    place = ("--store", "--store-place", str(tmp_path / "kept"), "--store-pattern", "System/#")
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        command()(["network", "advice", "--url", url], standalone_mode=False)
        assert capsys.readouterr().out == "none\n"
        pipeline._publish_advice(Connection(url=url), [Advice("broker", "b1", "add a broker beside b1", 0.9)])
        command()(["network", "advice", "--url", url, "--json"], standalone_mode=False)
        shown = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["about"], row["text"]) for row in shown] == [("broker", "b1", "add a broker beside b1")]
