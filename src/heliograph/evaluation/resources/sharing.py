"""The first experiment: the savings of similar requests, and of direct answers.

In:    a seed, how many resources and requests, which similarities and distributions.
Out:   rows: per way of delivery, similarity and distribution the paper's four metrics, and further counts.
State: none; one network per distribution of resources, which forgets requests between runs.
Not here: the network (network.py), the paper's claims about it (claims.py).
Paper: [resources] §6.3.1, Figures 9 to 11; §6.2.2, Figure 8(a), several Gaussians; §6.3.2, Figure 14.

A message is a frame between two brokers. An answer is one package per sender (in parts beyond 64 resources). A matching
operation is a query to a table of advertisements on behalf of a request; checks whether a host is missing repeat one
and are not counted. Every answer is compared with the expected one from the workload: ``wrong`` counts those that are
incomplete or differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from heliograph.discovery.resources.forwarding import DIRECT, NORMAL, SIMILARITY
from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.evaluation.resources.network import MS, ResourceNetwork, backbone
from heliograph.evaluation.resources.workload import (
    BALANCED,
    GAUSSIAN,
    GAUSSIANS,
    GEOMETRIC,
    UNIFORM,
    ZIPF,
    Offer,
    WorkloadRequest,
    make_requests,
    make_resources,
    place_requests,
    place_resources,
    times_of,
)

PLACEMENTS = (BALANCED, GEOMETRIC)
DISTRIBUTIONS = ((UNIFORM, UNIFORM), (ZIPF, UNIFORM), (UNIFORM, GAUSSIAN))  # in space, in time: Figures 9, 10, 11
DIRECT_LEVEL = 50
GAUSSIANS_LEVEL = 80
REST_S = 5.0  # after the last request

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SharingPlan:
    """The size of the experiment."""

    resources: int = 1_000
    requests: int = 1_000
    edges: int = 20
    routers: int = 4
    levels: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    distributions: tuple[tuple[str, str], ...] = DISTRIBUTIONS
    per_second: int = 100

    @property
    def span_s(self) -> float:
        """The period during which requests are made."""
        return self.requests / self.per_second


QUICK = SharingPlan(
    resources=200, requests=150, edges=10, routers=2, levels=(20, 50, 80), distributions=((UNIFORM, UNIFORM),)
)


class SharingStage:
    """The workloads, and a network for one distribution of resources."""

    def __init__(self, plan: SharingPlan, seed: int) -> None:
        self.plan = plan
        self.seed = seed
        self.resources = make_resources(plan.resources, seed)
        self.offer = Offer(self.resources)
        self.requests = make_requests(self.offer, plan.requests, seed, plan.levels)

    def network(self, placement: str) -> ResourceNetwork:
        """A network with everything registered, and known to all brokers."""
        plan = self.plan
        network = ResourceNetwork(plan.edges + plan.routers, backbone(plan.edges, plan.routers))
        for id, host in enumerate(self.hosts(placement)):
            network.place(host, id, self.resources[id])
        network.join()
        return network

    def hosts(self, placement: str) -> list[int]:
        """Where resources are."""
        return place_resources(self.plan.resources, self.plan.edges, placement, self.seed)

    def overlapping_hosts(self, placement: str, level: int) -> float:
        """Hosting brokers per request."""
        hosts = self.hosts(placement)
        return mean(len({hosts[id] for id in self.offer.overlapping(each)}) for each in self.requests[level])

    def result_size(self, level: int) -> float:
        """Resources per request."""
        return mean(len(self.offer.matching(each)) for each in self.requests[level])

    def run(self, network: ResourceNetwork, level: int, space: str, time: str, deliver: str) -> dict[str, Any]:
        """Run one workload. Returns the row without its parameters."""
        plan, requests = self.plan, self.requests[level]
        network.reset()
        begin = network.now
        where = place_requests(len(requests), plan.edges, space, self.seed)
        when = times_of(len(requests), plan.span_s, time, self.seed)
        took: list[int] = []
        wrong: list[WorkloadRequest] = []

        def ask(request: WorkloadRequest, broker: int) -> None:
            def answered(answer: GatheredAnswer, ns: int) -> None:
                took.append(ns)
                if not answer.is_complete or sorted(e.id for e in answer.found) != self.offer.matching(request):
                    wrong.append(request)

            network.ask(broker, request, deliver, answered)

        for request, broker, at in zip(requests, where, when, strict=True):
            network.at(begin + int(at * 1e9), lambda request=request, broker=broker: ask(request, broker))  # type: ignore[misc]
        network.run(plan.span_s + REST_S)
        traffic = network.traffic()
        return {
            "time_ms": round(mean(took) / MS, 3),
            "publications": traffic.publications,
            "subscriptions": traffic.subscriptions,
            "matchings": traffic.matchings,
            "results_hops": traffic.results,
            "completions": traffic.completions,
            "frames": traffic.frames,
            "busiest": round(network.busiest(plan.span_s), 3),
            "wrong": len(wrong) + len(requests) - len(took),
        }


def evaluate(plan: SharingPlan, seed: int, say: Say) -> dict[str, Any]:
    """All workloads, normal and by similarity; at half similarity also direct."""
    return evaluate_on(SharingStage(plan, seed), say)


def evaluate_on(stage: SharingStage, say: Say) -> dict[str, Any]:
    """The same with workloads that exist already."""
    plan, rows = stage.plan, list[dict[str, Any]]()
    for placement in PLACEMENTS:
        network = stage.network(placement)
        for space, time in plan.distributions:
            say(f"{placement} resources, requests {space} in space and {time} in time …")
            rows += _runs(stage, network, placement, space, time)
    return {"workloads": _described(stage), "sharing": rows, "gaussians": _gaussians(stage, say)}


def _gaussians(stage: SharingStage, say: Say) -> list[dict[str, Any]]:
    """Requests that come ever more at the same time."""
    say(f"balanced resources, requests in {', '.join(GAUSSIANS)} …")
    network = stage.network(BALANCED)
    return [
        {"time": time, "deliver": deliver, **stage.run(network, GAUSSIANS_LEVEL, UNIFORM, time, deliver)}
        for time in GAUSSIANS
        for deliver in (NORMAL, SIMILARITY)
    ]


def _runs(stage: SharingStage, network: ResourceNetwork, placement: str, space: str, time: str) -> list[dict[str, Any]]:
    rows = []
    for level in stage.plan.levels:
        ways = [NORMAL, SIMILARITY]
        if level == DIRECT_LEVEL and (space, time) == (UNIFORM, UNIFORM):
            ways.append(DIRECT)
        for deliver in ways:
            head = {"resources": placement, "space": space, "time": time, "similarity": level, "deliver": deliver}
            rows.append(head | stage.run(network, level, space, time, deliver))
    return rows


def _described(stage: SharingStage) -> list[dict[str, Any]]:
    """Figures of the workloads themselves: Figure 7(b)."""
    from heliograph.matching.similarity import similarity_of

    return [
        {
            "similarity": level,
            "measured": round(100 * similarity_of([each.conjunction for each in stage.requests[level]]), 2),
            "mean_result_size": round(stage.result_size(level), 2),
            **{f"hosts_{how}": round(stage.overlapping_hosts(how, level), 2) for how in PLACEMENTS},
        }
        for level in stage.plan.levels
    ]


def chosen(rows: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows with these parameters, in order."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]
