"""The shape of the command line: plain help, one way to group commands, one way to fail.

In:    errors that commands raise.
Out:   typer groups; one line on standard error and an exit code: 0 done, 1 failed, 2 usage error (a missing file
       included), 130 interrupted.
State: none.
Not here: commands (one file each), what they connect with (connection.py).

No file of this package imports anything heavy at the top: `heliograph --help` has to appear at once.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from heliograph.errors import HeliographError, UsageError

FAILED = 1
NOT_UNDERSTOOD = 2
INTERRUPTED = 130  # the shells' code: 128 plus the signal's number
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


def group(help: str) -> typer.Typer:
    """A command with subcommands."""
    return typer.Typer(
        help=help,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=True,
        context_settings=HELP_OPTIONS,
    )


def examples(*lines: str) -> str:
    """An epilog that keeps its line breaks (the mark prevents joining)."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 broker, 2 brokers."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def say(text: str) -> None:
    """A remark for people: on standard error, so that standard output contains only results."""
    print(text, file=sys.stderr)


def fail(text: str, code: int = FAILED) -> NoReturn:
    """Exit with a message that says what is wrong, where, and what to do."""
    for line in text.splitlines() or [""]:
        say(f"heliograph: {line}")
    raise SystemExit(code)


def fail_with(error: HeliographError | OSError) -> NoReturn:
    """Exit because of an error that the user can correct."""
    if isinstance(error, UsageError):
        fail(str(error), NOT_UNDERSTOOD)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        fail(f"{where}{error.strerror}", NOT_UNDERSTOOD if isinstance(error, FileNotFoundError) else FAILED)
    fail(str(error))
