"""Selections of scenarios: a topic filter with simple comparisons, evaluated without the brokers' code.

In:    a text such as ``disk > 120 and system = 'linux'``; the headers of a publication.
Out:   Comparison values; fits(): does a publication pass all of them; covers(): does one selection accept everything
       that another accepts.
State: none but a cache.
Not here: how brokers read the same text (matching/), drawing the numbers in it (workloads.py).

Checkers rely on this, so it must be obviously correct rather than fast. Covering is decided by trial: one value is
tried for each interval between the values that two conditions name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from operator import eq, ge, gt, le, lt
from typing import NamedTuple

from heliograph.model import topics

LANGUAGES = ("predicates", "sql")  # languages in which this form is written the same and means the same
WORDS = (  # keywords of these languages, not names
    "and", "or", "not", "between", "prefix", "present", "has", "true", "false", "in", "like", "is", "null", "escape",
)  # fmt: skip
OPS: dict[str, Callable[..., bool]] = {"<=": le, ">=": ge, "=": eq, "<": lt, ">": gt}
FORM = "a condition here is comparisons joined by 'and', such as disk > 120 and system = 'linux'"

_TEST = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|=|<|>)\s*('[^']*'|-?\d{1,15}(?:\.\d{1,15})?)\s*")
_AND = re.compile(r"and\b", re.IGNORECASE)

Value = int | float | str


class Comparison(NamedTuple):
    """One comparison."""

    name: str
    op: str
    value: Value


Comparisons = tuple[Comparison, ...]


@lru_cache(maxsize=65_536)
def comparisons_of(text: str) -> Comparisons:
    """The comparisons of a condition, none for an empty text; ValueError tells where it is not in the simple form."""
    found: list[Comparison] = []
    at = 0
    while at < len(text) or found:
        test = _TEST.match(text, at)
        if test is None or test[1].lower() in WORDS:
            raise ValueError(f"not readable from character {at + 1} on; {FORM}")
        found.append(Comparison(test[1], test[2], _value(test[3])))
        joined = _AND.match(text, test.end())
        if joined is None:
            if test.end() < len(text):
                raise ValueError(f"not readable from character {test.end() + 1} on; {FORM}")
            break
        at = joined.end()
    return tuple(found)


def fits(tests: Comparisons, headers: Mapping[str, Value]) -> bool:
    """True if a publication with these headers passes all tests; a missing header fails."""
    return all(test.name in headers and _passes(headers[test.name], test) for test in tests)


Selection = tuple[str, str]
"""A topic filter and a condition; the condition may be empty."""


@lru_cache(maxsize=1 << 18)
def covers(wide: Selection, narrow: Selection) -> bool:
    """True if every publication that the narrow selection accepts is accepted by the wide one."""
    if not topics.covers(wide[0].encode(), narrow[0].encode()):
        return False
    asked, given = comparisons_of(wide[1]), comparisons_of(narrow[1])
    points = _points(test.value for test in (*asked, *given))
    admitted = {test.name: [value for value in points if _admits(given, test.name, value)] for test in given}
    if not all(admitted.values()):
        return True  # nothing matches the narrow one
    # Publications that match the narrow one may lack a header that only the wide one tests.
    return all(test.name in admitted and all(_passes(value, test) for value in admitted[test.name]) for test in asked)


def uncovered(selections: Iterable[Selection]) -> list[Selection]:
    """The selections that no other covers; of several equal ones, the first."""
    distinct = list(dict.fromkeys(selections))
    return [
        selection
        for place, selection in enumerate(distinct)
        if not any(
            covers(other, selection) and (earlier < place or not covers(selection, other))
            for earlier, other in enumerate(distinct)
            if other != selection
        )
    ]


def _admits(tests: Comparisons, name: str, value: Value) -> bool:
    return all(_passes(value, test) for test in tests if test.name == name)


def _passes(value: Value, test: Comparison) -> bool:
    if isinstance(value, str) is not isinstance(test.value, str):
        return False  # numbers and texts are not comparable
    return OPS[test.op](value, test.value)


def _points(named: Iterable[Value]) -> list[Value]:
    """These values, and one value from each interval between, below and above them."""
    values = list(named)
    texts = [value for value in values if isinstance(value, str)]
    numbers = sorted(float(value) for value in values if not isinstance(value, str)) or [0.0]
    between = [(one + other) / 2 for one, other in pairwise(numbers)]
    return ["", *texts, *(text + "\0" for text in texts), numbers[0] - 1, *numbers, *between, numbers[-1] + 1]


def _value(text: str) -> Value:
    if text[0] == "'":
        return text[1:-1]
    return float(text) if "." in text else int(text)
