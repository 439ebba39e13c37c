"""`heliograph bdn`, and the directory that `network up` starts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from .conftest import Run
from .processes import Process, broker, piped, started

pytestmark = pytest.mark.req("B1")


@contextmanager
def bdn(folder: Path, *arguments: str | Path) -> Iterator[tuple[Process, str]]:
    """A directory on a free port, and its address."""
    with started(folder, "bdn", "run", "--listen", "127.0.0.1:0", "--log-format", "json", *arguments) as process:
        found = re.search(r"127\.0\.0\.1:\d+", json.loads(process.remark())["text"])
        assert found is not None, process.said
        while "ready" not in process.remark():
            pass
        yield process, found[0]


def listed(run: Run, at: str, count: int) -> list[dict[str, Any]]:
    """The brokers that a directory knows and has measured, once there are so many."""
    for _ in range(300):
        ran = run("bdn", "list", "--at", at, "--json")
        assert ran.code == 0, ran.err
        rows: list[dict[str, Any]] = json.loads(ran.out)
        if len(rows) >= count and all(row["round_trip_us"] is not None for row in rows):
            return rows
    raise AssertionError(f"{count} brokers wanted, {rows}")


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("B3")
def test_a_directory_lists_the_brokers_that_it_wants_and_tells_what_it_did(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text('[discovery]\nmulticast = false\ngeography = "europe/graz"\n')
    (tmp_path / "away.toml").write_text('[discovery]\nmulticast = false\ngeography = "america"\n')
    with (
        bdn(tmp_path, "--filter", "geography=europe") as (_, at),
        broker(tmp_path, "--name", "away", "--config", "away.toml", "--directory", at),
        broker(tmp_path, "--name", "here", "--config", "here.toml", "--directory", at) as (_, url),
    ):
        (row,) = listed(run, at, 1)
        assert (row["broker"], row["geography"]) == ("here", "europe/graz")
        assert str(row["ports"]["tcp"]) == url.rpartition(":")[2]
        overview = json.loads(run("bdn", "status", "--at", at, "--json").out)
        assert overview["directory"] == "bdn"
        assert overview["brokers"] == overview["measured"] == 1
        assert overview["counts"]["advertisement_unwanted"] > 0
        head, line = (line.split() for line in run("bdn", "list", "--at", at).out.splitlines())
        assert (line[0], line[head.index("place")]) == ("here", row["address"])
        assert "brokers" in run("bdn", "status", "--at", at).out


@pytest.mark.live
def test_only_the_user_who_runs_a_directory_may_ask_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bdn(tmp_path) as (_, at):
        monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "elsewhere"))
        ran = run("bdn", "status", "--at", at)
    assert ran.code == 1
    assert "only the user who runs this directory" in ran.err


def test_mistakes_are_told_in_one_line(run: Run) -> None:
    for arguments, words in (
        (("status", "--at", "nowhere"), "write HOST:PORT"),
        (("list", "--at", "192.0.2.1:4719"), "answers its own machine only"),
        (("run", "--filter", "colour=red"), "write geography=TEXT or institution=TEXT"),
        (("run", "--listen", "4719"), "write HOST:PORT"),
        (("run", "--private"), "bdn.private = true needs bdn.advertise"),
        (("run", "--link", "nowhere"), "bdn.links has 'nowhere'"),
    ):
        ran = run("bdn", *arguments)
        assert ran.code in (1, 2), ran
        assert words in ran.err, ran


def test_a_directory_that_is_not_there_is_named_with_what_starts_one(run: Run) -> None:
    ran = run("bdn", "list", "--at", "127.0.0.1:1")
    assert ran.code == 1
    assert "`heliograph bdn run` starts one" in ran.err


@pytest.mark.live
@pytest.mark.slow
def test_a_network_has_a_directory_that_knows_its_brokers_and_ends_with_it(run: Run, tmp_path: Path) -> None:
    ran = piped(tmp_path, "network", "up", "2", "--detach", "--json", data=b"")
    try:
        assert ran.returncode == 0, ran.stderr
        view = json.loads(run("network", "map", "--json").out)
        (directory,) = view["directories"]
        assert directory["state"] == "running"
        assert f"directory {directory['name']} knows them" in ran.stderr.decode()
        assert f"bdn list --at {directory['address']}" in ran.stderr.decode()
        rows = listed(run, directory["address"], 2)
        assert sorted(row["broker"] for row in rows) == [row["name"] for row in json.loads(ran.stdout)]
        assert f"directory bdn  {directory['address']}" in run("network", "map").out

        psutil.Process(directory["pid"]).kill()
        psutil.wait_procs([psutil.Process(directory["pid"])] if psutil.pid_exists(directory["pid"]) else [], 5)
        assert "not answering" in run("network", "map").out
    finally:
        down = run("network", "down")
    assert down.err == "2 of 2 brokers were running and are stopped\n"
    assert not (tmp_path / "run" / "network").exists()


@pytest.mark.live
@pytest.mark.slow
def test_a_network_can_do_without_one(run: Run, tmp_path: Path) -> None:
    ran = piped(tmp_path, "network", "up", "1", "--no-bdn", "--detach", "--json", data=b"")
    try:
        assert ran.returncode == 0, ran.stderr
        assert json.loads(run("network", "map", "--json").out)["directories"] == []
        assert "directories" not in (tmp_path / "run" / "network" / "a1.toml").read_text()
    finally:
        assert run("network", "down").code == 0
