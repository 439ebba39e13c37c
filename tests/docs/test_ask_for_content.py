"""What the page about conditions shows works as written: its commands, its error, its program and its examples."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.matching.languages import LANGUAGES, compile
from tests.architecture.house import ROOT
from tests.cli.processes import PATIENCE_S, broker, environment, piped, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("N9", "O2")]
PAGE = (ROOT / "docs" / "how-to" / "ask-for-content.md").read_text("utf-8")
_, SUBSCRIBE, PUBLISH, MISTAKEN, IN_SQL, TRACE = [
    shlex.split(line)[1:] for line in re.findall(r"^\$ (heliograph .*)$", PAGE, re.MULTILINE)
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with broker(home) as (_, address):
        yield address


def test_the_second_terminal_prints_what_fits_and_a_trace_says_why_not(home: Path, url: str) -> None:
    other = [word.replace("disk=200", "disk=12") for word in PUBLISH]
    with subscriber(home, *SUBSCRIBE[1:], HELIOGRAPH_URL=url) as terminal:
        for command in (other, PUBLISH):
            assert piped(home, *command, data=b"", HELIOGRAPH_URL=url).returncode == 0
        line = json.loads(terminal.line())
        traced = piped(home, *TRACE, data=b"", HELIOGRAPH_URL=url).stdout.decode()

    assert (line["topic"], line["headers"]) == ("hosts/h1", {"disk": 200, "system": "linux"})
    assert "no client would get it" in traced
    assert "failed: disk > 120" in traced


def test_the_other_language_is_understood(home: Path, url: str) -> None:
    with subscriber(home, *IN_SQL[1:], HELIOGRAPH_URL=url) as terminal:
        assert piped(home, *PUBLISH, data=b"", HELIOGRAPH_URL=url).returncode == 0
        assert terminal.line() == "hosts/h1 x"


@pytest.mark.req("O6")
def test_the_error_is_the_one_on_the_page(home: Path, url: str) -> None:
    ran = piped(home, *MISTAKEN, data=b"", HELIOGRAPH_URL=url)
    assert ran.returncode == 1
    assert ran.stderr.decode().replace(f"{url}: ", "") in PAGE  # the reader gives no address


def test_the_program_runs(home: Path, url: str) -> None:
    (body,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    lines = ["import asyncio, heliograph", "async def main():", *(f"    {line}" for line in body.splitlines())]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "asyncio.run(main())"])],
        env=environment(home, HELIOGRAPH_URL=url),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("hosts/h3\n", "")


def test_every_language_is_in_the_table_with_a_condition_that_it_reads() -> None:
    rows = re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\| `(.*)` \|$", PAGE, re.MULTILINE)
    assert sorted(language for language, _ in rows) == sorted(LANGUAGES)
    for language, condition in rows:
        compile(language, condition)
