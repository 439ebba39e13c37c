"""A client that discovery connected follows the better broker, between real processes, and loses nothing on the way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

import heliograph
from benchmarks.ports import free_port
from heliograph import Client, Discover
from tests.client.live import on_the_loop, until
from tests.live.processes import Process, broker
from tests.live.test_discovery_nodes import key_of, settled

pytestmark = [pytest.mark.live, pytest.mark.slow]

STOPPED_S, RUNNING_S = 0.25, 0.02  # of a broker that is busy with something else


@asynccontextmanager
async def busy(process: Process) -> AsyncIterator[None]:
    """For as long as this lasts, the process hardly gets to do anything."""

    async def slow_down() -> None:
        while True:
            process.send(signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            process.send(signal.SIGCONT)
            await asyncio.sleep(RUNNING_S)

    task = asyncio.create_task(slow_down())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        process.send(signal.SIGCONT)


class Stream:
    """Numbered publications of one client, and what another got of them."""

    def __init__(self, topic: str, source: Client) -> None:
        self._topic = topic
        self._source = source
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = 0
        self.got: list[int] = []

    async def start(self, sink: Client) -> None:
        subscription = await sink.subscribe(self._topic, wide=True)  # so that the first publication finds it

        async def listen() -> None:
            async for publication in subscription:
                self.got.append(int(publication.payload))

        self._tasks = [asyncio.create_task(work) for work in (listen(), self._publish())]

    async def _publish(self) -> None:
        while True:
            await self._source.publish(self._topic, str(self.sent).encode())
            self.sent += 1
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Publish no more, and wait for the last one."""
        self._tasks[1].cancel()
        await asyncio.wait(self._tasks[1:])
        await self._source.flush()
        await until(lambda: len(self.got) >= self.sent)
        self._tasks[0].cancel()
        await asyncio.wait(self._tasks)


@pytest.mark.req("N8", "B12")
@on_the_loop
async def test_a_client_moves_to_a_better_broker_and_away_from_one_that_degrades_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.live.relocator.LOOK_S", 0.05)
    monkeypatch.setattr("heliograph.client.timing.PERIOD_NS", 200_000_000)
    monkeypatch.setattr("heliograph.client.relocation_policy.STAY_NS", 500_000_000)
    monkeypatch.setattr("heliograph.client.relocation_policy.PAUSE_NS", 500_000_000)
    first_port, second_port = free_port(), free_port()
    options = Discover(
        brokers=(f"127.0.0.1:{first_port}", f"127.0.0.1:{second_port}"), multicast=False, remember=False, look_s=3
    )
    with ExitStack() as stack:

        def start(name: str, *more: str) -> Process:
            return stack.enter_context(broker(tmp_path, *settled(tmp_path, name), *key_of(tmp_path), *more))

        middle = start("middle", "--no-discovery")
        link = ("--link", f"127.0.0.1:{middle.port}")
        first = start("first", "--listen", f"127.0.0.1:{first_port}", *link)
        middle.line("neighbour_linked")
        other = await heliograph.connect(f"heliograph://127.0.0.1:{middle.port}")
        async with busy(first):
            client = await heliograph.connect(discover=options, timeout=60)
            assert client.broker == "first"
            down, up = Stream("down", other), Stream("up", client)
            await down.start(client)
            await up.start(other)
            second = start("second", "--listen", f"127.0.0.1:{second_port}", *link)
            await asyncio.to_thread(second.line, "ready in")
            await until(lambda: client.broker == "second")  # a better one appeared
        async with busy(second):
            await until(lambda: client.broker == "first")  # its own degrades
            assert client.report("discovery")["moves"] >= 2
            await up.stop()
            await down.stop()
        assert up.got == list(range(up.sent))
        assert down.got == list(range(down.sent))
        assert min(up.sent, down.sent) > 10
        await client.close()
        await other.close()
