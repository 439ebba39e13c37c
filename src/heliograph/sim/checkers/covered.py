"""Covered: an interest that another one covers is not told to others, so the tables of other brokers stay small.

In:    what each client should have (book.py); at the end the brokers' report "map".
Out:   a violation for each broker and each cluster that has told more interests than it needs; "measured": how many
       there are, and what share of the subscriptions was not told to others.
State: none beyond the book.
Not here: whether enough was told (delivery.py), whether all brokers know it (maps.py).
Paper: [resources] §3.2, covering; N9, R3.

The needed number is found by comparing every selection of a broker, or of a cluster, with every other of its class
(selections.py): those that may answer requests, and those that only listen. Each broker has more interests of the first
class: one for the inboxes of its sessions, and those of its service `stores`, which are the same at all brokers.
"""

from __future__ import annotations

from typing import Any

from heliograph.sim.checkers.book import Book
from heliograph.sim.selections import Selection, uncovered

OF_STORES = 2  # stores/desk.py: advertisements, and which stores were forgotten


class Covered(Book):
    """Upstream tables are small."""

    name = "covered"

    def end(self) -> None:
        """Compare the interests told with those needed, class by class."""
        reports = {host: self.ask(host, "map") for host in self.scenario.topology.brokers}
        told, told_wide = map(sum, zip(self._told(reports, "interests"), self._told(reports, "listening"), strict=True))
        self._measure(sum(map(len, self.present.values())), told, told_wide)

    def _told(self, reports: dict[str, Any], name: str) -> tuple[int, int]:
        """How many interests of a class brokers and clusters have told; ``name``: of the class, in the report."""
        listens = name == "listening"
        clusters = {host: plan.cluster for host, plan in self.scenario.topology.brokers.items()}
        selections: dict[str, list[Selection]] = {host: [] for host in clusters}
        for who, wanted in self.present.items():
            mine = [one for number, one in wanted.items() if ((who, number) in self.listening) is listens]
            selections[self.people[who].broker] += mine
        needed = {host: uncovered(selections[host]) for host in clusters}
        told, told_wide = 0, 0
        for host, report in reports.items():
            if report is not None:
                (own,) = (row[name] for row in report["members"] if row["broker"] == report["broker"])
                told += self._compare(host, own, len(needed[host]), 0 if listens else 1 + OF_STORES)
        for cluster, interests in _of_clusters(reports, name).items():
            members = [host for host, its in clusters.items() if its == cluster]
            whole = uncovered([selection for host in members for selection in needed[host]])
            own = 0 if listens else len(members) + OF_STORES
            told_wide += self._compare(f"cluster {cluster}", interests, len(whole), own)
        return told, told_wide

    def _compare(self, who: str, interests: int, needed: int, own: int) -> int:
        told = interests - own
        if told > needed:
            self.blame(f"{who} has told {told} interests, but {needed} cover everything that is wanted there")
        return told

    def _measure(self, subscriptions: int, told: int, told_wide: int) -> None:
        if subscriptions:
            share = 100 * (subscriptions - told) // subscriptions
            text = f"{subscriptions} subscriptions, {share} % covered: brokers told {told} interests"
            self.journal.write("measured", "the network", f"{text}, clusters {told_wide}")


def _of_clusters(reports: dict[str, Any], name: str) -> dict[str, int]:
    """How many interests of each cluster the others have; the maximum, if they do not agree."""
    found: dict[str, int] = {}
    for report in reports.values():
        for row in report["clusters"] if report is not None else ():
            found[row["cluster"]] = max(found.get(row["cluster"], 0), row[name])
    return found
