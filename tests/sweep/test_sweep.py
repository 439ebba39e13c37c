"""The sweep plays every shipped scenario, and says so when a seed fails or when nothing was played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.errors import UsageError
from heliograph.sim.scenario_files import shipped
from tests.sweep.__main__ import main
from tests.sweep.seeds import FILE, listed, read

BUGGY = str(Path(__file__).parents[1] / "sim" / "dropped-frame.toml")


def test_every_shipped_scenario_is_listed_with_its_seeds() -> None:
    assert sorted(listed()) == sorted(shipped()), f"update {FILE.name}: `make sweep` plays what is listed there"
    assert all(row.keys() == {"test", "sweep"} for row in listed().values())
    for name, row in listed().items():
        assert row["test"], name
        assert row["sweep"], name


def test_seeds_are_ranges_and_single_numbers() -> None:
    assert read("1..3, 394") == [1, 2, 3, 394]
    assert read("7") == [7]
    for wrong in ("", "1..", "3..1", "1,,2", "x"):
        with pytest.raises(UsageError):
            read(wrong)


def test_a_good_sweep_has_one_line_per_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "2"], {"access": [1, 2], "faults": [1]}) == 0
    access, faults, summary = capsys.readouterr().out.splitlines()
    assert access.startswith("access  ")
    assert "2 seeds  all good" in access
    assert "1 seeds  all good" in faults
    assert summary.startswith("2 scenarios, 3 runs, 0 failed")


@pytest.mark.req("O7")
def test_a_seed_that_fails_is_told_with_its_replay_command_and_fails_the_sweep(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--jobs", "1"], {BUGGY: [1, 2], "access": [1]}) == 1
    printed = capsys.readouterr().out
    assert "2 FAILED" in printed
    assert f"replay: heliograph simulate {BUGGY} --seed 2" in printed
    assert "never got publication" in printed

    assert main(["--jobs", "1", "--json"], {BUGGY: [3]}) == 1
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert [failure["replay"] for failure in row["failures"]] == [f"heliograph simulate {BUGGY} --seed 3"]


def test_a_sweep_of_nothing_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "1"], {}) == 1
    assert main(["--jobs", "1"], {"access": []}) == 1
    assert "nothing was played of: access" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["nonsense"])
