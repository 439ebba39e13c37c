"""The demo's topic: created by alice, found by bob, refused, granted, received.

In:    nothing; a broker with a topic directory and certificates is started for it.
Out:   lines on standard output; how long it took, in the report.
State: a temporary folder and a process, removed at the end.
Not here: creating and finding (discovery/topics/), the trial network (cli/network_secure.py).
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import heliograph
from heliograph.cli.demo.report import Report
from heliograph.cli.network_processes import NetworkProcesses
from heliograph.cli.network_secure import environment
from heliograph.errors import RefusedError
from heliograph.topology.process_network import generated

if TYPE_CHECKING:
    from heliograph.live.client import Client

PATIENCE_S = 20.0


async def play_topics(report: Report) -> None:
    """A topic with an owner, from creation to its first event."""
    report.begin("A topic with an owner: alice creates it, bob finds it and gets the right to listen")
    with tempfile.TemporaryDirectory() as text:
        network = NetworkProcesses(generated(1), Path(text) / "topics", bdn=False, secure=True)
        try:
            await network.start(lambda said: None)
            async with asyncio.timeout(PATIENCE_S):
                await _play(network, report)
        finally:
            network.stop(keep_logs=False)


async def _play(network: NetworkProcesses, report: Report) -> None:
    async with _as(network, "alice") as alice, _as(network, "bob") as bob:
        for person in (alice, bob):  # loads keys and cryptography, which is no part of what is timed below
            directories = await person.topic_directories(wait=0.3)
        print(f"   directories: {', '.join(directories)}")
        began = perf_counter()
        topic = await alice.create_topic("demo/temperature", keywords=["sensor"], properties={"floor": 3})
        created = (perf_counter() - began) * 1_000
        print(f"   {topic.topic}: signed by {topic.directory}, countersigned by alice, in {created:.0f} ms")
        began = perf_counter()
        found = [one async for one in bob.discover_topics("floor > 2", "sql", count=1)]
        took = (perf_counter() - began) * 1_000
        report.check([one.topic for one in found] == [topic.topic], "topics: bob did not find the topic")
        print(f"   bob finds it by SQL in {took:.0f} ms; it is {bob.verify_topic(found[0])}'s, by signature")
        refused = await _is_refused(bob, topic.topic)
        report.check(refused, "topics: bob could subscribe without a grant")
        await bob.use_topic(alice.grant_topic(topic, "bob", subscribe=True))
        await alice.use_topic(topic)
        async with bob.subscribe(f"{topic.topic}/#") as subscription:
            await alice.publish(topic.topic, "21.5")
            publication = await anext(aiter(subscription))
        print(f"   refused without a grant; with alice's grant he receives {publication.payload.decode()}")
        report.check(publication.payload == b"21.5", "topics: bob did not receive what alice published")
        report.add(
            "topics", f"created in {created:.0f} ms, found in {took:.0f} ms, both signed and sealed; then granted"
        )


async def _is_refused(client: Client, topic: str) -> bool:
    try:
        await client.subscribe(topic)
    except RefusedError:
        return True
    return False


def _as(network: NetworkProcesses, person: str) -> Any:
    shown = environment(network.folder, network.secure_url, person)
    return heliograph.connect(
        network.secure_url,
        authority=shown["HELIOGRAPH_AUTHORITY"],
        certificate=shown["HELIOGRAPH_CERTIFICATE"],
        key=shown["HELIOGRAPH_KEY"],
    )
