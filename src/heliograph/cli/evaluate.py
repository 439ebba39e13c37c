"""`heliograph evaluate`: the papers' experiments, run anew, with their figures beside ours.

In:    how many runs, a seed, which sizes.
Out:   tables, or one JSON object.
State: none.
Not here: the experiments (evaluation/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from heliograph.cli.shape import examples, group, say
from heliograph.cli.tables import table
from heliograph.errors import UsageError

BROKERS_MAX = 20_000  # what a directory keeps by default
RUNS_MAX = 10_000
QUICK_RUNS = 12

app = group("Run the experiments of the papers.")


@app.command(
    name="brokers",
    help="Broker discovery: three topologies, multicast, many brokers.",
    epilog=examples("heliograph evaluate brokers --quick", "heliograph evaluate brokers --scale 10,1000 --json"),
)
def _brokers(
    runs: Annotated[int | None, typer.Option("--runs", help="Searches per topology and site: 120.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="What all chance is drawn from.")] = 1,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="N,N,…", help="How many brokers: 10,100,1000,10000; 0 for none.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few runs, few brokers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, and nothing else.")] = False,
) -> None:
    from heliograph.evaluation import scale as scales
    from heliograph.evaluation import topologies

    wanted = (QUICK_RUNS if quick else topologies.RUNS) if runs is None else runs
    if not 1 <= wanted <= RUNS_MAX:
        raise UsageError(f"--runs {wanted}: from 1 to {RUNS_MAX}")
    sizes = parse_sizes(scale) if scale is not None else scales.SIZES_QUICK if quick else scales.SIZES
    report = evaluate(wanted, seed, sizes)
    if as_json:
        import json

        print(json.dumps(report))
    else:
        show(report)


def parse_sizes(text: str) -> tuple[int, ...]:
    """``10,100`` as numbers of brokers; ``0``: none."""
    parts = [part.strip() for part in text.split(",")]
    if parts == ["0"]:
        return ()
    if all(part.isascii() and part.isdigit() and len(part) < 6 and 2 <= int(part) <= BROKERS_MAX for part in parts):
        return tuple(int(part) for part in parts)
    raise UsageError(f"--scale {text[:64]!r}: numbers of brokers from 2 to {BROKERS_MAX}, such as 10,100")


def evaluate(runs: int, seed: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Everything, as plain values."""
    from time import perf_counter

    from heliograph.evaluation import costs, places, simulated, topologies
    from heliograph.evaluation import scale as scales

    rows = simulated.evaluate(runs, seed)
    report: dict[str, Any] = {
        "runs": runs,
        "seed": seed,
        "round_trips_ms": places.round_trips(),
        "topologies": rows,
        "checks": topologies.checks(rows),
        "costs": costs.evaluate(perf_counter, runs),
        "scale": [],
    }
    for size in sizes:
        say(f"searching among {size:,} brokers …")
        report["scale"].append(scales.evaluate(size, seed=seed))
    return report


# -- for people -----------------------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    """The report as tables."""
    _section("Round trips between the sites, ms (computed from distances)", report["round_trips_ms"])
    _section(f"Time to the choice, ms: {report['runs']} runs each, outliers removed", _time_rows(report["topologies"]))
    _section("Share of the time", _share_rows(report["topologies"]))
    print("\nWhat the paper found")
    for check in report["checks"]:
        values = ", ".join(f"{name} {value}" for name, value in check["values"].items())
        print(f"  {'yes' if check['holds'] else 'NO '}  {check['claim']} ({values})")
    _section("What trust costs, ms", [_with_paper({"what": row["what"]}, row) for row in report["costs"]])
    if report["scale"]:
        _section("Many brokers", report["scale"])


def _section(head: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{head}")
    for line in table(rows):
        print(f"  {line}")


def _with_paper(row: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """A row with our statistics, and the paper's where there are any."""
    ours, paper = measured["ours"] or {}, measured["paper"] or {}
    row |= {name: ours.get(name) for name in ("mean", "sd", "max", "min", "se")}
    return row | {f"paper {name}": paper.get(name) for name in ("mean", "sd", "max", "min", "se")}


def _time_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        _with_paper(
            {"topology": row["topology"], "client": row["client"], "found": f"{row['found']}/{row['runs']}"}, row
        )
        for row in rows
    ]


def _share_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In percent. Waiting for the initial responses is the two columns in the middle."""
    names = {"reach": "first word", "first": "first response", "others": "other responses", "ping": "ping and choose"}
    return [
        {"topology": row["topology"], "client": row["client"]}
        | {name: f"{100 * row['share'][part]:.1f} %" for part, name in names.items()}
        for row in rows
        if "share" in row
    ]
