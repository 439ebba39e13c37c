"""Maps: when nothing is wrong, every broker's map agrees with the world. This checker tells others when that is so.

In:    faults as they begin and end, links as they are added and removed; the brokers' report "map", while it matters.
Out:   "disturbed" and "settled" in the journal; a violation for each broker that is wrong when the run is over.
State: how many faults of brokers and their links are active; the links that should exist.
Not here: what is lost meanwhile (delivery.py).
Paper: [grid] §1.1, the broker network map; N4, N8.

The network is settled when no fault of a broker, or of a link between brokers, is active, and all maps agree with the
world: neighbours, members and gateways in reach, their links, the leaders, and how many interests each has told. Faults
that a scenario calls harmless do not disturb it: a stepped clock, on which brokers do not depend, or broken links where
other paths exist.
"""

from __future__ import annotations

from typing import Any

from heliograph.sim.checkers.base import Checker
from heliograph.sim.loop import SECOND

AT_ONCE = ("reset", "drop_frame", "link", "unlink")  # these end at once; the end of a link is reported separately

SPREAD_NS = SECOND // 10  # by then all brokers know a new subscription

Graph = dict[str, dict[str, None]]


class Maps(Checker):
    """Maps agree with the world."""

    name = "maps"

    def prepare(self) -> None:
        """No fault is active yet, and no map is known."""
        self._clusters = {name: plan.cluster for name, plan in self.scenario.topology.brokers.items()}
        self._active = 0
        self._settled = False
        self._moved_at = -SPREAD_NS  # when a client last came, left or changed its subscriptions
        self._links: dict[tuple[str, str], None] = dict.fromkeys(self.scenario.topology.links)

    def on_subscribing(self, *_: object) -> None:
        """A client came, left or changed its subscriptions."""
        self._moved_at = self.journal.instant

    on_unsubscribing = on_attached = on_detached = on_subscribing

    def on_linked(self, one: str, other: str) -> None:
        """A link was added."""
        self._links[one, other] = None
        self._change()

    def on_unlinked(self, one: str, other: str) -> None:
        """A link was removed."""
        del self._links[one, other]
        self._change()

    def _change(self) -> None:
        if not {"link", "unlink"} <= set(self.scenario.checks.harmless):
            self._disturb()

    def on_fault(self, target: str, kind: str) -> None:
        """A fault began."""
        if self._concerns(target, kind):
            self._active += kind not in AT_ONCE
            self._disturb()

    def on_healed(self, target: str, kind: str) -> None:
        """A fault ended."""
        if self._concerns(target, kind) and kind not in AT_ONCE:
            self._active -= 1

    def _concerns(self, target: str, kind: str) -> bool:
        hosts = target.replace(" > ", ",").split(",")
        return kind not in self.scenario.checks.harmless and all(host in self._clusters for host in hosts)

    def _disturb(self) -> None:
        if self._settled:
            self._settled = False
            self.journal.write("disturbed", "the network")

    def look(self) -> None:
        """Check whether the maps agree with the world now."""
        if not self._active and not self._settled and not self.complaints():
            self._settled = True
            self.journal.write("settled", "the network")

    def end(self) -> None:
        """After the last fault the maps must agree, except about subscriptions made a moment ago."""
        for complaint in self.complaints(self.journal.instant - self._moved_at >= SPREAD_NS):
            self.blame(complaint)

    def complaints(self, with_interests: bool = True) -> list[str]:
        """The errors in the brokers' maps."""
        reports = {host: self.ask(host, "map") for host in self._clusters}
        silent = [f"{host} does not run" for host, report in reports.items() if report is None]
        return silent or _Truth(self._clusters, self._links, reports).complaints(with_interests)


