"""`python -m tests.sweep`: play the listed seeds of every shipped scenario, on all cores.

In:    seeds.toml; names of scenarios, if only some are wanted.
Out:   one line per scenario; for each failure what was violated and the command that replays it; exit code 1 for any.
State: none.
Not here: which seeds (seeds.toml), the slow live tests of `make sweep` (marker `sweep`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from time import perf_counter

from heliograph.cli.simulate import parse_seeds
from heliograph.sim.run import RunResult, play
from heliograph.sim.scenario import Scenario
from heliograph.sim.scenario_files import load
from tests.sweep.seeds import listed

VIOLATIONS_MAX = 5  # shown per failure
STORES = "stores-"  # scenarios about stores, and how many acknowledgements each of their runs must have at least
ACKNOWLEDGED_MIN = 500
KILLS = ("crash", "power_cut", "disk_torn", "replace")
DISK_FAULTS = ("disk_full", "disk_slow", "disk_flip")


@dataclass(frozen=True)
class Run:
    """One seed of one scenario, played."""

    scenario: str
    seed: int
    inputs: int  # that machines had
    seconds: float
    problems: list[str]
    tally: dict[str, int] = field(default_factory=dict)  # of checkers, with the kills

    @property
    def replay(self) -> str:
        return f"heliograph simulate {self.scenario} --seed {self.seed}"


@dataclass
class Row:
    """One scenario, with all its seeds."""

    scenario: str
    seeds: int = 0
    inputs: int = 0
    seconds: float = 0.0  # of one core
    failures: list[Run] = field(default_factory=list)
    tally: dict[str, int] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        self.seeds += 1
        self.inputs += run.inputs
        self.seconds += run.seconds
        _add(self.tally, run.tally)
        if run.problems:
            self.failures.append(run)

    def __str__(self) -> str:
        failed = f"{len(self.failures)} FAILED" if self.failures else "all good"
        return f"{self.scenario:<20}{self.seeds:>6} seeds  {failed:<12}{self.seconds:>7.1f} s"


def play_one(scenario: str, seed: int) -> Run:
    """In a process of its own pool: what went wrong comes back as text."""
    began = perf_counter()
    try:
        result = play(loaded(scenario), seed)
    except Exception:
        return Run(scenario, seed, 0, perf_counter() - began, [traceback.format_exc()])
    problems = [*filter(None, [result.crash]), *map(str, result.violations), *idle(result)]
    tally = {**result.tally, "kills": _struck(result, KILLS)} if result.tally else {}
    return Run(scenario, seed, result.inputs, perf_counter() - began, problems, tally)


def idle(result: RunResult) -> list[str]:
    """A run of stores in which little was acknowledged, or nothing failed, proves nothing."""
    if not result.scenario.startswith(STORES):
        return []
    acknowledged = result.tally.get("acknowledged", 0)
    few = [f"only {acknowledged} were acknowledged"] if acknowledged < ACKNOWLEDGED_MIN else []
    return few + ([] if _struck(result, KILLS + DISK_FAULTS) else ["nothing was killed and no disk failed"])


def _struck(result: RunResult, kinds: tuple[str, ...]) -> int:
    return sum(result.faults.get(kind, 0) for kind in kinds)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


@cache
def loaded(scenario: str) -> Scenario:
    return load(scenario)


def sweep(plan: dict[str, list[int]], jobs: int) -> Iterable[Row]:
    """Each scenario once all its seeds are played, in the order of the plan."""
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {name: [pool.submit(play_one, name, seed) for seed in seeds] for name, seeds in plan.items()}
        for name, futures in waiting.items():
            row = Row(name)
            for future in futures:
                row.add(future.result())
            yield row


def show(row: Row) -> None:
    print(row, flush=True)
    for run in row.failures:
        shown = run.problems[:VIOLATIONS_MAX]
        rest = len(run.problems) - len(shown)
        print("\n".join(f"    {text}" for text in [*shown, *([f"and {rest} more"] if rest else [])]))
        print(f"    replay: {run.replay}", flush=True)


def main(arguments: Sequence[str] | None = None, plan: dict[str, list[int]] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description="Play the listed seeds of scenarios.")
    parser.add_argument("scenario", nargs="*", help="only these")
    parser.add_argument("--seeds", metavar="A..B", help="these seeds of each, in place of the listed ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--json", action="store_true", help="one JSON object per scenario, and nothing else")
    wanted = parser.parse_args(arguments)
    plan = {name: row["sweep"] for name, row in listed().items()} if plan is None else plan
    if unknown := [name for name in wanted.scenario if name not in plan]:
        parser.error(f"not listed in tests/sweep/seeds.toml: {', '.join(unknown)}")
    chosen = {name: seeds for name, seeds in plan.items() if name in (wanted.scenario or plan)}
    if wanted.seeds is not None:
        chosen = {name: [*parse_seeds(wanted.seeds)] for name in chosen}

    began, rows = perf_counter(), []
    for row in sweep(chosen, wanted.jobs):
        rows.append(row)
        if wanted.json:
            failures = [asdict(run) | {"replay": run.replay} for run in row.failures]
            print(json.dumps(asdict(row) | {"failures": failures}), flush=True)
        else:
            show(row)
    return verdict(rows, perf_counter() - began, quiet=wanted.json)


def verdict(rows: list[Row], seconds: float, *, quiet: bool) -> int:
    """The exit code. A scenario of which nothing was played is no success."""
    failed = sum(len(row.failures) for row in rows)
    unplayed = [row.scenario for row in rows if not row.inputs]
    totals: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.tally:
            _add(totals.setdefault(row.scenario.partition("-")[0], {}), row.tally)
    for what, total in totals.items() if not quiet else ():
        print(f"{what}: " + ", ".join(f"{count:,} {name}" for name, count in total.items()))
    if not quiet:
        print(f"{len(rows)} scenarios, {sum(row.seeds for row in rows)} runs, {failed} failed, {seconds:.0f} s")
    if unplayed or not rows:
        print(f"nothing was played of: {', '.join(unplayed) or 'no scenario at all'}", file=sys.stderr)
    return 1 if failed or unplayed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
