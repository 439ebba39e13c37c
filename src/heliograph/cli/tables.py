"""Answers for people: tables, lists of names and values, and nothing that a terminal would obey.

In:    plain values, as brokers report them.
Out:   lines on standard output; with --json the values themselves.
State: none.
Not here: asking for them (broker.py, network.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def show(answer: Any, as_json: bool, columns: Sequence[str] = ()) -> None:
    """Print an answer in the form that fits it."""
    if as_json:
        import json

        print(json.dumps(answer))
    elif isinstance(answer, dict):
        width = max((len(name) for name in answer), default=0)
        for name, value in answer.items():
            print(f"{name:<{width}}  {cell(value)}")
    elif isinstance(answer, list):
        for line in table(answer, columns):
            print(line)
    else:
        print(cell(answer))


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> Iterable[str]:
    """Lines of a table with a head; without columns, those of the first row."""
    chosen = columns or (list(rows[0]) if rows else [])
    cells = [list(chosen), *([cell(row.get(column)) for column in chosen] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(chosen))]
    for line in cells:
        yield "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()


def cell(value: Any) -> str:
    """A value for people. What a peer chose (a name, a topic) may hold anything, so nothing unprintable passes."""
    from heliograph.cli.payload import readable

    if isinstance(value, dict):
        text = ", ".join(f"{name} {_word(part)}" for name, part in value.items())
    elif isinstance(value, list):
        text = ",".join(_word(part) for part in value)
    else:
        text = _word(value)
    return readable(text.encode()) or "-"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
