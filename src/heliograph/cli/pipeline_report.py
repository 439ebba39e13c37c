"""`heliograph pipeline report`: an archive as one HTML file, for people.

In:    a folder of tables, perhaps days and a file of requests, where to write.
Out:   the file; its place on standard output.
State: none.
Not here: what the report says and how it looks (pipeline/report/), the other commands (pipeline.py).
"""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli.pipeline import AsJson, Folder, Since, Until, spark_for
from heliograph.cli.shape import examples, say
from heliograph.cli.spark_place import HERE, SparkPlace, with_spark
from heliograph.cli.tables import show


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph pipeline`."""
    app.command(
        name="report",
        help="Write an HTML file with figures of an archive.",
        epilog=examples(
            "heliograph pipeline report --tables archive --open",
            "heliograph pipeline report --tables archive --since 2026-11-16 --requests requests.jsonl --out week.html",
        ),
    )(with_spark(_report))


def _report(
    tables: Folder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write.")] = Path("report.html"),
    since: Since = "",
    until: Until = "",
    requests: Annotated[
        str,
        typer.Option("--requests", metavar="FILE", help="Compare these, not the searches for topics."),
    ] = "",
    is_opened: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
    at: SparkPlace = HERE,
    as_json: AsJson = False,
) -> None:
    from heliograph.pipeline.report.content import as_plain
    from heliograph.pipeline.report.report import write_report

    with spark_for(at) as spark:
        content = write_report(spark, tables, out, since=since, until=until, requests=requests)
    if as_json:
        show(as_plain(content), True)
    else:
        print(out)
    if is_opened and not webbrowser.open(out.absolute().as_uri()):
        say(f"no browser was found here: open {out} in one")
