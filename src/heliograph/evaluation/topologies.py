"""The paper's experiment: five sites, three topologies, and multicast in one lab.

In:    how many runs, a seed.
Out:   for each topology and site of a client the times to the choice and the share of each sub-activity, beside the
       paper's; whether the paper's order of waiting times holds.
State: none; each topology has a stage of its own.
Not here: where the sites are (places.py), the paper's figures (paper.py), more than five brokers (scale.py).
Paper: [brokers] §9.

Where the text leaves it open: all brokers of the star make themselves known to the directory, and its hub is
Indianapolis; of the linear one only Indianapolis does, and the line goes on in the order of BROKER_SITES.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from heliograph.discovery.brokers.config import DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.result import Result
from heliograph.evaluation import paper
from heliograph.evaluation.places import BROKER_SITES, CLIENT_SITES, DIRECTORY_SITE, SITES
from heliograph.evaluation.stage import AT_DIRECTORY, BY_DIRECTORY, NO_MULTICAST, Stage
from heliograph.evaluation.statistics import Summary, kept, summary

TOPOLOGIES = ("unconnected", "star", "linear")
RUNS = 120  # as in the paper
SETTLE_S = 8.0  # until brokers are linked, known and measured
PAUSE_S = 0.2  # between searches
LAB = "bloomington"
LAB_BROKERS = 3
LAB_JITTER_MS = 0.1
QUIET = ResponderConfig(public=False, multicast=NO_MULTICAST)  # known to no directory
ORDER = ("unconnected", "linear", "star")  # the longest wait first, as the paper found


@dataclass(frozen=True, slots=True)
class Times:
    """One search in milliseconds, by sub-activity."""

    reach: float  # until somebody asked has spoken: the cookie
    first: float  # from there to the first response
    others: float  # from there until collecting ended
    ping: float  # from there to the choice

    @property
    def total(self) -> float:
        """From the request to the choice."""
        return self.reach + self.first + self.others + self.ping

    @property
    def waiting(self) -> float:
        """For the initial set of responses."""
        return self.first + self.others


def times_of(result: Result) -> Times:
    """What the finder marked. A mark that it never set took no time of its own."""
    marks = result.times_ms
    total = marks["total"]
    collected = min(marks.get("collected", total), total)
    first = min(marks.get("first answer", collected), collected)
    reach = min(marks.get("first word", first), first)
    return Times(reach, first - reach, collected - first, total - collected)


def build(topology: str, seed: int) -> Stage:
    """The five sites' brokers with their links, and the directory; settled."""
    stage = Stage(seed)
    stage.add_directory(SITES[DIRECTORY_SITE])
    for number, site in enumerate(BROKER_SITES):
        links: tuple[str, ...] = ()
        if number and topology == "star":
            links = (f"broker-{BROKER_SITES[0]}",)
        elif number and topology == "linear":
            links = (f"broker-{BROKER_SITES[number - 1]}",)
        responder = QUIET if number and topology == "linear" else AT_DIRECTORY
        stage.add_broker(f"broker-{site}", SITES[site], links, responder)
    stage.run(SETTLE_S)
    return stage


def nearest(site: str) -> str:
    """The broker that should be chosen."""
    return "broker-" + min(BROKER_SITES, key=lambda other: SITES[site].one_way_ms(SITES[other]))


def _searches(stage: Stage, site: str, config: DiscoveryConfig, runs: int) -> list[Result]:
    results = []
    for _ in range(runs):
        results.append(stage.search(SITES[site], config))
        stage.run(PAUSE_S)
    return results


def _row(topology: str, site: str, results: Sequence[Result], published: Summary | None) -> dict[str, Any]:
    """Statistics of one experiment; None in "ours" if nothing was found."""
    found = [result for result in results if result.found]
    times = [times_of(result) for result in found]
    times = [times[place] for place in kept([each.total for each in times])]
    row: dict[str, Any] = {"topology": topology, "client": site, "runs": len(results), "found": len(found)}
    row["ours"] = summary([each.total for each in times]).as_dict() if times else None
    row["paper"] = None if published is None else published.as_dict()
    if times:
        whole = sum(each.total for each in times)
        row["share"] = {part: round(sum(getattr(each, part) for each in times) / whole, 3) for part in Times.__slots__}
        row["waiting_ms"] = round(fmean(each.waiting for each in times), 3)
    return row


def measure(topology: str, site: str, stage: Stage, runs: int) -> dict[str, Any]:
    """One topology as one site's clients see it."""
    results = _searches(stage, site, BY_DIRECTORY, runs)
    row = _row(topology, site, results, paper.UNCONNECTED[site] if topology == "unconnected" else None)
    return row | {"nearest": sum(result.broker == nearest(site) for result in results)}


def multicast(runs: int, seed: int) -> dict[str, Any]:
    """No directory, brokers in the lab only."""
    stage = Stage(seed, LAB_JITTER_MS)
    for number in range(LAB_BROKERS):
        stage.add_broker(f"lab{number}", SITES[LAB], ("lab0",) if number else (), ResponderConfig())
    stage.run(SETTLE_S)
    return _row("multicast only", LAB, _searches(stage, LAB, DiscoveryConfig(), runs), paper.MULTICAST)


def evaluate(runs: int = RUNS, seed: int = 1, sites: Sequence[str] = CLIENT_SITES) -> list[dict[str, Any]]:
    """All of it: a row for each topology and site, and one for multicast."""
    rows = []
    for topology in TOPOLOGIES:
        stage = build(topology, seed)
        rows += [measure(topology, site, stage, runs) for site in sites]
    return [*rows, multicast(runs, seed)]


def checks(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the paper found, and whether it is so here."""
    found = []
    for site in dict.fromkeys(row["client"] for row in rows if row["topology"] in TOPOLOGIES):
        waits = {row["topology"]: row.get("waiting_ms", 0.0) for row in rows if row["client"] == site}
        values = {topology: waits[topology] for topology in ORDER}
        holds = values["unconnected"] > values["linear"] > values["star"]
        claim = f"waiting for responses, client in {site}: unconnected > linear > star"
        found.append({"claim": claim, "holds": holds, "values": values})
    unconnected = next(row for row in rows if row["topology"] == "unconnected")
    if "bloomington" in {row["client"] for row in rows}:
        unconnected = next(row for row in rows if (row["topology"], row["client"]) == ("unconnected", "bloomington"))
    share = unconnected.get("share", {"first": 0.0, "others": 0.0})
    waiting = round(share["first"] + share["others"], 3)
    claim = f"unconnected, client in {unconnected['client']}: most of the time is waiting for responses"
    values = {"ours": waiting, "paper": paper.WAITING_SHARE_UNCONNECTED}
    return [*found, {"claim": claim, "holds": waiting > 0.5, "values": values}]
