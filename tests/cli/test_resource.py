"""`heliograph resource` and `heliograph discover resource`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heliograph import connect_blocking
from heliograph.cli.discover_resource import _order
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


@pytest.mark.req("R12")
def test_one_option_says_which_resources_are_best() -> None:
    assert [_order("load", ""), _order("", "me"), _order("", "together"), _order("", "")] == [
        *("load", "near", "together", "")
    ]
    for order, near in (("load", "me"), ("", "far")):
        with pytest.raises(UsageError):
            _order(order, near)


@pytest.mark.live
@pytest.mark.req("R4", "R12")
def test_a_machine_is_registered_found_updated_and_withdrawn(tmp_path: Path) -> None:
    with Process(tmp_path, "--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery") as broker:
        say = commands(tmp_path, broker)
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


@pytest.mark.live
@pytest.mark.req("R4", "R7", "R8", "R10", "R12")
def test_every_option_of_discover_resource_does_what_it_says(tmp_path: Path) -> None:
    with (
        Process(tmp_path, "--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery", "--name", "b") as broker,
        connect_blocking(f"127.0.0.1:{broker.port}") as client,
    ):
        say = commands(tmp_path, broker)
        machines = [client.register_resource("load >= 0", name=f"m{n}", values={"load": n}) for n in range(4)]
        client.register_resource(attributes={"colour": "red"}, model="static", name="printer")

        def names(*options: str) -> list[str]:
            found = json.loads(say("discover", "resource", *options, "--json"))
            assert found["complete"]
            return [each["name"] for each in found["resources"]]

        assert names("--where", "load >= 1", "--best", "2", "--order", "load desc") == ["m3", "m2"]
        near = names("--best", "2", "--near", "together", "--deliver", "direct", "--deadline", "30")
        assert len(near) == 2
        assert names("--model", "static", "--where", "colour = 'red'", "--near", "me") == ["printer"]
        explained = say("discover", "resource", "--deliver", "normal", "--max-age", "0", "--explain")
        assert "attempts" in explained
        assert "m0" in explained
        assert "--watch" in say("discover", "resource", "--watch", "--best", "2", fails=True)
        with watching(tmp_path, broker, "--where", "load >= 3") as changes:
            assert changes() == ("appeared", "m3")
            machines[0].update({"load": 7})
            assert changes() == ("appeared", "m0")
            machines[0].update({"load": 8})
            assert changes() == ("changed", "m0")
            machines[3].update({"load": 0})
            assert changes() == ("stopped", "m3")
            machines[0].withdraw()
            assert changes() == ("vanished", "m0")


def commands(folder: Path, broker: Process) -> Callable[..., str]:
    """Runs commands there: what they print, or what they print when they have to fail."""

    def say(*words: str, fails: bool = False) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "heliograph.cli.main", *words],
            cwd=folder,
            env={**os.environ, "HELIOGRAPH_URL": f"127.0.0.1:{broker.port}"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert bool(ran.returncode) == fails, ran.stderr
        return ran.stderr if fails else ran.stdout

    return say


@contextmanager
def watching(folder: Path, broker: Process, *options: str) -> Iterator[Callable[[], tuple[str, str]]]:
    """`discover resource --watch --json`: gives its next change."""
    words = [sys.executable, "-m", "heliograph.cli.main", "discover", "resource", "--watch", "--json", *options]
    environment = {**os.environ, "HELIOGRAPH_URL": f"127.0.0.1:{broker.port}", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        lines = ran.stdout

        def change() -> tuple[str, str]:
            said = json.loads(lines.readline())
            return said["kind"], said["name"]

        try:
            yield change
        finally:
            ran.terminate()
            assert ran.wait(60) == 0
