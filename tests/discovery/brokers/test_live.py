"""Searches with real sockets on loopback: through a directory, by multicast, and when the directory is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.ports import free_port
from heliograph.broker.commands import Listening
from heliograph.broker.config import BrokerConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.discovery.brokers.config import (
    DirectoryConfig,
    DiscoveryConfig,
    MulticastConfig,
    ResponderConfig,
    written,
)
from heliograph.discovery.brokers.result import SearchResult
from heliograph.discovery.brokers.search import BrokerSearch
from heliograph.live.lone import run_alone
from heliograph.live.loop import Driver
from heliograph.machine import Address
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, Node, build, build_alone
from tests.live.machines import LOOPS, until

pytestmark = [pytest.mark.live, pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])]


@asynccontextmanager
async def running(node: Node, listener: ListenerConfig) -> AsyncIterator[tuple[Driver, Address, Address]]:
    """A node on the present loop; where its listener and its first socket are."""
    driver = Driver(node.machines, node.pipes)
    driver.start()
    try:
        address = await driver.listen(node.listeners[listener.name], listener)
        if BROKER in node.machines:
            driver.tell(BROKER, Listening((f"heliograph://{written(address)}",)))
        opened = [await driver.open(name, socket) for name, sockets in node.sockets.items() for socket in sockets]
        assert opened[0] is not None
        yield driver, address, opened[0]
    finally:
        await driver.stop()
    assert driver.failure is None


@asynccontextmanager
async def network(count: int, responder: ResponderConfig) -> AsyncIterator[list[Driver]]:
    """Brokers that are all linked to the first, and know it."""
    async with AsyncExitStack() as stack:
        started: list[Driver] = []
        links: tuple[LinkConfig, ...] = ()
        listener = ListenerConfig(port=0)
        for number in range(count):
            peers = NetworkConfig(key=b"k" * 32, links=links)
            config = BrokerConfig(name=f"b{number}", listeners=(listener,), network=peers)
            node = build(config, seed=number, incarnation=number + 1, services=[responder])
            driver, (host, port), _ = await stack.enter_async_context(running(node, listener))
            links = links or (LinkConfig(host=host, port=port),)
            started.append(driver)
        for driver in started:
            await until(lambda driver=driver: driver.report(DISCOVERY, "overview")["brokers"] == count)  # type: ignore[misc]
        yield started


async def find(config: DiscoveryConfig, seed: int = 7, **more: Any) -> SearchResult:
    search = BrokerSearch(config, seed=seed, **more)
    await run_alone(search, BrokerSearch.sockets(config, "127.0.0.1", "127.0.0.1"))
    assert search.result is not None
    return search.result


def a_group() -> MulticastConfig:
    """A port of our own, so that no broker that happens to run here answers."""
    return MulticastConfig(group="239.255.71.98", port=free_port())


@pytest.mark.req("B14")
def test_multicast_on_loopback_finds_a_broker(run: Any) -> None:
    async def main() -> None:
        group = a_group()
        async with network(3, ResponderConfig(port=0, multicast=group)):
            result = await find(DiscoveryConfig(multicast=group, patience_ms_min=3_000))
        assert result.proven
        assert sorted(finding.broker for finding in result.findings) == ["b0", "b1", "b2"]
        assert result.urls[0].startswith("heliograph://127.0.0.1:")

    run(main())


@pytest.mark.req("B15")
def test_a_directory_finds_one_and_when_it_is_gone_the_remembered_brokers_do(run: Any) -> None:
    async def main() -> None:
        none = MulticastConfig(enabled=False)
        directory = DirectoryConfig(port=0)
        listener = ListenerConfig(name=DIRECTORY, port=0)
        async with running(build_alone("bdn", directory, seed=1), listener) as (bdn, _, address):
            responder = ResponderConfig(port=0, multicast=none, directories=(written(address),))
            async with network(3, responder):
                await until(lambda: bdn.report(DIRECTORY, "overview")["measured"] == 3)
                config = DiscoveryConfig(directories=(written(address),), multicast=none, patience_ms_min=3_000)
                first = await find(config)
                assert first.proven
                assert len(first.findings) == 3
                assert first.tried[0].startswith(f"directory {written(address)}: acknowledged")

                await bdn.stop()
                config = replace(config, fallback_ms=50)
                second = await find(config, 8, remembered=first.targets)
                assert second.proven
                assert len(second.findings) == 3
                assert any(words.startswith("remembered broker") for words in second.tried)

    run(main())


@pytest.mark.req("B12")
def test_a_broker_that_names_a_host_is_pinged_there_and_dialled_there_first(run: Any) -> None:
    """On loopback every 127.x.y.z is this computer; the broker answers from 127.0.0.1 and names 127.0.0.2."""

    async def main() -> None:
        group = a_group()
        responder = ResponderConfig(host="0.0.0.0", port=0, multicast=replace(group, interface="127.0.0.1"))
        async with network(1, replace(responder, advertise_host="127.0.0.2")):
            result = await find(DiscoveryConfig(multicast=group, ping_ms=4_000))
        assert result.proven
        assert [url.rpartition(":")[0] for url in result.urls] == ["heliograph://127.0.0.2", "heliograph://127.0.0.1"]
        assert result.findings[0].answered_from.startswith("127.0.0.1:")

    run(main())
