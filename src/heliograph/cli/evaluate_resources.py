"""`heliograph evaluate resources`: the experiments of the paper on resources, with its claims as checks.

In:    the size, a seed; whether counts are also measured live.
Out:   tables, one JSON object, or a file of measurements in a folder.
State: none.
Not here: the experiments (evaluation/resources/).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heliograph.cli import measured
from heliograph.cli.shape import examples, say
from heliograph.maps.cells import table


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph evaluate`."""
    app.command(
        name="resources",
        help="Discovering resources, beside the paper's statements.",
        epilog=examples(
            "heliograph evaluate resources --quick",
            "heliograph evaluate resources --save results",
            "heliograph evaluate resources --live --quick",
        ),
    )(_resources)


def _resources(
    quick: Annotated[bool, typer.Option("--quick", help="Few brokers, resources and requests.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Count messages with real brokers too, one request after another.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="What all chance is drawn from.")] = 1,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Write measurements there, for `pipeline evaluate`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, and nothing else.")] = False,
) -> None:
    from heliograph.evaluation.resources.report import evaluate

    report = evaluate(quick, seed, say)
    if live:
        from heliograph.evaluation.live.resource_counts import evaluate as evaluate_live

        report["live"] = evaluate_live(quick, seed, say)
    if save is not None:
        from heliograph.evaluation.measurements import of_resources

        say(f"measurements are in {measured.save('resources', report, of_resources, save)}")
    if as_json:
        import json

        print(json.dumps(report))
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    head = f"{report['resources']} resources, {report['requests']} requests, {report['brokers']} brokers"
    sections = [
        (f"The workloads: {head}", report["workloads"]),
        ("Messages, matching operations and time by way of delivery", report["sharing"]),
        ("Several Gaussians in time, balanced resources, similarity 80 %", report["gaussians"]),
        ("Resources that change, by the age that requests allow", report["ages"]),
        ("One broker or many", report["architecture"]),
        ("Service times of the model, us", [report["service_times"]]),
    ]
    if report.get("live"):
        sections.append(("Live, one request after another, beside the simulation of the same", report["live"]))
    for title, rows in sections:
        print(f"\n{title}")
        for line in table(rows, tuple(rows[0])):
            print(f"  {line}")
    print("\nWhat the paper found")
    for check in report["checks"]:
        values = ", ".join(f"{name} {value}" for name, value in check["values"].items())
        print(f"  {'yes' if check['holds'] else 'NO '}  {check['claim']}")
        print(f"       {values}")
        print(f"       {check['why']}")
