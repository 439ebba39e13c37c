"""`heliograph simulate`: what it prints, what it returns, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heliograph.cli.main import app
from heliograph.cli.simulate import parse_seeds, simulate
from heliograph.errors import ConfigError, UsageError
from heliograph.sim.scenario_files import shipped

BUGGY = str(Path(__file__).with_name("dropped-frame.toml"))


@pytest.mark.req("O2", "O7")
def test_a_good_run_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("access", 1) == 0
    printed = capsys.readouterr().out

    for word in ("published", "delivered", "faults", "virtual", "inputs", "digest"):
        assert word in printed


@pytest.mark.req("O2")
def test_json_is_one_object_per_run_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("access", seeds="3..5", json=True) == 0
    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [run["seed"] for run in runs] == [3, 4, 5]
    assert all(run["ok"] and run["inputs"] > 0 and len(run["digest"]) == 64 for run in runs)
    assert len({run["digest"] for run in runs}) == 3
    assert runs[0]["replay"] == "heliograph simulate access --seed 3"


def test_a_failed_run_shows_violations_journal_step_digest_and_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(BUGGY, 2) == 1
    printed = capsys.readouterr().out

    assert "FAILED" in printed
    assert "delivery at step" in printed
    assert "published" in printed
    assert "virtual s" in printed
    assert printed.splitlines()[-1] == f"replay: heliograph simulate {BUGGY} --seed 2"


def test_many_seeds_are_counted_and_the_bad_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(BUGGY, seeds="1..2") == 1
    printed = capsys.readouterr().out

    assert "2 runs" in printed
    assert "failed with seed 1, 2" in printed


def test_the_journal_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("access", 1, journal=True) == 0
    lines = capsys.readouterr().out.splitlines()

    assert any("started" in line for line in lines)
    assert sum("received" in line for line in lines) > 500


def test_seeds_are_a_range_of_numbers() -> None:
    assert parse_seeds("1..3") == range(1, 4)
    assert parse_seeds("7..7") == range(7, 8)
    for wrong in ("", "5", "1..", "..3", "3..1", "a..b", "1...3", "-1..3", "1..99999999999999999999"):
        with pytest.raises(UsageError, match=r"write A\.\.B"):
            parse_seeds(wrong)


def test_a_scenario_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no scenario of that name"):
        simulate("nonsense", 1)


def test_the_command_line_lists_runs_and_refuses() -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["simulate", "--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in shipped())

    assert runner.invoke(app, ["simulate", "access", "--seed", "2", "--json"]).exit_code == 0
    assert runner.invoke(app, ["simulate", BUGGY]).exit_code == 1
    assert isinstance(runner.invoke(app, ["simulate"]).exception, UsageError)


def test_a_journal_that_does_not_go_back_far_enough_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.toml"
    file.write_text(Path(BUGGY).read_text().replace("duration_s = 3", "duration_s = 15").replace("= 50", "= 1000"))
    assert simulate(str(file), 1) == 1
    printed = capsys.readouterr().out
    assert "the journal does not go back to step" in printed
    assert "the journal up to step" not in printed
