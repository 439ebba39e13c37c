"""A service with a vault beside a real broker, the same in both drivers: it counts how often it was started."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import heliograph
from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.errors import Reason
from heliograph.live.node import Running, run_node
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.node import BROKER, Node, Pipe, build
from heliograph.observe.log import NodeLog
from heliograph.sim.world import World
from heliograph.stores.config import StoreConfig
from heliograph.vault import Append, Committed, LogsRead, ReadLogs, Vault, VaultOpened
from tests.client.live import LiveBroker
from tests.live.machines import Recorder, until
from tests.sim.machines import CALM, run
from tests.vaults.postgres import Server


class Counting(Recorder):
    """Adds a record to its log whenever it is started."""

    starts: int | None = None  # durable ones

    def tell(self, command: Any, now: int) -> None:
        assert isinstance(command, VaultOpened)
        self.outbox.read(ReadLogs())

    def done(self, ticket: int, result: Any, now: int) -> None:
        if isinstance(result, LogsRead):
            self.outbox.commit([Append("starts", b"", 1, now, now)])
        else:
            assert isinstance(result, Committed)
            self.starts = result.positions[0] + 1

    def failed(self, ticket: int, reason: Reason, now: int) -> None:
        raise AssertionError(reason)


def a_node(incarnation: int, place: str = "") -> Node:
    """A broker with its services, and one more."""
    node = build(BrokerConfig(name="b"), seed=1, incarnation=incarnation)
    return replace(
        node,
        machines={**node.machines, "counting": Counting()},
        pipes=(*node.pipes, Pipe(BROKER, "counting")),
        vaults={"counting": Vault(name="counting", place=place)},
    )


def test_a_simulated_service_finds_what_it_kept() -> None:
    world = World(4, network=CALM)
    host = world.add("b", a_node)
    for start in range(1, 5):
        world.start(host)
        run(world, 1)
        machine = host.seat("counting").machine
        assert isinstance(machine, Counting)
        assert machine.starts == start
        world.crash(host)


@pytest.mark.live
def test_a_live_service_finds_what_it_kept(tmp_path: Path) -> None:
    async def start(number: int) -> None:
        node = a_node(number, str(tmp_path))
        machine = node.machines["counting"]
        assert isinstance(machine, Counting)
        running = Running(node, NodeLog("b", stream=io.StringIO()))
        assert await running.open(())
        await until(lambda: machine.starts == number)
        await running.end()

    for number in range(1, 4):
        asyncio.run(start(number))


class Patient(Counting):
    """The same, and it may have to wait for its vault."""

    def tell(self, command: Any, now: int) -> None:
        if isinstance(command, VaultOpened):
            super().tell(command, now)


@pytest.mark.live
@pytest.mark.req("N10")
def test_a_node_that_starts_while_its_database_is_down_waits_for_it(postgres: Server) -> None:
    async def start() -> None:
        node = a_node(1, postgres.url)
        machine = node.machines["counting"] = Patient()
        lines = io.StringIO()
        running = Running(node, NodeLog("b", format="json", stream=lines))
        postgres.stop()
        try:
            assert await running.open(())
            assert machine.starts is None
        finally:
            postgres.start()
        await until(lambda: machine.starts == 1)
        await running.end()
        assert [json.loads(line).get("note") for line in lines.getvalue().splitlines()].count("vault_refused") == 1

    asyncio.run(start())


@pytest.mark.live
@pytest.mark.req("N10")
def test_a_store_that_starts_while_its_database_is_down_serves_when_it_is_up(postgres: Server) -> None:
    async def start() -> None:
        store = StoreConfig(enabled=True, name="late", place=postgres.url)
        postgres.stop()
        try:
            broker = LiveBroker(BrokerConfig(listeners=(ListenerConfig(port=0),)), None, [store])
            await broker.start()
        finally:
            postgres.start()
        async with heliograph.connect(broker.address, request_timeout=30) as client:
            while not await client.stores():
                await asyncio.sleep(0.1)
            await client.publish("a", b"x", reliable=True)
        await broker.stop()

    asyncio.run(start())


@pytest.mark.live
@pytest.mark.req("N10")
@pytest.mark.parametrize(("right", "wrong"), [("tests@", "nobody_known@"), ("/postgres?", "/nowhere?")])
def test_a_node_whose_database_refuses_it_ends_at_once(postgres: Server, right: str, wrong: str) -> None:
    lines = io.StringIO()
    node = a_node(1, postgres.url.replace(right, wrong))
    node.machines["counting"] = Patient()
    assert asyncio.run(run_node(node, (), NodeLog("b", format="json", stream=lines))) == 1
    assert "does not exist" in lines.getvalue()


@pytest.mark.live
@pytest.mark.req("O6")
def test_a_node_whose_vault_is_in_use_says_so_and_ends(tmp_path: Path) -> None:
    user = SqliteVault(Vault(name="counting", place=str(tmp_path)))
    user.open()
    lines = io.StringIO()

    class Deaf(Counting):
        def tell(self, command: Any, now: int) -> None:
            pass

    node = a_node(1, str(tmp_path))
    node.machines["counting"] = Deaf()
    assert asyncio.run(run_node(node, (), NodeLog("b", format="json", stream=lines))) == 1
    user.close()
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    (refused,) = [line for line in said if line.get("note") == "vault_refused"]
    assert refused["reason"] == "vault_locked"
    assert "another process uses it" in refused["problem"]
