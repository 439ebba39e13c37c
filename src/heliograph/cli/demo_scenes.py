"""The scenes of the demo: what real clients do with the broker, counted and checked.

In:    a running broker.
Out:   lines on standard output, as things happen; a Report of what was measured and what was not as it should be.
State: none beyond a scene.
Not here: starting the broker (demo_broker.py), the simulation and the summary (demo.py).
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from heliograph.cli.demo_broker import SETTINGS, BrokerProcess, broker_process
from heliograph.errors import HeliographError, RefusedError
from heliograph.live.client import Client, Connecting, connect
from heliograph.live.runtime import local_token
from heliograph.live.subscription import Subscription
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import matches
from heliograph.notes import Note, SessionRestored

TRAFFIC_S = 3.0
BATCH = 64
PUBLISHERS = {"kitchen": "sensors/kitchen/temperature", "hall": "sensors/hall/temperature", "door": "sensors/hall/door"}
FILTERS = ("sensors/+/temperature", "sensors/hall/#", "#")
BULK_FRAMES = 40_000  # of 1 KiB: more than a broker's queue, a client's inbox and all socket buffers hold
BULK_PAYLOAD = bytes(1_024)
BULK_BATCH = 200
INBOX_FRAMES = 1_000
SCENE_S_MAX = 30.0


@dataclass(slots=True)
class Report:
    """What was measured, and what was not as it should be."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _scenes: int = 0

    def begin(self, title: str) -> None:
        """A new scene."""
        self._scenes += 1
        print(f"\n{self._scenes}  {title}", flush=True)

    def add(self, name: str, text: str) -> None:
        """A line of the summary."""
        self.lines.append((name, text))

    def check(self, holds: bool, otherwise: str) -> None:
        """Remember what should have held and did not."""
        if not holds:
            self.problems.append(otherwise)


async def play(report: Report) -> None:
    """All scenes that need a broker."""
    with tempfile.TemporaryDirectory(prefix="heliograph-demo-") as folder:
        report.begin("A broker, as its own process: heliograph broker run --listen 127.0.0.1:0")
        async with broker_process(Path(folder)) as broker:
            print(f"   {broker.lines[0]['text'].partition(';')[0]}; {broker.ready}")
            report.add("broker", broker.ready)
            await _traffic(broker, report)
            await _slow_consumers(broker, report)
            await _denials(broker, report)
            await _administration(broker, report)


def _connect(broker: BrokerProcess, name: str, **more: Any) -> Connecting:
    """As nobody in particular, whatever the user's environment says."""
    return connect(broker.url, name=name, **{"entity": "", "token": ""} | more)


# -- traffic ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Listener:
    """A subscriber that checks what it gets."""

    filter: str
    received: int = 0
    out_of_order: int = 0
    _last: dict[int, int] = field(default_factory=dict)

    async def listen(self, subscription: Subscription) -> None:
        """Until the subscription ends."""
        async for publications in subscription.batches():
            self.received += len(publications)
            for publication in publications:
                self._see(publication)

    def _see(self, publication: Publication) -> None:
        if publication.sequence <= self._last.get(publication.origin, -1):
            self.out_of_order += 1
        self._last[publication.origin] = publication.sequence


async def _traffic(broker: BrokerProcess, report: Report) -> None:
    report.begin(f"{len(PUBLISHERS)} publishers and {len(FILTERS)} subscribers, {TRAFFIC_S:.0f} s")
    for filter in FILTERS:
        print(f"   subscribed to {filter}")
    listeners = [Listener(filter) for filter in FILTERS]
    published = dict.fromkeys(PUBLISHERS, 0)
    clients = [await _connect(broker, f"listener {filter}") for filter in FILTERS]
    tasks = []
    for client, listener in zip(clients, listeners, strict=True):
        subscription = await client.subscribe(listener.filter)
        tasks.append(asyncio.create_task(listener.listen(subscription)))
    began = monotonic()
    showing = asyncio.create_task(_show(listeners, published, began))
    await asyncio.gather(*(_publish(broker, name, published, began + TRAFFIC_S) for name in PUBLISHERS))
    took = monotonic() - began
    showing.cancel()
    for client in clients:
        await client.drain()
    await asyncio.gather(*tasks)
    _judge_traffic(listeners, published, took, report)


