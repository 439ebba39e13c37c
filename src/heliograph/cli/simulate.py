"""`heliograph simulate`: run a scenario in virtual time, from one seed or many.

In:    a scenario (a file, or the name of one that comes with Heliograph) and seeds.
Out:   the result, for people or as JSON lines; for a failed run the command that replays it, and exit code 1.
State: none.
Not here: the simulated world (sim/).
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.shape import FAILED, examples, say
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.sim.run import RunResult

LINES_MAX = 20  # of the journal, before a failure
VIOLATIONS_MAX = 10
FAILURES_MAX = 3  # shown in full
PROGRESS_S = 2.0
SEEDS_MAX = 10_000_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="simulate",
        help="Play a scenario in a simulated world.",
        epilog=examples(
            "heliograph simulate --list",
            "heliograph simulate faults --seed 7",
            "heliograph simulate my-network.toml --seeds 1..100 --json",
        ),
    )(_simulate)


def _simulate(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="A TOML file, or the name of a scenario from --list.")
    ] = "",
    seed: Annotated[
        int, typer.Option("--seed", help="What all chance is drawn from: the same seed, the same run.")
    ] = 1,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A..B", help="Play it with each of these seeds.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run, and nothing else.")] = False,
    journal: Annotated[bool, typer.Option("--journal", help="Print everything that happened, line by line.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the scenarios that come with Heliograph.")] = False,
) -> None:
    if list_all:
        _list()
        return
    if not scenario:
        raise UsageError("name a SCENARIO: a TOML file, or one of those that `heliograph simulate --list` shows")
    raise typer.Exit(simulate(scenario, seed, seeds, json=as_json, journal=journal))


def simulate(
    scenario: str, seed: int = 1, seeds: str | None = None, *, json: bool = False, journal: bool = False
) -> int:
    """Run a scenario with one seed or many. Returns the exit code."""
    from heliograph.sim.run import play
    from heliograph.sim.scenario_files import load

    plan = load(scenario)
    wanted = range(seed, seed + 1) if seeds is None else parse_seeds(seeds)
    report = _Report(scenario, len(wanted), as_json=json)
    for each in wanted:
        began = perf_counter()
        result = play(plan, each, keep_journal=journal)
        report.add(result, perf_counter() - began)
        if journal:
            print("\n".join(result.journal.lines()))
    return report.end()


def parse_seeds(text: str) -> range:
    """``A..B`` as the seeds from A to B, both included."""
    first, dots, last = text.partition("..")
    if dots and first.strip().isdecimal() and last.strip().isdecimal() and len(text) < 40:
        lowest, highest = int(first), int(last)
        if 0 <= highest - lowest < SEEDS_MAX:
            return range(lowest, highest + 1)
    raise UsageError(f"--seeds {text!r}: write A..B, such as 1..100, with A not above B")


class _Report:
    """Output during and after the runs."""

    def __init__(self, scenario: str, runs: int, *, as_json: bool) -> None:
        self._scenario = scenario
        self._runs = runs
        self._as_json = as_json
        self._failed: list[int] = []
        self._done = 0
        self._inputs = 0
        self._took_s = 0.0
        self._told_at = perf_counter()

    def add(self, result: RunResult, took_s: float) -> None:
        """A run has ended."""
        self._done += 1
        self._inputs += result.inputs
        self._took_s += took_s
        if not result.ok:
            self._failed.append(result.seed)
        if self._as_json:
            import json

            print(json.dumps(self._as_object(result, took_s)), flush=True)
        elif not result.ok and len(self._failed) <= FAILURES_MAX:
            self._show_failure(result)
        elif self._runs == 1:
            _show(result, took_s)
        if self._runs > 1:
            self._tell_progress()

    def end(self) -> int:
        """All runs have ended. Returns the exit code."""
        if self._runs > 1 and not self._as_json:
            each = f"{self._inputs:,} inputs, {self._inputs / self._took_s:,.0f}/s"
            print(f"{self._done} runs of {self._scenario}: {self._done - len(self._failed)} good, {each}")
            if self._failed:
                print(f"failed with seed {', '.join(map(str, self._failed[:20]))}")
        return FAILED if self._failed else 0

    def _replay(self, seed: int) -> str:
        import shlex

        return f"heliograph simulate {shlex.quote(self._scenario)} --seed {seed}"

    def _as_object(self, result: RunResult, took_s: float) -> dict[str, Any]:
        return {
            "scenario": result.scenario,
            "seed": result.seed,
            "ok": result.ok,
            "published": result.published,
            "delivered": result.delivered,
            "faults": result.faults,
            "measured": result.measured,
            "inputs": result.inputs,
            "virtual_s": result.virtual_s,
            "real_s": round(took_s, 3),
            "inputs_per_s": round(result.inputs / took_s),
            "digest": result.digest,
            "violations": [
                {"checker": each.checker, "step": each.step, "virtual_s": each.instant / 1e9, "text": each.text}
                for each in result.violations
            ],
            "replay": self._replay(result.seed),
        }

    def _show_failure(self, result: RunResult) -> None:
        print(f"{result.scenario}, seed {result.seed}: FAILED")
        for violation in result.violations[:VIOLATIONS_MAX]:
            print(f"  {violation}")
        if len(result.violations) > VIOLATIONS_MAX:
            print(f"  and {len(result.violations) - VIOLATIONS_MAX} more")
        if result.crash:
            print(result.crash.rstrip())
        first = min(violation.step for violation in result.violations)
        if lines := list(result.journal.lines(LINES_MAX, first)):
            print(f"the journal up to step {first}:")
        else:
            print(f"the journal does not go back to step {first}; its end (--journal keeps and prints all of it):")
            lines = list(result.journal.lines(LINES_MAX))
        for line in lines:
            print(f"  {line}")
        print(f"digest {result.digest} after {result.inputs} steps, {result.virtual_s:.6f} virtual s")
        print(f"replay: {self._replay(result.seed)}")

    def _tell_progress(self) -> None:
        now = perf_counter()
        if now - self._told_at >= PROGRESS_S or (self._done == self._runs and sys.stderr.isatty()):
            self._told_at = now
            say(f"{self._scenario}: {self._done} of {self._runs} runs, {len(self._failed)} failed")


def _show(result: RunResult, took_s: float) -> None:
    faults = ", ".join(f"{kind} {count}" for kind, count in result.faults.items()) or "none"
    print(f"{result.scenario}, seed {result.seed}: good")
    print(f"  published   {result.published:,}")
    print(f"  delivered   {result.delivered:,}")
    print(f"  faults      {faults}")
    for text in result.measured:
        print(f"  measured    {text}")
    print(f"  virtual     {result.virtual_s:,.1f} s in {took_s:.2f} real s")
    print(f"  inputs      {result.inputs:,} ({result.inputs / took_s:,.0f}/s)")
    print(f"  digest      {result.digest}")


def _list() -> None:
    from heliograph.sim.scenario_files import load, shipped

    for name in shipped():
        print(f"{name:<16} {load(name).scenario.about}")
