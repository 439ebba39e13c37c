"""The tree of commands, built only as far as the arguments need it.

In:    the application with all its commands; the arguments.
Out:   a command that can be run. Of the commands that the arguments do not name it has the names and the help.
State: none.
Not here: what the commands are (main.py), what they do (their own files).

Reading the options of all commands takes longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from inspect import getdoc
from typing import Any, TypeVar

import typer
from typer.models import CommandInfo, TyperInfo

T = TypeVar("T")


def build(app: typer.Typer, arguments: Sequence[str]) -> Any:
    """The tree for these arguments. The options before a command's name take no values."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    groups = [one if one.name == named else _without_commands(one) for one in app.registered_groups]
    commands = [one if name_of(one) == named else _without_options(one) for one in app.registered_commands]
    return typer.main.get_command(_changed(app, registered_groups=groups, registered_commands=commands))


def name_of(command: CommandInfo) -> str:
    """The name by which a user calls it."""
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def _without_commands(group: TyperInfo) -> TyperInfo:
    bare = _changed(group.typer_instance, registered_groups=[], registered_commands=[])
    return _changed(group, typer_instance=bare)


def _without_options(command: CommandInfo) -> CommandInfo:
    assert command.callback is not None
    help_text = command.help or getdoc(command.callback)
    return _changed(command, name=name_of(command), help=help_text, callback=_nothing)


def _nothing() -> None:
    """Stands for a command that is not called."""


def _changed(original: T, **values: object) -> T:
    """A copy with other values."""
    copied = copy(original)
    vars(copied).update(values)
    return copied
