"""Time: nodes that follow the same clock agree within the errors that they state; at the end there is one clock.

In:    the report "time" of every broker and client, every quarter of a virtual second.
Out:   a violation if two nodes are further apart than the sum of their errors, or one that follows UTC is further from
       the true time than its error; at the end, if linked brokers follow different clocks, or a node is not
       synchronised; "measured" errors.
State: all names; the largest difference of two nodes that follow the same clock, and the largest stated error.
Not here: what the time should be (timekeeping/), clocks that step (faults.py).
Paper: [brokers] timing: every node within 1 to 20 ms of the others; N13.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from heliograph.sim.checkers.base import Checker
from heliograph.sim.clock import EPOCH_NS
from heliograph.topology.scenario_network import client_names

Report = dict[str, Any]


class NetworkTime(Checker):
    """One time for all, with honest errors."""

    name = "time"

    def prepare(self) -> None:
        """No node was asked yet."""
        topology = self.scenario.topology
        clients = [name for group, plan in topology.clients.items() for name in client_names(group, plan)]
        self._brokers = list(topology.brokers)
        self._nodes = [*self._brokers, *clients]
        self._apart_ns = 0
        self._stated_ns = 0

    def _ask_all(self, nodes: list[str]) -> dict[str, Report]:
        asked = {node: self.ask(node, "time") for node in nodes}
        return {node: report for node, report in asked.items() if report is not None}

    def look(self) -> None:
        """Compare all nodes that follow the same clock: the lowest with the highest, then all with both."""
        clocks: dict[tuple[str, int], list[tuple[str, Report]]] = {}
        for node, report in self._ask_all(self._nodes).items():
            if report["synchronised"]:
                clocks.setdefault((report["reference"], report["era"]), []).append((node, report))
        for (reference, _), followers in clocks.items():
            self._compare(followers)
            if reference == "UTC":
                self._compare_with_truth(followers)

    def _compare_with_truth(self, followers: list[tuple[str, Report]]) -> None:
        true_ns = EPOCH_NS + self.journal.instant
        for node, report in followers:
            wrong = abs(report["time_ns"] - true_ns)
            if wrong > report["error_ns"]:
                self.blame(f"{node} is wrong by {wrong} ns, and says that it is at most {report['error_ns']} ns")

    def _compare(self, followers: list[tuple[str, Report]]) -> None:
        """Intervals that overlap pairwise have a common point: the highest start must not exceed the lowest end."""
        first = min(followers, key=lambda each: each[1]["time_ns"] + each[1]["error_ns"])
        last = max(followers, key=lambda each: each[1]["time_ns"] - each[1]["error_ns"])
        times = [report["time_ns"] for _, report in followers]
        self._apart_ns = max(self._apart_ns, max(times) - min(times))
        self._stated_ns = max(self._stated_ns, *(report["error_ns"] for _, report in followers))
        apart = abs(last[1]["time_ns"] - first[1]["time_ns"])
        stated = last[1]["error_ns"] + first[1]["error_ns"]
        if apart > stated:
            self.blame(f"{first[0]} and {last[0]} are {apart} ns apart, and say that it is at most {stated} ns")

    def end(self) -> None:
        """After the last fault: one clock per connected part of the network, which all its nodes follow."""
        reports = self._ask_all(self._nodes)
        late = [node for node, report in reports.items() if not report["synchronised"]]
        if late:
            self.blame(f"not synchronised: {', '.join(late[:10])}")
            return
        brokers = {node: report for node, report in reports.items() if node in self._brokers}
        if self.scenario.topology.links:
            clocks = {node: (report["reference"], report["era"]) for node, report in brokers.items()}
            for one, other in pairwise(clocks):
                if clocks[one] != clocks[other]:
                    self.blame(f"{one} follows {clocks[one]}, {other} follows {clocks[other]}")
                    return
        errors = sorted(report["error_ns"] for report in reports.values())
        median, most = errors[len(errors) // 2], errors[-1]
        in_ms = [f"{ns / 1e6:.2f} ms" for ns in (median, most, self._apart_ns, self._stated_ns)]
        text = "network time has an error of {} in the median, {} at most; with faults, {} apart and {} stated at most"
        self.journal.write("measured", "time", text.format(*in_ms))
