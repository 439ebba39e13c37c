"""Printing an answer: as a table, as a list of names and values, or as JSON.

In:    plain values from brokers' reports.
Out:   lines on standard output.
State: none.
Not here: asking for them (broker.py, network.py), the text of a cell or table (maps/cells.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.maps.cells import cell, table


def show(answer: Any, as_json: bool, columns: Sequence[str] = ()) -> None:
    """Print an answer: a dict as names and values, a list as a table, anything else as one cell."""
    if as_json:
        import json

        print(json.dumps(answer), flush=True)  # a command that goes on prints one after the other
    elif isinstance(answer, dict):
        width = max((len(name) for name in answer), default=0)
        for name, value in answer.items():
            print(f"{name:<{width}}  {cell(value)}")
    elif isinstance(answer, list):
        for line in table(answer, columns):
            print(line)
    else:
        print(cell(answer))
