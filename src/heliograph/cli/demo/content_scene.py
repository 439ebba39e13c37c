"""The demo's scene with conditions: subscribers that filter by content, each in a different language.

In:    a function that connects to the demo's broker.
Out:   lines on standard output; in the report, how many of how many publications matched.
State: none beyond the scene.
Not here: the other scenes (scenes.py), the languages (matching/languages/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from heliograph.cli.demo.report import Report
from heliograph.live.connect import Connecting
from heliograph.live.options import LanguageName
from heliograph.live.subscription import Subscription

HOSTS = 2_000
SYSTEMS = ("linux", "plan9", "vms")


class SensorReading(NamedTuple):
    """The content of one publication: disk and system in its headers, the load in its document."""

    disk: int
    system: str
    load: int

    @property
    def document(self) -> str:
        """The payload."""
        return f"<host><load>{self.load}</load></host>"


ASKED: tuple[tuple[LanguageName, str, Callable[[SensorReading], bool]], ...] = (  # language, condition, what it means
    ("predicates", "disk > 120 and system = 'linux'", lambda host: host.disk > 120 and host.system == "linux"),
    (
        "sql",
        "disk BETWEEN 100 AND 199 OR system LIKE 'pl_n%'",
        lambda host: 100 <= host.disk <= 199 or host.system == "plan9",
    ),
    ("xpath", "/host[load >= 90]", lambda host: host.load >= 90),
)


async def play_contents(connect: Callable[[str], Connecting], report: Report) -> None:
    """Every subscriber gets what its condition matches, and nothing else."""
    hosts = [SensorReading(7 * number % 500, SYSTEMS[number % 3], 13 * number % 100) for number in range(HOSTS)]
    report.begin(f"Subscriptions that ask for content, in {len(ASKED)} languages: {HOSTS:,} hosts report")
    clients = [await connect(language) for language, _, _ in ASKED]
    counts = []
    for client, (language, where, _) in zip(clients, ASKED, strict=True):
        subscription = await client.subscribe("hosts/#", where=where, language=language)
        counts.append(asyncio.create_task(_count(subscription)))
    began = monotonic()
    async with connect("hosts") as publisher:
        for number, host in enumerate(hosts):
            headers = {"disk": host.disk, "system": host.system}
            await publisher.publish(f"hosts/{number}", host.document, headers=headers)
        await publisher.flush()
    took = monotonic() - began
    for client in clients:
        await client.drain()
    got = await asyncio.gather(*counts)
    for count, (language, where, means) in zip(got, ASKED, strict=True):
        wanted = sum(map(means, hosts))
        verdict = "as it should be" if count == wanted else "NOT AS EXPECTED"
        print(f"   {language:<11} {where:<48} matched {count:>5,} of {HOSTS:,}  {verdict}")
        report.check(count == wanted, f"contents: {language} got {count} of {wanted}")
    report.add(
        "contents", f"{HOSTS:,} published, {sum(got):,} matched in {len(ASKED)} languages, {HOSTS / took:,.0f} per s"
    )


async def _count(subscription: Subscription) -> int:
    """Count publications until the subscription ends."""
    return sum([len(publications) async for publications in subscription.batches()])
