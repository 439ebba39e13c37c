"""`python -m tests.mutants`: plant each bug of list.toml in a copy of the sources and see that its test notices.

In:    list.toml; words, if only mutants whose file or bug contains one of them are wanted.
Out:   one line per mutant: found, NOT FOUND, does not apply, or why its test could not be run; exit code 1 unless all
       were found.
State: one copy of src/ per mutant, in a temporary folder. The checkout is never changed.
Not here: that the same tests pass without a bug (`make test`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from tests.mutants.listing import LIST, ROOT, DoesNotApplyError, Mutant, mutants

SECONDS_MAX = 120  # for one mutant's test, on a busy machine
FOUND, NOT_FOUND, STALE, BROKEN = "found", "NOT FOUND", "does not apply", "could not run"
TESTS_FAILED = 1  # exit codes of pytest; the others are no verdict: no tests, an import that fails, a wrong name
TESTS_PASSED = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    verdict: str
    seconds: float
    detail: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict:<15}{self.seconds:>6.1f} s  {self.mutant.file:<38} {self.mutant.bug}"
        return f"{line}\n{indented(self.detail)}" if self.detail else line


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def try_out(mutant: Mutant) -> Outcome:
    """Plant the bug in a copy of its own and run its test there."""
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="heliograph-mutant-") as folder:
        tree = Path(folder) / "src"
        # Compiled files keep their times, so that they still belong to their sources.
        shutil.copytree(ROOT / "src", tree, ignore=shutil.ignore_patterns("*.egg-info", "*.c"))
        try:
            plant(mutant, tree)
        except DoesNotApplyError as error:
            return Outcome(mutant, STALE, perf_counter() - began, str(error))
        verdict, detail = run_test(mutant, tree)
    return Outcome(mutant, verdict, perf_counter() - began, detail)


def plant(mutant: Mutant, tree: Path) -> None:
    file = tree / "heliograph" / mutant.file
    if not file.is_file():
        raise DoesNotApplyError(
            f"src/heliograph/{mutant.file} is gone: update the mutant {mutant.bug!r} in {LIST.relative_to(ROOT)}"
        )
    file.write_text(mutant.planted(file.read_text("utf-8")), "utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()


def run_test(mutant: Mutant, tree: Path) -> tuple[str, str]:
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "HELIOGRAPH_PLANTED": str(tree),
        "HELIOGRAPH_KERNELS": mutant.kernels,
    }
    options = '-x -q --tb=line -m "not sweep" -p tests.mutants.planted -p no:cacheprovider --hypothesis-profile mutants'
    command = [sys.executable, "-m", "pytest", *shlex.split(options), mutant.test]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return BROKEN, f"{mutant.test} did not end in {SECONDS_MAX} s"
    if done.returncode == TESTS_FAILED:
        return FOUND, ""
    if done.returncode == TESTS_PASSED:
        return NOT_FOUND, f"{mutant.test} passes with\n{indented(mutant.new)}\nin place of\n{indented(mutant.old)}"
    return BROKEN, f"pytest ended with {done.returncode}: {mutant.test}\n{(done.stdout + done.stderr)[-2_000:]}"


def main(arguments: Sequence[str] | None = None, listed: Sequence[Mutant] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Plant bugs; see that tests notice.")
    parser.add_argument("word", nargs="*", help="only mutants whose file or bug contains one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--json", action="store_true", help="one JSON object per mutant, and nothing else")
    wanted = parser.parse_args(arguments)
    listed = mutants() if listed is None else listed
    chosen = [one for one in listed if not wanted.word or any(word in one.file + one.bug for word in wanted.word)]

    began, verdicts = perf_counter(), []
    with ThreadPoolExecutor(wanted.jobs) as pool:
        for outcome in pool.map(try_out, chosen):
            verdicts.append(outcome.verdict)
            print(json.dumps(asdict(outcome)) if wanted.json else outcome, flush=True)
    found = verdicts.count(FOUND)
    if not wanted.json:
        print(f"{found} of {len(chosen)} planted bugs found, {perf_counter() - began:.0f} s")
    if not chosen:
        print("no planted bug was chosen", file=sys.stderr)
    return 0 if chosen and found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
