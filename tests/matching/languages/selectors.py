"""Random SQL selectors that mean the same to SQLite: typed, so that the intended differences do not show.

In:    a seeded random source.
Out:   a selector's text; rows of attributes.
State: none.
Not here: the comparison (test_sqlite.py), the differences (docs/reference/subscription-languages.md).
"""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS = ("i", "j", "x", "y")
TEXTS = ("s", "t")
TRUTHS = ("p", "q")
COLUMNS = (*NUMBERS, *TEXTS, *TRUTHS)
_INTEGERS = (0, 1, 2, 3, 5, 7, -1, -4, 100, 2**53, 2**53 + 1, 2**62, -(2**63), 2**63 - 1)
_FLOATS = (0.0, 0.5, 1.0, 2.5, -0.25, 3.0, 1e3, 1e300, -1e300, 2.0**53, 9007199254740994.0)
_PIECES = ("", "a", "b", "ab", "A", "%", "_", "x%", "é", "'", "\\", "!", "ba", "\n")


def row(random: Random) -> dict[str, Any]:
    """One event's attributes; None for what it lacks."""
    values: dict[str, Any] = {}
    for name in NUMBERS:
        values[name] = random.choice((None, random.choice(_INTEGERS), random.choice(_FLOATS), random.randint(-5, 9)))
    for name in TEXTS:
        values[name] = random.choice((None, *(text(random) for _ in range(4))))
    for name in TRUTHS:
        values[name] = random.choice((None, True, False))
    return values


def text(random: Random) -> str:
    return "".join(random.choice(_PIECES) for _ in range(random.randint(0, 3)))


def selector(random: Random, depth: int = 3) -> str:
    """A condition."""
    shape = random.randint(0, 9) if depth else random.randint(4, 9)
    match shape:
        case 0 | 1:
            return " AND ".join(f"({selector(random, depth - 1)})" for _ in range(random.randint(2, 3)))
        case 2:
            return " or ".join(selector(random, depth - 1) for _ in range(random.randint(2, 3)))
        case 3:
            return f"NOT ({selector(random, depth - 1)})"
        case 4:
            return random.choice((*TRUTHS, "TRUE", "false", f"{random.choice(TRUTHS)} = TRUE", "NOT p", "q <> p"))
        case 5:
            return text_test(random)
        case 6:
            name = random.choice(COLUMNS)
            return f"{name} IS {random.choice(('', 'NOT '))}NULL"
    return number_test(random)


def number_test(random: Random) -> str:
    match random.randint(0, 4):
        case 0:
            word = random.choice(("BETWEEN", "NOT BETWEEN"))
            return f"{number(random, 1)} {word} {number(random, 1)} AND {number(random, 1)}"
        case 1:
            word = random.choice(("IN", "NOT IN"))
            values = ", ".join(literal(random) for _ in range(random.randint(1, 3)))
            return f"{number(random, 1)} {word} ({values})"
    return f"{number(random, 2)} {random.choice(('=', '<>', '<', '<=', '>', '>='))} {number(random, 2)}"


def text_test(random: Random) -> str:
    name = random.choice(TEXTS)
    match random.randint(0, 4):
        case 0:
            values = ", ".join(quoted(text(random)) for _ in range(random.randint(1, 3)))
            return f"{name} {random.choice(('IN', 'NOT IN'))} ({values})"
        case 1 | 2:
            pattern = text(random).replace("!", "")
            return f"{name} {random.choice(('LIKE', 'NOT LIKE'))} {quoted(pattern)}"
        case 3:
            pattern = "".join(
                random.choice(("a", "b", "%", "_", "!%", "!_", "!!")) for _ in range(random.randint(0, 4))
            )
            return f"{name} LIKE {quoted(pattern)} ESCAPE '!'"
    other = random.choice((quoted(text(random)), quoted(text(random)), *TEXTS))
    return f"{name} {random.choice(('=', '<>', '<', '<=', '>', '>='))} {other}"


def number(random: Random, depth: int) -> str:
    match random.randint(0, 6 if depth else 3):
        case 0 | 1:
            return random.choice(NUMBERS)
        case 2 | 3:
            return literal(random)
        case 4:
            return f"(- {number(random, depth - 1)})"
    operands = [number(random, depth - 1) for _ in range(random.randint(2, 3))]
    signs = random.choice((" + ", " - ", " * ", " / "))
    return f"({signs.join(operands)})"


def literal(random: Random) -> str:
    return random.choice((str(random.randint(0, 9)), repr(random.choice(_FLOATS)), str(random.choice(_INTEGERS[:-2]))))


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
