"""`heliograph evaluate topics`: the experiment of the paper on topics, with its figures beside ours.

In:    how many runs; how many advertisements one directory has.
Out:   tables, one JSON object, or measurements in a folder.
State: none.
Not here: the experiment (evaluation/topics.py, evaluation/many_topics.py), the trial network (network_secure.py).
"""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import measured
from heliograph.cli.shape import examples, say
from heliograph.errors import UsageError
from heliograph.maps.cells import table

if TYPE_CHECKING:
    from heliograph.live.client import Client

RUNS_MAX = 10_000
MANY_MAX = 10_000_000
MANY_SAID = 100_000


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph evaluate`."""
    app.command(
        name="topics",
        help="Creating and discovering topics, beside the paper's.",
        epilog=examples(
            "heliograph evaluate topics",
            "heliograph evaluate topics --live --runs 20 --save results",
            "heliograph evaluate topics --many 1000000",
        ),
    )(_topics)


def _topics(
    runs: Annotated[int, typer.Option("--runs", help="How many of each.")] = 100,
    save: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write measurements there, for `pipeline evaluate`.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="A broker process with a topic directory, over TLS, on this machine.")
    ] = False,
    many: Annotated[
        int,
        typer.Option(metavar="COUNT", help="Also store so many advertisements, and search them in every language."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, and nothing else.")] = False,
) -> None:
    import asyncio
    import json
    from time import perf_counter

    from heliograph.evaluation.measurements import of_topics
    from heliograph.evaluation.topics import evaluate, rows_of

    if not 1 <= runs <= RUNS_MAX:
        raise UsageError(f"--runs {runs}: from 1 to {RUNS_MAX}")
    if not 0 <= many <= MANY_MAX:
        raise UsageError(f"--many {many}: from 0 to {MANY_MAX}")
    report = evaluate(perf_counter, runs)
    if live:
        say("starting a broker with a topic directory")
        report |= {"rows": rows_of(asyncio.run(_live(runs)), 0.0), "live": True}
    if many:
        report |= _many(many)
    if save is not None:
        say(f"measurements are in {measured.save('topics', report, of_topics, save)}")
    if as_json:
        print(json.dumps(report))
    else:
        _show(report)


def _many(count: int) -> dict[str, Any]:
    """A repository in a temporary folder, filled and searched. A million takes minutes and about 1.5 GiB of disk."""
    import resource
    import tempfile
    from importlib.util import find_spec
    from time import perf_counter, time_ns

    from heliograph.evaluation.many_topics import fill, measure
    from heliograph.live.vaults.topic_sqlite import SqliteTopics
    from heliograph.live.xquery import QueryProcess
    from heliograph.repository import Repository

    process = QueryProcess() if find_spec("saxonche") is not None else None
    with tempfile.TemporaryDirectory() as folder:
        subject = SqliteTopics(Repository(name="many", place=folder))
        subject.open()
        try:
            began, now_ms = perf_counter(), time_ns() // 1_000_000
            for stored in fill(subject, count, now_ms):
                if stored % MANY_SAID == 0:
                    say(f"{stored:,} advertisements after {perf_counter() - began:.0f} s")
            took_s = perf_counter() - began
            rows = []
            for row in measure(subject, None if process is None else process.sift, perf_counter, now_ms):
                say(f"{row['language']}: first {row['first_ms']} ms, all {row['all_ms']} ms")
                rows.append(row)
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
        finally:
            subject.close()
            if process is not None:
                process.close()
    facts = {"advertisements": count, "stored_s": round(took_s, 1), "file_mib": size >> 20}
    facts["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"languages": rows, "many": [facts]}


async def _live(runs: int) -> dict[str, list[float]]:
    """The milliseconds of creations and discoveries by real clients; the single steps are timed without them."""
    import tempfile

    import heliograph
    from heliograph.cli.network_processes import NetworkProcesses
    from heliograph.cli.network_secure import environment
    from heliograph.evaluation.topics import COUNTS
    from heliograph.topology.process_network import generated

    with tempfile.TemporaryDirectory() as text:
        network = NetworkProcesses(generated(1), Path(text) / "topics", bdn=False, secure=True)
        try:
            await network.start(lambda said: None)
            url = network.secure_url
            shown = environment(network.folder, url, "alice")
            files: dict[str, Any] = {
                name: shown[f"HELIOGRAPH_{name.upper()}"] for name in ("authority", "certificate", "key")
            }
            async with heliograph.connect(url, **files) as client:
                for count in COUNTS:
                    for number in range(count):
                        await client.create_topic(f"evaluation/{number}", space=f"find {count}")
                measured = {"create": [await _timed(client.create_topic("evaluation/x")) for _ in range(runs)]}
                for count in COUNTS:
                    found = [await _timed(_find(client, count)) for _ in range(runs)]
                    measured[f"find {count}"] = found
                return measured
        finally:
            network.stop(keep_logs=False)


async def _timed(work: Awaitable[object]) -> float:
    from time import perf_counter

    began = perf_counter()
    await work
    return (perf_counter() - began) * 1_000


async def _find(client: Client, count: int) -> None:
    found = [one async for one in client.discover_topics(space=f"find {count}", count=count)]
    assert len(found) == count, f"{len(found)} of {count} were found"


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
        ("one creation, by the work of the TDN", report["work"]),
        ("signing", report["keys"]),
        ("checks", report["checks"]),
        ("many advertisements", report.get("many", ())),
        ("queries over them: the first 100, and all", report.get("languages", ())),
    ):
        if not found:
            continue
        print(f"\n{title}")
        for line in table(found, tuple(found[0])):
            print(line)
