"""Whole runs on live networks: a random topology at rest, the two triangles under load, a network with faults.

In:    a seed and a folder.
Out:   the verdict of each run, or of each of its phases.
State: the processes of one network at a time.
Not here: what is drawn (topologies.py, workload.py, crowd.py), what is asserted (the tests).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.independent.crowd import Burst, Crowd, random_crowd, random_plan
from tests.independent.network import Network, started
from tests.independent.oracle import Verdict
from tests.independent.topologies import Topology, random_topology, two_triangles
from tests.independent.workload import Draft, Interest

T = TypeVar("T")

CLIENTS = 30
PUBLICATIONS = 3_000
SINGLES = 3_000
SECONDS = 3.0
FAULTS_S = 8.0
TRUSTED_MS = 25_000  # without faults: no broker of a busy machine is silent for so long
SUSPECT_MS = 4_000  # with faults
PAUSED_S = 5.0  # longer than a silent neighbour is trusted, shorter than its link lives


def on_random_topology(seed: int, folder: Path) -> Verdict:
    """A network at rest: everything arrives, once, in order."""
    topology = random_topology(seed)
    crowd = random_crowd(str(seed), topology.brokers, CLIENTS)
    plan = random_plan(str(seed), CLIENTS, PUBLICATIONS, SECONDS)

    async def work(network: Network) -> Verdict:
        await crowd.join(network)
        return await crowd.verdict(await crowd.publish(plan))

    return _run(topology, crowd, folder, work)


def on_two_triangles(seed: int, folder: Path) -> Verdict:
    """A publisher at a1 sends single publications, 500 a second, while another sends bursts across the same ways."""
    draw = Random(f"triangles {seed}")
    wanted = {
        "b1": [Interest("z")],
        "b2": [Interest("x"), Interest("y"), Interest("z")],
        "b3": [Interest("y"), Interest("z"), Interest("load/#")],
    }
    places = ["a1", "a3", *wanted]
    crowd = Crowd(f"triangles {seed}", places, [[], [Interest("load/1")], *wanted.values()])
    plan = [Burst(place / 500, 0, [Draft(draw.choice("xyz"), {}, b"x" * 100)]) for place in range(SINGLES)]
    for at in range(SINGLES // 25):  # every 50 ms
        drafts = [Draft(f"load/{draw.randrange(3)}", {}, b"x" * 400) for _ in range(draw.randint(50, 200))]
        plan.append(Burst(at / 20, 1, drafts))
    plan.sort(key=lambda burst: burst.at_s)

    async def work(network: Network) -> Verdict:
        await crowd.join(network)
        return await crowd.verdict(await crowd.publish(plan))

    return _run(two_triangles(), crowd, folder, work)


@dataclass(frozen=True)
class Faults:
    """What happens to a network that stays connected: two brokers without clients, and a link of others."""

    killed: str
    paused: str
    unlinked: tuple[str, str]


def drawn_faults(topology: Topology, draw: Random) -> Faults | None:
    """Faults after which all other brokers, and those of each cluster, still reach each other, if there are any."""
    pairs = [(one, other) for one in topology.brokers for other in topology.brokers if one != other]
    for killed, paused in draw.sample(pairs, len(pairs)):
        others = set(topology.brokers) - {killed, paused}
        for link in draw.sample(topology.links, len(topology.links)):
            left = topology.without(link)
            clusters = [{name for name in others if name[0] == letter} for letter in sorted({n[0] for n in others})]
            if others.issuperset(link) and all(left.connects(some) for some in [others, *clusters]):
                return Faults(killed, paused, link)
    return None


def topology_with_faults(seed: int) -> tuple[Topology, Faults]:
    """The first random topology from this seed on, in steps of a hundred, that stays connected."""
    for place in range(100):
        topology = random_topology(seed + 100 * place)
        faults = drawn_faults(topology, Random(f"faults {seed}"))
        if faults is not None:
            return topology, faults
    raise AssertionError(f"no topology of seed {seed} stays connected")


@dataclass(frozen=True)
class WithFaults:
    """Verdicts about what was published before, during and after the faults."""

    before: Verdict
    during: Verdict
    after: Verdict


def with_faults(seed: int, folder: Path) -> WithFaults:
    """Under traffic a link is removed, a broker stops and goes on, another is killed; then the network settles."""
    topology, faults = topology_with_faults(seed)
    served = [name for name in topology.brokers if name not in (faults.killed, faults.paused)]
    crowd = random_crowd(f"faults {seed}", served, CLIENTS)
    before, during, after = (
        random_plan(f"{when} {seed}", CLIENTS, PUBLICATIONS // 2, seconds)
        for when, seconds in (("before", 2.0), ("during", FAULTS_S), ("after", 2.0))
    )

    async def work(network: Network) -> WithFaults:
        await crowd.join(network)
        first = await crowd.verdict(await crowd.publish(before))
        happening = asyncio.create_task(happen(network, faults))
        second = await crowd.publish(during)
        await happening
        await crowd.settle()
        third = await crowd.verdict(await crowd.publish(after))
        return WithFaults(first, await crowd.verdict(second), third)

    return _run(topology, crowd, folder, work, SUSPECT_MS)


async def happen(network: Network, faults: Faults) -> None:
    """All faults, one after another, in about eight seconds."""
    await asyncio.sleep(0.5)
    await asyncio.to_thread(network.unlink, *faults.unlinked)
    network.signal(faults.paused, signal.SIGSTOP)
    await asyncio.sleep(PAUSED_S)
    network.signal(faults.paused, signal.SIGCONT)
    await asyncio.sleep(0.5)
    network.signal(faults.killed, signal.SIGKILL)


def _run(
    topology: Topology,
    crowd: Crowd,
    folder: Path,
    work: Callable[[Network], Awaitable[T]],
    suspect_ms: int = TRUSTED_MS,
) -> T:
    async def whole(network: Network) -> T:
        try:
            return await work(network)
        finally:
            crowd.leave()

    with started(topology, folder, suspect_ms=suspect_ms) as network:
        return asyncio.run(whole(network))
