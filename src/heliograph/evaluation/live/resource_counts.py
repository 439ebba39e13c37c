"""The counts of the experiment on resources, measured on real brokers beside a simulation of the same.

In:    quick or not, a seed.
Out:   rows: messages and matching operations by way of delivery, live and simulated; every answer is checked.
State: the processes while it runs.
Not here: the simulated network (evaluation/resources/network.py), the processes themselves (processes.py).

Requests are made one after another, so counts depend only on the network and the workload. Both networks have the same
links, a tree; live and simulated counts should be equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from heliograph.discovery.resources.forwarding import NORMAL, SIMILARITY
from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.errors import HeliographError
from heliograph.evaluation.live.processes import KEY, Processes
from heliograph.evaluation.resources.network import backbone, name
from heliograph.evaluation.resources.sharing import QUICK, SharingPlan, SharingStage
from heliograph.evaluation.resources.workload import BALANCED, UNIFORM, place_requests
from heliograph.live.client import Client
from heliograph.live.connect import connect

SETTLE_S_MAX = 120.0
LEASE_S = 3_000.0
COUNTS = {
    "subscriptions": "subscription_messages",
    "publications": "publication_messages",
    "matchings": "matching_operations",
    "results_hops": "results",
    "completions": "completion_messages",
}

Say = Callable[[str], None]


def evaluate(quick: bool, seed: int, say: Say) -> list[dict[str, Any]]:
    """Live and simulated, normal and by similarity."""
    level = 80
    plan = (
        SharingPlan(resources=60, requests=40, edges=4, routers=2, levels=(level,))
        if quick
        else SharingPlan(resources=QUICK.resources, requests=QUICK.requests, levels=(level,))
    )
    stage = SharingStage(plan, seed)
    rows = [_simulated(stage, level, deliver) for deliver in (NORMAL, SIMILARITY)]
    return rows + asyncio.run(_live(stage, level, say))


def _simulated(stage: SharingStage, level: int, deliver: str) -> dict[str, Any]:
    network = stage.network(BALANCED)
    where = place_requests(stage.plan.requests, stage.plan.edges, UNIFORM, stage.seed)
    wrong = 0
    for request, broker in zip(stage.requests[level], where, strict=True):
        found: list[int] = []
        done: list[bool] = []

        def answered(answer: GatheredAnswer, ns: int, found: list[int] = found, done: list[bool] = done) -> None:
            found += [each.id for each in answer.found]
            done.append(answer.is_complete)

        network.ask(broker, request, deliver, answered)
        network.run(0.05)
        wrong += done != [True] or sorted(found) != stage.offer.matching(request)
    traffic = network.traffic()
    return {
        **{"similarity": level, "deliver": deliver, "how": "simulated"},
        **{"subscriptions": traffic.subscriptions, "publications": traffic.publications},
        "matchings": traffic.matchings,
        **{"results_hops": traffic.results, "completions": traffic.completions, "wrong": wrong},
    }


async def _live(stage: SharingStage, level: int, say: Say) -> list[dict[str, Any]]:
    plan = stage.plan
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="heliograph-evaluation-")))
        processes = Processes(folder)
        stack.callback(processes.stop)
        say(f"starting {plan.edges + plan.routers} brokers …")
        clients = await _brokers(plan, processes, stack)
        say("registering resources …")
        for id, host in enumerate(stage.hosts(BALANCED)):
            resource = stage.resources[id]
            await clients[host].register_resource(resource.where, name=str(id), values=resource.values, lease=LEASE_S)
        await _settled(clients, plan.edges)
        return [await _ask_all(stage, clients, level, deliver, say) for deliver in (NORMAL, SIMILARITY)]


async def _brokers(plan: SharingPlan, processes: Processes, stack: AsyncExitStack) -> list[Client]:
    """Start them one after another from the last: a broker dials those with higher numbers. One client at each."""
    ports: dict[int, int] = {}
    edges = backbone(plan.edges, plan.routers)
    for number in reversed(range(plan.edges + plan.routers)):
        lines = ["[broker]", f'name = "{name(number)}"', "", "[[listener]]", "port = 0"]
        lines += ["", "[network]", f'key_file = "{KEY}"', "", "[discovery]", "enabled = false"]
        for one, other in edges:
            if one == number:
                lines += ["", "[[network.links]]", 'host = "127.0.0.1"', f"port = {ports[other]}"]
        processes.start(name(number), "broker", "\n".join(lines) + "\n")
        ports[number] = (await processes.ready(name(number))).links[1]
    return [
        await stack.enter_async_context(await connect(f"127.0.0.1:{ports[number]}"))
        for number in range(plan.edges + plan.routers)
    ]


async def _tables(client: Client) -> dict[str, Any]:
    return await client.ask("resources", {"do": "tables"})


async def _settled(clients: list[Client], edges: int) -> None:
    """Wait until every broker knows every hosting broker with the same number of resources, twice."""
    deadline, before = monotonic() + SETTLE_S_MAX, [-1]
    while True:
        found = [await _tables(client) for client in clients]
        known = [each["known"] for each in found]
        if known == before and len(set(known)) == 1 and all(each["hosts"] == edges for each in found):
            return
        if monotonic() > deadline:
            raise HeliographError(f"after {SETTLE_S_MAX:.0f} s brokers know {min(known)} to {max(known)} resources")
        before = known
        await asyncio.sleep(0.5)


async def _ask_all(stage: SharingStage, clients: list[Client], level: int, deliver: Any, say: Say) -> dict[str, Any]:
    say(f"live, {deliver}: {stage.plan.requests} requests …")
    before = [await _tables(client) for client in clients]
    where = place_requests(stage.plan.requests, stage.plan.edges, UNIFORM, stage.seed)
    wrong = 0
    for request, broker in zip(stage.requests[level], where, strict=True):
        answer = await clients[broker].discover_resources(request.where, deliver=deliver, max_age=100, deadline=20)
        found = sorted(int(each.name) for each in answer)
        wrong += not answer.complete or found != stage.offer.matching(request)
    after = [await _tables(client) for client in clients]
    counts = {
        ours: sum(now[theirs] - then[theirs] for now, then in zip(after, before, strict=True))
        for ours, theirs in COUNTS.items()
    }
    return {"similarity": level, "deliver": deliver, "how": "live", **counts, "wrong": wrong}
