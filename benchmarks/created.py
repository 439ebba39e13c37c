"""What a publication on a created topic costs a broker, by one that access rules allow.

In:    how many publications; a broker machine in this process.
Out:   CPU time on a created topic by that on a ruled one: with one holder, and with 10,000 of different grants.
State: none.
Not here: sockets and whole networks (route.py), creating topics (topics.py).

Both are measured in turns in one process, so that other work on the machine disturbs both alike; the ratio is that of
the least times.
"""

from __future__ import annotations

import json
from hashlib import sha256
from time import process_time
from typing import Any

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig
from heliograph.machine import Peer
from heliograph.wire.frames import Kind, control, event, service

LIMIT = 1.1
BATCH = 64
PIPE, PUBLISHER, SUBSCRIBER, FIRST_HOLDER = 1, 2, 3, 10
RULED, ROOT = "plant/00000000-0000-0000-0000-000000000000", "Topics/7d444840-9dc0-11d1-b245-5ffdce74fad2"


class Bench:
    """A broker with a publisher and a subscriber, and perhaps many holders of other grants."""

    def __init__(self, holders: int) -> None:
        self.broker = Broker(BrokerConfig(), seed=1, incarnation=1)
        self.broker.attach(PIPE, Peer("pipe", "rights"), 0)
        self.sequence = 0
        self.delivered = 0
        for link in (PUBLISHER, SUBSCRIBER):
            self._join(link, ROOT)
        for number, topic in enumerate((ROOT, RULED), 1):
            body = {"number": number, "filter": f"{topic}/#"}
            self.say(SUBSCRIBER, control(Kind.SUBSCRIBE, number, json.dumps(body).encode()))
        for number in range(holders):
            self._join(FIRST_HOLDER + number, f"Topics/holder-{number}")

    def _join(self, link: int, root: str) -> None:
        self.broker.attach(link, Peer("tcp", f"127.0.0.1:{link}", "main"), 0)
        hello = {"versions": [1], "secret": link.to_bytes(16, "big").hex()}
        self.say(link, control(Kind.HELLO, 0, json.dumps(hello).encode()))
        order = {"do": "allow", "link": link, "root": root, "publish": True, "subscribe": True, "ms": 10**9}
        self.say(PIPE, service(b"broker", json.dumps({**order, "grants": [f"g{link}"]}).encode(), link))

    def say(self, link: int, data: bytes) -> None:
        written = self.broker.shortcut(link, data, 0)
        if written is None:
            self.broker.receive(link, data, 0)
            writes = self.broker.take().writes
        else:
            writes = [(written[0], [written[1]])]
        self.delivered += sum(len(frame) for link, frames in writes if link == SUBSCRIBER for frame in frames)

    def batches(self, topic: str, count: int, size: int) -> list[bytes]:
        origin = int.from_bytes(sha256(PUBLISHER.to_bytes(16, "big")).digest()[:8], "little")
        made = []
        for _ in range(count):
            frames = []
            for _ in range(size):
                self.sequence += 1
                frames.append(event(f"{topic}/t".encode(), b"x" * 100, origin, self.sequence))
            made.append(b"".join(frames))
        return made

    def spend(self, topic: str, count: int, size: int) -> float:
        """CPU seconds of so many reads."""
        batches, before = self.batches(topic, count, size), self.delivered
        began = process_time()
        for batch in batches:
            self.say(PUBLISHER, batch)
        took = process_time() - began
        assert self.delivered - before >= sum(map(len, batches)) * 0.9, "not everything was delivered"
        return took


def measure(quick: bool) -> dict[str, float]:
    """The ratios: publications one by one and in batches, without and with many holders."""
    rounds, reads = (9, 400) if quick else (25, 2_000)
    found = {}
    for holders in (0, 10_000):
        bench = Bench(holders)
        for size, name in ((1, "single"), (BATCH, "batched")):
            least = {RULED: 1e9, ROOT: 1e9}
            for _ in range(rounds):
                for topic in least:
                    least[topic] = min(least[topic], bench.spend(topic, reads, size))
            found[f"created_by_ruled_{name}{'_10000_holders' if holders else ''}"] = round(
                least[ROOT] / least[RULED], 3
            )
    return found


def limits() -> dict[str, Any]:
    """What is allowed of each."""
    names = ("single", "batched", "single_10000_holders", "batched_10000_holders")
    return {f"created_by_ruled_{name}": LIMIT for name in names}