async def _publish(broker: BrokerProcess, name: str, published: dict[str, int], until: float) -> None:
    async with _connect(broker, name) as client:
        while monotonic() < until:
            await client.publish_batch(PUBLISHERS[name], [b"21.5"] * BATCH)
            published[name] += BATCH
            await client.flush()  # so that all three get their turn, and nobody runs ahead of the broker


async def _show(listeners: list[Listener], published: dict[str, int], began: float) -> None:
    while True:
        await asyncio.sleep(0.5)
        received = sum(listener.received for listener in listeners)
        print(f"   {monotonic() - began:3.1f} s  published {sum(published.values()):>9,}  delivered {received:>9,}", flush=True)


def _judge_traffic(listeners: list[Listener], published: dict[str, int], took: float, report: Report) -> None:
    for listener in listeners:
        wanted = sum(
            count
            for name, count in published.items()
            if matches(listener.filter.encode(), PUBLISHERS[name].encode())
        )
        verdict = "every one, in order" if listener.received == wanted and not listener.out_of_order else "NOT AS EXPECTED"
        print(f"   {listener.filter:<24} wanted {wanted:>9,}  got {listener.received:>9,}  {verdict}")
        report.check(listener.received == wanted, f"traffic: {listener.filter} got {listener.received} of {wanted}")
        report.check(not listener.out_of_order, f"traffic: {listener.filter} got {listener.out_of_order} out of order")
    total, received = sum(published.values()), sum(listener.received for listener in listeners)
    report.add("traffic", f"{total:,} published, {received:,} delivered in {took:.1f} s, none lost, all in order")


# -- slow consumers ---------------------------------------------------------------------------------------------------


async def _slow_consumers(broker: BrokerProcess, report: Report) -> None:
    size = BULK_FRAMES * len(BULK_PAYLOAD) / 1e6
    report.begin(f"A slow consumer beside a fast one, under each policy: {BULK_FRAMES:,} publications, {size:.0f} MB")
    for policy in Policy:
        await _slow_consumer(broker, policy, report)


async def _slow_consumer(broker: BrokerProcess, policy: Policy, report: Report) -> None:
    notes: list[Note] = []
    topic = f"bulk/{policy}"
    async with (
        _connect(broker, "fast") as fast_client,
        _connect(broker, f"slow {policy}", on_note=notes.append) as slow_client,
        _connect(broker, "bulk", hold=policy is Policy.HOLD) as publisher,
    ):
        fast = await fast_client.subscribe(topic, policy=policy)
        slow = await slow_client.subscribe(topic, policy=policy, inbox_frames_max=INBOX_FRAMES)
        began = monotonic()
        async with asyncio.timeout(SCENE_S_MAX):
            reading = asyncio.create_task(_read(fast, BULK_FRAMES))
            dawdling = asyncio.create_task(_dawdle(slow)) if policy is Policy.HOLD else None
            for _ in range(BULK_FRAMES // BULK_BATCH):
                await publisher.publish_batch(topic, [BULK_PAYLOAD] * BULK_BATCH)
            await publisher.flush()
            got = await reading
            took = monotonic() - began
            if dawdling is not None:
                slow_got = await dawdling
            else:
                slow_got = await _what_is_left(slow)
        lost = slow.lost + slow_client.report("overview")["lost_at_broker"]
        _judge_slow(policy, got, took, slow_got, lost, notes, report)


async def _read(subscription: Subscription, wanted: int) -> int:
    got = 0
    async for publications in subscription.batches():
        got += len(publications)
        if got >= wanted:
            break
    return got
