"""The paper's experiment: five sites, three topologies, and multicast in one lab.

In:    which topology; the results of searches, simulated or live.
Out:   places and links of the brokers; for each topology and site of a client the times to the choice and the share of
       each sub-activity, beside the paper's; whether the paper's order of waiting times holds.
State: none.
Not here: running it (simulated.py, live/), where the sites are (places.py), the paper's figures (paper.py), more than
          five brokers (scale.py).
Paper: [brokers] §9.

Choices that the paper leaves open: all brokers of the star advertise to the directory, and its hub is Indianapolis; in
the linear topology only Indianapolis does, and the line continues in the order of BROKER_SITES.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from heliograph.discovery.brokers.result import SearchResult
from heliograph.evaluation import paper
from heliograph.evaluation.places import BROKER_SITES, SITES
from heliograph.evaluation.statistics import kept, summary

TOPOLOGIES = ("unconnected", "star", "linear")
MULTICAST = "multicast only"
EXPERIMENTS = (*TOPOLOGIES, MULTICAST)
RUNS = 120  # as in the paper
PAUSE_S = 0.2  # between searches of one client
LAB = "bloomington"
LAB_BROKERS = 3
ORDER = ("unconnected", "linear", "star")  # the longest wait first, as the paper found


@dataclass(frozen=True, slots=True)
class LabMember:
    """One broker of an experiment."""

    name: str
    site: str
    links: tuple[str, ...] = ()  # brokers that it dials
    registered: bool = True  # it advertises to the directory


def members(topology: str) -> list[LabMember]:
    """The brokers with their links, in the order in which they start."""
    if topology == MULTICAST:
        return [LabMember(f"lab{number}", LAB, ("lab0",) if number else ()) for number in range(LAB_BROKERS)]
    found: list[LabMember] = []
    for site in BROKER_SITES:
        links: tuple[str, ...] = ()
        if found and topology != "unconnected":
            links = (found[0 if topology == "star" else -1].name,)
        found.append(LabMember(f"broker-{site}", site, links, not found or topology != "linear"))
    return found


def islands(topology: str) -> int:
    """How many groups of linked brokers there are."""
    return len(BROKER_SITES) if topology == "unconnected" else 1


@dataclass(frozen=True, slots=True)
class Times:
    """One search in milliseconds, by sub-activity."""

    reach: float  # until the first asked party has sent its cookie
    first: float  # from then to the first response
    others: float  # from then until collecting ended
    ping: float  # from then to the choice

    @property
    def total(self) -> float:
        """From the request to the choice."""
        return self.reach + self.first + self.others + self.ping

    @property
    def waiting(self) -> float:
        """The wait for the initial set of responses."""
        return self.first + self.others


def times_of(result: SearchResult) -> Times:
    """The times that the search recorded. A step that it never reached counts as 0."""
    marks = result.times_ms
    total = marks["total"]
    collected = min(marks.get("collected", total), total)
    first = min(marks.get("first answer", collected), collected)
    reach = min(marks.get("first word", first), first)
    return Times(reach, first - reach, collected - first, total - collected)


def nearest(site: str) -> str:
    """The broker that should be chosen."""
    return "broker-" + min(BROKER_SITES, key=lambda other: SITES[site].one_way_ms(SITES[other]))


def row(topology: str, site: str, results: Sequence[SearchResult]) -> dict[str, Any]:
    """Statistics of one topology for one site's clients; None in "ours" if nothing was found."""
    found = [result for result in results if result.found]
    times = [times_of(result) for result in found]
    times = [times[place] for place in kept([each.total for each in times])]
    published = {MULTICAST: paper.MULTICAST, "unconnected": paper.UNCONNECTED[site]}.get(topology)
    row: dict[str, Any] = {"topology": topology, "client": site, "runs": len(results), "found": len(found)}
    row["ours"] = summary([each.total for each in times]).as_dict() if times else None
    row["paper"] = None if published is None else published.as_dict()
    if times:
        whole = sum(each.total for each in times)
        row["share"] = {part: round(sum(getattr(each, part) for each in times) / whole, 3) for part in Times.__slots__}
        row["waiting_ms"] = round(fmean(each.waiting for each in times), 3)
    if topology != MULTICAST:
        row["nearest"] = sum(result.broker == nearest(site) for result in results)
    return row


def checks(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's findings, and whether they hold here; only those that the rows can show."""
    found = []
    for site in dict.fromkeys(row["client"] for row in rows if row["topology"] in TOPOLOGIES):
        waits = {row["topology"]: row.get("waiting_ms", 0.0) for row in rows if row["client"] == site}
        if set(ORDER) <= set(waits):
            values = {topology: waits[topology] for topology in ORDER}
            holds = values["unconnected"] > values["linear"] > values["star"]
            claim = f"waiting for responses, client in {site}: unconnected > linear > star"
            found.append({"claim": claim, "holds": holds, "values": values})
    unconnected = {row["client"]: row for row in rows if row["topology"] == "unconnected"}
    if unconnected:
        found.append(_waiting_share(unconnected.get("bloomington") or next(iter(unconnected.values()))))
    return found


def _waiting_share(row: dict[str, Any]) -> dict[str, Any]:
    share = row.get("share", {"first": 0.0, "others": 0.0})
    waiting = round(share["first"] + share["others"], 3)
    claim = f"unconnected, client in {row['client']}: most of the time is waiting for responses"
    values = {"ours": waiting, "paper": paper.WAITING_SHARE_UNCONNECTED}
    return {"claim": claim, "holds": waiting > 0.5, "values": values}
