"""The scenes of the demo: what real clients do with the broker, counted and checked.

In:    a running broker.
Out:   lines on standard output, as things happen; a Report of the measurements and of what was not as it should be.
State: none beyond a scene.
Not here: starting the broker (broker_process.py), conditions (content_scene.py), the network (network_scene.py), the
          simulation and the summary (command.py).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from heliograph.cli.demo.broker_process import SETTINGS, BrokerProcess, broker_process
from heliograph.cli.demo.content_scene import play_contents
from heliograph.cli.demo.network_scene import play_network
from heliograph.cli.demo.pipeline_scene import play_pipeline
from heliograph.cli.demo.report import Report
from heliograph.cli.demo.resources_scene import play_resources
from heliograph.cli.demo.store_scene import play_store
from heliograph.cli.demo.topics_scene import play_topics
from heliograph.cli.network_processes import administrating
from heliograph.errors import RefusedError
from heliograph.live.client import Client
from heliograph.live.connect import Connecting, connect
from heliograph.live.runtime import local_token
from heliograph.live.subscription import Subscription
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.model.topics import matches

RUNTIME_VARIABLE = "HELIOGRAPH_RUNTIME_DIR"
TRAFFIC_S = 3.0
BATCH = 64
PUBLISHERS = {"kitchen": "sensors/kitchen/temperature", "hall": "sensors/hall/temperature", "door": "sensors/hall/door"}
FILTERS = ("sensors/+/temperature", "sensors/hall/#", "#")
BULK_FRAMES = 40_000  # of 1 KiB: more than a broker's queue, a client's inbox and all socket buffers can hold
BULK_PAYLOAD = bytes(1_024)
BULK_BATCH = 200
INBOX_FRAMES = 1_000
QUIET_S = 0.5
SCENE_S_MAX = 30.0  # per policy; a scene takes a second or two


async def play(report: Report) -> None:
    """All scenes that need a broker."""
    with own_folder() as folder:
        report.begin("A broker, as its own process: heliograph broker run --listen 127.0.0.1:0")
        async with broker_process(folder) as broker:
            print(f"   {broker.lines[0]['text'].partition(';')[0]}; {broker.ready}")
            report.add("broker", broker.ready)
            await _traffic(broker, report)
            await play_contents(lambda name: _connect(broker, name), report)
            await play_resources(lambda name: _connect(broker, name), report)
            await _slow_consumers(broker, report)
            await _denials(broker, report)
            await _administration(broker, report)
        await play_network(folder / "network", report)
        await play_store(folder / "stored", report)
        await play_topics(report)


async def play_spark(report: Report) -> None:
    """The data pipeline, which takes longest: the last scene."""
    with own_folder() as folder:
        await play_pipeline(folder / "pipeline", report)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for all that scenes write, their runtime folder too: whoever used that later would make it again."""
    before = os.environ.get(RUNTIME_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="heliograph-demo-") as folder:
        os.environ[RUNTIME_VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[RUNTIME_VARIABLE]
            else:
                os.environ[RUNTIME_VARIABLE] = before


def _connect(broker: BrokerProcess, name: str, **more: Any) -> Connecting:
    """Connect anonymously, whatever the user's environment contains."""
    return connect(broker.url, name=name, **{"entity": "", "token": ""} | more)


# -- traffic ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Listener:
    """A subscriber that checks what it receives."""

    filter: str
    received: int = 0
    out_of_order: int = 0
    _last: dict[int, int] = field(default_factory=dict)

    async def listen(self, subscription: Subscription) -> None:
        """Listen until the subscription ends."""
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
            await client.flush()  # so that all three take turns, and none runs ahead of the broker


async def _show(listeners: list[Listener], published: dict[str, int], began: float) -> None:
    while True:
        await asyncio.sleep(0.5)
        received = sum(listener.received for listener in listeners)
        print(
            f"   {monotonic() - began:3.1f} s  published {sum(published.values()):>9,}  delivered {received:>9,}",
            flush=True,
        )


def _judge_traffic(listeners: list[Listener], published: dict[str, int], took: float, report: Report) -> None:
    for listener in listeners:
        wanted = sum(
            count for name, count in published.items() if matches(listener.filter.encode(), PUBLISHERS[name].encode())
        )
        verdict = (
            "every one, in order" if listener.received == wanted and not listener.out_of_order else "NOT AS EXPECTED"
        )
        print(f"   {listener.filter:<24} wanted {wanted:>9,}  got {listener.received:>9,}  {verdict}")
        report.check(listener.received == wanted, f"traffic: {listener.filter} got {listener.received} of {wanted}")
        report.check(not listener.out_of_order, f"traffic: {listener.filter} got {listener.out_of_order} out of order")
    total, received = sum(published.values()), sum(listener.received for listener in listeners)
    verdict = "not as it should be" if report.problems else "none lost, all in order"
    report.add("traffic", f"{total:,} published, {received:,} delivered in {took:.1f} s, {verdict}")


# -- slow consumers ---------------------------------------------------------------------------------------------------


async def _slow_consumers(broker: BrokerProcess, report: Report) -> None:
    size = BULK_FRAMES * len(BULK_PAYLOAD) / 1e6
    report.begin(f"A slow consumer beside a fast one, under each policy: {BULK_FRAMES:,} publications, {size:.0f} MB")
    for policy in Policy:
        try:
            async with asyncio.timeout(SCENE_S_MAX):
                await _slow_consumer(broker, policy, report)
        except TimeoutError:
            report.check(False, f"{policy}: took more than {SCENE_S_MAX:.0f} s")
    wrong = [policy for policy in Policy if any(problem.startswith(policy) for problem in report.problems)]
    report.add(
        "slow", f"{len(Policy) - len(wrong)} of {len(Policy)} policies did what they say, beside a fast consumer"
    )


async def _slow_consumer(broker: BrokerProcess, policy: Policy, report: Report) -> None:
    topic = f"bulk/{policy}"
    async with (
        _connect(broker, "fast") as fast_client,
        _connect(broker, f"slow {policy}") as slow_client,
        _connect(broker, "bulk", hold=policy is Policy.HOLD) as publisher,
    ):
        fast = await fast_client.subscribe(topic)
        slow = await slow_client.subscribe(topic, policy=policy, inbox_frames_max=INBOX_FRAMES)
        began = monotonic()
        reading = asyncio.create_task(_read(fast))
        dawdling = asyncio.create_task(_read(slow, pause_s=0.02)) if policy is Policy.HOLD else None
        for _ in range(BULK_FRAMES // BULK_BATCH):
            await publisher.publish_batch(topic, [BULK_PAYLOAD] * BULK_BATCH)
        fast_got = await reading
        took = monotonic() - began
        # Under the other policies it has read nothing until now.
        slow_got, told = (await dawdling, "") if dawdling is not None else await _read_rest(slow)
        lost = sum(slow_client.report("overview")["lost"].values())
    if policy is Policy.DISCONNECT and not told:
        told = await _told_at_the_broker(broker)
    print(
        f"   {policy:<12} fast: {fast_got:,} in {took:.1f} s; slow: {_fate(policy, slow_got, lost, told)}", flush=True
    )
    report.check(fast_got == BULK_FRAMES, f"{policy}: the fast consumer got {fast_got} of {BULK_FRAMES}")
    if policy is Policy.DROP_OLDEST:
        report.check(slow_got + lost == BULK_FRAMES, f"{policy}: {slow_got} read and {lost} lost are not {BULK_FRAMES}")
    elif policy is Policy.DISCONNECT:
        report.check(told.startswith("slow_consumer"), f"{policy}: the slow consumer was told {told!r}")
    else:
        report.check(slow_got == BULK_FRAMES, f"{policy}: the slow consumer got {slow_got} of {BULK_FRAMES}")


async def _read(subscription: Subscription, pause_s: float = 0.0) -> int:
    got = 0
    async for publications in subscription.batches():
        got += len(publications)
        if got >= BULK_FRAMES:
            break
        await asyncio.sleep(pause_s)
    return got


async def _read_rest(subscription: Subscription) -> tuple[int, str]:
    """Read what is there and still arrives, until nothing came for a while or the subscription ends with a reason."""
    got = 0
    try:
        while True:
            await subscription.next(timeout=QUIET_S)
            got += 1
    except TimeoutError:
        return got, ""
    except RefusedError as error:
        return got, str(error)


async def _told_at_the_broker(broker: BrokerProcess) -> str:
    """Get the reason from the broker: output before a hang-up is flushed for only a second, so a slow reader may miss
    it."""
    async with administrating(broker.url) as administrator:
        overview = await administrator.ask("admin", {"do": "report", "question": "overview"})
    return "slow_consumer, as the broker's report says" if overview["refused"].get("slow_consumer") else ""


def _fate(policy: Policy, got: int, lost: int, told: str) -> str:
    if policy is Policy.DROP_OLDEST:
        return f"{got:,} read, {lost:,} dropped and counted"
    if policy is Policy.DISCONNECT:
        return f"{got:,} read, then {told}"
    return f"{got:,} read, {lost:,} lost; the publisher had said that it would wait"


# -- access -----------------------------------------------------------------------------------------------------------


async def _denials(broker: BrokerProcess, report: Report) -> None:
    report.begin("What the access rules do not allow")
    rule = " ".join(SETTINGS.split("\n")[1:]).strip()
    print(f"   the rule: {rule}")
    async with _connect(broker, "curious") as client:
        denied = 0
        denied += await _refused("publish on plant/commands/stop", _command(client), report)
        denied += await _refused("subscribe to System/#", client.subscribe("System/#"), report)
        denied += await _refused("ask the admin service", client.ask("admin", {"do": "drain"}), report)
        still = client.is_connected
    report.check(still, "denials: the client lost its link")
    report.add(
        "denied", f"{denied} of 3 actions, each with its reason; the client {'kept' if still else 'LOST'} its link"
    )


async def _command(client: Client) -> None:
    await client.publish("plant/commands/stop", b"now")
    await client.flush()


async def _refused(what: str, action: Awaitable[Any], report: Report) -> bool:
    try:
        await action
    except RefusedError as error:
        print(f"   {what}: {error}")
        return True
    report.check(False, f"denials: anybody may {what}")
    return False


# -- administration ---------------------------------------------------------------------------------------------------


async def _administration(broker: BrokerProcess, report: Report) -> None:
    report.begin("The administrator asks for a report and drains the broker: heliograph broker status, drain")
    token = local_token(broker.port)
    report.check(token is not None, "administration: the broker left no token for its administrator")
    async with _connect(broker, "administrator", entity="local-admin", token=token or "") as admin:
        overview = await admin.ask("admin", {"do": "report", "question": "overview"})
        shown = ("publications", "subscriptions", "sessions", "duplicates", "dropped", "denied", "routes_cached")
        print("   " + ", ".join(f"{name} {overview[name]:,}" for name in shown))
        print(
            "   links ended and actions refused, by reason: "
            + ", ".join(f"{reason} {count}" for reason, count in overview["refused"].items())
        )
        await admin.ask("admin", {"do": "drain", "grace_ms": 1_000})
    began = monotonic()
    code = await broker.process.wait()
    took = monotonic() - began
    print(f"   drained; the process ended with code {code} after {took * 1_000:.0f} ms")
    report.check(code == 0, f"administration: the broker ended with code {code}")
    report.add("drained", f"exit code {code}, {took * 1_000:.0f} ms after its last client had left")
