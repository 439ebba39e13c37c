"""`heliograph resource` and `heliograph discover resource`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.cli.resource import secret_in, values_of
from heliograph.errors import UsageError
from tests.live.processes import Process


def test_values_are_json_where_they_are_some() -> None:
    assert values_of(["a=1", "b=x y", "c=true", "d=1.5", "e=[1]"]) == {
        **{"a": 1, "b": "x y", "c": True, "d": 1.5},
        "e": "[1]",
    }
    with pytest.raises(UsageError):
        values_of(["memory"])


def test_a_secret_is_kept_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "m.secret"
    with pytest.raises(UsageError):
        secret_in(file, make=False)
    made = secret_in(file, make=True)
    assert secret_in(file, make=False) == made
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("not hex")
    with pytest.raises(UsageError):
        secret_in(file, make=True)


@pytest.mark.live
@pytest.mark.req("R4", "R12")
def test_a_machine_is_registered_found_updated_and_withdrawn(tmp_path: Path) -> None:
    with Process(tmp_path, "--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery") as broker:
        environment = {**os.environ, "HELIOGRAPH_URL": f"127.0.0.1:{broker.port}"}

        def say(*words: str) -> str:
            ran = subprocess.run(
                [sys.executable, "-m", "heliograph.cli.main", *words],
                cwd=tmp_path,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0, ran.stderr
            return ran.stdout

        owner = ("--secret-file", "m1.secret")
        about = ("--where", "memory <= 64 and load >= 0", "--attribute", "system=linux", "--name", "m1")
        say("resource", "register", *owner, *about, "--value", "memory=8", "--value", "load=0.5")
        say("resource", "update", *owner, "--value", "memory=16", "--value", "load=0.5")
        found = json.loads(say("discover", "resource", "--where", "memory > 8", "--max-age", "0", "--json"))
        assert [(each["name"], each["values"]["memory"]) for each in found["resources"]] == [("m1", 16)]
        assert found["complete"]
        assert "m1" in say("resource", "list")
        say("resource", "withdraw", *owner)
        assert json.loads(say("discover", "resource", "--max-age", "0", "--json"))["resources"] == []
