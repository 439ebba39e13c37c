"""The paper's experiment in the simulator.

In:    how many runs, a seed; which topologies and sites.
Out:   a row for each topology and site.
State: none; each topology has its own stage.
Not here: the topologies and the statistics of results (topologies.py), the same on real sockets (live/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.discovery.brokers.config import DiscoveryConfig, ResponderConfig
from heliograph.discovery.brokers.result import SearchResult
from heliograph.evaluation import topologies
from heliograph.evaluation.places import CLIENT_SITES, DIRECTORY_SITE, JITTER_MS, LAN_JITTER_MS, SITES
from heliograph.evaluation.stage import AT_DIRECTORY, BY_DIRECTORY, NO_MULTICAST, SearchStage
from heliograph.evaluation.topologies import EXPERIMENTS, LAB, MULTICAST, PAUSE_S, RUNS

SETTLE_S = 8.0  # until brokers are linked, known and measured
QUIET = ResponderConfig(public=False, multicast=NO_MULTICAST)  # known to no directory


def build(topology: str, seed: int) -> SearchStage:
    """The brokers with their links, and the directory except for multicast; settled."""
    by_multicast = topology == MULTICAST
    stage = SearchStage(seed, LAN_JITTER_MS if by_multicast else JITTER_MS)
    if not by_multicast:
        stage.add_directory(SITES[DIRECTORY_SITE])
    for member in topologies.members(topology):
        responder = ResponderConfig() if by_multicast else AT_DIRECTORY if member.registered else QUIET
        stage.add_broker(member.name, SITES[member.site], member.links, responder)
    stage.run(SETTLE_S)
    return stage


def _searches(stage: SearchStage, site: str, config: DiscoveryConfig, runs: int) -> list[SearchResult]:
    results = []
    for _ in range(runs):
        results.append(stage.search(SITES[site], config))
        stage.run(PAUSE_S)
    return results


def evaluate(
    runs: int = RUNS,
    seed: int = 1,
    sites: Sequence[str] = CLIENT_SITES,
    experiments: Sequence[str] = EXPERIMENTS,
) -> list[dict[str, Any]]:
    """A row for each topology and site, and one for multicast."""
    rows = []
    for topology in experiments:
        stage = build(topology, seed)
        config = DiscoveryConfig() if topology == MULTICAST else BY_DIRECTORY
        for site in (LAB,) if topology == MULTICAST else sites:
            rows.append(topologies.row(topology, site, _searches(stage, site, config, runs)))
    return rows
