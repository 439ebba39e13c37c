"""The demo's network: six broker processes in two clusters that deliver as one, even when one of them is killed.

In:    a folder for their settings.
Out:   lines on standard output, as things happen; measurements, in the report.
State: the processes; they end with the scene, whatever happens.
Not here: starting and linking processes (../network_processes.py), finding one of them (discovery_scene.py).
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

from heliograph.cli.demo.discovery_scene import play_discovery
from heliograph.cli.demo.report import Report
from heliograph.cli.network_processes import NetworkProcesses, administrating
from heliograph.live.client import Client
from heliograph.live.connect import connect
from heliograph.maps.trace import as_text
from heliograph.topology.process_network import generated

BROKERS, CLUSTERS = 6, 2
TOPIC = "plant/hall/temperature"
PAUSE_S = 0.002  # between two publications
BEFORE, AFTER = 200, 500  # publications before and after a broker is killed
ARRIVE_S_MAX = 10.0


async def play_network(folder: Path, report: Report) -> None:
    """Publish at one end, subscribe at the other, show the path, kill a broker on it."""
    report.begin(f"{BROKERS} brokers in {CLUSTERS} clusters: heliograph network up {BROKERS} --clusters {CLUSTERS}")
    network = NetworkProcesses(generated(BROKERS, CLUSTERS), folder)
    began = monotonic()
    try:
        await network.start(lambda text: None)
        took = monotonic() - began
        links = len(network.topology.links)
        print(f"   started, linked by {links} links, and every map complete in {took:.1f} s")
        await _deliver(network, took, report)
        await play_discovery(network, report)
    finally:
        network.stop(keep_logs=False)


async def _deliver(network: NetworkProcesses, took: float, report: Report) -> None:
    first, last = network.brokers[0], network.brokers[-1]
    async with (
        connect(first.url, name="publisher", entity="", token="") as publisher,
        connect(last.url, name="listener", entity="", token="") as listener,
    ):
        subscription = await listener.subscribe(TOPIC, wide=True)
        print(f"   subscribed at {last.name}, cluster {last.cluster}; every broker knows of it")
        way = await _trace(first.url)
        print(f"   heliograph network trace {TOPIC}:")
        for line in as_text(way):
            print(f"      {line}")
        received: list[int] = []
        arriving = asyncio.create_task(_receive(subscription, received))
        await _publish(publisher, range(BEFORE))
        on_the_way = [name for name in way["brokers"][-1]["path"][1:-1] if name in network.processes]
        victim = on_the_way[0]
        network.processes[victim].kill()
        print(f"   killed {victim}, which was on the way")
        await _publish(publisher, range(BEFORE, BEFORE + AFTER))
        await asyncio.wait([arriving], timeout=ARRIVE_S_MAX)
        arriving.cancel()
    _judge(received, took, report)


async def _publish(publisher: Client, numbers: range) -> None:
    for number in numbers:
        await publisher.publish(TOPIC, str(number))
        await asyncio.sleep(PAUSE_S)


async def _receive(subscription: Any, received: list[int]) -> None:
    async for publication in subscription:
        received.append(int(publication.payload))
        if received[-1] == BEFORE + AFTER - 1:
            return


async def _trace(url: str) -> dict[str, Any]:
    async with administrating(url) as administrator:
        answer: dict[str, Any] = await administrator.ask("admin", {"do": "trace", "topic": TOPIC})
    return answer


def _judge(received: list[int], took: float, report: Report) -> None:
    total = BEFORE + AFTER
    missing = total - len(set(received))
    twice = len(received) - len(set(received))
    overtaken = sum(1 for before, after in pairwise(received) if after < before)
    order = "all in order" if not overtaken else f"{overtaken} overtaken when they were sent another way"
    print(
        f"   {total} published, {len(received)} arrived, {missing} lost with the broker, {twice} twice, {order}; "
        "the last one came by another way"
    )
    report.check(not twice, f"network: {twice} publications came twice")
    report.check(bool(received) and received[-1] == total - 1, "network: traffic did not go on after a broker died")
    report.add(
        "network", f"{BROKERS} brokers stood in {took:.1f} s; one killed under traffic, {missing} of {total} lost"
    )
