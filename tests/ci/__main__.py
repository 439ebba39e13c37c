"""`python -m tests.ci`: what `.ci/run` does once the environment is there.

In:    the targets of the Makefile.
Out:   everything they print, then the time each took, the unsteady tests and the faults; exit code 1 for any fault.
State: none; pytest's memory of failed tests is emptied at the start.
Not here: what a second try may excuse (verdict.py).

A failure does not stop the run: one run tells everything that is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from time import monotonic

from tests.ci.verdict import faults_of_tests, first_output, lasting_faults

ROOT = Path(__file__).parents[2]
MEMORY = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
TARGETS = ("check", "test", "sweep", "mutants")
WITH_TESTS = {"test": ("test-plain", "test-spark"), "sweep": ("sweep-plain", "sweep-spark")}
SECOND_TRY = ("-m", "pytest", "--lf", "--lfnf=none", "-n", "0", "-m", "live or spark")
SECOND_TRY_S_MAX = 600


def failed_tests() -> list[str]:
    """What pytest remembers as failed."""
    return sorted(json.loads(MEMORY.read_text("utf-8"))) if MEMORY.exists() else []


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run a command, show what it prints, and keep it."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        print(line, end="", flush=True)
        printed.append(line)
    return process.wait(), "".join(printed)


def faults_of(target: str, unsteady: dict[str, str]) -> list[str]:
    """Make a target; its faults. Tests that pass at the second try go into ``unsteady``, with both outputs."""
    code, printed = run(["make", "--keep-going", target])
    if code == 0:
        return []
    faults = lasting_faults(printed, WITH_TESTS.get(target, ()))
    failed = failed_tests()
    if not failed:
        return faults or [f"make {target}: exit code {code}"]
    print(f"\n{len(failed)} tests failed; those with sockets, processes or Spark get a second try:", flush=True)
    _, again = run(["timeout", str(SECOND_TRY_S_MAX), sys.executable, *SECOND_TRY])
    left = failed_tests()
    for test in failed:
        if test not in left:
            unsteady[test] = f"{first_output(printed, test)}\n-- second try, of {len(failed)} tests --\n{again[-1000:]}"
    return faults + faults_of_tests(failed, left)


def main() -> int:
    rmtree(MEMORY.parent, ignore_errors=True)
    took: list[str] = []
    faults: list[str] = []
    unsteady: dict[str, str] = {}
    for target in TARGETS:
        began = monotonic()
        found = faults_of(target, unsteady)
        faults += found
        took.append(f"make {target}: {'FAILED' if found else 'good'}, {monotonic() - began:.0f} s")
        MEMORY.unlink(missing_ok=True)
    for test, outputs in unsteady.items():
        print(f"\nUnsteady: {test}\n{outputs}")
    print("", *took, *(f"unsteady: {test}" for test in unsteady), *(f"fault: {fault}" for fault in faults), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
