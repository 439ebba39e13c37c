"""`heliograph evaluate topics`: the experiment of the paper on topics, with its figures beside ours.

In:    how many runs.
Out:   tables, one JSON object, or measurements in a folder.
State: none.
Not here: the experiment (evaluation/topics.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heliograph.cli import measured
from heliograph.cli.shape import examples, say
from heliograph.errors import UsageError
from heliograph.maps.cells import table

RUNS_MAX = 10_000


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph evaluate`."""
    app.command(
        name="topics",
        help="Creating and discovering topics, beside the paper's.",
        epilog=examples("heliograph evaluate topics", "heliograph evaluate topics --runs 20 --save results"),
    )(_topics)


def _topics(
    runs: Annotated[int, typer.Option("--runs", help="How many of each.")] = 100,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write measurements there, for `pipeline evaluate`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, and nothing else.")] = False,
) -> None:
    import json
    from time import perf_counter

    from heliograph.evaluation.measurements import of_topics
    from heliograph.evaluation.topics import evaluate

    if not 1 <= runs <= RUNS_MAX:
        raise UsageError(f"--runs {runs}: from 1 to {RUNS_MAX}")
    report = evaluate(perf_counter, runs)
    if save is not None:
        say(f"measurements are in {measured.save('topics', report, of_topics, save)}")
    if as_json:
        print(json.dumps(report))
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    rows = [
        {
            "topology": row["topology"],
            "what": row["what"],
            "mean_ms": row["ours"]["mean"],
            "sd": row["ours"]["sd"],
            "of it network": row["network_ms"],
            "paper_ms": row["paper"]["mean"],
            "paper_sd": row["paper"]["sd"],
        }
        for row in report["rows"]
    ]
    for title, found in (
        (f"{report['runs']} runs, secured throughout", rows),
        ("one creation, by step", report["steps"]),
        ("signing", report["keys"]),
        ("checks", report["checks"]),
    ):
        print(f"\n{title}")
        for line in table(found, tuple(found[0])):
            print(line)
