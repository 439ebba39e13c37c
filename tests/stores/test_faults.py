"""What was acknowledged survives crashes of stores, brokers and readers, and full disks."""

from __future__ import annotations

import pytest

from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.stores.config import StoreConfig
from tests.stores.stage import Stage, sequences

pytestmark = pytest.mark.req("N10")

COUNT = 200


class Play:
    """A publisher at a, a store at b, a reader at c; each can use another broker."""

    def __init__(self, seed: int = 1) -> None:
        self.stage = stage = Stage(seed)
        stage.broker("a")
        stage.broker("b", "a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",)))
        stage.broker("c", "a", "b")
        stage.run(3)
        stage.reader("reader", "c", "a", pattern="orders/#")
        stage.publisher("writer", "a", "c", topics=["orders/1"], count=COUNT, every_ms=50)
        stage.run(1)

    def lose(self, name: str, seconds: float = 2) -> None:
        host = self.stage.world.hosts[name]
        self.stage.world.crash(host, 0.5)
        self.stage.run(seconds)
        self.stage.world.start(host)

    def check(self) -> None:
        self.stage.run(20)
        writer = self.stage.world.hosts["writer"].seat("writer").machine
        assert isinstance(writer, ReliablePublisher)
        assert writer.is_done
        assert self.stage.notebook.count == COUNT
        assert sequences(self.stage.notebook, "reader", writer.origin) == list(range(1, COUNT + 1))
        assert self.stage.notebook.gaps == []


def test_a_store_that_crashes_has_everything_that_it_acknowledged() -> None:
    play = Play()
    play.lose("b")
    play.check()


def test_a_publisher_whose_broker_crashes_goes_on_at_another() -> None:
    play = Play()
    play.lose("a")
    play.check()


def test_a_reader_whose_broker_crashes_misses_nothing_at_another() -> None:
    play = Play()
    play.lose("c")
    play.check()


def test_a_reader_that_crashes_goes_on_where_its_results_end() -> None:
    play = Play()
    play.lose("reader")
    play.check()


@pytest.mark.req("O6")
def test_while_a_disk_is_full_nothing_is_acknowledged_and_afterwards_everything_is() -> None:
    play = Play()
    disk = play.stage.world.disks.of(play.stage.world.hosts["b"])[0]
    disk.fill()
    play.stage.run(0.5)
    before = play.stage.notebook.count
    play.stage.run(2)
    assert play.stage.notebook.count == before < COUNT
    assert play.stage.report("b")["state"] == "vault_full"
    disk.make_room()
    play.check()


@pytest.mark.req("N15")
def test_a_store_whose_disk_is_slow_presses_its_broker_and_nothing_is_dropped() -> None:
    stage, limit = Stage(), 8 << 20
    stage.broker("a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",), intake_bytes_max=limit))
    stage.run(3)
    stage.world.disks.of(stage.world.hosts["a"])[0].slow_down(200)
    stage.publisher("writer", "a", topics=["orders/1"], count=6_000, window=4_500, at_once=200, padding=2_000)
    most = 0
    for _ in range(250):
        stage.run(0.02)
        most = max(most, stage.report("a")["waiting_bytes"])
    writer = stage.world.hosts["writer"].seat("writer").machine
    assert isinstance(writer, ReliablePublisher)
    assert writer.is_done
    report = stage.report("a")
    assert report["holds"] > 0
    assert limit // 2 <= most <= limit < report["bytes"]
    assert (report["dropped"], report["early"], report["next"]) == (0, 0, 6_000)
    broker = stage.world.hosts["a"].seat("broker").machine
    assert broker.report("overview")["dropped"] == 0
