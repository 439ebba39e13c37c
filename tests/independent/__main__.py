"""The independent check from the command line: a table of what was sent, expected and wrong.

In:    seeds: `python -m tests.independent --topologies 1..20 --triangles 1..10 --faults 1..3 --stores 1..20
       --archive 1..5 --absent 1..20 --slow 1..20
       --watches 1..20 --resources 1..20`.
Out:   a line per run, and their sum; exit code 1 if anything was lost, repeated, extra or misordered without a fault,
       or if another promise was broken.
State: none.
Not here: the runs (runs.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.independent.absent_runs import with_absences
from tests.independent.archive_runs import with_archive
from tests.independent.oracle import Verdict
from tests.independent.resource_runs import with_resources
from tests.independent.runs import WithFaults, on_random_topology, on_two_triangles, with_faults
from tests.independent.slow_runs import with_slow_subscribers
from tests.independent.store_runs import with_stores
from tests.independent.watch_runs import with_watches

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


class Counted(Protocol):
    """What a run says: figures, how much is wrong, and what."""

    problems: list[str]

    @property
    def figures(self) -> Mapping[str, int]: ...

    @property
    def wrong(self) -> int: ...


def line_of(figures: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in figures.items())


def add_up(name: str, play: Callable[[int, Path], Counted], seeds: range, details: int) -> int:
    """A line per run and one for all of them; how much was wrong."""
    total: Counter[str] = Counter()
    wrong = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            found = play(seed, Path(folder))
        total.update(found.figures)
        wrong += found.wrong
        say(f"{name} {seed}: {line_of(found.figures)}")
        for problem in found.problems[:details]:
            say(f"    {problem}")
    say(f"{name}, all {len(seeds)}: {line_of(total)}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.independent")
    parser.add_argument("--topologies", type=span, default=range(0), help="seeds of random topologies, such as 1..20")
    parser.add_argument("--triangles", type=span, default=range(0), help="seeds of the two triangles under load")
    parser.add_argument("--faults", type=span, default=range(0), help="seeds of networks with faults")
    parser.add_argument("--stores", type=span, default=range(0), help="seeds of networks with stores and faults")
    parser.add_argument("--archive", type=span, default=range(0), help="seeds of archives that are killed")
    parser.add_argument("--absent", type=span, default=range(0), help="seeds of stores that are away for seconds")
    parser.add_argument("--slow", type=span, default=range(0), help="seeds of subscribers that read slowly")
    parser.add_argument("--watches", type=span, default=range(0), help="seeds of watches while a broker restarts")
    parser.add_argument("--resources", type=span, default=range(0), help="seeds of networks with resources")
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
    further: list[tuple[str, Callable[[int, Path], Counted], range]] = [
        ("absent", with_absences, chosen.absent),
        ("slow", with_slow_subscribers, chosen.slow),
        ("watches", with_watches, chosen.watches),
        ("resources", with_resources, chosen.resources),
    ]
    for name, judged, seeds in further:
        if seeds:
            wrong += add_up(name, judged, seeds, chosen.details)
    table.line("all, without faults", table.total)
    say(f"{time.monotonic() - begin:.0f} s")
    return int(any(table.total.wrong) or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
