"""kill -9 of the driver at each point of a micro-batch: nothing is lost, nothing is there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import heliograph
from tests.live.processes import Process
from tests.pipeline.crashing import POINTS

ROOT = Path(__file__).parents[2]
ROWS = 250


def archive(url: str, tables: Path, point: str) -> int:
    command = [sys.executable, "-m", "tests.pipeline.crashing", url, str(tables), point]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=500).returncode


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.req("S2")
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_archive_goes_on_with_every_row_once(point: str, tmp_path: Path) -> None:
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        url = f"heliograph://127.0.0.1:{broker.port}"
        with heliograph.connect_blocking(url) as client:
            client.publish_batch("t", [b"%d" % number for number in range(ROWS)], reliable=True)

        assert archive(url, tmp_path / "tables", point) == -signal.SIGKILL
        assert archive(url, tmp_path / "tables", "") == 0

    offsets = DeltaTable(str(tmp_path / "tables" / "events")).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(offsets) == list(range(ROWS))
