"""`heliograph discover broker`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from time import time

import pytest

from benchmarks.ports import free_port
from heliograph.cli import network_state as state
from heliograph.discovery.brokers.remembered import Remembered
from heliograph.live import remembered_file
from heliograph.live.environment import PORT_VARIABLE
from tests.cli.processes import broker, piped, started

from .conftest import Run

NOBODY = "127.0.0.1:9"


def asking(port: int) -> dict[str, str]:
    """A group of the test's own, and nobody who happens to run here."""
    return {"HELIOGRAPH_SEARCH__MULTICAST_PORT": str(port), "HELIOGRAPH_SEARCH__BROKERS": NOBODY}


@pytest.mark.live
@pytest.mark.req("B12", "B14")
def test_it_prints_the_choice_the_candidates_and_the_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    (tmp_path / "heliograph.toml").write_text(f"[discovery]\nmulticast_port = {port}\n")
    for name, value in asking(port).items():
        monkeypatch.setenv(name, value)
    with broker(tmp_path, "--name", "one") as (_, url):
        address = url.replace("localhost", "127.0.0.1")
        plain = run("discover", "broker", "--timeout", "5")
        assert (plain.code, plain.err) == (0, "")
        assert plain.out.startswith(f"{address}  one: chosen:")

        explained = run("discover", "broker", "--timeout", "5", "--explain").out
        assert "round_trip_ms" in explained
        assert f"multicast 239.255.71.17:{port}: an answer" in explained

        told = json.loads(run("discover", "broker", "--timeout", "5", "--json").out)
        assert told["findings"][0]["broker"] == "one"
        assert told["findings"][0]["verdict"].startswith("chosen")

        published = piped(tmp_path, "publish", "--discover", "a", "1", data=b"", **asking(port))
        assert (published.returncode, published.stderr) == (0, b"")
        with started(tmp_path, "discover", "broker", "--watch", "--interval", "0.2", **asking(port)) as watching:
            assert watching.line().startswith(f"{address}  one: chosen:")


@pytest.mark.live
@pytest.mark.req("B13")
def test_without_any_broker_it_fails_and_says_whom_it_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in asking(free_port()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HELIOGRAPH_SEARCH__BROKERS")
    ran = run("discover", "broker", "--bdn", NOBODY, "--timeout", "0.05")
    assert (ran.code, ran.out) == (1, "")
    assert "no broker answered" in ran.err
    assert f"directory {NOBODY}: asked" in ran.err

    alone = run("discover", "broker", "--bdn", NOBODY, "--no-multicast", "--timeout", "0.05")
    assert "multicast" not in alone.err.partition("asked:")[2]


@pytest.mark.live
@pytest.mark.req("B13")
def test_a_listed_broker_counts_only_if_it_is_there(run: Run, tmp_path: Path) -> None:
    """Also one that answers no searches, and says so; whoever asks for nothing asks the usual port of this machine."""
    nobody = run("discover", "broker", "--no-multicast", "--broker", NOBODY, "--timeout", "0.05", "--json")
    told = json.loads(nobody.out)
    assert (nobody.code, told["found"], told["reason"]) == (1, False, "broker_not_found")
    assert told["tried"][0].endswith("no answer, and it takes no links")

    with broker(tmp_path, "--no-discovery") as (_, url):
        address = url.removeprefix("heliograph://").replace("localhost", "127.0.0.1")
        ran = run("discover", "broker", "--no-multicast", "--broker", address, "--explain")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(f"heliograph://{address}  unproven: ")
        assert f"listed broker {address}: takes links, but answers no searches" in ran.out


def test_what_makes_no_sense_is_told_at_once(run: Run) -> None:
    ran = run("discover", "broker", "--bdn", "a:b:c", "--broker", "nowhere")
    assert ran.code == 2
    assert "search.bdns has 'a:b:c'" in ran.err
    assert "search.brokers has 'nowhere'" in ran.err


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("B14", "B15")
def test_in_a_network_without_its_directory_a_broker_is_still_found_and_it_says_how(run: Run, tmp_path: Path) -> None:
    ran = piped(tmp_path, "network", "up", "3", "--detach", "--json", data=b"")
    try:
        assert ran.returncode == 0, ran.stderr
        names = {row["name"] for row in json.loads(ran.stdout)}
        local = state.load(state.default_folder())
        assert local is not None
        (bdn,) = local.directories
        asked = ("--explain", "--no-multicast", "--bdn", f"127.0.0.1:{bdn.port}", "--timeout", "10")

        first = run("discover", "broker", *asked)
        assert first.code == 0, first.err
        assert any(name in first.out for name in names)
        assert f"directory 127.0.0.1:{bdn.port}: acknowledged" in first.out

        os.kill(bdn.pid, signal.SIGKILL)
        second = run("discover", "broker", *asked)
        assert second.code == 0, second.err
        assert any(name in second.out for name in names)
        assert f"directory 127.0.0.1:{bdn.port}: asked" in second.out
        assert "remembered broker 127.0.0.1:" in second.out
    finally:
        run("network", "down")


@pytest.mark.live
@pytest.mark.req("B13", "O2")
def test_a_command_that_finds_no_broker_says_first_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORT_VARIABLE, str(free_port()))
    monkeypatch.setenv("HELIOGRAPH_SEARCH__MULTICAST", "false")
    ran = run("publish", "a", "b")
    first, *below = ran.err.splitlines()
    assert (ran.code, first) == (1, "heliograph: no broker found; `heliograph broker run` starts one here")
    assert any("no broker answers there" in line for line in below)
    assert any("asked directory 127.0.0.1:" in line for line in below)


@pytest.mark.req("B13")
def test_brokers_of_a_network_that_was_taken_down_are_forgotten(tmp_path: Path) -> None:
    environment = {"HELIOGRAPH_STATE_DIR": str(tmp_path)}
    files = [remembered_file.file_for([name], environment) for name in ("x", "y")]
    brokers = [Remembered(f"b{number}", f"127.0.0.1:{number}", int(time())) for number in (1, 2, 3)]
    for file in files:
        remembered_file.write(file, brokers)
    remembered_file.forget(["127.0.0.1:1", "127.0.0.1:3"], environment)
    assert [[each.broker for each in remembered_file.read(file, 60)] for file in files] == [["b2"], ["b2"]]
