"""What the README says happens when things fail, and the demo. What it shows is walked in test_pages_walked.py."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.house import ROOT

README = (ROOT / "README.md").read_text("utf-8")
DEADLINE_S = 150

pytestmark = pytest.mark.live


def commands(heading: str) -> list[list[str]]:
    """The commands of a section, in order."""
    section = README.partition(f"{heading}\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^\$ (heliograph .*)$", section, re.MULTILINE)]


def start(words: list[str], environment: dict[str, str], **more: int) -> subprocess.Popen[str]:
    """Run a command as its own process; ``heliograph`` is this checkout's."""
    assert words[0] == "heliograph"
    program = [sys.executable, "-u", "-m", "heliograph.cli.main", *words[1:]]
    return subprocess.Popen(program, env=environment, text=True, stdout=subprocess.PIPE, **more)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of this machine's own settings, and a free port instead of the usual one."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
    return plain | {"HELIOGRAPH_LISTENER__MAIN__PORT": "0", "HELIOGRAPH_RUNTIME_DIR": str(tmp_path)}


@pytest.mark.slow
@pytest.mark.req("N4", "N5", "N8")
def test_the_network_goes_on_when_a_broker_on_the_way_is_killed(environment: dict[str, str]) -> None:
    up, show, subscribe, publish, trace, down = commands("## Many brokers")
    del environment["HELIOGRAPH_LISTENER__MAIN__PORT"]

    def run(command: list[str]) -> str:
        return ended(command, environment)

    try:
        rows = re.findall(r"^\s*(\w+)\s.*127\.0\.0\.1:(\d+)\s+(\d+)", run(up), re.MULTILINE)
        ports, pids = {name: port for name, port, _ in rows}, {name: int(pid) for name, _, pid in rows}
        assert len(ports) == 9
        assert all(name in run(show) for name in ports)
        subscriber = start([word.replace("PORT_OF_C1", ports["c1"]) for word in subscribe], environment, stderr=-1)
        assert subscriber.stderr is not None
        assert subscriber.stdout is not None
        assert "sensors/#" in subscriber.stderr.readline()
        publish = [word.replace("PORT_OF_A1", ports["a1"]) for word in publish]
        run(publish)
        assert subscriber.stdout.readline() == "sensors/kitchen 21.5\n"
        way = next(line for line in run(trace).splitlines() if "→ c1" in line)
        victim = re.findall(r"\w+", way.partition("(")[0])[1]
        os.kill(pids[victim], signal.SIGKILL)
        run(publish)
        assert subscriber.stdout.readline() == "sensors/kitchen 21.5\n"
        subscriber.terminate()
        subscriber.communicate(timeout=DEADLINE_S)
    finally:
        run(down)


@pytest.mark.slow
@pytest.mark.req("B5", "B11", "B12", "B14")
def test_a_broker_is_found_and_found_again_without_the_directory(environment: dict[str, str], tmp_path: Path) -> None:
    up, discover = commands("## Finding a broker")
    del environment["HELIOGRAPH_LISTENER__MAIN__PORT"]
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state")}
    try:
        ports = re.findall(r"127\.0\.0\.1:(\d+)", ended(up, environment))
        assert len(ports) == 5
        shown = json.loads(ended(["heliograph", "network", "map", "--json"], environment))
        (directory,) = shown["directories"]
        asked = [*discover, "--bdn", directory["address"], "--timeout", "30"]
        alone = [*asked, "--no-multicast"]  # where brokers of others on this machine answer too, perhaps nearer ones
        found = ended(alone, environment)
        assert any(f"heliograph://127.0.0.1:{port} " in found for port in ports)
        assert f"directory {directory['address']}: acknowledged" in found
        os.kill(directory["pid"], signal.SIGKILL)
        remembered = ended(alone, environment)
        assert any(f"heliograph://127.0.0.1:{port} " in remembered for port in ports)
        assert "multicast" in ended(asked, environment)
    finally:
        ended(["heliograph", "network", "down"], environment)


def ended(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints that ends well."""
    process = start(command, environment, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=2 * DEADLINE_S)
    assert process.returncode == 0, err
    return out


@pytest.mark.slow
def test_the_demo_ends_well_and_reports_what_it_measured(environment: dict[str, str]) -> None:
    del environment["HELIOGRAPH_LISTENER__MAIN__PORT"]
    demo = start(["heliograph", "demo", "--no-spark"], environment, stderr=subprocess.PIPE)
    out, err = demo.communicate(timeout=2 * DEADLINE_S)
    assert (demo.returncode, err) == (0, "")
    assert "as it should be" in out
    assert "heliograph simulate" in out
    assert out.count(" matched ") == 4  # three languages, and the report
