"""Figures: medians, spreads, ratios and budgets, and how a result looks to a reader.

In:    measurements, each of one system in one round.
Out:   the fields of a result; a table.
State: none.
Not here: measuring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Rounds = Sequence[Mapping[str, Any]]
"""Measurements in the order in which they were made, each with "round", "case" and "system"."""


def values(rounds: Rounds, system: str, case: str, figure: str) -> dict[int, float]:
    """One figure by round."""
    chosen = [entry for entry in rounds if entry["system"] == system and entry["case"] == case]
    return {entry["round"]: entry[figure] for entry in chosen}


def medians(rounds: Rounds, system: str, case: str, figures: Sequence[str]) -> dict[str, float]:
    """The medians of some figures over all rounds."""
    return {figure: rounded(median(values(rounds, system, case, figure).values())) for figure in figures}


def spread(found: Sequence[float]) -> list[float]:
    """Smallest and largest."""
    return [rounded(min(found)), rounded(max(found))]


def ratios(rounds: Rounds, case: str, ours: str, peers: Sequence[str], figure: str) -> dict[str, dict[str, Any]]:
    """Ours by each peer's: of the medians, and the smallest and largest of single rounds.

    A peer counts only in rounds in which it ran, and only if it ran at all.
    """
    mine = values(rounds, ours, case, figure)
    found: dict[str, dict[str, Any]] = {}
    for peer in peers:
        theirs = values(rounds, peer, case, figure)
        common = [mine[number] / theirs[number] for number in mine if number in theirs]
        if common:
            ratio = median(mine.values()) / median(theirs.values())
            found[peer] = {"ratio": rounded(ratio), "spread": spread(common)}
    return found


def budget(what: str, value: float | None, limit: float, unit: str = "") -> dict[str, Any]:
    """A limit from the design, and whether this run kept it; None where there is nothing to compare with."""
    met = None if value is None else value <= limit
    return {"what": what, "limit": limit, "value": None if value is None else rounded(value), "unit": unit, "met": met}


def rounded(value: float) -> float:
    """Three digits that mean something."""
    return float(f"{value:.3g}")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns, the first one to the left, the others to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        padded = [
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def budget_lines(result: Mapping[str, Any]) -> str:
    """The budgets as sentences."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    lines = []
    for entry in result["budget"]:
        limit = f"limit {entry['limit']:g} {entry['unit']}".strip()
        why = f"; {entry['why']}" if "why" in entry else ""
        lines.append(f"{words[entry['met']]:>12}  {entry['what']}: {_cell(entry['value'])} ({limit}{why})")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    if isinstance(value, list):
        return "[" + ", ".join(_cell(item) for item in value) + "]"
    return str(value)
