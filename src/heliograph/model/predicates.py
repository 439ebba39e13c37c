"""Predicates: tests on the attributes of an event, as data.

In:    attribute names, operators and values, already parsed from text or from the wire.
Out:   Predicate, and Conjunction: all of them have to hold.
State: none. Every value here is frozen and hashable.
Not here: texts (matching/languages/), many conjunctions at once (matching/boxes/).
Paper: [resources] §3, the subscription language.

Values have one order: all numbers, in their exact numeric order, come before all strings, in the order of their UTF-8
bytes. A test on a number never holds for a string, nor the reverse; booleans have no order: only "=" and "!=" apply to
them. An attribute that an event lacks fails every test on it, "!=" included. Integers have 64 bits, floats are finite:
a predicate with another value is an error, and an event's attribute with one passes only tests for presence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Value = int | float | str | bool
INTEGER_MIN = -(1 << 63)
INTEGER_MAX = (1 << 63) - 1


class Op(StrEnum):
    """The operator of a predicate."""

    EQUAL = "="
    UNEQUAL = "!="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="
    PREFIX = "prefix"  # the value is a string that begins like this
    PRESENT = "present"  # the event has the attribute, whatever its value


@dataclass(frozen=True, slots=True)
class Predicate:
    """One test on one attribute, such as ``disk > 120``. PRESENT has the value True."""

    attribute: str
    op: Op
    value: Value


Conjunction = tuple[Predicate, ...]
"""Predicates that all have to hold; several may name one attribute. Empty: every event matches."""
