"""Runs with subscribers that are stopped or read slowly for seconds, under each policy, near the publisher and far.

In:    a seed and a folder.
Out:   a Slow: what was delivered, dropped and told, and what is wrong.
State: the processes of three brokers and of six subscribers at a time.
Not here: the subscribers (slow_reader.py, programs/slow_subscriber.py), what is right (slow_oracle.py).

Two publishers, one of which opted in to wait, are at one broker each; of each policy there is a slow subscriber at the
broker of the publisher that matters, and one at another broker. At two brokers a subscriber keeps up with everything.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.independent.network import run
from tests.independent.processes import Processes, Program, common_words, program
from tests.independent.runs import TRUSTED_MS
from tests.independent.slow_oracle import DISCONNECT, DROP, FAST, HOLD, Got, Slow, got_of, judge
from tests.independent.slow_workload import FastReader, PacedPublisher

BROKERS = ("b0", "b1", "b2")
PLAIN, OPTED_IN = "plain", "opted-in"
SIZES = {PLAIN: (10_000, 30_000), OPTED_IN: (2_000, 20_000, 100_000)}
SECONDS = 6.0  # of publishing, if nobody has to wait
RATE = {PLAIN: 260.0, OPTED_IN: 100.0}
STOPPED_S = (2.0, 5.0)
SLOW_AFTER_S = 0.5
FINISH_S = 60.0
POLL_S = 0.05


@dataclass
class Slowness:
    """A slow subscriber: a process, its policy, and when it is stopped, if it is."""

    process: Program
    policy: str
    place: str
    is_stopped: bool  # otherwise it reads slowly
    after: float  # seconds from the beginning
    seconds: float
    is_mixed_far: bool  # at another broker than the publisher that may be held, and others publish to it too


def with_slow_subscribers(seed: int, folder: Path) -> Slow:
    draw = Random(f"slow {seed}")
    links = {"b0": [], "b1": ["b0"], "b2": draw.choice((["b0"], ["b1"], ["b0", "b1"]))}
    clusters = draw.choice(({"b0": "c0", "b1": "c0", "b2": "c0"}, {"b0": "c0", "b1": "c0", "b2": "c1"}))
    commands = {
        name: ["broker", "run", *common_words(name, links[name], clusters[name]), "--no-discovery"] for name in BROKERS
    }
    with Processes(folder, commands, suspect_ms=TRUSTED_MS) as nodes:
        return asyncio.run(_play(seed, nodes, draw))


async def _play(seed: int, nodes: Processes, draw: Random) -> Slow:
    await nodes.ready()
    publishers = [
        PacedPublisher(name, [f"{name}/1", f"{name}/2"], round(SECONDS * RATE[name]), RATE[name], str(seed))
        for name in (PLAIN, OPTED_IN)
    ]
    places = {publisher.name: draw.choice(BROKERS) for publisher in publishers}
    also_plain = draw.random() < 0.5  # hold subscribers want what the other one publishes, too
    slow = _subscribers(nodes, places, also_plain, draw)
    readers = [FastReader(f"fast-{place}", str(seed)) for place in draw.sample(BROKERS, 2)]
    kept = Slow()
    try:
        for each in slow:
            await each.process.wrote("ready")
        for reader in readers:
            await reader.join("127.0.0.1", nodes.nodes[reader.name.removeprefix("fast-")].port)
            await reader.subscribe(1, {"filter": "#", "wide": True})
        for publisher in publishers:
            port = nodes.nodes[places[publisher.name]].port
            await publisher.join("127.0.0.1", port, hold=publisher.name == OPTED_IN)
        await _publish(publishers, slow)
        for each in slow:
            kept.problems += await each.process.ended()
        await _finished(readers)
        between = await asyncio.to_thread(dropped_between, nodes)
        _judge(kept, publishers, slow, readers, between, also_plain)
    finally:
        for each in slow:
            each.process.kill()
        for link in (*readers, *publishers):
            link.leave()
    return kept


def _subscribers(nodes: Processes, places: dict[str, str], also_plain: bool, draw: Random) -> list[Slowness]:
    """Of each policy one near and one far, each with the independent client or with the public one."""
    slow = []
    for policy in (DROP, DISCONNECT, HOLD):
        awaited = [OPTED_IN, PLAIN] if policy == HOLD and also_plain else [OPTED_IN if policy == HOLD else PLAIN]
        home = places[awaited[0]]
        for place in (home, draw.choice([name for name in BROKERS if name != home])):
            is_stopped = draw.random() < 0.6
            seconds = draw.uniform(*STOPPED_S)
            after = SLOW_AFTER_S + draw.uniform(0, SECONDS - seconds - SLOW_AFTER_S)
            words = draw.choice((["-m", "tests.independent.slow_reader"], program("slow_subscriber")))
            given: dict[str, Any] = {
                "port": nodes.nodes[place].port,
                "policy": policy,
                "filter": "#" if len(awaited) > 1 else f"{awaited[0]}/#",
                "publishers": awaited,
                "slow": [0, 0, 0] if is_stopped else [after, after + seconds, draw.uniform(0.02, 0.3)],
                "inbox_bytes_max": draw.choice((1 << 20, 64 << 20)),
            }
            process = Program(words, nodes.folder, f"{policy}-{place}", **given)
            is_mixed_far = len(awaited) > 1 and place != home
            slow.append(Slowness(process, policy, place, is_stopped, after, seconds, is_mixed_far))
    return slow


async def _publish(publishers: list[PacedPublisher], slow: list[Slowness]) -> None:
    """All of it, while subscribers are slow; the last ones when none is slow any more."""
    begin = time.monotonic()
    stopping = [_stop(each) for each in slow if each.is_stopped]
    await asyncio.gather(*(publisher.publish(SIZES[publisher.name]) for publisher in publishers), *stopping)
    await asyncio.sleep(begin + SECONDS - time.monotonic())
    for publisher in publishers:
        await publisher.finish()


async def _stop(slow: Slowness) -> None:
    await asyncio.sleep(slow.after)
    slow.process.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(slow.seconds)
    slow.process.process.send_signal(signal.SIGCONT)


async def _finished(readers: list[FastReader]) -> None:
    deadline = time.monotonic() + FINISH_S
    while any(len(reader.ends) < 2 for reader in readers) and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)


def dropped_between(nodes: Processes) -> int:
    """What the brokers say that links between them dropped."""
    dropped = 0
    for node in nodes.nodes.values():
        url = f"heliograph://127.0.0.1:{node.port}"
        rows = json.loads(run(nodes.folder, "broker", "links", "--json", "--url", url))
        dropped += sum(row["dropped"] for row in rows if row["neighbour"])
    return dropped


def _judge(
    kept: Slow,
    publishers: list[PacedPublisher],
    slow: list[Slowness],
    readers: list[FastReader],
    between: int,
    also_plain: bool,
) -> None:
    sent = {publisher.name: publisher.count for publisher in publishers}
    wanted = {DROP: [PLAIN], DISCONNECT: [PLAIN], HOLD: [OPTED_IN, PLAIN] if also_plain else [OPTED_IN]}
    for each in slow:
        got = got_of(each.process.notes(), each.process.name, each.policy, between)
        held = [] if each.is_mixed_far else [OPTED_IN]  # the page gives it only the room of the queue, with all others
        judge(kept, got, {name: sent[name] for name in wanted[each.policy]}, held)
    for reader in readers:
        told = reader.ended or None
        got = Got(reader.name, FAST, reader.got, reader.lost, told, len(reader.ends) == len(sent), between)
        judge(kept, got, sent, [])
