"""Reading tables: from what tomllib found to typed, frozen values, with every problem in one go.

In:    plain values of a TOML document, any content; the dataclass that says what is wanted.
Out:   an instance of it, as far as it can be read, or None; problems in words, each with the path that the user typed.
State: none.
Not here: which keys a scenario has (simulated.py), whether values make sense together (their ``problems``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from heliograph.model.spelling import nearest

NUMBER_MAX = 2**53  # beyond it a float no longer counts by ones, and every larger setting is a mistake
SHOWN_MAX = 60
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_T = TypeVar("_T")


class _Wrong:
    """Stands for a value whose problem has been told."""


_WRONG = _Wrong()


def read_table(kind: type[_T], table: Any, path: str, problems: list[str]) -> _T | None:
    """A table as an instance of this dataclass; None if too little of it can be read.

    An unknown key is left out and a wrong value with a default is replaced by it, so that all the rest can be checked
    in the same go. Only if there are no problems in the end, the instance is what the user meant.
    """
    value = _read_dataclass(kind, table, path, problems)
    return None if isinstance(value, _Wrong) else value


def suggest(unknown: str, known: list[str]) -> str:
    """What the user may have meant."""
    near = nearest(unknown, known)
    return f"did you mean {near!r}?" if near else f"there is {', '.join(known)}"


def others(found: Iterable[str], told: Sequence[str]) -> list[str]:
    """Problems that do not speak of a value that could not be read: in its place they saw a default."""
    paths = {problem.split()[0].rstrip(":") for problem in told}
    return [problem for problem in found if not paths & {word.rstrip(":;,") for word in problem.split()}]


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
            elif is_needed or isinstance(given, (Mapping, list)):  # what others refer to may be in there
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
    if fits and hint in (int, float) and not abs(value) <= NUMBER_MAX:  # also false for "not a number"
        problems.append(f"{path} = {shown(value)}: out of any sensible range")
        return _WRONG
    if not fits:
        problems.append(f"{path} = {shown(value)}: must be {_TYPE_NAMES[hint]}")
        return _WRONG
    return float(value) if hint is float else value


def _joined(path: str, name: Any) -> str:
    text = str(name) if str(name).isprintable() and len(str(name)) <= SHOWN_MAX else shown(name)
    return f"{path}.{text}" if path else text
