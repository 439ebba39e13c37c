"""The oracle's own reading of conditions: comparisons joined by "and", tried one by one.

In:    the text of a condition in the language ``predicates``; the headers of an event, as bytes.
Out:   is this a condition; does an event fit it.
State: none.
Not here: other languages, and other forms of this one (tests/matching/). Nothing of heliograph is imported.
"""

from __future__ import annotations

import json
import re
from typing import Any

COMPARISON = re.compile(r"(\w+) (present|(?:=|!=|<=|>=|<|>|prefix) (?:'[^']*'|-?\d+(?:\.\d+)?|true|false))")


def is_condition(text: str) -> bool:
    """Every part between two "and" is a comparison."""
    return all(COMPARISON.fullmatch(part) for part in text.split(" and "))


def fits(text: str, headers: bytes) -> bool:
    """True if an event with these headers passes every comparison."""
    given = _attributes(headers)
    return all(_passes(given, part) for part in text.split(" and "))


def _attributes(headers: bytes) -> dict[str, Any]:
    """The publisher's own headers, as far as they have a value; none if they are no JSON object."""
    try:
        found = json.loads(headers)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if value is not None and not name.startswith("$")}


def _passes(given: dict[str, Any], comparison: str) -> bool:
    name, op, *rest = comparison.split(" ", 2)
    if name not in given:
        return False
    if op == "present":
        return True
    value, wanted = given[name], _literal(rest[0])
    if _kind(value) != _kind(wanted):
        return False  # also for "!=": what cannot be compared is not known to differ
    match op:
        case "=":
            return bool(value == wanted)
        case "!=":
            return bool(value != wanted)
        case "prefix":
            return str(value).startswith(wanted)
    return bool({"<": value < wanted, "<=": value <= wanted, ">": value > wanted, ">=": value >= wanted}[op])


def _literal(text: str) -> Any:
    return text[1:-1] if text[0] == "'" else json.loads(text)


def _kind(value: Any) -> str:
    """What can be compared with each other; integers beyond 64 bits, lists and objects with nothing."""
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "nothing"
    return {int: "number", float: "number", str: "text"}.get(type(value), "nothing")
