"""The second experiment: one broker for all clients, against many brokers, in all four models.

In:    a seed, the size of the experiment.
Out:   rows: per model and architecture the time until matching resources are known, and the number of messages.
State: none; a network for each run.
Not here: the network and its service times (network.py), the paper's claims about it (claims.py).
Paper: [resources] §6.3.2, Figures 12 and 13.

Static and dynamic: 1000 resources, then 1000 requests in sets of rising result size, at a fixed rate. Static
continuous: 20 requests, then 1000 resources. Dynamic continuous: 20 resources, 20 requests, 50 updates of each. With
many brokers, clients are divided among the edge brokers. Messages between brokers and those between brokers and clients
are counted separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any

from heliograph.discovery.resources.forwarding import NORMAL
from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.evaluation.resources.network import MS, SECOND, ResourceNetwork, backbone
from heliograph.evaluation.resources.workload import (
    VALUE_MAX,
    Offer,
    WorkloadRequest,
    WorkloadResource,
    make_resources,
)

CENTRAL, DECENTRAL = "centralised", "decentralised"
STATIC, DYNAMIC = "static", "dynamic"
STATIC_CONTINUOUS, DYNAMIC_CONTINUOUS = "static continuous", "dynamic continuous"
REST_S = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArchitecturePlan:
    """The size of the experiment."""

    resources: int = 1_000
    requests: int = 1_000
    watchers: int = 20
    updates: int = 50
    edges: int = 20
    routers: int = 4
    sizes: tuple[int, ...] = (10, 50, 100, 200, 300)  # expected numbers of results
    per_second: int = 450  # requests, registrations and updates: more than one broker can handle at the largest size


QUICK = ArchitecturePlan(
    resources=200, requests=150, updates=5, edges=10, routers=2, sizes=(5, 20, 50), watchers=10, per_second=300
)


def evaluate(plan: ArchitecturePlan, seed: int, say: Say) -> list[dict[str, Any]]:
    """All four models, in both architectures."""
    rows = []
    for architecture in (CENTRAL, DECENTRAL):
        say(f"{architecture} …")
        for model in (STATIC, DYNAMIC):
            rows += _Asking(plan, seed, architecture, model == STATIC).rows(model)
        for model in (STATIC_CONTINUOUS, DYNAMIC_CONTINUOUS):
            rows.append(_Watching(plan, seed, architecture, model == STATIC_CONTINUOUS).row(model))
    return rows


class _Stage:
    """A network of one or of many brokers."""

    def __init__(self, plan: ArchitecturePlan, seed: int, architecture: str, is_static: bool) -> None:
        self.plan = plan
        self.architecture = architecture
        self.is_static = is_static
        self.random = Random(f"{seed}/{architecture}")
        self.edges = 1 if architecture == CENTRAL else plan.edges
        routers = 0 if architecture == CENTRAL else plan.routers
        self.network = ResourceNetwork(self.edges + routers, backbone(self.edges, routers) if routers else [])
        self.resources = make_resources(plan.resources, seed)

    def broker(self, number: int) -> int:
        """The broker of a client."""
        return number % self.edges

    def every(self, number: int) -> int:
        """The instant of the next action, at the rate of the plan."""
        return self.network.now + number * SECOND // self.plan.per_second

    def row(self, model: str, size: float, took: list[int], seconds: float, wrong: int) -> dict[str, Any]:
        """The measurements since the last reset."""
        return {
            "model": model,
            "architecture": self.architecture,
            "result_size": round(size, 1),
            "time_ms": round(mean(took) / MS, 3),
            "broker_messages": self.network.frames,
            "client_messages": self.network.client_messages,
            "busiest": round(self.network.busiest(seconds), 3),
            "wrong": wrong,
        }


class _Asking(_Stage):
    """One-time requests."""

    def __init__(self, plan: ArchitecturePlan, seed: int, architecture: str, is_static: bool) -> None:
        super().__init__(plan, seed, architecture, is_static)
        for id, resource in enumerate(self.resources):
            self.network.place(self.broker(id), id, resource, is_static)
        self.network.join()
        self.offer = Offer(self.resources)

    def rows(self, model: str) -> list[dict[str, Any]]:
        """One for each size of results."""
        count = self.plan.requests // len(self.plan.sizes)
        return [self._run(model, size, count) for size in self.plan.sizes]

    def _request(self, size: int) -> WorkloadRequest:
        """A request that about this many resources match."""
        holders = sorted(each.values["a"] for each in self.resources if "a" in each.values)
        low = self.random.randrange(max(1, len(holders) - size))
        return WorkloadRequest((("a", holders[low], holders[min(low + size, len(holders)) - 1]),))

    def _run(self, model: str, size: int, count: int) -> dict[str, Any]:
        network = self.network
        network.reset()
        took: list[int] = []
        found: list[int] = []
        wrong: list[int] = []
        for number in range(count):
            request, broker = self._request(size), self.broker(self.random.randrange(self.edges))
            wanted = self.offer.matching(request)

            def answered(answer: GatheredAnswer, ns: int, wanted: list[int] = wanted) -> None:
                took.append(ns)
                found.append(len(answer.found))
                if sorted(each.id for each in answer.found) != wanted:
                    wrong.append(1)

            def answered_static(rows: int, ns: int, wanted: list[int] = wanted) -> None:
                took.append(ns)
                found.append(rows)
                if rows != len(wanted):
                    wrong.append(1)

            def ask(
                request: WorkloadRequest = request,
                broker: int = broker,
                dynamic: Callable[[GatheredAnswer, int], None] = answered,
                static: Callable[[int, int], None] = answered_static,
            ) -> None:
                if self.is_static:
                    network.ask_static(broker, request, static)
                else:
                    network.ask(broker, request, NORMAL, dynamic)

            network.at(self.every(number), ask)
            if not self.is_static:
                self._refresh(number)
        seconds = count / self.plan.per_second
        network.run(seconds + REST_S)
        return self.row(model, mean(found), took, seconds, len(wrong) + count - len(took))

    def _refresh(self, number: int) -> None:
        """A resource reports its values again: only its own broker keeps them."""
        network, id = self.network, self.random.randrange(len(self.resources))
        host = self.broker(id)
        values, version = dict(self.resources[id].values), 2 + network.now + number
        update = network.nodes[host].core.hosting.update
        network.at(self.every(number), lambda: network.client(host, lambda now: update(id, dict(values), version, now)))


class _Watching(_Stage):
    """Continuous requests."""

    def row(self, model: str) -> dict[str, Any]:  # type: ignore[override]
        """Everything that watchers were told about changes after they began."""
        plan, network = self.plan, self.network
        watched = [self._watched() for _ in range(plan.watchers)]
        if not self.is_static:
            self.resources = self.resources[: plan.watchers]
            for id, resource in enumerate(self.resources):
                network.place(self.broker(id), id, resource, False)
        network.join()
        for number, request in enumerate(watched):
            network.watch(self.broker(number), request, self.is_static, number + 1)
        network.run(REST_S)
        network.reset()
        begun: dict[tuple[str, int], int] = {}
        took: list[int] = []
        network.listen(lambda payload, at: self._heard(payload, at, begun, took))
        happened = self._register(begun) if self.is_static else self._update(begun)
        expected = sum(_fits(request, values) for values in happened for request in watched)
        seconds = len(happened) / plan.per_second
        network.run(seconds + REST_S)
        return super().row(model, expected / len(happened), took, seconds, abs(expected - len(took)))

    def _watched(self) -> WorkloadRequest:
        low = self.random.randint(1, VALUE_MAX // 2)
        return WorkloadRequest((("a", low, low + VALUE_MAX // 4),))

    def _heard(self, payload: bytes, at: int, begun: dict[tuple[str, int], int], took: list[int]) -> None:
        from msgspec.json import decode

        for state in decode(payload).get("states", ()):
            mark = (state["id"], 0 if self.is_static else state["values"]["serial"])
            if state["fits"]:
                took.append(at - begun[mark])

    def _register(self, begun: dict[tuple[str, int], int]) -> list[dict[str, int]]:
        network = self.network
        for id, resource in enumerate(self.resources):
            host, at = self.broker(id), self.every(id)
            begun[(f"{id:016x}", 0)] = at

            def register(host: int = host, id: int = id, resource: WorkloadResource = resource) -> None:
                network.client(host, lambda now: network.register(host, id, resource, True, now))

            network.at(at, register)
        return [resource.values for resource in self.resources]

    def _update(self, begun: dict[tuple[str, int], int]) -> list[dict[str, int]]:
        network, told = self.network, []
        for number in range(self.plan.updates * len(self.resources)):
            id = number % len(self.resources)
            ceilings, at = self.resources[id].ceilings, self.every(number)
            values = {name: self.random.randint(1, most) for name, most in ceilings.items()}
            begun[(f"{id:016x}", number)] = at
            told.append(values)
            update = network.nodes[self.broker(id)].core.hosting.update

            def send(id: int = id, values: dict[str, int] = values, number: int = number, update: Any = update) -> None:
                said = {**values, "serial": number}
                network.client(self.broker(id), lambda now: update(id, said, 2 + number, now))

            network.at(at, send)
        return told


def _fits(request: WorkloadRequest, values: dict[str, int]) -> bool:
    return all(least <= values.get(name, 0) <= most for name, least, most in request.bounds)
