"""The independent check from the command line: a table of what was sent, expected and wrong.

In:    seeds: `python -m tests.independent --topologies 1..20 --triangles 1..10 --faults 1..3 --stores 1..20
       --archive 1..5`.
Out:   a line per run, and their sum; exit code 1 if anything was lost, repeated, extra or misordered without a fault.
State: none.
Not here: the runs (runs.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.independent.archive_runs import with_archive
from tests.independent.oracle import Verdict
from tests.independent.runs import WithFaults, on_random_topology, on_two_triangles, with_faults
from tests.independent.store_runs import with_stores

COLUMNS = ("sent", "expected", "lost", "twice", "shared", "extra", "misordered")


def span(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Table:
    """Prints a line per verdict and keeps the sum."""

    def __init__(self, details: int) -> None:
        self.total = Verdict()
        self._details = details
        say(f"{'run':24}" + "".join(f"{column:>12}" for column in COLUMNS))

    def line(self, name: str, verdict: Verdict) -> None:
        say(f"{name:24}" + "".join(f"{getattr(verdict, column):>12,}" for column in COLUMNS))
        for detail in verdict.details[: self._details]:
            say(f"    {detail}")

    def add(self, name: str, verdict: Verdict) -> None:
        self.line(name, verdict)
        for column in COLUMNS:
            setattr(self.total, column, getattr(self.total, column) + getattr(verdict, column))

    def add_faults(self, name: str, verdicts: WithFaults) -> None:
        self.add(f"{name}, before", verdicts.before)
        self.line(f"{name}, during", verdicts.during)  # not in the sum: a killed broker may lose what it had
        self.add(f"{name}, after", verdicts.after)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.independent")
    parser.add_argument("--topologies", type=span, default=range(0), help="seeds of random topologies, such as 1..20")
    parser.add_argument("--triangles", type=span, default=range(0), help="seeds of the two triangles under load")
    parser.add_argument("--faults", type=span, default=range(0), help="seeds of networks with faults")
    parser.add_argument("--stores", type=span, default=range(0), help="seeds of networks with stores and faults")
    parser.add_argument("--archive", type=span, default=range(0), help="seeds of archives that are killed")
    parser.add_argument("--details", type=int, default=0, help="print so many details of what was wrong, per run")
    chosen = parser.parse_args()
    table = Table(chosen.details)
    begin = time.monotonic()
    for seed in chosen.topologies:
        with tempfile.TemporaryDirectory() as folder:
            table.add(f"topology {seed}", on_random_topology(seed, Path(folder)))
    for seed in chosen.triangles:
        with tempfile.TemporaryDirectory() as folder:
            table.add(f"triangles {seed}", on_two_triangles(seed, Path(folder)))
    for seed in chosen.faults:
        with tempfile.TemporaryDirectory() as folder:
            table.add_faults(f"faults {seed}", with_faults(seed, Path(folder)))
    wrong = 0
    for name, play, seeds in (("stores", with_stores, chosen.stores), ("archive", with_archive, chosen.archive)):
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                kept = play(seed, Path(folder))
            wrong += kept.lost + kept.twice + kept.misordered + len(kept.problems)
            say(f"{name} {seed}: {kept.line}")
            for problem in kept.problems[: chosen.details]:
                say(f"    {problem}")
    table.line("all, without faults", table.total)
    say(f"{time.monotonic() - begin:.0f} s")
    return int(any(table.total.wrong) or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
