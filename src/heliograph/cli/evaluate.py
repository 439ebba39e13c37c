"""`heliograph evaluate`: repeats the papers' experiments, and shows their figures beside ours.

In:    how many runs, a seed, which topologies, sites and sizes; whether to run live.
Out:   tables, or one JSON object.
State: none.
Not here: the experiments (evaluation/).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heliograph.cli import evaluate_resources, evaluate_topics, measured
from heliograph.cli.shape import examples, fail, group, say
from heliograph.errors import UsageError
from heliograph.maps.cells import table

BROKERS_MAX = 20_000  # what a directory keeps by default
RUNS_MAX = 10_000
QUICK_RUNS = 12
LATE_MS = 0.5  # relays may be this late on average; on an idle computer it is 0.2

app = group("Run the experiments of the papers.")
evaluate_topics.register(app)
evaluate_resources.register(app)


@app.command(
    name="brokers",
    help="Broker discovery, simulated or live, beside the paper's.",
    epilog=examples(
        "heliograph evaluate brokers --quick",
        "heliograph evaluate brokers --scale 10,1000 --json",
        "heliograph evaluate brokers --live",
        "heliograph evaluate brokers --live --topology star --site cardiff --runs 20",
    ),
)
def _brokers(
    live: Annotated[
        bool, typer.Option("--live", help="Real processes and sockets on loopback, through relays that delay.")
    ] = False,
    runs: Annotated[int | None, typer.Option("--runs", help="Searches per topology and site: 120.")] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option(help="Only this one: unconnected, star, linear or multicast; can be repeated."),
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(help="Only clients of this site, such as cardiff; can be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="What all chance is drawn from.")] = 1,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="N,N,…", help="How many brokers: 10,100,1000,10000; 0 for none.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few runs, few brokers.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Write measurements there, for `pipeline evaluate`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, and nothing else.")] = False,
) -> None:
    from heliograph.evaluation import scale as scales
    from heliograph.evaluation import topologies
    from heliograph.evaluation.places import CLIENT_SITES

    wanted = (QUICK_RUNS if quick else topologies.RUNS) if runs is None else runs
    if not 1 <= wanted <= RUNS_MAX:
        raise UsageError(f"--runs {wanted}: from 1 to {RUNS_MAX}")
    if live and scale is not None:
        raise UsageError("--scale is for simulated runs: leave out --scale or --live")
    names = {name.partition(" ")[0]: name for name in topologies.EXPERIMENTS}
    experiments = [names[name] for name in _chosen("--topology", topology, tuple(names))]
    sites = _chosen("--site", site, CLIENT_SITES)
    if live:
        report = evaluate_live(wanted, seed, sites, experiments)
    else:
        sizes = parse_sizes(scale) if scale is not None else scales.SIZES_QUICK if quick else scales.SIZES
        report = evaluate(wanted, seed, sizes, sites, experiments)
    if save is not None:
        say(f"measurements are in {save_measurements(report, save)}")
    if as_json:
        import json

        print(json.dumps(report))
    else:
        show(report)


def save_measurements(report: dict[str, Any], folder: Path) -> Path:
    """Write the measurements, one JSON object per line. Returns the file."""
    from heliograph.evaluation.measurements import of_brokers

    return measured.save("brokers", report, of_brokers, folder)


def _chosen(option: str, given: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The given choices, in the usual order; all of them if none was given."""
    for name in given or ():
        if name not in known:
            raise UsageError(f"{option} {name[:64]!r}: one of {', '.join(known)}")
    return [name for name in known if not given or name in given]


def parse_sizes(text: str) -> tuple[int, ...]:
    """``10,100`` as numbers of brokers; ``0``: none."""
    parts = [part.strip() for part in text.split(",")]
    if parts == ["0"]:
        return ()
    if all(part.isascii() and part.isdigit() and len(part) < 6 and 2 <= int(part) <= BROKERS_MAX for part in parts):
        return tuple(int(part) for part in parts)
    raise UsageError(f"--scale {text[:64]!r}: numbers of brokers from 2 to {BROKERS_MAX}, such as 10,100")


