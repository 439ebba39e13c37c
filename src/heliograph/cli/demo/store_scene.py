"""The demo's store: a durable subscriber leaves, its broker is killed, it returns elsewhere, and nothing is missing.

In:    a folder for the settings of three brokers and a store.
Out:   lines on standard output, as things happen; measurements, in the report.
State: the processes; they end with the scene, whatever happens.
Not here: starting and linking processes (../network_processes.py), stores (../../stores/).
"""

from __future__ import annotations

from pathlib import Path
from secrets import token_bytes
from shutil import rmtree
from time import monotonic

from heliograph.cli.demo.report import Report
from heliograph.cli.network_processes import NetworkProcesses
from heliograph.cli.network_state import STORES
from heliograph.live.client import Client
from heliograph.live.connect import connect
from heliograph.topology.process_network import generated

BROKERS = 3
TOPIC = "orders/new"
NAME = "billing"
BEFORE, AWAY = 100, 1_000  # publications while the subscriber is connected, and while it is away
ARRIVE_S_MAX = 20.0


async def play_store(folder: Path, report: Report) -> None:
    """Publish reliably to a durable subscriber that is not always connected."""
    report.begin(f"A store: heliograph network up {BROKERS} --stores 1")
    network = NetworkProcesses(generated(BROKERS).with_stores(1), folder, bdn=False)
    try:
        await network.start(lambda text: None)
        await _deliver(network, report)
    finally:
        network.stop(keep_logs=False)
        rmtree(folder / STORES, ignore_errors=True)


async def _deliver(network: NetworkProcesses, report: Report) -> None:
    first, second, third, _ = network.brokers
    received: list[int] = []
    secret = token_bytes()  # the demo leaves nothing in the user's state folder
    async with connect(second.url, name="shop", entity="", token="") as shop:
        async with connect(first.url, name=NAME, entity="", token="") as billing:
            subscription = await billing.subscribe(TOPIC, durable=NAME, secret=secret)
            await _publish(shop, range(BEFORE))
            await _take(subscription, received, BEFORE)
            await subscription.close()
        print(f"   {NAME} took {len(received)} orders at {first.name}, and went away")
        network.processes[first.name].kill()
        began = monotonic()
        await _publish(shop, range(BEFORE, BEFORE + AWAY))
        took = monotonic() - began
        print(f"   {first.name} was killed; meanwhile {AWAY} orders were acknowledged by the store in {took:.2f} s")
    async with connect(third.url, name=NAME, entity="", token="") as billing:
        subscription = await billing.subscribe(TOPIC, durable=NAME, secret=secret)
        began = monotonic()
        await _take(subscription, received, BEFORE + AWAY)
        caught_up = monotonic() - began
        await subscription.close()
    missing = len(set(range(BEFORE + AWAY)) - set(received))
    in_order = received == sorted(set(received))
    print(
        f"   back at {third.name}: {len(received) - BEFORE} orders in {caught_up:.2f} s, {missing} missing, "
        f"{'each once and in order' if in_order else 'NOT IN ORDER'}"
    )
    report.check(not missing, f"store: {missing} acknowledged publications are missing")
    report.check(in_order, "store: publications came twice or out of order")
    report.add(
        "store",
        f"{AWAY / took:,.0f} durable publications/s acknowledged; a subscriber came back at another broker, "
        f"{missing} missing",
    )


async def _publish(shop: Client, numbers: range) -> None:
    for number in numbers:
        await shop.publish(TOPIC, str(number), reliable=True, wait=False)
    await shop.flush()


async def _take(subscription: object, received: list[int], count: int) -> None:
    while len(received) < count:
        publication = await subscription.next(timeout=ARRIVE_S_MAX)  # type: ignore[attr-defined]
        received.append(int(publication.payload))
