"""Publishers that keep moving while brokers and stores crash: a live subscriber gets nothing twice.

In:    seeds, which fix clusters, delays, moves and crashes.
Out:   claims about what a live subscriber at a broker that stays got, and that everything was acknowledged.
State: one simulated world at a time.
Not here: what stores keep (test_faults.py, the scenarios stores-*).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.machine import Address, Instant
from heliograph.sim.distances import NetworkSettings
from heliograph.sim.loop import SECOND
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.sim.storing.store_user import StoreUser
from heliograph.stores.config import StoreConfig
from heliograph.wire.frames import Frame, Kind, control
from heliograph.wire.scan import frames_of
from tests.many import cases
from tests.stores.stage import Stage

COUNT = 500
CRASHES = 8
PLACES = ("b0", "b1", "x", "y")


class Watcher(StoreUser):
    """A live subscriber to everything."""

    def __init__(self, name: str, brokers: list[Address], seed: int, _: Notebook) -> None:
        super().__init__(name, brokers, seed)
        self.got: Counter[tuple[int, int]] = Counter()

    def welcomed(self, now: Instant) -> None:
        self.write(control(Kind.SUBSCRIBE, 1, b'{"number":1,"filter":"#"}'))

    def _hear(self, frame: Frame, now: Instant) -> None:
        if frame.kind != Kind.DELIVERY:
            super()._hear(frame, now)
            return
        start = 0
        for end in frames_of(frame.payload, 0):
            one = Frame(frame.payload[start:end])
            self.got[one.origin, one.sequence] += 1
            start = end


class Wanderer(ReliablePublisher):
    """A publisher that moves to another broker every second or two."""

    def __init__(self, name: str, brokers: list[Address], seed: int, notebook: Notebook, **options: Any) -> None:
        super().__init__(name, brokers, seed, notebook, **options)
        self._draw = Random(f"{seed}{name}")

    def welcomed(self, now: Instant) -> None:
        super().welcomed(now)
        self.timers.set("wander", now + int(self._draw.uniform(0.3, 2.5) * SECOND), self._wander)

    def _wander(self, now: Instant) -> None:
        if self.link is not None:
            link = self.link
            self.outbox.hang_up(link, Reason.SILENT)
            self.detach(link, Reason.SILENT, now)
            self._turn = self._draw.randrange(len(PLACES))


@pytest.mark.req("N6", "N10")
@pytest.mark.parametrize("seed", cases(always=[1204, 1211], sweep=range(1212, 1224), soak=range(1224, 1252)))
def test_a_live_subscriber_gets_nothing_twice_however_publishers_wander(seed: int) -> None:
    draw = Random(seed)
    network = NetworkSettings(
        delay_ms=draw.choice([1, 1, 3]),
        jitter_ms=draw.choice([0, 2]),
        split=draw.choice([0, 0.3]),
        join=draw.choice([0, 0.5]),
    )
    stage = Stage(seed, network=network)
    for name, links in zip(PLACES, ([], ["b0"], ["b1", "b0"], ["b0", "b1"]), strict=True):
        store = StoreConfig(enabled=True, name=name, patterns=(f"{name}/#",)) if name in "xy" else None
        stage.broker(name, *links, store=store, cluster=f"c{draw.randrange(2)}")
    stage.run(3)
    watcher = stage.party(Watcher, "watcher", "b0")
    publishers = [
        stage.party(Wanderer, f"p{number}", *draw.sample(PLACES, 4), topics=topics, count=COUNT, at_once=3, window=100)
        for number, topics in enumerate((["x/1", "x/2"], ["y/1"], ["x/1"]))
    ]
    stage.run(1)
    for _ in range(CRASHES):
        stage.run(draw.uniform(0.2, 1.2))
        host = stage.world.hosts[draw.choice(["x", "y", "b1", "x"])]
        stage.world.crash(host, draw.random())
        stage.run(draw.uniform(0.05, 2))
        stage.world.start(host)
    stage.run(15)
    assert all(host.seat(host.name).machine.is_done for host in publishers)
    assert stage.notebook.count == len(publishers) * COUNT
    got = watcher.seat("watcher").machine.got
    assert len(got) > 2 * COUNT
    assert [each for each, count in got.items() if count > 1] == []
