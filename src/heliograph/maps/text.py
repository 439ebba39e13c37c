"""A network view as text: a tree of clusters and brokers, a table of links, and the problems.

In:    a NetworkView.
Out:   lines of text.
State: none.
Not here: merging reports into the view (network_view.py), the drawing (svg.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heliograph.maps.cells import cell, table
from heliograph.maps.network_view import LOST, SILENT, NetworkView, SeenBroker, SeenLink


def as_text(view: NetworkView) -> Iterator[str]:
    """A tree of clusters and brokers, a table of links, and the problems."""
    clusters = view.clusters
    links = [link for link in view.links if not (link.way or link.suspected)]
    yield f"{_count(view.brokers, 'broker')} in {_count(clusters, 'cluster')}, {_count(links, 'link')} up"
    neighbours: dict[str, list[str]] = {}
    for link in links:
        neighbours.setdefault(link.one, []).append(link.other)
        neighbours.setdefault(link.other, []).append(link.one)
    for number, (name, members) in enumerate(clusters.items(), 1):
        is_last = number == len(clusters)
        yield f"{'└─' if is_last else '├─'} cluster {cell(name)}"
        rows = [_row(broker, neighbours.get(broker.name, [])) for broker in members]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for place, row in enumerate(rows, 1):
            branch = f"{'  ' if is_last else '│ '} {'└─' if place == len(rows) else '├─'}"
            text = "  ".join(f"{part:<{width}}" for part, width in zip(row, widths, strict=True) if width)
            yield f"{branch} {text}".rstrip()
    for directory in view.directories:
        state = SILENT if directory.pid is None else f"pid {directory.pid}"
        yield f"directory {directory.name}  {directory.address}  {state}"
    if view.links:
        yield ""
        yield from table([_link_row(view, link) for link in view.links])
    if view.problems:
        yield ""
        yield from (f"! {cell(problem)}" for problem in view.problems)


def _row(broker: SeenBroker, neighbours: list[str]) -> tuple[str, ...]:
    return (
        cell(broker.name),
        "" if broker.slot is None else f"slot {broker.slot}",
        broker.address,
        "" if broker.pid is None else f"pid {broker.pid}",
        "leader" if broker.leader else "",
        broker.state if broker.state in (SILENT, LOST) else "",
        f"linked to {cell(sorted(neighbours))}" if neighbours else "",
    )


def _link_row(view: NetworkView, link: SeenLink) -> dict[str, Any]:
    one, other = (view.brokers[name].cluster if name in view.brokers else "" for name in (link.one, link.other))
    return {
        "link": f"{link.one} - {link.other}",
        "cost": link.cost,
        "where": f"in {one}" if one == other else f"{one} - {other}",
        "state": "way" if link.way else _state(view, link),
    }


def _state(view: NetworkView, link: SeenLink) -> str:
    ends = [view.brokers[name].state for name in (link.one, link.other) if name in view.brokers]
    if link.suspected and (SILENT in ends or LOST in ends):
        return "lost"
    return "suspected" if link.suspected else "up"


def _count(things: Sequence[Any] | Mapping[Any, Any], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"