class _Truth:
    """The actual world, under the brokers' present names, compared with their maps.

    A leader that is not a gateway is known to other clusters only by its id.
    """

    def __init__(
        self, clusters: dict[str, str], links: dict[tuple[str, str], None], reports: dict[str, dict[str, Any]]
    ) -> None:
        names = {host: report["broker"] for host, report in reports.items()}
        self.reports = {report["broker"]: report for report in reports.values()}
        self.ids = {report["id"]: report["broker"] for report in reports.values()}
        self.inside: Graph = {name: {} for name in names.values()}
        self.outside: Graph = {name: {} for name in names.values()}
        for one, other in links:
            graph = self.inside if clusters[one] == clusters[other] else self.outside
            graph[names[one]][names[other]] = None
            graph[names[other]][names[one]] = None
        self.whole = {name: {**self.inside[name], **self.outside[name]} for name in self.inside}
        self.gateways = {name for name in self.outside if self.outside[name]}
        self.leaders = {name: self._leader(name) for name in self.inside}

    def _leader(self, name: str) -> str:
        return min(reach(name, self.inside), key=lambda each: int(self.reports[each]["slot"]))

    def complaints(self, with_interests: bool) -> list[str]:
        """All differences between the maps and the world."""
        found = []
        for name, report in self.reports.items():
            found += self._about_neighbours(name, report)
            found += self._about_members(name, report)
            found += self._about_gateways(name, report)
        if with_interests and not found:
            found = self._about_interests()
        return found

    def _about_neighbours(self, name: str, report: dict[str, Any]) -> list[str]:
        has = {row["broker"] for row in report["neighbours"] if not row["suspected"]}
        return _compared(f"{name} is linked to", has, set(self.whole[name]))

    def _about_members(self, name: str, report: dict[str, Any]) -> list[str]:
        rows = {row["broker"]: row for row in report["members"] if row["cost"] is not None}
        found = _compared(f"{name} has as members in reach", set(rows), reach(name, self.inside))
        for other, row in rows.items():
            found += _compared(f"{name} has as links of {other}", set(row["links"]), set(self.inside.get(other, {})))
        slots = [row["slot"] for row in rows.values()]
        if len(set(slots)) < len(slots):
            found.append(f"{name} has a slot twice: {sorted(slots)}")
        if report["leader"] != self.leaders[name]:
            found.append(f"{name} has {report['leader']} as leader, but it is {self.leaders[name]}")
        return found

    def _about_gateways(self, name: str, report: dict[str, Any]) -> list[str]:
        rows = {row["broker"]: row for row in report["gateways"] if row["cost"] is not None and row["outside"]}
        in_reach = reach(name, self.whole)
        found = _compared(f"{name} has as gateways in reach", set(rows), self.gateways & in_reach)
        for other, row in rows.items():
            outside = set(self.outside.get(other, {}))
            found += _compared(f"{name} has as links of gateway {other}", set(row["outside"]), outside)
        parts = {self.ids.get(row["leader"], row["leader"]) for row in report["clusters"]}
        true_parts = {self.leaders[other] for other in in_reach} - {self.leaders[name]}
        return found + _compared(f"{name} has as leaders of other parts", parts, true_parts)

    def _about_interests(self) -> list[str]:
        """All brokers know as many filters of a broker as it has told, and equally many of a cluster."""
        told = {
            name: _told(row)
            for name, report in self.reports.items()
            for row in report["members"]
            if row["broker"] == name
        }
        found = []
        wide: dict[str, tuple[int, int]] = {}
        for name, report in self.reports.items():
            for row in report["members"]:
                if row["cost"] is not None and _told(row) != told[row["broker"]]:
                    other, count = row["broker"], _told(row)
                    found.append(f"{name} has {_said(count)} interests of {other}, which told {_said(told[other])}")
            for row in report["clusters"]:
                leader, count = self.ids.get(row["leader"], row["leader"]), _told(row)
                if wide.setdefault(leader, count) != count:
                    found.append(
                        f"{name} has {_said(count)} interests of the part of {leader}, others {_said(wide[leader])}"
                    )
        return found


def reach(start: str, graph: Graph) -> set[str]:
    """All nodes that can be reached, including the start."""
    found = {start}
    ahead = [start]
    while ahead:
        for other in graph[ahead.pop()]:
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found


def _told(row: dict[str, Any]) -> tuple[int, int]:
    """How many interests an owner has told, and how many that only listen."""
    return (row["interests"], row["listening"])


def _said(told: tuple[int, int]) -> str:
    interests, listening = told
    return f"{interests} and {listening} listening" if listening else str(interests)


def _compared(what: str, has: set[str], should: set[str]) -> list[str]:
    return [] if has == should else [f"{what} {sorted(has)}, but should have {sorted(should)}"]
