"""`heliograph subscribe`: publications as lines on standard output, as they come.

In:    topic filters.
Out:   one line per publication: `topic payload`, or JSON; each is written at once.
State: none.
Not here: connecting (connection.py), what a line looks like (payload.py).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import connection as c
from heliograph.cli.shape import examples, say
from heliograph.model.subscription import Policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from heliograph.live.client import Client
    from heliograph.model.publication import Publication


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        name="subscribe",
        help="Print publications as they come, until Ctrl-C.",
        epilog=examples(
            "heliograph subscribe 'sensors/#'",
            "heliograph subscribe 'sensors/+/temperature' alarms --json",
            "heliograph subscribe jobs --count 1",
        ),
    )(c.with_connection(_subscribe))


def _subscribe(
    there: c.Connection,
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="Topics; + is one level, # the rest.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many publications.")] = None,
    policy: Annotated[Policy, typer.Option(help="What happens when this side is too slow.")] = Policy.DROP_OLDEST,
    echo: Annotated[bool, typer.Option("--echo/--no-echo", help="Whether to get what this session publishes.")] = True,
) -> None:
    try:
        c.run(_work(there, filters, policy, echo=echo, as_json=as_json, count=count))
    except BrokenPipeError:
        # Whoever read our lines has gone (`| head`). Python would complain once more at exit, so give it a place to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass  # this is how it is meant to end
