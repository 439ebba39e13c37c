"""Reliable publications, durable subscriptions and replays against real brokers with real stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph.errors import Reason, RefusedError
from heliograph.stores.config import StoreConfig
from tests.client.faces import FACES, Face
from tests.client.live import a_broker, a_network, on_the_loop

pytestmark = [pytest.mark.live, pytest.mark.req("N10", "N11")]

both = pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)


def a_store(folder: Path, name: str = "store", **options: object) -> StoreConfig:
    return StoreConfig(enabled=True, name=name, place=str(folder), **options)  # type: ignore[arg-type]


@both
@on_the_loop
async def test_a_reliable_publication_is_stored_and_replayed(face: Face, tmp_path: Path) -> None:
    async with a_broker(services=[a_store(tmp_path)]) as broker, face.connect(broker.address) as client:
        await client.publish("a/b", b"one", reliable=True, headers={"n": 1})
        await client.publish("a/c", b"two", reliable=True, wait=False)
        await client.publish_batch("a/d", [b"%d" % number for number in range(3_000)], reliable=True)
        await client.flush()
        async with client.replay("a/+") as replay:
            found = [publication async for publication in replay]
        assert [one.payload for one in found] == [b"one", b"two", *(b"%d" % number for number in range(3_000))]
        assert [one.position for one in found] == list(range(3_002))
        assert found[0].headers == {"n": 1}
        (log,) = await client.logs()
        assert (log.first, log.next) == (0, 3_002)


@both
@on_the_loop
async def test_a_durable_subscription_goes_on_where_it_was(face: Face, tmp_path: Path) -> None:
    async with a_broker(services=[a_store(tmp_path)]) as broker:
        async with face.connect(broker.address) as client:
            async with client.subscribe("a/#", durable="billing") as subscription:
                await client.publish("a", b"1", reliable=True)
                await client.publish("a", b"2", reliable=True)
                assert [(await subscription.next(timeout=30)).payload for _ in range(2)] == [b"1", b"2"]
            await client.publish("a", b"3", reliable=True)
        async with face.connect(broker.address) as client:
            await client.publish("a", b"4", reliable=True)
            async with client.subscribe("a/#", durable="billing") as subscription:
                assert [(await subscription.next(timeout=30)).payload for _ in range(2)] == [b"3", b"4"]
            (known,) = await client.durable_subscriptions()
            assert (known.name, known.lag) == ("billing", 0)
            assert await client.drop_subscription("billing") == 1
            assert await client.durable_subscriptions() == []


@on_the_loop
async def test_without_a_store_the_error_says_what_to_do() -> None:
    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        for attempt in (client.publish("a", b"", reliable=True), client.subscribe("a", durable="x")):
            with pytest.raises(RefusedError, match="heliograph store run") as caught:
                await attempt
            assert caught.value.reason is Reason.STORE_MISSING


@on_the_loop
async def test_a_subscriber_that_roams_gets_what_it_missed_once(tmp_path: Path) -> None:
    services = {"b": [a_store(tmp_path)]}
    async with a_network({"a": [], "b": ["a"], "c": ["b"]}, services=services) as brokers:
        targets = [brokers["a"].address, brokers["c"].address]
        async with heliograph.connect(brokers["b"].address) as publisher, heliograph.connect(targets) as reader:
            subscription = await reader.subscribe("a", durable="roamer")
            heard: list[int] = []

            async def read() -> None:
                async for publication in subscription:
                    heard.append(int(publication.payload))
                    if heard[-1] == 599:
                        return

            reading = asyncio.create_task(read())
            for number in range(600):
                await publisher.publish("a", b"%d" % number, reliable=True, wait=False)
                if number == 200:
                    await publisher.flush()
                    await brokers["a"].stop()
            await publisher.flush()
            await reading
            assert heard == list(range(600))
            await subscription.close()
