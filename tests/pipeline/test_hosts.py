"""A driver whose executors are on another machine, as far as their networks are concerned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.two_hosts import FORBIDDEN, ROWS

OWN = ["unshare", "--user", "--map-root-user", "--mount", "--net"]


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.req("S8")
def test_executors_on_another_machine_reach_the_driver_and_the_store(tmp_path: Path) -> None:
    if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip")):
        pytest.skip("no unshare, nsenter or ip: there can be no second machine")
    words = [*OWN, sys.executable, "-m", "tests.pipeline.two_hosts", str(tmp_path)]
    own = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    ran = subprocess.run(words, capture_output=True, text=True, env=own, check=False)
    if ran.returncode == FORBIDDEN or "unshare failed" in ran.stderr:
        pytest.skip(f"this machine may make no network namespaces: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {"tables": {"events": ROWS}}
