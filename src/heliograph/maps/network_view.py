"""The view of a network: the "map" reports of several brokers, merged.

In:    "map" reports of one or more brokers; the brokers that were asked and did not answer.
Out:   NetworkView: brokers, links and problems; as plain values for JSON.
State: none.
Not here: asking brokers (cli/network.py), text (text.py), SVG (svg.py), the map used for routing
          (broker/routing/map.py).

A broker knows all of its own cluster; of other clusters it knows only the gateways and the costs between them. If
brokers of every cluster were asked, all links are known. Otherwise the inside of a cluster is shown as the routes
between its gateways ("ways").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

RUNNING, KNOWN, SILENT, LOST = "running", "known", "not answering", "out of reach"


@dataclass(slots=True)
class SeenBroker:
    """One broker, as far as the reports know it."""

    name: str
    cluster: str
    slot: int | None = None
    leader: bool = False
    state: str = KNOWN  # RUNNING: it answered; KNOWN: other brokers report it
    interests: int | None = None
    address: str = ""
    pid: int | None = None

    def locate(self, address: str, pid: int | None) -> None:
        """Record where it listens and which process runs it; both are known in a local network only."""
        self.address, self.pid = address, pid


@dataclass(frozen=True, slots=True)
class SeenDirectory:
    """A broker directory (BDN) of a local network."""

    name: str
    address: str
    pid: int | None  # None: it is not running
    state: str


@dataclass(frozen=True, slots=True)
class SeenLink:
    """A link between two brokers; with ``way``, a route through a cluster none of whose brokers was asked."""

    one: str
    other: str
    cost: int
    way: bool = False
    suspected: bool = False  # by at least one end; also set if only one end reports the link


@dataclass(slots=True)
class NetworkView:
    """The whole network."""

    brokers: dict[str, SeenBroker] = field(default_factory=dict)
    links: list[SeenLink] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    directories: list[SeenDirectory] = field(default_factory=list)

    @property
    def clusters(self) -> dict[str, list[SeenBroker]]:
        """Brokers by cluster, both sorted."""
        found: dict[str, list[SeenBroker]] = {}
        order = sorted(self.brokers.values(), key=lambda each: (each.cluster, each.slot is None, each.slot, each.name))
        for broker in order:
            found.setdefault(broker.cluster, []).append(broker)
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "complete": not self.problems,
            "problems": self.problems,
            "clusters": {name: [broker.name for broker in members] for name, members in self.clusters.items()},
            "brokers": [asdict(broker) for members in self.clusters.values() for broker in members],
            "links": [asdict(link) for link in self.links],
            "directories": [asdict(directory) for directory in self.directories],
        }


def merged(reports: Sequence[dict[str, Any]], silent: Iterable[SeenBroker] = ()) -> NetworkView:
    """Merge all reports into one view. ``silent``: brokers that should be there and did not answer."""
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
            broker.leader = False  # a report that still says so is outdated
    view.links = [*_links(told), *_ways(told)]
    view.problems += _disagreements(view, told)
    return view


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    """Replace ids by names: a broker that others know only by its id reports its own name."""
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
    meet(report["leader"], report["cluster"]).leader = True
    for row in report["gateways"]:
        meet(row["broker"], row["cluster"])
        if row["leader"] in view.brokers:  # the leader of another cluster may be known only by its id
            view.brokers[row["leader"]].leader = True
    for row in report["neighbours"]:
        meet(row["broker"], row["cluster"])


def _links(reports: Sequence[Mapping[str, Any]]) -> Iterator[SeenLink]:
    """A link is up if both ends report it. A broker's report of its own links beats what others report of them."""
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
    """Routes between the gateways of clusters none of whose brokers was asked."""
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
    """Brokers and clusters that exist but that a broker which answered does not reach."""
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
