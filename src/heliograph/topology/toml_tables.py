"""Reads TOML tables into typed, frozen values, and reports all problems at once.

In:    plain values of a TOML document, any content; the dataclass to read.
Out:   an instance of it, as far as it can be read, or None; problems as texts, each with the path that the user typed.
State: none.
Not here: which keys a scenario has (scenario_network.py), whether values make sense together (their ``problems``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from heliograph.model.spelling import nearest

NUMBER_MAX = 2**53  # above this a float cannot represent every integer, and any larger setting is a mistake
SHOWN_MAX = 60
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_T = TypeVar("_T")


class _Wrong:
    """Stands for a value whose problem has been reported."""


_WRONG = _Wrong()


def read_table(kind: type[_T], table: Any, path: str, problems: list[str]) -> _T | None:
    """A table as an instance of this dataclass; None if too little of it can be read.

    An unknown key is left out, and a wrong value that has a default is replaced by it, so that everything else can be
    checked at the same time. The instance is what the user meant only if there are no problems at the end.
    """
    value = _read_dataclass(kind, table, path, problems)
    return None if isinstance(value, _Wrong) else value


def suggest(unknown: str, known: list[str]) -> str:
    """Suggestions for a name that the user may have meant."""
    near = nearest(unknown, known)
    return f"did you mean {near!r}?" if near else f"there is {', '.join(known)}"


def others(found: Iterable[str], told: Sequence[str]) -> list[str]:
    """The problems that do not concern an unreadable value: in its place, checks saw a default."""
    paths = {problem.split()[0].rstrip(":") for problem in told}
    return [problem for problem in found if not paths & {word.rstrip(":;,") for word in problem.split()}]


def shown(value: Any) -> str:
    """A value as shown in a problem: one line of limited length."""
    try:
        text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    except (ValueError, RecursionError):
        return "(too long to show)"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def _read_dataclass(kind: Any, table: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(table, Mapping):
        problems.append(f"{path} = {shown(table)}: must be a table")
        return _WRONG
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    for name in table:
        if name not in known:
            problems.append(f"{_joined(path, name)}: unknown key; {suggest(str(name), known)}")
    values, is_whole = {}, True
    for field in fields(kind):
        where = _joined(path, field.name)
        is_needed = field.default is MISSING and field.default_factory is MISSING
        if field.name in table:
            given = table[field.name]
            value = _read(hints[field.name], given, where, problems)
            if value is not _WRONG:
                values[field.name] = value
            elif is_needed or isinstance(given, (Mapping, list)):  # others may refer to its contents
                is_whole = False
        elif is_needed:
            problems.append(f"{where} is missing")
            is_whole = False
    return kind(**values) if is_whole else _WRONG


def _read(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [argument for argument in arguments if argument is not NoneType]
        hint = next((each for each in wanted if type(value) is each), wanted[0])
        if len(wanted) > 1 and type(value) is not hint:
            problems.append(f"{path} = {shown(value)}: must be {' or '.join(_TYPE_NAMES[each] for each in wanted)}")
            return _WRONG
        return _read(hint, value, path, problems)
    if origin is tuple:
        return _read_list(arguments, value, path, problems)
    if origin is dict:
        return _read_named(arguments[1], value, path, problems)
    if is_dataclass(hint):
        return _read_dataclass(hint, value, path, problems)
    return _read_scalar(hint, value, path, problems)


def _read_list(arguments: tuple[Any, ...], value: Any, path: str, problems: list[str]) -> Any:
    many = len(arguments) == 2 and arguments[1] is Ellipsis
    if not isinstance(value, list) or not (many or len(value) == len(arguments)):
        wanted = "a list" if many else f"a list of {len(arguments)}: [from, to]"
        problems.append(f"{path} = {shown(value)}: must be {wanted}")
        return _WRONG
    hints = [arguments[0]] * len(value) if many else arguments
    found = tuple(
        _read(hint, each, f"{path}[{number}]", problems)
        for number, (hint, each) in enumerate(zip(hints, value, strict=True))
    )
    return _WRONG if _WRONG in found else found


def _read_named(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{path} = {shown(value)}: must be a table with a name for each")
        return _WRONG
    found = {name: _read(hint, each, _joined(path, name), problems) for name, each in value.items()}
    return _WRONG if _WRONG in found.values() else found


def _read_scalar(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    fits = type(value) is hint or (hint is float and type(value) is int)
    if fits and hint in (int, float) and not abs(value) <= NUMBER_MAX:  # also true for "not a number"
        problems.append(f"{path} = {shown(value)}: out of any sensible range")
        return _WRONG
    if not fits:
        problems.append(f"{path} = {shown(value)}: must be {_TYPE_NAMES[hint]}")
        return _WRONG
    return float(value) if hint is float else value


def _joined(path: str, name: Any) -> str:
    text = str(name) if str(name).isprintable() and len(str(name)) <= SHOWN_MAX else shown(name)
    return f"{path}.{text}" if path else text
