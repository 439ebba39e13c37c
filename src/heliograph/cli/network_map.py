"""The map for people: what several brokers report, put together, as a tree and as a table.

In:    reports "map" of one broker or many; the brokers that were asked and did not answer.
Out:   NetworkView: brokers, links and what is wrong; lines of text, plain values for JSON.
State: none.
Not here: asking (network.py), drawing (network_svg.py), the map that routes (broker/routing/map.py).

A broker knows its own cluster in full, of others only the gateways and what it costs to pass between them. Where
brokers of every cluster were asked, all links are known; where not, a cluster's inside is shown as such ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from heliograph.cli.tables import cell, table

RUNNING, KNOWN, SILENT, LOST = "running", "known", "not answering", "out of reach"


@dataclass(slots=True)
class SeenBroker:
    """One broker, as far as anybody knows it."""

    name: str
    cluster: str
    slot: int | None = None
    speaker: bool = False
    state: str = KNOWN  # RUNNING: it answered; KNOWN: others tell of it
    interests: int | None = None
    address: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class SeenDirectory:
    """A broker directory (BDN) of a local network."""

    name: str
    address: str
    pid: int | None  # None: it does not run
    state: str


@dataclass(frozen=True, slots=True)
class SeenLink:
    """A link between two brokers; or, with ``way``, a way through a cluster whose inside nobody was asked about."""

    one: str
    other: str
    cost: int
    way: bool = False
    suspected: bool = False  # by one end at least, which may also mean that only the other end tells of it


@dataclass(slots=True)
class NetworkView:
    """The network, put together."""

    brokers: dict[str, SeenBroker] = field(default_factory=dict)
    links: list[SeenLink] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    directories: list[SeenDirectory] = field(default_factory=list)

    @property
    def clusters(self) -> dict[str, list[SeenBroker]]:
        """Brokers by cluster; both in order."""
        found: dict[str, list[SeenBroker]] = {}
        order = sorted(self.brokers.values(), key=lambda each: (each.cluster, each.slot is None, each.slot, each.name))
        for broker in order:
            found.setdefault(broker.cluster, []).append(broker)
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values."""
        return {
            "complete": not self.problems,
            "problems": self.problems,
            "clusters": {name: [broker.name for broker in members] for name, members in self.clusters.items()},
            "brokers": [asdict(broker) for members in self.clusters.values() for broker in members],
            "links": [asdict(link) for link in self.links],
            "directories": [asdict(directory) for directory in self.directories],
        }


def merged(reports: Sequence[dict[str, Any]], silent: Iterable[SeenBroker] = ()) -> NetworkView:
    """One view out of all reports. ``silent``: brokers that should be there and did not answer."""
    names = {report["id"]: report["broker"] for report in reports}
    told: list[dict[str, Any]] = _with_names(list(reports), names)
    view = NetworkView()
    for broker in silent:
        view.brokers[broker.name] = broker
        view.problems.append(f"{broker.name} does not answer")
    for report in told:
        _meet(view, report)
    lost = {name for report in told for name in report["out_of_reach"]}
    reached = {row["broker"] for report in told for row in report["members"] if row["cost"] is not None}
    for broker in view.brokers.values():
        if broker.state == KNOWN and broker.name in lost - reached:
            broker.state = LOST
        if broker.state in (SILENT, LOST):
            broker.speaker = False  # whoever still says so has not heard the news
    view.links = [*_links(told), *_ways(told)]
    view.problems += _disagreements(view, told)
    return view


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    """The same with names for ids: whom the others know by its id only is known by name to itself."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_with_names(each, names) for each in value]
    if isinstance(value, dict):
        return {names.get(key, key): _with_names(each, names) for key, each in value.items()}
    return value


def _meet(view: NetworkView, report: Mapping[str, Any]) -> None:
    def meet(name: str, cluster: str, slot: int | None = None) -> SeenBroker:
        broker = view.brokers.setdefault(name, SeenBroker(name, cluster))
        if slot is not None:
            broker.slot = slot
        return broker

    for row in report["members"]:
        member = meet(row["broker"], report["cluster"], row["slot"])
        member.interests = row["interests"]
    meet(report["broker"], report["cluster"], report["slot"]).state = RUNNING
    meet(report["speaker"], report["cluster"]).speaker = True
    for row in report["gateways"]:
        meet(row["broker"], row["cluster"])
        if row["speaker"] in view.brokers:  # the speaker of another cluster may be known by its id only
            view.brokers[row["speaker"]].speaker = True
    for row in report["neighbours"]:
        meet(row["broker"], row["cluster"])


def _links(reports: Sequence[Mapping[str, Any]]) -> Iterator[SeenLink]:
    """A link counts if both ends tell of it. What a broker says of its own links beats what others say of them."""
    costs: dict[tuple[str, str], int] = {}
    suspicions: set[frozenset[str]] = set()
    answered = {report["broker"] for report in reports}
    for report in reports:
        for row in report["neighbours"]:
            costs[report["broker"], row["broker"]] = row["cost"]
            if row["suspected"]:
                suspicions.add(frozenset((report["broker"], row["broker"])))
        for row, names in [(row, "links") for row in report["members"]] + [
            (row, "outside") for row in report["gateways"]
        ]:
            if row["broker"] not in answered:
                for other, cost in row[names].items():
                    costs.setdefault((row["broker"], other), cost)
    for one, other in sorted({(min(pair), max(pair)) for pair in costs}):
        there, back = costs.get((one, other)), costs.get((other, one))
        suspected = None in (there, back) or frozenset((one, other)) in suspicions
        yield SeenLink(one, other, max(there or 0, back or 0), suspected=suspected)


def _ways(reports: Sequence[Mapping[str, Any]]) -> Iterator[SeenLink]:
    """Ways between the gateways of clusters of which nobody was asked."""
    inside = {report["cluster"] for report in reports}
    found: dict[tuple[str, str], int] = {}
    for report in reports:
        for row in report["gateways"]:
            if row["cluster"] not in inside and row["cost"] is not None:
                for other, cost in row["inside"].items():
                    found[min(row["broker"], other), max(row["broker"], other)] = cost
    for (one, other), cost in sorted(found.items()):
        yield SeenLink(one, other, cost, way=True)


def _disagreements(view: NetworkView, reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a broker that answered does not see, though it is there."""
    running = {broker.name: broker.cluster for broker in view.brokers.values() if broker.state == RUNNING}
    for report in reports:
        mine = report["cluster"]
        members = {row["broker"] for row in report["members"] if row["cost"] is not None}
        unseen = [name for name, cluster in running.items() if cluster == mine and name not in members]
        unseen += [
            name
            for name in report["out_of_reach"]
            if name not in unseen and (name not in view.brokers or view.brokers[name].state != SILENT)
        ]
        if unseen:
            yield f"{report['broker']} does not reach {', '.join(unseen)}"
        clusters = {row["cluster"] for row in report["clusters"]} | {mine}
        yield from (
            f"{report['broker']} does not reach cluster {cluster}"
            for cluster in dict.fromkeys(running.values())
            if cluster not in clusters
        )


def as_text(view: NetworkView) -> Iterator[str]:
    """A tree of clusters and brokers, a table of links, and what is wrong."""
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
        life = SILENT if directory.pid is None else f"pid {directory.pid}"
        yield f"directory {directory.name}  {directory.address}  {life}"
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
        "speaker" if broker.speaker else "",
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
