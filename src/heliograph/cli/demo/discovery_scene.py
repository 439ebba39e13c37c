"""The demo's search for a broker: through the network's directory, and without it after it is killed.

In:    a running network with a directory.
Out:   lines on standard output: candidates and the reason for the choice; how long it took, in the report.
State: none beyond a search.
Not here: the search (discovery/brokers/search.py), the network (network_scene.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.cli.demo.report import Report
from heliograph.discovery.brokers.config import DiscoveryConfig, MulticastConfig
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.live.chance import system_seed
from heliograph.live.lone import run_alone

if TYPE_CHECKING:
    from heliograph.cli.network_processes import NetworkProcesses
    from heliograph.discovery.brokers.result import SearchResult

SHOWN_MAX = 3


async def play_discovery(network: NetworkProcesses, report: Report) -> None:
    """Ask the directory for the best broker; kill it, and ask again."""
    directory = network.directories[0]
    report.begin(f"Where should a program connect? It asks the directory at {directory.address}")
    first = await _search(network)
    _show(first)
    network.processes[directory.name].kill()
    network.processes[directory.name].wait()
    print(f"   killed {directory.name}, and asked again")
    second = await _search(network)
    print(f"   {second.text}")
    for line in second.tried:
        print(f"      tried {line}")
    for result in (first, second):
        report.check(result.found and result.proven, f"discovery: no broker was found: {result.text}")
    report.add(
        "discovery",
        f"{first.broker} of {len(first.findings)} that answered, chosen in {first.times_ms['total']:.0f} ms; "
        f"without the directory {second.broker} in {second.times_ms['total']:.0f} ms",
    )


async def _search(network: NetworkProcesses) -> SearchResult:
    """Ask the directory first, and the brokers of the network last. No multicast: the group may have other brokers."""
    config = DiscoveryConfig(
        directories=(network.directories[0].address,),
        brokers=tuple(broker.address for broker in network.brokers),
        multicast=MulticastConfig(enabled=False),
        cpu_permille_max=1_000,  # all of them are on this computer, so its load says nothing
    )
    search = BrokerSearch(config, seed=system_seed())
    await run_alone(search, BrokerSearch.sockets(config, "127.0.0.1", "127.0.0.1"))
    assert search.result is not None
    return search.result


def _show(result: SearchResult) -> None:
    print(f"   {len(result.findings)} brokers answered; {result.text}")
    for finding in result.findings[:SHOWN_MAX]:
        away = "not measured" if finding.round_trip_ms is None else f"{finding.round_trip_ms:.2f} ms away"
        print(f"      {finding.broker:<4} {away}, idle {finding.idle:.2f}: {finding.verdict}")
