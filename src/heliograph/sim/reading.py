"""Reading tables: from what tomllib found to typed, frozen values, with every problem in one go.

In:    plain values of a TOML document, any content; the dataclass that says what is wanted.
Out:   an instance of it, or None; and problems in words, each with the path that the user typed.
State: none.
Not here: which keys a scenario has (scenario.py), whether values make sense together (their ``problems``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

NUMBER_MAX = 2**53  # beyond it a float no longer counts by ones, and every larger setting is a mistake
SHOWN_MAX = 60
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_T = TypeVar("_T")


class _Wrong:
    """Stands for a value whose problem has been told."""


_WRONG = _Wrong()


def read_table(kind: type[_T], table: Any, path: str, problems: list[str]) -> _T | None:
    """A table as an instance of this dataclass; None if anything in it is wrong."""
    value = _read_dataclass(kind, table, path, problems)
    return None if isinstance(value, _Wrong) else value


def suggest(unknown: str, known: list[str]) -> str:
    """What the user may have meant."""
    near = get_close_matches(unknown[:SHOWN_MAX], known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}"


def shown(value: Any) -> str:
    """A value in a problem: one line, bounded."""
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
    before = len(problems)
    for name in table:
        if name not in known:
            problems.append(f"{_joined(path, name)}: unknown key; {suggest(str(name), known)}")
    values = {}
    for field in fields(kind):
        where = _joined(path, field.name)
        if field.name in table:
            values[field.name] = _read(hints[field.name], table[field.name], where, problems)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{where} is missing")
    return kind(**values) if len(problems) == before else _WRONG


def _read(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        wanted = [argument for argument in arguments if argument is not NoneType]
        hint = next((each for each in wanted if type(value) is each), wanted[0])
        if len(wanted) > 1 and type(value) is not hint:
            problems.append(f"{path} = {shown(value)}: must be {' or '.join(_WORDS[each] for each in wanted)}")
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
    return tuple(
        _read(hint, each, f"{path}[{number}]", problems)
        for number, (hint, each) in enumerate(zip(hints, value, strict=True))
    )


def _read_named(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{path} = {shown(value)}: must be a table with a name for each")
        return _WRONG
    return {name: _read(hint, each, _joined(path, name), problems) for name, each in value.items()}


def _read_scalar(hint: Any, value: Any, path: str, problems: list[str]) -> Any:
    fits = type(value) is hint or (hint is float and type(value) is int)
    if fits and hint in (int, float) and not abs(value) <= NUMBER_MAX:  # also false for "not a number"
        problems.append(f"{path} = {shown(value)}: out of any sensible range")
        return _WRONG
    if not fits:
        problems.append(f"{path} = {shown(value)}: must be {_WORDS[hint]}")
        return _WRONG
    return float(value) if hint is float else value


def _joined(path: str, name: Any) -> str:
    text = str(name) if str(name).isprintable() and len(str(name)) <= SHOWN_MAX else shown(name)
    return f"{path}.{text}" if path else text
