"""Reliable publications and durable subscriptions across brokers, in the simulated world."""

from __future__ import annotations

import pytest

from heliograph.sim.storing.publisher import ReliablePublisher
from heliograph.stores.config import StoreConfig
from tests.stores.stage import Stage, sequences

pytestmark = pytest.mark.req("N10")


def trio(seed: int = 1, **options: object) -> Stage:
    stage = Stage(seed)
    stage.broker("a")
    stage.broker("b", "a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",)))
    stage.broker("c", "a", "b")
    stage.run(3)
    return stage


def publisher_of(stage: Stage, name: str) -> ReliablePublisher:
    machine = stage.world.hosts[name].seat(name).machine
    assert isinstance(machine, ReliablePublisher)
    return machine


def test_what_is_published_reliably_is_acknowledged_and_read_once_in_order() -> None:
    stage = trio()
    stage.reader("reader", "c", pattern="orders/#")
    stage.publisher("writer", "a", topics=["orders/1", "orders/2"], count=300)
    stage.run(10)
    writer = publisher_of(stage, "writer")
    assert writer.is_done
    assert stage.notebook.count == 300
    assert sequences(stage.notebook, "reader", writer.origin) == list(range(1, 301))
    assert stage.report("b")["taken"] == 300
    assert stage.report("b")["repeated"] == 0
    assert stage.world.faults() == []


def test_a_reader_that_comes_later_gets_everything_at_any_broker() -> None:
    stage = trio()
    stage.publisher("writer", "a", topics=["orders/1"], count=200)
    stage.run(6)
    stage.reader("late", "a", pattern="orders/#")
    stage.run(4)
    assert sequences(stage.notebook, "late", publisher_of(stage, "writer").origin) == list(range(1, 201))
