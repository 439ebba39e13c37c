"""SQL selectors against SQLite, on generated selectors and rows."""

from __future__ import annotations

import json
import sqlite3
from random import Random
from typing import Any

import pytest

from heliograph.errors import ConditionError
from heliograph.matching.condition import Event
from heliograph.matching.conditions import matches
from heliograph.matching.languages import compile
from tests.many import cases
from tests.matching.languages.selectors import COLUMNS, row, selector

SEEDS = 10
SELECTORS = 1_200  # per seed: 12,000 in all
ROWS = 12


def event(values: dict[str, Any]) -> Event:
    return Event(b"t", json.dumps(values).encode(), b"")


def sqlite(rows: list[dict[str, Any]]) -> sqlite3.Connection:
    """A table without type affinity, in a database that compares LIKE by case."""
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute(f"CREATE TABLE rows (id INTEGER PRIMARY KEY, {', '.join(COLUMNS)})")
    marks = ", ".join("?" for _ in range(len(COLUMNS) + 1))
    for number, values in enumerate(rows):
        database.execute(f"INSERT INTO rows VALUES ({marks})", (number, *(values[name] for name in COLUMNS)))
    return database


@pytest.mark.parametrize(
    ("text", "headers", "ours", "theirs"),
    [
        ("i < s", {"i": 5, "s": "x"}, False, True),
        ("NOT (i < s)", {"i": 5, "s": "x"}, True, False),
        ("p = i", {"p": True, "i": 1}, False, True),
        ("s + 1 = 4", {"s": "3"}, False, True),
        ("i LIKE '5'", {"i": 5}, False, True),
        ("s = 5", {"s": "5"}, False, False),
    ],
)
def test_the_differences_are_those_that_are_documented(
    text: str, headers: dict[str, Any], ours: bool, theirs: bool
) -> None:
    values = dict.fromkeys(COLUMNS) | headers
    assert matches(compile("sql", text), event(values)) is ours
    assert sqlite([values]).execute(f"SELECT count(*) FROM rows WHERE {text}").fetchone() == (int(theirs),)


@pytest.mark.parametrize("text", ["5", "(i = 1) = p", "i = 9223372036854775808", "s LIKE 'x!y' ESCAPE '!'"])
def test_what_sqlite_reads_and_we_refuse(text: str) -> None:
    sqlite([]).execute(f"SELECT id FROM rows WHERE {text}")
    with pytest.raises(ConditionError):
        compile("sql", text)


@pytest.mark.req("N9")
@pytest.mark.parametrize("seed", cases(always=[0, 1], sweep=[2, 3], soak=range(4, SEEDS)))
def test_a_selector_selects_what_sqlite_selects(seed: int) -> None:
    random = Random(seed)
    for _ in range(SELECTORS // 100):
        rows = [row(random) for _ in range(ROWS)]
        events = [event(values) for values in rows]
        database = sqlite(rows)
        for _ in range(100):
            text = selector(random)
            expected = [id for (id,) in database.execute(f"SELECT id FROM rows WHERE {text} ORDER BY id")]
            condition = compile("sql", text)
            found = [number for number, one in enumerate(events) if matches(condition, one)]
            assert found == expected, (text, condition.text, [rows[n] for n in set(found) ^ set(expected)])
            again = compile(condition.language, condition.text)
            assert again == condition, "a canonical text is its own"
            assert [number for number, one in enumerate(events) if matches(again, one)] == expected
