"""Reliable publications, durable subscriptions and replays against real brokers with real stores."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.broker.hot import frames_of
from heliograph.errors import NotConnectedError, Reason, RefusedError, UsageError
from heliograph.live.vaults import tables
from heliograph.stores import measuring
from heliograph.stores.config import StoreConfig
from heliograph.wire.stores import SELECTED_MAX
from tests.client.faces import FACES, Face, InThreads
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
@pytest.mark.parametrize("runs_max", [3, 1_024], ids=["many answers", "one answer"])
@on_the_loop
async def test_the_bytes_of_a_range_are_told_in_pieces(
    face: Face, runs_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "READS_MAX", 2)
    monkeypatch.setattr(tables, "READ_RUNS_MAX", runs_max)
    async with a_broker(services=[a_store(tmp_path)]) as broker, face.connect(broker.address) as client:
        for number in range(40):
            await client.publish("a", b"x" * (100_000 if number == 30 else 1_000), reliable=True)
        (log,) = await client.logs()
        singles = await client.measure(log.store, 0, 40, 1)
        assert [end for end, _ in singles] == list(range(1, 41)), "each was stored by itself"
        assert sum(size for _, size in singles) == log.bytes
        ten = sum(size for _, size in singles[10:20])  # the first, before which there was no other, is smaller
        pieces = await client.measure(log.store, 0, 40, ten)
        assert [end for end, _ in pieces] == [10, 20, 30, 31, 40]
        assert sum(size for _, size in pieces) == log.bytes
        assert await client.measure(log.store, 0, 40, ten, most=2) == pieces[:2]
        assert await client.measure(log.store, 10, 40, ten + 9, most=1) == [(20, ten)]
        assert await client.measure(log.store, 40, 40, 1) == []


@on_the_loop
async def test_readings_of_clients_that_left_keep_no_place(tmp_path: Path) -> None:
    """Each client leaves in the middle of its reading; the silence that also ends readings lasts a minute."""
    async with a_broker(services=[a_store(tmp_path, channels_max=4)]) as broker:
        async with heliograph.connect(broker.address) as client:
            await client.publish_batch("a", [b"x" * 1_000] * 3_000, reliable=True)
        read = []
        for _ in range(12):
            async with heliograph.connect(broker.address) as client:
                async for publication in client.replay("a"):
                    read.append(publication.position)
                    break
        assert read == [0] * 12


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
async def test_a_publisher_waits_while_its_store_is_restarted_and_others_go_on(tmp_path: Path) -> None:
    services = {
        "b": [a_store(tmp_path / "b", "orders", patterns=("orders/#",), advertise_ms=100)],
        "c": [a_store(tmp_path / "c", "bills", patterns=("bills/#",))],
    }
    async with (
        a_network({"a": [], "b": ["a"], "c": ["a"]}, services=services) as brokers,
        heliograph.connect(brokers["a"].address) as client,
    ):
        await client.publish("orders/1", b"1", reliable=True)
        await client.publish("bills/1", b"1", reliable=True)
        await brokers["b"].stop()
        waiting = [asyncio.create_task(client.publish(f"orders/{n}", b"%d" % n, reliable=True)) for n in (2, 3)]
        await asyncio.sleep(2.5)  # a topic that never had a store is refused after 2 s
        await client.publish("bills/2", b"2", reliable=True, wait=False)
        await client.publish("bills/3", b"3", reliable=True)
        assert [(store.name, store.state) for store in await client.stores(away=True)] == [("orders", "away")]
        assert not any(task.done() for task in waiting)
        await brokers["b"].start()
        await asyncio.gather(*waiting)
        async with client.replay("orders/#") as replay:
            assert [publication.payload async for publication in replay] == [b"1", b"2", b"3"]


@on_the_loop
async def test_a_batch_that_waits_for_its_store_in_vain_ends_there_and_flush_tells_it(tmp_path: Path) -> None:
    async with (
        a_network({"a": [], "b": ["a"]}, services={"b": [a_store(tmp_path)]}) as brokers,
        heliograph.connect(brokers["a"].address, request_timeout=30) as first,
        heliograph.connect(brokers["a"].address, request_timeout=0.3) as client,
    ):
        await first.publish("orders/1", b"1", reliable=True)
        await brokers["b"].stop()
        payloads = [bytes(1 << 20) for _ in range(5)]
        await client.publish_batch("orders/2", payloads, reliable=True, wait=False)
        with pytest.raises(RefusedError) as refused:
            await client.flush()
        assert refused.value.reason is Reason.TIME_OUT
        with pytest.raises(NotConnectedError) as failed:
            await client.publish_batch("orders/2", payloads, reliable=True)
        assert failed.value.reason is Reason.TIME_OUT
        await brokers["b"].start()
        await first.publish("orders/1", b"2", reliable=True)
        async with first.replay("orders/#") as replay:
            assert [publication.payload async for publication in replay] == [b"1", b"2"]


@both
@on_the_loop
@pytest.mark.req("O6")
async def test_without_credentials_a_name_belongs_to_whoever_has_its_secret(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = b"a secret of two machines"
    async with a_broker(services=[a_store(tmp_path)]) as broker, face.connect(broker.address) as client:
        await client.publish("a", b"1", reliable=True)
        async with client.subscribe("a", durable="mine", start="first") as subscription:
            await subscription.next(timeout=30)
        async with client.subscribe("a", durable="ours", start="first", secret=shared) as subscription:
            await subscription.next(timeout=30)
        assert [one.name for one in await client.durable_subscriptions()] == ["mine"]
        monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "another user"))
        assert await client.durable_subscriptions() == []
        with pytest.raises(RefusedError, match="release") as caught:
            await client.subscribe("a", durable="mine")
        assert caught.value.reason is Reason.NAME_FOREIGN
        with pytest.raises(RefusedError, match="name_foreign"):
            await client.drop_subscription("mine")
        with pytest.raises(RefusedError, match="administrators"):
            await client.release_subscription("mine")
        assert [one.name for one in await client.durable_subscriptions(secret=shared)] == ["ours"]
        async with client.subscribe("a", durable="ours", secret=shared) as subscription:
            await client.publish("a", b"2", reliable=True)
            assert (await subscription.next(timeout=30)).payload == b"2"
        assert await client.drop_subscription("ours", secret=shared) == 1
        with pytest.raises(UsageError, match="16 to 1024 bytes"):
            await client.drop_subscription("ours", secret=b"short")


@on_the_loop
async def test_without_a_store_the_error_says_what_to_do() -> None:
    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        for attempt in (client.publish("a", b"", reliable=True), client.subscribe("a", durable="x")):
            with pytest.raises(RefusedError, match="heliograph store run") as caught:
                await attempt
            assert caught.value.reason is Reason.STORE_MISSING


@pytest.mark.req("N19")
@on_the_loop
async def test_a_store_or_a_monitor_at_another_broker_answers_no_request(tmp_path: Path) -> None:
    async with a_network({"a": [], "b": ["a"]}, services={"b": [a_store(tmp_path)]}) as brokers:
        there = brokers["b"].address
        async with heliograph.connect(brokers["a"].address) as asker, heliograph.connect(there) as answerer:
            watched = await answerer.subscribe("#", listens=True, wide=True)
            with pytest.raises(heliograph.NoRespondersError):
                await asker.request("service", "?")

            async def answer(request: heliograph.Publication) -> None:
                await answerer.reply(request, "!")

            await answerer.subscribe("service", callback=answer, wide=True)
            assert (await asker.request("service", "again")).payload == b"!"
            assert [(await anext(watched)).payload for _ in range(2)] == [b"?", b"again"]
            with pytest.raises(UsageError, match="group"):
                await answerer.subscribe("service", group="g", listens=True)


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


@both
@on_the_loop
async def test_a_batch_becomes_visible_by_one_commit_and_only_once(face: Face, tmp_path: Path) -> None:
    async with (
        a_broker(services=[a_store(tmp_path)]) as broker,
        face.connect(broker.address) as client,
        face.connect(broker.address) as other,
    ):
        for number, clients in ((1, (client, other)), (1, (other,)), (2, (client,))):
            staged = []
            for part, one in enumerate(clients):
                batch = await _made(one.batch("store", "job", number))
                rows = [(f"results/{part}", f"{number}.{part}.{row}") for row in range(300)]
                staged.append((f"part-{part}", await batch.stage(f"part-{part}", rows)))
                assert staged[-1][1] == 300
            committed = await batch.commit(staged)
            assert committed.repeated == (number == 1 and len(clients) == 1)
        async with client.replay("results/#") as replay:
            found = [publication.payload.decode() async for publication in replay]
        first = [f"1.{part}.{row}" for part in (0, 1) for row in range(300)]
        assert found == [*first, *(f"2.0.{row}" for row in range(300))]


@on_the_loop
async def test_publications_of_a_part_may_differ_in_topic_and_headers(tmp_path: Path) -> None:
    async with a_broker(services=[a_store(tmp_path)]) as broker, heliograph.connect(broker.address) as client:
        batch = client.batch("store", "job", 1)
        rows = [(f"t/{n % 3}", b"%d" % n, {"n": n, "text": "ä"} if n % 2 else None) for n in range(3_000)]
        assert await batch.stage("p", rows, headers={"all": 1}) == 3_000
        await batch.commit([("p", 3_000)])
        async with client.replay("t/#") as replay:
            found = [publication async for publication in replay]
        assert [(one.topic, one.payload) for one in found] == [(topic, payload) for topic, payload, _ in rows]
        assert [one.headers for one in found] == [{"all": 1, **(own or {})} for _, _, own in rows]
        for wrong in ({"$t": 1}, {"x": object()}, "text"):
            with pytest.raises(UsageError, match="header"):
                await batch.stage("p", [("t", b"", None), ("t", b"", wrong)])  # type: ignore[list-item]


@on_the_loop
@pytest.mark.req("O6")
async def test_without_credentials_a_publisher_of_batches_belongs_to_whoever_has_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = b"a secret of two machines"
    async with a_broker(services=[a_store(tmp_path)]) as broker, heliograph.connect(broker.address) as client:

        async def publish(name: str, number: int, **options: Any) -> None:
            batch = client.batch("store", name, number, **options)
            await batch.commit([("p", await batch.stage("p", [("a", b"%d" % number)]))])

        await publish("mine", 1)
        await publish("ours", 2, secret=shared)
        monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "another user"))
        with pytest.raises(RefusedError, match="secretFile") as caught:
            await publish("mine", 3)
        assert caught.value.reason is Reason.NAME_FOREIGN
        await publish("ours", 4, secret=shared)
        (tmp_path / "a file").touch()
        monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "a file"))  # where no secret can be kept
        await publish("for-one-batch", 5, once=True)
        async with client.replay("a") as replay:
            assert [publication.payload async for publication in replay] == [b"1", b"2", b"4", b"5"]


@on_the_loop
async def test_a_batch_is_staged_once_its_store_is_back(tmp_path: Path) -> None:
    service = a_store(tmp_path / "b", "orders", advertise_ms=100)
    async with (
        a_network({"a": [], "b": ["a"]}, services={"b": [service]}) as brokers,
        heliograph.connect(brokers["a"].address, request_timeout=30) as client,
        heliograph.connect(brokers["a"].address, request_timeout=0.3) as hasty,
    ):
        await client.publish("a", b"0", reliable=True)
        await brokers["b"].stop()
        with pytest.raises(NotConnectedError) as failed:
            await hasty.batch("orders", "job", 1).stage("p", [("a", b"1")])
        assert failed.value.reason is Reason.TIME_OUT
        with pytest.raises(RefusedError, match="there is no store 'bills'"):
            await client.batch("bills", "job", 1).stage("p", [("a", b"1")])
        batch = client.batch("orders", "job", 1)
        staging = asyncio.ensure_future(batch.stage("p", [("a", b"1")]))
        await brokers["b"].start()
        await batch.commit([("p", await staging)])
        async with client.replay("a") as replay:
            assert [publication.payload async for publication in replay] == [b"0", b"1"]


async def _made(batch: Any) -> Any:
    """The blocking face gives it in a thread."""
    return InThreads(await batch) if inspect.isawaitable(batch) else batch


@on_the_loop
async def test_a_named_publisher_goes_on_after_a_crash(tmp_path: Path) -> None:
    options = {"publisher": "meter-7", "publisher_dir": tmp_path / "publishers"}
    async with a_broker(services=[a_store(tmp_path)]) as broker:
        first = await heliograph.connect(broker.address, **options)
        for number in range(10):
            await first.publish("a", b"%d" % number, reliable=True)
        with pytest.raises(UsageError, match="runs already"):
            await heliograph.connect(broker.address, **options)
        first._driver.network.abort()  # as if it had been killed
        assert first._numbers is not None
        os.close(first._numbers._lock)
        async with heliograph.connect(broker.address, **options) as second:
            assert second.report()["origin"] == first.report()["origin"]
            for number in range(10, 20):
                await second.publish("a", b"%d" % number, reliable=True)
            async with second.replay("a") as replay:
                found = [(int(one.payload), one.origin) async for one in replay]
        assert [number for number, _ in found] == list(range(20))
        assert len({origin for _, origin in found}) == 1
        first._session.abandon()
        await first._driver.stop()


@both
@on_the_loop
async def test_runs_are_bytes_with_positions_and_a_program_resumes_where_it_was(face: Face, tmp_path: Path) -> None:
    async with a_broker(services=[a_store(tmp_path)]) as broker, face.connect(broker.address) as client:
        await client.publish_batch("a", [b"%d" % number for number in range(5_000)], reliable=True)
        positions: list[int] = []
        async with client.replay("a", raw=True) as replay:
            async for run in replay:
                positions += run.positions
                assert len(frames_of(run.data, 0)) == len(run)
        assert positions == list(range(5_000))
        async with client.replay("a") as replay:
            for _ in range(10):
                await replay.next(timeout=30)
            place = replay.position
        async with client.replay("a", position=place) as replay:
            assert (await replay.next(timeout=30)).payload == b"10"


@both
@on_the_loop
async def test_what_is_acknowledged_by_hand_does_not_come_again(face: Face, tmp_path: Path) -> None:
    async with a_broker(services=[a_store(tmp_path)]) as broker, face.connect(broker.address) as client:
        how = {"durable": "desk", "start": "first", "acknowledge": "manual"}
        await client.publish_batch("a", [b"%d" % number for number in range(6)], reliable=True)
        async with client.subscribe("a", **how) as subscription:
            taken = [await subscription.next(timeout=30) for _ in range(6)]
            await subscription.acknowledge(taken[1], cumulative=True)
            await subscription.acknowledge(taken[3])
        async with client.subscribe("a", **how) as subscription:
            assert [(await subscription.next(timeout=30)).payload for _ in range(3)] == [b"2", b"4", b"5"]


@both
@on_the_loop
async def test_what_is_acknowledged_one_by_one_among_other_publications_does_not_come_again(
    face: Face, tmp_path: Path
) -> None:
    """More of them than a store keeps spans, which would be left if what lies between them were not done."""
    count = SELECTED_MAX + 200
    async with a_broker(services=[a_store(tmp_path)]) as broker:
        how = {"durable": "desk", "start": "first", "acknowledge": "manual"}
        async with face.connect(broker.address) as client:
            for number in range(count):
                await client.publish("a", b"%d" % number, reliable=True, wait=False)
                await client.publish("b", b"x", reliable=True, wait=False)
            await client.flush()
            async with client.subscribe("a", **how) as subscription:
                taken = [await subscription.next(timeout=30) for _ in range(count - 1)]
                for publication in [*taken[2:], *taken[1::-1]]:
                    await subscription.acknowledge(publication)
        async with face.connect(broker.address) as client:
            (known,) = await client.durable_subscriptions()
            assert (known.position, known.lag) == (2 * count - 2, 2)
            async with client.subscribe("a", **how) as subscription:
                last = await subscription.next(timeout=30)
                assert last.payload == b"%d" % (count - 1)
                await subscription.acknowledge(last)
            async with client.subscribe("a", **how) as subscription:
                await client.publish("a", b"new", reliable=True)
                assert (await subscription.next(timeout=30)).payload == b"new"


@on_the_loop
async def test_what_is_acknowledged_with_a_condition_is_freed(tmp_path: Path) -> None:
    store = a_store(tmp_path, retain_acknowledged=False)
    how: dict[str, Any] = {"durable": "desk", "start": "first", "acknowledge": "manual", "where": "n > 3"}
    async with a_broker(services=[store]) as broker, heliograph.connect(broker.address) as client:
        for number in range(60):
            await client.publish("a", b"x", reliable=True, headers={"n": number % 6})
        async with client.subscribe("a", **how) as subscription:
            for _ in range(20):
                await subscription.acknowledge(await subscription.next(timeout=30))
        async with heliograph.connect(broker.address) as other:
            (known,) = await other.durable_subscriptions()
            assert (known.position, known.lag) == (60, 0)
            async with asyncio.timeout(30):
                while (await other.stores())[0].first == 0:
                    await other.publish("a", b"x", reliable=True, headers={"n": 0})
