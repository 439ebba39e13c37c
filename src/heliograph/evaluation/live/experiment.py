"""The paper's experiment on real sockets.

In:    how many runs, a seed; which topologies and sites.
Out:   the same rows as the simulator's; how exact the relays were.
State: none; each topology has its own stage.
Not here: the processes and relays (stage.py), the statistics of results (topologies.py).

The clients of all sites search in parallel, those of one site one after another: they share only the computer, which
is idle for most of a search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from selectors import SelectSelector
from typing import Any

from heliograph.discovery.brokers.result import SearchResult
from heliograph.evaluation import topologies
from heliograph.evaluation.live.stage import LiveStage
from heliograph.evaluation.places import CLIENT_SITES
from heliograph.evaluation.statistics import summary
from heliograph.evaluation.topologies import EXPERIMENTS, LAB, MULTICAST, PAUSE_S, RUNS

QUARTERS = 4  # how often progress is reported

Say = Callable[[str], None]


def evaluate(
    runs: int = RUNS,
    seed: int = 1,
    sites: Sequence[str] = CLIENT_SITES,
    experiments: Sequence[str] = EXPERIMENTS,
    say: Say = lambda _: None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each topology and site, and one for multicast; and the relays' error.

    Runs on a loop that can sleep for microseconds: other loops count in milliseconds, and one of them is 130 km.
    """
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(SelectSelector())) as runner:
        return runner.run(_evaluate(runs, seed, sites, experiments, say))


async def _evaluate(
    runs: int, seed: int, sites: Sequence[str], experiments: Sequence[str], say: Say
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    late_ms: list[float] = []
    passed_on = 0
    for topology in experiments:
        say(f"{topology}: starting brokers …")
        async with LiveStage(topology, seed) as stage:
            clients = (LAB,) if topology == MULTICAST else sites
            found = await _searches(stage, clients, runs, say)
            late_ms += stage.probe.late_ms
            passed_on += stage.relays.passed_on
        rows += [topologies.row(topology, site, results) for site, results in found.items()]
    return rows, {"passed_on": passed_on, "late_ms": summary(late_ms).as_dict() if late_ms else None}


async def _searches(stage: LiveStage, sites: Sequence[str], runs: int, say: Say) -> dict[str, list[SearchResult]]:
    """The searches of each site, while the probe measures the relays."""
    results: dict[str, list[SearchResult]] = {site: [] for site in sites}
    whole = runs * len(sites)

    async def search_from(site: str) -> None:
        for _ in range(runs):
            results[site].append(await stage.search(site))
            stage.check()
            done = sum(map(len, results.values()))
            if done * QUARTERS // whole > (done - 1) * QUARTERS // whole:
                say(f"{stage.topology}: {done} of {whole} searches")
            await asyncio.sleep(PAUSE_S)

    probing = asyncio.create_task(stage.probe.run())
    try:
        async with asyncio.TaskGroup() as searching:
            for site in sites:
                searching.create_task(search_from(site))
    except* Exception as group:
        raise group.exceptions[0] from None  # the others were cancelled because of it
    finally:
        probing.cancel()
    return results
