"""`heliograph store`: a broker with a store, looked at while it runs and verified when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.processes import broker

pytestmark = [pytest.mark.live, pytest.mark.req("O2", "N10")]


def heliograph(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    environment["HELIOGRAPH_RUNTIME_DIR"] = str(folder / "run")
    command = [sys.executable, "-m", "heliograph.cli.main", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=120
    )


def test_a_store_is_listed_shown_stopped_verified_and_compacted(tmp_path: Path) -> None:
    options = ("--no-discovery", "--store", "--store-pattern", "orders/#", "--store-place", str(tmp_path / "vaults"))
    with broker(tmp_path, *options) as process:
        url = ("--url", f"127.0.0.1:{process.port}")
        assert heliograph(tmp_path, "publish", "orders/1", "lamp", "--reliable", *url).returncode == 0
        [listed] = json.loads(heliograph(tmp_path, "store", "list", "--json", *url).stdout)
        assert (listed["name"], listed["patterns"], listed["state"]) == ("store", ["orders/#"], "open")
        assert listed["address"].endswith(str(process.port))
        shown = json.loads(heliograph(tmp_path, "store", "show", "store", "--json", *url).stdout)
        assert (shown["taken"], shown["next"], shown["gaps"]) == (1, 1, 0)
        assert "no store 'other'" in heliograph(tmp_path, "store", "show", "other", *url).stderr
        in_use = heliograph(tmp_path, "store", "verify", "store", "--place", "vaults")
        assert "vault_locked" in in_use.stderr
        process.send(signal.SIGTERM)
        process.wait()
    verified = heliograph(tmp_path, "store", "verify", "store", "--place", "vaults", "--json")
    assert json.loads(verified.stdout)["records"] == 1
    assert verified.returncode == 0
    assert heliograph(tmp_path, "store", "compact", "store", "--place", "vaults").returncode == 0


@pytest.mark.req("N11")
def test_a_store_that_is_away_is_listed_and_forgotten(tmp_path: Path) -> None:
    key = tmp_path / "network.key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    common = ("--no-discovery", "--network-key-file", str(key))
    with broker(tmp_path, *common) as there:
        url = ("--url", f"127.0.0.1:{there.port}")
        store = ("--store", "--store-place", str(tmp_path / "vaults"), "--name", "b")
        with broker(tmp_path, *common, *store, "--link", f"127.0.0.1:{there.port}") as keeper:
            assert heliograph(tmp_path, "publish", "orders/1", "lamp", "--reliable", *url).returncode == 0
            assert "no store 'store' is away" in heliograph(tmp_path, "store", "forget", "store", *url).stderr
            keeper.send(signal.SIGTERM)
            keeper.wait()
        [listed] = json.loads(heliograph(tmp_path, "store", "list", "--json", *url).stdout)
        assert (listed["name"], listed["state"]) == ("store", "away")
        assert heliograph(tmp_path, "store", "forget", "store", *url).returncode == 0
        assert json.loads(heliograph(tmp_path, "store", "list", "--json", *url).stdout) == []


def test_a_vault_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    said = heliograph(tmp_path, "store", "verify", "orders", "--place", "nowhere")
    assert said.returncode != 0
    assert "no vault of a store 'orders' in nowhere" in said.stderr
    assert not (tmp_path / "nowhere").exists()
