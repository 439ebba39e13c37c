"""Values and tables as printable text. Nothing in them can control a terminal.

In:    plain values, as brokers report them; bytes that a peer sent.
Out:   one line of text per value or table row, without control characters.
State: none.
Not here: printing (cli/tables.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> Iterable[str]:
    """The lines of a table with a header. Default columns: the keys of the first row."""
    chosen = columns or (list(rows[0]) if rows else [])
    cells = [list(chosen), *([cell(row.get(column)) for column in chosen] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(chosen))]
    for line in cells:
        yield "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()


def cell(value: Any) -> str:
    """A value as printable text. A peer may have put anything into a name or a topic, so it is escaped."""
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


def readable(data: bytes) -> str:
    """Bytes as printable text: characters that are not printable, and bytes that are not UTF-8, are escaped."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
