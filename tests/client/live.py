"""Real brokers on real ports, in the test's own process, and a loop to run tests on.

In:    a BrokerConfig; or which brokers there are and who dials whom.
Out:   LiveBroker: its address; it can be stopped and started again on the same port.
State: the driver of the running broker.
Not here: processes and signals (tests/live).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from benchmarks.ports import free_port
from heliograph import node
from heliograph.broker.commands import Drain, Listening
from heliograph.broker.config import BrokerConfig, LimitsConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.live.loop import Driver, run
from heliograph.live.tls import TlsContexts

DEADLINE_S = 240.0  # a test that hangs fails instead
TRUSTED_MS = 60_000  # no broker of a busy machine is silent for so long


def on_the_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that programs use; nothing may go to the loop's exception handler."""

    @wraps(test)
    def wrapper(*arguments: Any, **named: Any) -> None:
        async def main() -> None:
            complaints: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(DEADLINE_S):
                await test(*arguments, **named)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:  # cancelled perhaps, and on a busy machine not at their end yet
                _, left = await asyncio.wait(left, timeout=DEADLINE_S)
            assert not left, left
            assert complaints == []

        run(main())

    return wrapper


class LiveBroker:
    """One broker, as often as it is started."""

    def __init__(
        self, config: BrokerConfig, tls: TlsContexts | None = None, services: Sequence[object] = (), seed: int = 1
    ) -> None:
        self.config = config
        self.port = config.listeners[0].port or free_port()  # nobody else may get it before it is started again
        self._tls = tls
        self._driver: Driver | None = None
        self._incarnation = 0
        self._services = services  # their settings
        self._seed = seed

    @property
    def address(self) -> str:
        scheme = "heliographs" if self.config.listeners[0].secure else "heliograph"
        return f"{scheme}://localhost:{self.port}" if self._tls else f"{scheme}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._incarnation += 1
        seed = self._seed * 1_000 + self._incarnation
        built = node.build(self.config, seed=seed, incarnation=self._incarnation, services=self._services)
        self._driver = Driver(built.machines, built.pipes, tls=self._tls)
        self._driver.start()
        listener = replace(self.config.listeners[0], port=self.port)
        self.port = (await self._driver.listen(node.BROKER, listener))[1]
        self._driver.tell(node.BROKER, Listening((self.address,)))
        for machine, sockets in built.sockets.items():
            for socket in sockets:
                await self._driver.open(machine, socket)
        for machine, vault in built.vaults.items():
            assert await self._driver.open_vault(machine, vault) is None

    async def stop(self) -> None:
        if self._driver is not None:
            assert self._driver.failure is None
            await self._driver.stop()
            self._driver = None

    @property
    def has_ended(self) -> bool:
        assert self._driver is not None
        return self._driver.stopped.is_set()

    def drain(self, grace_ms: int) -> None:
        assert self._driver is not None
        self._driver.tell(node.BROKER, Drain(grace_ms))

    def tell(self, command: Any) -> None:
        assert self._driver is not None
        self._driver.tell(node.BROKER, command)

    def report(self, question: str = "overview") -> Any:
        assert self._driver is not None
        return self._driver.report(node.BROKER, question)


@asynccontextmanager
async def a_broker(
    config: BrokerConfig | None = None,
    tls: TlsContexts | None = None,
    services: Sequence[object] = (),
    **listener: Any,
) -> AsyncIterator[LiveBroker]:
    """A running broker."""
    config = replace(config or BrokerConfig(), listeners=(ListenerConfig(port=0, **listener),))
    broker = LiveBroker(config, tls, services)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def a_network(
    links: dict[str, list[str]],
    tls: TlsContexts | None = None,
    services: Mapping[str, Sequence[object]] | None = None,
    limits: LimitsConfig | None = None,
    **listener: Any,
) -> AsyncIterator[dict[str, LiveBroker]]:
    """Running brokers that know each other; ``links`` maps a broker to those before it that it dials."""
    brokers: dict[str, LiveBroker] = {}
    host, secure = ("localhost", True) if tls is not None else ("127.0.0.1", False)
    listeners = (ListenerConfig(port=0, secure=secure, **listener),)
    try:
        for name, others in links.items():
            dialled = tuple(LinkConfig(host=host, port=brokers[other].port, secure=secure) for other in others)
            network = NetworkConfig(key=b"k" * 32, links=dialled, suspect_ms=TRUSTED_MS, dead_ms=2 * TRUSTED_MS)
            config = BrokerConfig(name=name, listeners=listeners, network=network, limits=limits or LimitsConfig())
            brokers[name] = LiveBroker(config, tls, (services or {}).get(name, ()), seed=len(brokers) + 1)
            await brokers[name].start()
        await until(lambda: all(len(broker.report("map")["members"]) == len(links) for broker in brokers.values()))
        yield brokers
    finally:
        for broker in brokers.values():
            await broker.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Let others work until something is true; the deadline of the test is the limit."""
    while not condition():
        await asyncio.sleep(0.002)
