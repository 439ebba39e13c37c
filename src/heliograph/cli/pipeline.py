"""`heliograph pipeline`: jobs that turn what flowed through the network into tables, on Spark.

In:    folders of tables, where to run Spark, what to ask.
Out:   results on standard output, as tables or JSON; progress on standard error.
State: none.
Not here: the jobs (pipeline/), Spark itself (pipeline/session.py).
"""

from __future__ import annotations

from typing import Annotated

import typer

from heliograph.cli.shape import FAILED, examples, group

AsJson = Annotated[bool, typer.Option("--json", help="JSON, and nothing else.")]

app = group("Archive and analyse what flowed, on Spark.")


@app.command(
    name="doctor",
    help="Can this machine run Spark? One line for each thing that was looked at.",
    epilog=examples("heliograph pipeline doctor"),
)
def _doctor(as_json: AsJson = False) -> None:
    from heliograph.pipeline.doctor import examine

    found = examine()
    if as_json:
        import json

        print(json.dumps([{"about": each.about, "good": each.is_good, "told": each.told} for each in found]))
    else:
        for each in found:
            print(f"{'good' if each.is_good else 'BAD '}  {each.told}")
    if not all(each.is_good for each in found):
        raise SystemExit(FAILED)