def evaluate(
    runs: int, seed: int, sizes: Sequence[int], sites: Sequence[str], experiments: Sequence[str]
) -> dict[str, Any]:
    """All simulated experiments, as plain values."""
    from heliograph.evaluation import scale as scales
    from heliograph.evaluation import simulated

    report = _report("simulated", runs, seed, simulated.evaluate(runs, seed, sites, experiments))
    for size in sizes:
        say(f"searching among {size:,} brokers …")
        report["scale"].append(scales.evaluate(size, seed=seed))
    return report


def evaluate_live(runs: int, seed: int, sites: Sequence[str], experiments: Sequence[str]) -> dict[str, Any]:
    """The same with real processes, which end with this one."""
    import signal

    from heliograph.evaluation.live import experiment

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # a signal that ends this command ends the brokers too
    try:
        rows, relays = experiment.evaluate(runs, seed, sites, experiments, say)
    except KeyboardInterrupt:
        fail("stopped before the end; the brokers have ended too")
    return _report("live", runs, seed, rows) | {"relays": relays}


def _report(how: str, runs: int, seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from time import perf_counter

    from heliograph.evaluation import costs, places, topologies

    return {
        "how": how,
        "runs": runs,
        "seed": seed,
        "round_trips_ms": places.round_trips(),
        "topologies": rows,
        "checks": topologies.checks(rows),
        "costs": costs.evaluate(perf_counter, runs),
        "scale": [],
        "relays": None,
    }


# -- for people -----------------------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    """The report as tables."""
    _section("Round trips between the sites, ms (computed from distances)", report["round_trips_ms"])
    head = f"Time to the choice, {report['how']}, ms: {report['runs']} runs each, outliers removed"
    _section(head, _time_rows(report["topologies"]))
    _section("Share of the time", _share_rows(report["topologies"]))
    if report["checks"]:
        print("\nWhat the paper found")
    for check in report["checks"]:
        values = ", ".join(f"{name} {value}" for name, value in check["values"].items())
        print(f"  {'yes' if check['holds'] else 'NO '}  {check['claim']} ({values})")
    _section("What trust costs, ms", [_with_paper({"what": row["what"]}, row) for row in report["costs"]])
    if report["scale"]:
        _section("Many brokers", report["scale"])
    late = (report["relays"] or {}).get("late_ms")
    if late:
        _section("How late the relays were, ms per trip", [late])
        if late["mean"] > LATE_MS:
            say("this computer was busy, so these times are too long; run it again when it is idle")


def _section(head: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{head}")
    for line in table(rows):
        print(f"  {line}")


def _with_paper(row: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """A row with our statistics, and the paper's if there are any."""
    ours, paper = measured["ours"] or {}, measured["paper"] or {}
    row |= {name: ours.get(name) for name in ("mean", "sd", "max", "min", "se")}
    return row | {f"paper {name}": paper.get(name) for name in ("mean", "sd", "max", "min", "se")}


def _time_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the number found, and how many of these are the nearest, before the times."""
    found = []
    for row in rows:
        cells = {"topology": row["topology"], "client": row["client"], "found": f"{row['found']}/{row['runs']}"}
        cells["nearest"] = f"{row['nearest']}/{row['runs']}" if "nearest" in row else None
        found.append(_with_paper(cells, row))
    return found


def _share_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In percent. The wait for the initial responses is the two columns in the middle."""
    names = {"reach": "first word", "first": "first response", "others": "other responses", "ping": "ping and choose"}
    return [
        {"topology": row["topology"], "client": row["client"]}
        | {name: f"{100 * row['share'][part]:.1f} %" for part, name in names.items()}
        for row in rows
        if "share" in row
    ]
