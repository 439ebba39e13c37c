"""Programs on several real brokers: groups, requests, directed publications, and moving while traffic flows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

import heliograph
from heliograph.broker.commands import Busy, Reload
from heliograph.broker.config import LoadConfig
from heliograph.live.client import Client
from heliograph.notes import SessionRoamed
from tests.client.live import LiveBroker, a_network, on_the_loop, until

pytestmark = pytest.mark.live

CHAIN = {"a": [], "b": ["a"], "c": ["b"]}


def interests_of(broker: LiveBroker, other: str) -> int:
    """How many filters one broker knows of another."""
    return next(row["interests"] for row in broker.report("map")["members"] if row["broker"] == other)


@pytest.mark.req("N5")
@on_the_loop
async def test_a_wide_subscription_misses_nothing_that_is_published_anywhere_from_then_on() -> None:
    async with (
        a_network(CHAIN) as brokers,
        heliograph.connect(brokers["a"].address) as far,
        heliograph.connect(brokers["c"].address) as near,
    ):
        for number in range(20):
            async with near.subscribe(f"t/{number}", wide=True) as subscription:
                await far.publish(f"t/{number}", b"x")
                assert (await subscription.next(timeout=60)).payload == b"x"


@pytest.mark.req("N19")
@on_the_loop
async def test_members_of_a_group_on_several_brokers_share_the_work() -> None:
    async with a_network(CHAIN) as brokers:
        clients = [await heliograph.connect(brokers[name].address) for name in ("a", "b", "c", "c")]
        *workers, publisher = clients
        shares = [await worker.subscribe("jobs", group="workers", wide=True) for worker in workers]
        assert shares[0].group == "workers"
        for number in range(50):
            await publisher.publish("jobs", b"%d" % number)
        await publisher.flush()
        await until(lambda: sum(share.waiting for share in shares) == 50)
        assert [share.waiting for share in shares] == [0, 0, 50]  # the one at the publisher's own broker comes first
        await shares[2].close()
        await publisher.publish("jobs", b"elsewhere")
        assert (await shares[1].next(timeout=60)).payload == b"elsewhere"  # then the nearest
        for client in clients:
            await client.close()


@pytest.mark.req("N19")
@on_the_loop
async def test_a_request_is_answered_across_brokers_or_refused_at_once() -> None:
    async with a_network(CHAIN) as brokers, heliograph.connect(brokers["a"].address) as asker:
        with pytest.raises(heliograph.NoRespondersError):
            await asker.request("service/upper", b"x")
        async with heliograph.connect(brokers["c"].address) as answerer:

            async def answer(request: heliograph.Publication) -> None:
                await answerer.reply(request, request.payload.upper(), headers={"by": answerer.broker})

            await answerer.subscribe("service/upper", callback=answer, wide=True)
            interests = interests_of(brokers["a"], "c")
            answers = await asyncio.gather(*(asker.request("service/upper", f"text {n}") for n in range(100)))
            assert [one.payload for one in answers] == [b"TEXT %d" % number for number in range(100)]
            assert answers[0].headers == {"by": "c"}
        await until(lambda: interests_of(brokers["a"], "c") < interests)  # a has heard that nobody is there any more
        with pytest.raises(heliograph.NoRespondersError):
            await asker.request("service/upper", b"x")


@pytest.mark.req("N19")
@on_the_loop
async def test_a_request_that_nobody_answers_in_time_is_an_error() -> None:
    async with a_network({"a": []}) as brokers, heliograph.connect(brokers["a"].address) as client:
        await client.subscribe("silent")
        with pytest.raises(heliograph.NotConnectedError) as caught:
            await client.request("silent", b"?", timeout=0.02)
        assert caught.value.reason is heliograph.Reason.TIME_OUT


@pytest.mark.req("O6")
@on_the_loop
async def test_only_inboxes_are_answered() -> None:
    async with a_network({"a": []}) as brokers, heliograph.connect(brokers["a"].address) as client:
        subscription = await client.subscribe("service")
        await client.publish("service", b"no request")
        plain = await subscription.next(timeout=60)
        assert plain.reply_to is None
        with pytest.raises(heliograph.UsageError):
            await client.reply(plain, b"!")
        forged = heliograph.Publication("service", b"", 1, 1, b'{"$r": "commands/stop"}')
        assert forged.reply_to == "commands/stop"
        with pytest.raises(heliograph.UsageError):
            await client.reply(forged, b"!")


@pytest.mark.req("N5")
@on_the_loop
async def test_a_directed_publication_finds_its_clients_wherever_they_are() -> None:
    async with a_network(CHAIN) as brokers:
        clients = {name: await heliograph.connect(brokers[name].address) for name in CHAIN}
        other = await clients["b"].subscribe("#")
        await clients["a"].publish("note", b"for two", to=[clients["a"].inbox, clients["c"].inbox])
        for name in ("a", "c"):
            publication = await clients[name].directed().next(timeout=60)
            assert (publication.topic, publication.payload) == ("note", b"for two")
            assert clients[name].directed().waiting == 0
        await clients["a"].flush()
        assert other.waiting == 0
        with pytest.raises(heliograph.UsageError):
            await clients["a"].publish("note", b"", to=["nobody"])
        waits = asyncio.ensure_future(clients["a"].directed().next())
        await asyncio.sleep(0)
        for client in clients.values():
            await client.close()
        with pytest.raises(heliograph.ClosedError):
            await waits
        assert [one async for one in clients["a"].directed()] == []


class Traffic:
    """Numbered publications on one topic until it is stopped: the first many without a pause worth the name.

    The readers of these tests read at the end only. On a busy machine a test takes long, and the pauses after the first
    many keep what waits for them within the limits of their queues.
    """

    MANY = 5_000

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.count = 0
        self._stopped = False
        self._task = asyncio.create_task(self._flow())

    async def _flow(self) -> None:
        while not self._stopped:
            await self.client.publish(self.topic, b"%d" % self.count)
            self.count += 1
            if self.count % 10 == 0:
                await asyncio.sleep(0.001 if self.count < self.MANY else 0.1)

    async def stop(self) -> list[bytes]:
        """What was published, all of it routed."""
        self._stopped = True
        await self._task
        await self.client.flush()
        return [b"%d" % number for number in range(self.count)]


def moved(*clients: Client) -> Callable[[], bool]:
    return lambda: all(client.report()["roamed"] == 1 for client in clients)


async def drain_under_traffic(brokers: dict[str, LiveBroker]) -> None:
    notes: list[object] = []
    publisher = await heliograph.connect(brokers["a"].address, on_note=notes.append)
    reader = await heliograph.connect(brokers["a"].address, on_note=notes.append)
    far = await heliograph.connect(brokers["c"].address)
    subscriptions = [await client.subscribe("t/#", wide=True) for client in (reader, far)]
    flows = [Traffic(publisher, "t/near"), Traffic(far, "t/far")]
    await until(lambda: flows[0].count > 100)
    brokers["a"].drain(20_000)
    await until(moved(publisher, reader))
    await until(lambda: brokers["a"].has_ended)  # long before its time: everybody has left
    after = [flow.count + 100 for flow in flows]
    await until(lambda: all(flow.count > count for flow, count in zip(flows, after, strict=True)))
    near, distant = [await flow.stop() for flow in flows]
    for subscription in subscriptions:
        await until(lambda subscription=subscription: subscription.waiting >= len(near) + len(distant))
        came = [await subscription.next() for _ in range(subscription.waiting)]
        assert [one.payload for one in came if one.topic == "t/near"] == near
        assert [one.payload for one in came if one.topic == "t/far"] == distant
    new = {client.broker for client in (publisher, reader)}
    assert new <= {"b", "c"}
    assert notes == [SessionRoamed(brokers["a"].address, publisher.report()["target"])] * 2
    for client in (publisher, reader, far):
        await client.close()


@pytest.mark.req("N8")
@on_the_loop
async def test_clients_that_an_overloaded_broker_asks_to_move_lose_nothing_and_get_nothing_twice() -> None:
    async with a_network(CHAIN) as brokers:
        loaded = brokers["a"]
        publisher, reader = [await heliograph.connect(loaded.address) for _ in range(2)]
        subscription = await reader.subscribe("t/#", wide=True)
        flow = Traffic(publisher, "t/near")
        await until(lambda: flow.count > 100)
        loaded.tell(Reload(replace(loaded.config, load=LoadConfig(overloaded_s=1))))
        for _ in range(30):
            loaded.tell(Busy(1_000))
        await until(moved(publisher, reader))
        for _ in range(30):
            loaded.tell(Busy(0))
        after = flow.count + 100
        await until(lambda: flow.count > after)
        published = await flow.stop()
        await until(lambda: subscription.waiting >= len(published))
        came = [await subscription.next() for _ in range(subscription.waiting)]
        assert [one.payload for one in came] == published
        assert {client.broker for client in (publisher, reader)} <= {"b", "c"}
        await until(lambda: not loaded.report()["load"]["shedding"])
        assert loaded.report()["load"]["asked_to_move"] == 2
        assert sum(brokers[name].report()["load"]["taken_over_load"] for name in "bc") == 2
        for client in (publisher, reader):
            await client.close()


@pytest.mark.req("N8")
@pytest.mark.parametrize("shape", [CHAIN, {"a": [], "b": ["a"], "c": ["a", "b"]}], ids=["chain", "triangle"])
@on_the_loop
async def test_publisher_and_subscriber_of_a_draining_broker_lose_nothing_and_get_nothing_twice(
    shape: dict[str, list[str]],
) -> None:
    async with a_network(shape) as brokers:
        await drain_under_traffic(brokers)


@pytest.mark.req("N8", "N19")
@on_the_loop
async def test_requests_and_group_work_go_on_while_their_broker_is_drained() -> None:
    async with a_network(CHAIN) as brokers:
        asker = await heliograph.connect(brokers["a"].address)
        worker = await heliograph.connect(brokers["a"].address)

        async def work(request: heliograph.Publication) -> None:
            await worker.reply(request, request.payload)

        await worker.subscribe("work", group="workers", callback=work, wide=True)
        answers: list[bytes] = []
        brokers["a"].drain(20_000)
        while not moved(asker, worker)():
            answers.append((await asker.request("work", b"%d" % len(answers))).payload)
        for _ in range(10):
            answers.append((await asker.request("work", b"%d" % len(answers))).payload)
        assert answers == [b"%d" % number for number in range(len(answers))]
        assert asker.inbox.startswith("Inbox/")
        await asker.close()
        await worker.close()
