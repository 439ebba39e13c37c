"""`heliograph demo`: a broker, clients, the data pipeline and a simulated network, shown at work in under 3 minutes.

In:    whether Spark is wanted; all settings are defaults except one access rule, which is shown.
Out:   events as they happen, and a report of the measurements; exit code 1 if something was not as it should be.
State: a temporary folder and a broker process, both gone at the end.
Not here: the broker process (broker_process.py), the scenes with clients (scenes.py), simulating (sim/).
"""

from __future__ import annotations

from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.shape import INTERRUPTED, fail

if TYPE_CHECKING:
    from heliograph.cli.demo.report import Report

SCENARIO = "storm"
SEEDS = range(1, 6)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo", help="Show a broker, clients and a simulation at work.")(_demo)


def _demo(
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With the data pipeline, where it is installed.")
    ] = True,
) -> None:
    from heliograph.cli.demo.report import Report
    from heliograph.cli.demo.scenes import play, play_spark
    from heliograph.live.loop import run

    began = monotonic()
    has_spark = spark and find_spec("pyspark") is not None
    how_long = "a simulation, Spark. Under 3 minutes." if has_spark else "a simulation. About a minute."
    print(f"Heliograph at work on this machine: real processes and sockets, {how_long}")
    report = Report()
    try:
        run(play(report))
        _simulate(report)
        if spark:
            run(play_spark(report))
    except KeyboardInterrupt:
        fail("stopped before the end; the broker of the demo has ended too", INTERRUPTED)
    _sum_up(report, monotonic() - began)


def _simulate(report: Report) -> None:
    """The same broker code in a simulated world with faults, from five seeds, and one of them twice."""
    from heliograph.sim.run import play
    from heliograph.sim.scenario_files import load

    scenario = load(SCENARIO)
    report.begin(f"A simulated network: {SCENARIO}")
    print(f"   {scenario.scenario.about}")
    print(f"   faults: {', '.join(dict.fromkeys(fault.kind for fault in scenario.fault))}")
    began = monotonic()
    results = []
    for seed in SEEDS:
        result = play(scenario, seed)
        results.append(result)
        verdict = "all checks hold" if result.ok else f"{len(result.violations)} VIOLATIONS"
        print(
            f"   seed {seed}: {result.virtual_s:.0f} virtual s, {sum(result.faults.values())} faults, "
            f"{result.published:,} published, {result.delivered:,} delivered: {verdict}",
            flush=True,
        )
        report.check(result.ok, f"simulation: heliograph simulate {SCENARIO} --seed {seed} shows violations")
    took = monotonic() - began
    again = play(scenario, SEEDS[-1])
    same = again.digest == results[-1].digest
    report.check(same, f"simulation: seed {SEEDS[-1]} gave two different runs")
    verdict = "the same run to the last byte" if same else "ANOTHER RUN"
    print(f"   seed {SEEDS[-1]} once more: digest {again.digest[:16]}…, {verdict}")
    print(f"   to replay one: heliograph simulate {SCENARIO} --seed {SEEDS[-1]}")
    report.add(
        "simulated",
        f"{len(results)} runs, {sum(result.virtual_s for result in results):.0f} virtual s in {took:.1f} s, "
        f"{sum(result.inputs for result in results) / took:,.0f} machine inputs/s, "
        f"{sum(sum(result.faults.values()) for result in results)} faults",
    )


def _sum_up(report: Report, took: float) -> None:
    print("\nReport")
    for name, text in report.lines:
        print(f"   {name:<11} {text}")
    if report.problems:
        fail("\n".join(["the demo did not go as it should:", *report.problems]))
    print(f"   all of it   as it should be, in {took:.0f} s\n")
    print("Next: heliograph broker run, heliograph subscribe 'sensors/#', heliograph publish sensors/kitchen 21.5")
