"""The tables of the evaluation pages, as the commands print them.

In:    the name of a page below docs/reference.
Out:   its tables, as rows of texts by column.
State: none.
Not here: what the figures should be (test_evaluation_pages.py).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from heliograph.maps.cells import cell

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
Table = list[dict[str, str]]

_FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKDOWN = re.compile(r"^\|.*\|\n\|[-|]+\|\n(?:\|.*\|\n?)+", re.MULTILINE)


def tables(page: str) -> list[Table]:
    """All tables of a page, in their order; blocks that are no tables give rows that nobody asks for."""
    text = (REFERENCE / page).read_text("utf-8")
    found = [(match.start(), _fenced(match[1])) for match in _FENCED.finditer(text)]
    found += [(match.start(), _markdown(match[0])) for match in _MARKDOWN.finditer(text)]
    return [table for _, table in sorted(found, key=lambda one: one[0])]


def _fenced(text: str) -> Table:
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines() if line]
    if text.startswith(" "):  # the first column has no name
        lines[0][0] = "name"
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def _markdown(text: str) -> Table:
    lines = [[part.strip(" `") for part in line.strip("|").split("|")] for line in text.splitlines()]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def differing(page: str, measured: dict[str, Any], keys: tuple[str, ...], number: int = 0) -> dict[str, Any]:
    """The cells of a row of a page that differ from what was measured: for each the page's text, and the right one.

    The row is that with the same keys in the table with these columns; if there are several such tables, in the one
    with this number.
    """
    fitting = [table for table in tables(page) if table and set(keys) <= set(table[0]) <= set(measured)]
    assert len(fitting) > number, f"{page} has {len(fitting)} tables with the columns {', '.join(keys)}"
    shown = {name: cell(value) for name, value in measured.items()}
    rows = [row for row in fitting[number] if all(row[key] == shown[key] for key in keys)]
    assert len(rows) == 1, f"{page} has {len(rows)} rows for {[shown[key] for key in keys]}"
    return {name: (text, shown[name]) for name, text in rows[0].items() if text != shown[name]}
