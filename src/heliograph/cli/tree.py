"""The tree of commands, built only as far as the arguments need it.

In:    the application with all its commands; the arguments.
Out:   a command that can be run. Of the commands that the arguments do not name it has the names and the help.
State: none.
Not here: what the commands are (main.py), what they do (their own files).

Reading the options of all commands takes longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from inspect import getdoc
from typing import Any

import typer
from typer.models import CommandInfo, TyperInfo


def build(app: typer.Typer, arguments: Sequence[str]) -> Any:
    """The tree for these arguments. The options before a command's name take no values."""
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    pruned = copy(app)
    pruned.registered_groups = [one if one.name == named else _leaf(one) for one in app.registered_groups]
    pruned.registered_commands = [one if name_of(one) == named else _stem(one) for one in app.registered_commands]
    return typer.main.get_command(pruned)


def name_of(command: CommandInfo) -> str:
    """The name by which a user calls it."""
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def _leaf(group: TyperInfo) -> TyperInfo:
    """A group without its commands."""
    assert group.typer_instance is not None
    bare = copy(group)
    bare.typer_instance = copy(group.typer_instance)
    bare.typer_instance.registered_groups, bare.typer_instance.registered_commands = [], []
    return bare


def _stem(command: CommandInfo) -> CommandInfo:
    """A command without its options."""
    bare = copy(command)
    bare.name, bare.help = name_of(command), command.help or getdoc(_called(command))
    bare.callback = _nothing
    return bare


def _called(command: CommandInfo) -> Callable[..., Any]:
    assert command.callback is not None
    return command.callback


def _nothing() -> None:
    """Stands for a command that is not called."""
