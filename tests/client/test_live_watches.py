"""Watches of resources at real brokers: attacked, closed, not read, moved; the watch shows the truth and goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from heliograph import connect
from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.discovery.resources import news
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.errors import NotConnectedError
from heliograph.live.client import Client
from heliograph.live.resources import ResourceRegistration
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, service
from tests.client.live import a_broker, a_network, on_the_loop, until

pytestmark = [pytest.mark.live, pytest.mark.req("O6", "R8")]
SERVICES = [ResourcesConfig()]


def forged(number: int) -> bytes:
    """News of a resource that does not exist, in the form that the service uses."""
    row = {"id": "ef" * 8, "name": "evil", "host": "one", "epoch": 1, "incarnation": 1, "number": 1, "values": {"x": 1}}
    states = [{**row, "fits": True, "gone": False, "age_ms": 0.0}]
    return json.dumps({"number": number, "states": states}).encode()


async def tables(client: Client) -> dict[str, Any]:
    return await client.ask("resources", {"do": "tables"})


@on_the_loop
async def test_nobody_forges_blinds_or_ends_the_watch_of_another_client() -> None:
    async with (
        a_broker(services=SERVICES) as broker,
        await connect(broker.address) as victim,
        await connect(broker.address) as attacker,
        await connect(broker.address) as owner,
        victim.watch_resources("x >= 0") as watch,
    ):
        await watch.synced.wait()
        inbox = victim.inbox
        for payload in (forged(2), forged(10**12), b"no JSON", b"\xff" * 100, b"{}"):
            for number in range(1, 10):  # whatever the number of the watch
                await attacker.publish(f"{inbox}/resources/{number}", payload)
            await attacker.publish("x", payload, to=[inbox])
        await attacker.flush()
        true = await owner.register_resource("x >= 0", name="true", values={"x": 1})
        change = await watch.next()
        assert (change.kind, change.name) == ("appeared", "true")
        await true.withdraw()
        change = await watch.next()
        assert (change.kind, change.name) == ("vanished", "true")
        assert watch.resources == {}
        assert (watch.unreadable, watch.lost) == (0, 0)


@on_the_loop
async def test_closed_watches_leave_nothing_at_client_broker_or_service() -> None:
    async with (
        a_broker(services=SERVICES) as broker,
        await connect(broker.address) as client,
        await connect(broker.address) as owner,
    ):
        await owner.register_resource("x >= 0", name="m", values={"x": 1})

        async def left() -> tuple[Any, ...]:
            here, there, rows = client.report(), broker.report(), await tables(client)
            return here["subscriptions"], here["requests"], there["subscriptions"], rows["watches"], rows["standing"]

        before = await left()
        for number in range(100):
            async with client.watch_resources("x >= 0", model=("static", "dynamic")[number % 2]) as watch:
                if number % 10 == 1:
                    assert (await watch.next()).name == "m"
        cancelled = asyncio.create_task(client.watch_resources("x >= 0").__aenter__())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert await left() == before
        assert client.report()["watches"] == len(client._watches) == 0


@on_the_loop
async def test_a_program_that_does_not_read_its_watch_begins_anew_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "CHANGES_BYTES_MAX", 10_000)
    async with (
        a_broker(services=SERVICES) as broker,
        await connect(broker.address) as client,
        await connect(broker.address) as owner,
    ):
        machine = await owner.register_resource("x >= 0", name="m", values={"x": 0})
        async with client.watch_resources("x >= 0") as watch:
            while not watch.lost:
                await machine.update({"x": watch._number + machine._version % 1_000})
            await until(lambda: watch.resources[machine.id] == machine.values)
            seen = [await watch.next(), await watch.next()]
            assert [(each.kind, each.values) for each in seen] == [("anew", None), ("appeared", machine.values)]
            await machine.update({"x": 5_000})
            assert (await watch.next()).values == {"x": 5_000}


@on_the_loop
async def test_a_client_that_does_not_read_its_link_keeps_it_and_its_watch_begins_anew() -> None:
    limits = LimitsConfig(queue_bytes_max=65_536, hold_bytes=32_768)
    async with (
        a_broker(BrokerConfig(limits=limits), services=SERVICES) as broker,
        await connect(broker.address) as owner,
    ):
        machine = await owner.register_resource("x >= 0 and t > ''", values={"x": 0, "t": "t"})
        reader, deaf = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 12)
        hello = json.dumps({"versions": [1], "secret": "ab" * 16}).encode()
        watch = json.dumps({"do": "watch", "watch": 7}).encode()
        deaf.write(control(Kind.HELLO, 0, hello) + service(b"resources", watch, 1))
        number = 0
        while not (await tables(owner))["watches_begun_anew"]:
            await asyncio.gather(*(machine.update({"x": number + n, "t": "t" * 8_000}) for n in range(1, 51)))
            number += 50
        assert (await tables(owner))["watches"] == 1
        is_anew = False
        while True:
            size = await reader.readexactly(4)
            frame = Frame(size + await reader.readexactly(int.from_bytes(size, "little")))
            assert frame.kind != Kind.GOODBYE
            if frame.flags == ServiceFlag.NEWS:
                assert (frame.topic, frame.sequence) == (b"resources", 7)
                told = json.loads(frame.payload)
                is_anew = is_anew or told.get("anew", False)
                if is_anew and "snapshot" in told:
                    break
        assert told["snapshot"][0]["values"] == {"x": number, "t": "t" * 8_000}
        deaf.close()
        await until(lambda: broker.report()["links"] < 4)
        while (await tables(owner))["watches"]:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("drained", [True, False])
@on_the_loop
async def test_a_watch_goes_on_at_another_broker_and_ends_with_its_client(drained: bool) -> None:
    services = {"a": SERVICES, "b": SERVICES, "c": SERVICES}
    async with a_network({"a": [], "b": ["a"], "c": ["a", "b"]}, services=services) as brokers:
        urls = [brokers["b"].address, brokers["c"].address]
        async with await connect(urls) as client, await connect(brokers["a"].address) as owner:
            before = client.broker
            machine = await owner.register_resource("x >= 0", name="m", values={"x": 1})
            async with client.watch_resources("x >= 0") as watch:
                assert (await watch.next()).kind == "appeared"
                if drained:
                    brokers[before].drain(10_000)
                else:
                    await brokers[before].stop()
                await until(lambda: client.broker != before)
                await machine.update({"x": 2})
                change = await watch.next()
                assert (change.kind, change.values) == ("changed", {"x": 2})
                await client.close()
                assert [change async for change in watch] == []


@on_the_loop
async def test_a_watch_goes_on_after_its_broker_restarts() -> None:
    async with (
        a_broker(services=SERVICES) as broker,
        await connect(broker.address) as client,
        await connect(broker.address) as owner,
    ):
        machine = await owner.register_resource("x >= 0", name="m", values={"x": 1}, lease=0.3)
        async with client.watch_resources("x >= 0") as watch:
            seen = [await watch.next()]
            await broker.stop()
            await broker.start()
            await changed(machine, {"x": 2})
            while seen[-1].values != {"x": 2}:
                seen.append(await watch.next())
            # If the watch is back before the owner, the resource is away for a moment.
            between = [each.kind for each in seen[1:-1]]
            assert between in ([], ["vanished"], ["vanished", "appeared"])
            assert seen[-1].kind == ("appeared" if between == ["vanished"] else "changed")
            assert watch.resources == {machine.id: {"x": 2}}


async def changed(machine: ResourceRegistration, values: dict[str, Any]) -> None:
    """Tell values of a resource whose client may be without a broker at the moment."""
    while True:
        try:
            return await machine.update(values)
        except NotConnectedError:
            await asyncio.sleep(0.02)
