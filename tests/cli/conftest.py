"""Running the command line in this process, errors and exit codes included."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `heliograph` with these arguments in an empty folder, with nothing of the user's own settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HELIOGRAPH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HELIOGRAPH_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "state"))

    def run_one(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        code = ended.value.code
        assert isinstance(code, int) or code is None
        out, err = capsys.readouterr()
        return Ran(code or 0, out, err)

    return run_one
