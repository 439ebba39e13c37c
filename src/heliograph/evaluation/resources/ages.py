"""The third experiment: the age that requests allow, against messages and outdated results.

In:    the workloads of the first experiment; updates of random resources all the time.
Out:   rows: per allowed age the messages, the time, how old results were, and how many were outdated.
State: none; one network per age.
Not here: the network (network.py), the paper's claims about it (claims.py).
Paper: [resources] §5.2: longer expiration times offer more opportunities to share, at the expense of stale results.

A result is outdated if, judged by itself, it was wrong during the whole time between the request and its answer: a
resource that is in the answer and matched at no moment of it, or one that is missing and matched all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import mean
from typing import Any

from heliograph.discovery.resources.forwarding import SIMILARITY
from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.evaluation.resources.network import EPOCH_NS, MS, SECOND, ResourceNetwork
from heliograph.evaluation.resources.sharing import REST_S, SharingStage
from heliograph.evaluation.resources.workload import BALANCED, UNIFORM, WorkloadRequest, place_requests, times_of

AGES_S = (0.0, 0.1, 1.0, 10.0)  # a run takes 10 s, so more allows no more
LEVEL = 80
UPDATES_PER_REQUEST = 1

Say = Callable[[str], None]


def evaluate(stage: SharingStage, say: Say) -> list[dict[str, Any]]:
    """A row per age."""
    say(f"balanced resources that change, requests that allow an age of {', '.join(f'{age:g}' for age in AGES_S)} s …")
    return [{"allowed_age_s": age_s, **_Run(stage, age_s).row()} for age_s in AGES_S]


class _Run:
    """One workload with one age. It knows which values each resource had at which time."""

    def __init__(self, stage: SharingStage, age_s: float) -> None:
        self._stage = stage
        self._age_ns = int(age_s * SECOND)
        self._network: ResourceNetwork = stage.network(BALANCED)
        self._hosts = stage.hosts(BALANCED)
        self._values = [[(0, each.values)] for each in stage.resources]  # since when, oldest first
        self._took: list[int] = []
        self._ages: list[int] = []
        self._outdated = 0
        self._incomplete = 0

    def row(self) -> dict[str, Any]:
        """Run it."""
        stage, network, plan = self._stage, self._network, self._stage.plan
        requests, begin = stage.requests[LEVEL], network.now
        where = place_requests(len(requests), plan.edges, UNIFORM, stage.seed)
        when = times_of(len(requests), plan.span_s, UNIFORM, stage.seed)
        for request, broker, at in zip(requests, where, when, strict=True):
            network.at(begin + int(at * SECOND), lambda request=request, broker=broker: self._ask(request, broker))  # type: ignore[misc]
        self._plan_updates(begin)
        network.run(plan.span_s + REST_S)
        traffic = network.traffic()
        return {
            "subscriptions": traffic.subscriptions,
            "publications": traffic.publications,
            "time_ms": round(mean(self._took) / MS, 3),
            "results": len(self._ages),
            "mean_age_ms": round(mean(self._ages) / MS, 1),
            "outdated": self._outdated,
            "wrong": self._incomplete + len(requests) - len(self._took),
        }

    def _plan_updates(self, begin: int) -> None:
        plan, random = self._stage.plan, Random(f"{self._stage.seed}/updates")
        network = self._network
        for _ in range(plan.requests * UPDATES_PER_REQUEST):
            id, at = random.randrange(plan.resources), random.uniform(0, plan.span_s)
            ceilings = self._stage.resources[id].ceilings
            values = {name: random.randint(1, most) for name, most in ceilings.items()}
            host = self._hosts[id]

            def update(now: int, id: int = id, host: int = host, values: dict[str, int] = values) -> None:
                version = len(self._values[id]) + 1
                network.nodes[host].core.hosting.update(id, dict(values), version, now)
                self._values[id].append((now, values))

            network.at(begin + int(at * SECOND), lambda host=host, update=update: network.client(host, update))  # type: ignore[misc]

    def _ask(self, request: WorkloadRequest, broker: int) -> None:
        began = self._network.now

        def answered(answer: GatheredAnswer, ns: int) -> None:
            self._took.append(ns)
            self._incomplete += not answer.is_complete
            self._judge(request, answer, began, began + ns)

        self._network.ask(broker, request, SIMILARITY, answered, self._age_ns)

    def _judge(self, request: WorkloadRequest, answer: GatheredAnswer, began: int, ended: int) -> None:
        self._ages += [ended + EPOCH_NS - each.at for each in answer.found]
        found = {each.id for each in answer.found}
        for id in self._stage.offer.overlapping(request):
            fits = [_fits(request, values) for values in self._between(id, began, ended)]
            self._outdated += not any(fits) if id in found else all(fits)

    def _between(self, id: int, began: int, ended: int) -> list[dict[str, int]]:
        """The values that a resource had at some moment of this time."""
        history = self._values[id]
        ends = [since for since, _ in history[1:]] + [ended + 1]
        return [values for (since, values), end in zip(history, ends, strict=True) if since <= ended and end >= began]


def _fits(request: WorkloadRequest, values: dict[str, int]) -> bool:
    return all(least <= values.get(name, 0) <= most for name, least, most in request.bounds)
