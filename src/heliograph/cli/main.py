"""The command `heliograph`: all commands in one list.

In:    arguments.
Out:   an exit code.
State: none.
Not here: what a command does (its own file).
"""

from __future__ import annotations

import codecs
import os
import sys
from functools import cache
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from heliograph.cli import (
    bdn,
    broker,
    ca,
    config,
    discover,
    evaluate,
    network,
    pipeline,
    pipeline_report,
    pipeline_shell,
    publish,
    replay,
    request,
    resource,
    simulate,
    store,
    subscribe,
    tdn,
    token,
    topic,
    topic_rights,
    tree,
    version,
)
from heliograph.cli.demo import command as demo
from heliograph.cli.shape import HELP_OPTIONS, examples, fail_with
from heliograph.errors import HeliographError

PLAIN = "heliograph.plain"  # how characters are written that the terminal's encoding lacks
_ASCII = {"└": "`", "├": "|", "│": "|", "─": "-", "→": "->", "…": "..."}

app = typer.Typer(
    name="heliograph",
    help="Heliograph: a publish/subscribe broker network.",
    epilog=examples("heliograph broker run", "heliograph subscribe 'sensors/#'", "heliograph publish sensors/7 21.5"),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    invoke_without_command=True,
    context_settings=HELP_OPTIONS,
)


@app.callback()
def _root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show_version:
        version.show(as_json=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


app.add_typer(broker.app, name="broker")
app.add_typer(network.app, name="network")
app.add_typer(bdn.app, name="bdn")
app.add_typer(store.app, name="store")
app.add_typer(tdn.app, name="tdn")
app.add_typer(discover.app, name="discover")
app.add_typer(resource.app, name="resource")
topic_rights.register(topic.app)
app.add_typer(topic.app, name="topic")
publish.register(app)
subscribe.register(app)
replay.register(app)
request.register(app)
simulate.register(app)
demo.register(app)
app.add_typer(evaluate.app, name="evaluate")
pipeline_report.register(pipeline.app)
pipeline_shell.register(pipeline.app)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(config.app, name="config")
app.add_typer(ca.app, name="ca")
app.add_typer(token.app, name="token")
version.register(app)


@app.command(name="help", hidden=True, help="Print this help.")
def _help(context: typer.Context) -> None:
    assert context.parent is not None
    print(context.parent.get_help())


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """Something for characters that the terminal does not have: lines and arrows as in ASCII drawings."""
    assert isinstance(error, UnicodeEncodeError)
    beyond = error.object[error.start : error.end]
    return "".join(_ASCII.get(one) or one.encode("ascii", "backslashreplace").decode() for one in beyond), error.end


codecs.register_error(PLAIN, _plainly)


@cache
def command() -> Any:
    """The tree of all commands. Building it takes longer than most commands: ``main`` builds a part of it."""
    return typer.main.get_command(app)


def prepare_streams() -> None:
    """Escape what the terminal's encoding does not have, and keep closed descriptors from becoming sockets."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 it stays open
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=PLAIN)


def reader_is_gone() -> bool:
    """True if standard output was a pipe whose reader has closed it. Nothing is written there any more."""
    try:
        sys.stdout.flush()
        gone = type(sys.stdout).__name__ == "PacifyFlushWrapper"  # what typer puts there when it meets a closed pipe
    except BrokenPipeError:
        gone = True
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return gone


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit. A user's mistake is one line on standard error, never a traceback."""
    prepare_streams()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        tree.build(app, given)(given, prog_name="heliograph")
    except SystemExit:
        if reader_is_gone():
            sys.exit(0)  # as with `| head`: it has what it wanted
        raise
    except (HeliographError, OSError) as error:
        fail_with(error)


if __name__ == "__main__":
    main()
