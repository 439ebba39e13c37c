"""Cases: who publishes what to whom.

In:    a system, a port, the name of a case.
Out:   a Pump with its flows, connected and subscribed.
State: none.
Not here: how long to run (route.py), the loop (flow.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import sleep

from benchmarks.batches import FRAMES, Load
from benchmarks.flow import Flow, Pump, Reader
from benchmarks.peers.crowd import Changer
from benchmarks.peers.system import System

TOPICS_WIDE = 455 * FRAMES  # 100,100: whole batches
CHANGES_PER_S = 100
SPREAD_S = 0.1  # until the other brokers of any system know of a subscription: fifty times what it takes
CHANGES_PER_S_MIN = 90  # with fewer, a run of churn shows nothing


@dataclass(frozen=True, slots=True)
class Case:
    """One pattern of traffic, 256 B payloads."""

    says: str
    flows: int = 1  # publishers, each with its own topics and subscribers
    topics: int = 1  # that a publisher interleaves
    subscribers: int = 1  # of each publisher
    shared: bool = True  # every subscriber wants every topic; otherwise one topic each
    batched: bool = True
    wide: bool = False  # the one subscriber has a wildcard over 100,000 topics
    changes: bool = False  # another link subscribes and unsubscribes all the time
    secure: bool = False

    @property
    def ours_only(self) -> bool:
        """True where only our own figures are compared."""
        return self.wide


CASES = {
    "1to1": Case("one publisher, one topic, one subscriber, batched"),
    "1to10": Case("one publisher, one topic, ten subscribers, batched", subscribers=10),
    "mix10": Case(
        "one publisher interleaves ten topics, ten subscribers with one topic each, batched",
        topics=10,
        subscribers=10,
        shared=False,
    ),
    "drip": Case(
        "ten publishers, one subscriber each, one frame per write and one on the way", flows=10, batched=False
    ),
    "1to1_tls": Case("as 1to1, TLS 1.3 on both links", secure=True),
    "wide": Case("as 1to1 over 100,100 topics, one wildcard subscriber", wide=True),
    "churn": Case("as wide, with 100 subscription changes a second", wide=True, changes=True),
}


def build(case: Case, system: System, port: int, ca_file: str | None, far_port: int | None = None) -> Pump:
    """Connect and subscribe everyone, at another broker if there is a far port; nothing has been published yet."""
    flows = [_flow(case, number, system, port, ca_file, far_port or port) for number in range(case.flows)]
    if far_port is not None:
        sleep(SPREAD_S)
    actors = [Changer(port, ca_file, CHANGES_PER_S)] if case.changes else []
    return Pump(flows, actors)


def _flow(case: Case, number: int, system: System, port: int, ca_file: str | None, far_port: int) -> Flow:
    load = load_of(case, number)
    wanted = (
        ["plant/bench/#"] if case.wide else [load.topics[place % len(load.topics)] for place in range(case.subscribers)]
    )
    readers = []
    for topic in wanted:
        link = system.connect(far_port, ca_file)
        system.subscribe(link, topic)
        link.loaded()
        readers.append(Reader(link, system.sink(load.topics[0], load.payload_bytes)))
    publisher = system.connect(port, ca_file)
    batches = system.batches(load, publisher)
    publisher.loaded()
    frames_per_write = load.frames if case.batched else 1
    window = system.window if case.batched else 1
    return Flow(publisher, batches, readers, window=window, stride=load.groups, frames_per_write=frames_per_write)


def load_of(case: Case, number: int) -> Load:
    """What the publisher with this number sends."""
    if case.wide:
        return Load(tuple(f"plant/bench/{topic // 1_000:03d}/{topic % 1_000:03d}" for topic in range(TOPICS_WIDE)))
    topics = tuple(f"plant/bench/{number:02d}/{topic:02d}" for topic in range(case.topics))
    return Load(topics, groups=1 if case.shared else case.subscribers)
