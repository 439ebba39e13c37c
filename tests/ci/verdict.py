"""The verdict on a failed target: which of its failures a second try may excuse, and which none can.

In:    what `make --keep-going TARGET` printed, and which tests pytest remembers as failed before and after the second
       try.
Out:   faults, each a line of text; the unsteady tests, each with what its first failure printed.
State: none.
Not here: running anything (__main__.py).

A second try is for tests that depend on real sockets, processes or Spark, and so on how busy the machine is. All others
say the same every time: they get none, and neither do crashed workers, scenarios, mutants and checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

UNSTEADY_MAX = 3  # in one run; more say that something is wrong with the product or the machine
TESTS_FAILED = 1  # pytest's exit code; others mean that it could not do its work
OUTPUT_LINES_MAX = 60  # of a first failure

_STOPPED = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[(?:[^\]:]+:\d+: )?([\w./-]+)\] Error (\d+)", re.MULTILINE)
_CRASHED = re.compile(r"^.*worker '\w+' crashed.*$", re.MULTILINE)


def lasting_faults(printed: str, with_tests: Iterable[str]) -> list[str]:
    """The faults in what make printed that no second try can heal. ``with_tests``: the targets that run pytest."""
    tested = set(with_tests)
    stopped = _STOPPED.findall(printed)
    if not stopped:
        return ["make failed and did not say where"]
    faults = [
        f"make {target}: exit code {code}"
        for target, code in stopped
        if target not in tested or int(code) != TESTS_FAILED
    ]
    return faults + [found.strip() for found in _CRASHED.findall(printed)]


def faults_of_tests(failed: Iterable[str], failed_again: Iterable[str]) -> list[str]:
    """The faults that are left after the second try. ``failed_again``: what failed in it, or got none."""
    again = list(failed_again)
    unsteady = [test for test in failed if test not in again]
    faults = [f"{test}: failed" for test in again]
    if len(unsteady) > UNSTEADY_MAX:
        faults.append(f"{len(unsteady)} tests passed only at the second try; {UNSTEADY_MAX} are accepted")
    return faults


def first_output(printed: str, test: str) -> str:
    """What the first failure of a test printed."""
    name = re.escape(test.rsplit("::", 1)[-1])
    found = re.search(rf"^_{{3,}} (?:\S+ )*(?:\S*\.)?{name} _{{3,}}$", printed, re.MULTILINE)
    if found is None:
        return "(not found in the output above)"
    lines = printed[found.start() :].splitlines()
    end = next((at for at, line in enumerate(lines[1:], 1) if re.match(r"_{3,} .* _{3,}$|={3,} ", line)), len(lines))
    shown = lines[:end]
    return "\n".join(shown if len(shown) <= OUTPUT_LINES_MAX else [*shown[:10], "…", *shown[10 - OUTPUT_LINES_MAX :]])
