"""What the README shows works as written: the two terminals, the ten lines, the demo."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.house import ROOT

README = (ROOT / "README.md").read_text("utf-8")
DEADLINE_S = 60

pytestmark = pytest.mark.live


def commands() -> list[list[str]]:
    """The commands of the session, in order."""
    return [shlex.split(line) for line in re.findall(r"^\$ (heliograph .*)$", README, re.MULTILINE)]


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


@pytest.fixture
def broker(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The README's broker; gives the environment in which clients find it."""
    process = start(commands()[0], environment, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        opened = re.search(r"open on 127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert opened is not None
        while "ready" not in process.stderr.readline():
            pass
        own = {name: value for name, value in environment.items() if "LISTENER" not in name}
        yield own | {"HELIOGRAPH_URL": f"heliograph://127.0.0.1:{opened[1]}"}
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.req("O2", "O1")
def test_what_one_terminal_publishes_the_other_prints(broker: dict[str, str]) -> None:
    _, subscribe, publish = commands()
    subscriber = start(subscribe, broker, stderr=subprocess.PIPE)
    try:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        assert "sensors/#" in subscriber.stderr.readline()  # it says when its subscription is in force
        assert start(publish, broker).wait(DEADLINE_S) == 0
        assert subscriber.stdout.readline() == "sensors/kitchen 21.5\n"
    finally:
        subscriber.terminate()
        subscriber.communicate(timeout=DEADLINE_S)


def test_the_ten_lines_run(broker: dict[str, str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", program], env=broker, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (ran.stdout, ran.stderr) == ("sensors/kitchen 21.5\n", "")


@pytest.mark.slow
def test_the_demo_ends_well_and_reports_what_it_measured(environment: dict[str, str]) -> None:
    del environment["HELIOGRAPH_LISTENER__MAIN__PORT"]
    demo = start(["heliograph", "demo"], environment, stderr=subprocess.PIPE)
    out, err = demo.communicate(timeout=2 * DEADLINE_S)
    assert (demo.returncode, err) == (0, "")
    assert "as it should be" in out
    assert "heliograph simulate" in out
