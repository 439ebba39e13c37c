"""Runs in which resources are registered, updated and withdrawn while others ask for them, on random networks.

In:    a seed and a folder.
Out:   an Answers: how many answers there were, and what was wrong with them.
State: the processes of one network and of one program at a time.
Not here: the program (programs/resource_users.py), what is right (resource_oracle.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from tests.independent.network import Network, started
from tests.independent.processes import Program, program
from tests.independent.resource_history import SPREAD_S
from tests.independent.resource_oracle import Answers, judge
from tests.independent.resource_workload import Owner, every_request, requests
from tests.independent.runs import TRUSTED_MS
from tests.independent.topologies import random_topology

SIZES = (4, 7)  # brokers
OWNERS, REQUESTERS = 4, 4
CALLS, REQUESTS = 25, 40
PAUSE_S = {"owner": 0.25, "requester": 0.15}


def with_resources(seed: int, folder: Path) -> Answers:
    """Everything at once; then, when no owner does anything any more, each request of each requester."""
    with started(random_topology(seed, SIZES), folder, suspect_ms=TRUSTED_MS) as network:
        return asyncio.run(_play(seed, network))


async def _play(seed: int, network: Network) -> Answers:
    draw = Random(f"resources {seed}")
    owners = [Owner(f"owner{number}", draw) for number in range(OWNERS)]
    askers = [f"requester{number}" for number in range(REQUESTERS)]
    places = {actor: draw.choice(list(network.brokers)) for actor in (*(owner.name for owner in owners), *askers)}
    users = Program(program("resource_users"), network.folder, "users", actors=addresses(network, places))
    kept = Answers()
    try:
        await users.wrote("ready")
        plan = {owner.name: owner.steps(CALLS, PAUSE_S["owner"]) for owner in owners}
        for _, call in (step for steps in plan.values() for step in steps):
            call["then"] = {draw.choice(askers): {"where": "true", "model": draw.choice(("static", "dynamic"))}}
        plan |= {asker: requests(draw, REQUESTS, PAUSE_S["requester"]) for asker in askers}
        await users.do("play", plan=plan)
        await asyncio.sleep(SPREAD_S)  # from now on every broker knows all
        await users.do("play", plan={asker: every_request() for asker in askers})
        await users.do("end")
        kept.problems += await users.ended()
    finally:
        users.kill()
    judge(kept, users.notes(), places)
    return kept


def addresses(network: Network, places: dict[str, str]) -> dict[str, str]:
    brokers = {actor: network.brokers[place] for actor, place in places.items()}
    return {actor: f"heliograph://{broker.host}:{broker.port}" for actor, broker in brokers.items()}
