"""The client against a real broker over real sockets: the asyncio face, and where it differs in nothing both."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.broker.config import AccessConfig, BrokerConfig, LimitsConfig, RuleConfig
from heliograph.client.config import ClientConfig, parse_target
from heliograph.client.refusals import RefusedPublication
from heliograph.client.session import Session
from heliograph.errors import ClosedError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.live.client import Client
from heliograph.model.identity import Role
from heliograph.model.origin import origin_of
from heliograph.model.publication import Publication
from heliograph.notes import Note, SessionRestored
from heliograph.trust.tokens import hash_token
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, control
from tests.client.faces import FACES, Face
from tests.client.live import a_broker, a_network, on_the_loop, until

pytestmark = pytest.mark.live

both = pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)


@both
@on_the_loop
async def test_what_is_published_reaches_the_subscriber(face: Face) -> None:
    async with a_broker() as broker, face.connect(broker.address, name="test") as client:
        assert (client.entity, client.roles, client.broker) == ("anonymous", ("client",), "broker")
        async with client.subscribe("a/#") as subscription:
            await client.publish("a/b", b"one", headers={"disk": 200})
            await client.publish("a", "zwei: ä")
            await client.publish("a/c", bytearray(b"three"), content_type="text/plain", expires_in=60)
            await client.publish_batch("a/d", [b"four", "five", memoryview(b"six")])
            received = [await subscription.next() for _ in range(6)]
        assert [one.payload for one in received] == [b"one", "zwei: ä".encode(), b"three", b"four", b"five", b"six"]
        assert received[0].headers == {"disk": 200}
        assert received[2].content_type == "text/plain"
        assert received[0].timestamp_us is not None
        assert subscription.is_closed


@both
@on_the_loop
async def test_a_client_need_not_hear_itself(face: Face) -> None:
    async with (
        a_broker() as broker,
        face.connect(broker.address) as one,
        face.connect(broker.address) as other,
    ):
        quiet = await one.subscribe("a", echo=False)
        await one.publish("a", b"own")
        await one.flush()
        await other.publish("a", b"other")
        assert (await quiet.next()).payload == b"other"


@both
@on_the_loop
async def test_a_subscription_ends_its_iteration_when_it_or_its_client_is_closed(face: Face) -> None:
    async with a_broker() as broker:
        client = await face.connect(broker.address)
        closed, drained = await client.subscribe("a"), await client.subscribe("b")

        async def read(subscription: heliograph.Subscription) -> list[bytes]:
            return [publication.payload async for publication in subscription]

        tasks = [asyncio.create_task(read(closed)), asyncio.create_task(read(drained))]
        await client.publish("a", b"1")
        await client.publish("b", b"2")
        await client.flush()
        await closed.close()
        assert await tasks[0] == [b"1"]
        await client.drain()
        assert await tasks[1] == [b"2"]
        assert client.is_closed
        with pytest.raises(ClosedError):
            await drained.next()
        with pytest.raises(ClosedError):
            await client.publish("a", b"")
        with pytest.raises(ClosedError):
            await client.flush()
        with pytest.raises(ClosedError):
            await client.subscribe("a")
        await client.close()
        await client.drain()


@on_the_loop
async def test_callbacks_get_everything_one_after_the_other_and_drain_waits_for_them() -> None:
    heard: list[bytes] = []
    busy = 0

    async def slow(publication: Publication) -> None:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(0.001)
        heard.append(publication.payload)
        busy -= 1

    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        plain: list[bytes] = []
        await client.subscribe("a", callback=slow)
        await client.subscribe("a", callback=lambda publication: plain.append(publication.payload))
        await client.publish_batch("a", [b"%d" % number for number in range(20)])
    assert heard == plain == [b"%d" % number for number in range(20)]


@on_the_loop
async def test_a_callback_that_fails_is_told_to_the_loop_and_goes_on() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    heard: list[bytes] = []

    def fail(publication: Publication) -> None:
        heard.append(publication.payload)
        raise ValueError(publication.payload)

    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        await client.subscribe("a", callback=fail)
        await client.publish_batch("a", [b"1", b"2"])
    assert heard == [b"1", b"2"]
    assert [repr(failure["exception"]) for failure in failures] == ["ValueError(b'1')", "ValueError(b'2')"]


@pytest.mark.parametrize("way", ["drain", "close"])
@on_the_loop
async def test_a_callback_may_end_its_own_client(way: str) -> None:
    async with a_broker() as broker:
        client = await heliograph.connect(broker.address)
        heard: list[bytes] = []

        async def handle(publication: Publication) -> None:
            heard.append(publication.payload)
            await getattr(client, way)()

        subscription = await client.subscribe("a", callback=handle)
        await client.publish("a", b"the end")
        await until(lambda: client.is_closed and subscription.is_closed)
        await client.close()
        assert heard == [b"the end"]


@on_the_loop
async def test_waiting_for_the_next_publication_can_be_cancelled_without_losing_one() -> None:
    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        subscription = await client.subscribe("a")
        with pytest.raises(TimeoutError):
            await subscription.next(timeout=0.01)
        task = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        task.cancel()
        await client.publish("a", b"1")
        assert (await subscription.next()).payload == b"1"


@on_the_loop
async def test_a_cancelled_subscribe_leaves_nothing_behind() -> None:
    async with a_broker() as broker, heliograph.connect(broker.address) as client:
        task = asyncio.ensure_future(client.subscribe("a"))
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: client.report()["subscriptions"] == 0 and client.report()["requests"] == 0)
        await until(lambda: broker.report()["subscriptions"] == 0)


@both
@pytest.mark.req("T11")
@on_the_loop
async def test_a_denied_publication_is_told_each_time_one_flushes(face: Face) -> None:
    rules = AccessConfig(rules=(RuleConfig(effect="deny", verbs=("publish",), topics=("secret/#",)),))
    heard: list[RefusedPublication] = []
    async with a_broker(BrokerConfig(access=rules)) as broker:
        client = await face.connect(broker.address, on_refused=heard.append)
        for _ in range(2):
            await client.publish("secret/a", b"x")
            with pytest.raises(RefusedError, match="secret/a") as caught:
                await client.flush()
            assert caught.value.reason is Reason.PUBLISH_DENIED
        await client.publish("open", b"x")
        await client.flush()
        assert [refused.topic for refused in heard] == ["secret/a", "secret/a"]
        await client.publish("secret/b", b"x")
        with pytest.raises(RefusedError):
            await client.drain()
        assert client.is_closed


@both
@on_the_loop
async def test_a_subscription_can_be_iterated_without_opening_it_first(face: Face) -> None:
    async with a_broker() as broker, face.connect(broker.address) as client:
        seen = []

        async def read() -> None:
            async for publication in await client.subscribe("a") if face.name == "blocking" else client.subscribe("a"):
                seen.append(publication.payload)
                return

        reading = asyncio.create_task(read())
        while not reading.done():  # until the subscription is in force
            await client.publish("a", b"one")
            await client.flush()
        assert seen == [b"one"]


@on_the_loop
async def test_clients_and_subscriptions_say_what_they_are() -> None:
    async with (
        a_broker() as broker,
        heliograph.connect(broker.address) as client,
        client.subscribe("a/#", group="g") as subscription,
    ):
        assert repr(client) == f"<Client of broker 'broker' at {broker.address}, connected>"
        assert repr(subscription) == "<Subscription 'a/#', group 'g', open, 0 waiting, 0 lost>"
    assert repr(client).endswith("closed>")


@both
@on_the_loop
async def test_a_denied_subscription_is_an_error(face: Face) -> None:
    async with a_broker() as broker, face.connect(broker.address) as client:
        with pytest.raises(RefusedError) as caught:
            await client.subscribe("System/#")
        assert caught.value.reason is Reason.SUBSCRIBE_DENIED
        with pytest.raises(RefusedError) as caught:
            await client.ask("admin", {"do": "report", "question": "overview"})
        assert caught.value.reason is Reason.ASK_DENIED


MISTAKES: dict[str, Callable[[heliograph.Client], Awaitable[Any]]] = {
    "a topic with wildcards": lambda client: client.publish("a/#", b""),
    "a payload that is neither bytes nor text": lambda client: client.publish("a", {"k": 1}),  # type: ignore[arg-type]
    "an unknown policy": lambda client: client.subscribe("a", policy="block"),
    "a batch of one": lambda client: client.publish_batch("a", b"bytes"),
    "a filter that matches nothing": lambda client: client.subscribe("a/#/b"),
    "a reserved header": lambda client: client.publish("a", b"", headers={"$t": 1}),
    "a time in the past": lambda client: client.publish("a", b"", expires_in=-1),
    "an expiry that is a word": lambda client: client.publish("a", b"", expires_in="5"),  # type: ignore[arg-type]
    "a timeout that is a word": lambda client: client.request("a", b"", timeout="5"),  # type: ignore[arg-type]
    "a durable name with a space": lambda client: client.subscribe("a", durable="my work"),
    "a service without a name": lambda client: client.ask("", {}),
    "headers that are text": lambda client: client.publish("a", b"", headers="x=1"),  # type: ignore[arg-type]
    "a time that is a word": lambda client: client.replay(since="yesterday"),  # type: ignore[arg-type]
    "a model that there is not": lambda client: client.register_resource("x = 1", model="dynamc"),  # type: ignore[arg-type]
}

UNHEARD: dict[str, tuple[dict[str, Any], str]] = {
    "a group": ({"group": "workers", "durable": "w", "acknowledge": "manual"}, "no group.*a durable name and a filter"),
    "a policy": ({"policy": "hold", "durable": "w"}, "no policy.*leave out policy"),
    "a misspelt policy": ({"policy": "holt", "position": {}, "durable": "w"}, "no policy"),
    "no echo": ({"echo": False, "durable": "w", "start": "first"}, "no echo=False.*where="),
    "wide": ({"wide": True, "durable": "w"}, "no wide.*leave out wide"),
}


@both
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
@on_the_loop
async def test_the_programs_mistakes_are_raised_at_once(
    face: Face, mistake: Callable[[heliograph.Client], Awaitable[Any]]
) -> None:
    async with a_broker() as broker, face.connect(broker.address) as client:
        with pytest.raises(UsageError):
            await mistake(client)
        await client.publish("a", b"fine")
        await client.flush()


@both
@pytest.mark.parametrize(
    ("options", "told"),
    [({"address": 4717}, "127.0.0.1:4717, as text"), ({"address": "127.0.0.1:1", "timeout": "5"}, "'5' is not a time")],
)
@on_the_loop
async def test_what_cannot_be_an_address_or_a_time_is_told_before_anything_is_dialled(
    face: Face, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        async with face.connect(**options):
            pass


@both
@pytest.mark.req("N10", "N19")
@on_the_loop
async def test_what_a_durable_subscription_cannot_do_is_an_error_with_a_way_out(face: Face) -> None:
    async with a_broker() as broker, face.connect(broker.address) as client:
        for options, told in UNHEARD.values():
            with pytest.raises(UsageError, match=told):
                await client.subscribe("jobs/#", **options)


@both
@pytest.mark.req("N8")
@on_the_loop
async def test_a_broker_that_restarts_is_found_again_with_nothing_lost(face: Face) -> None:
    notes: list[Note] = []
    async with a_broker() as broker, face.connect(broker.address, on_note=notes.append) as client:
        subscription = await client.subscribe("a")
        await client.publish("a", b"before")
        await client.flush()
        await broker.stop()
        await until(lambda: not client.is_connected)
        await client.publish("a", b"while away")
        await broker.start()
        await client.flush()
        assert [(await subscription.next()).payload for _ in range(2)] == [b"before", b"while away"]
        await until(lambda: any(isinstance(note, SessionRestored) for note in notes))
        assert client.report()["links"] == 2


@both
@on_the_loop
async def test_a_broker_that_drains_hands_its_clients_over(face: Face) -> None:
    async with (
        a_broker() as first,
        a_broker() as second,
        face.connect([first.address, second.address]) as client,
    ):
        subscription = await client.subscribe("a")
        await client.publish("a", b"1")
        await client.flush()
        first.drain(grace_ms=10_000)
        await until(lambda: second.report()["subscriptions"] == 1)
        await client.publish("a", b"2")
        assert [(await subscription.next()).payload for _ in range(2)] == [b"1", b"2"]


@on_the_loop
async def test_the_same_session_elsewhere_ends_this_one() -> None:
    """Two clients cannot share a session by accident; here the broker is shown the secret of the first."""
    async with a_broker() as broker:
        config = ClientConfig(targets=(parse_target(broker.address),))
        clients = [Client(Session(config, secret=bytes(16), seed=seed)) for seed in (1, 2)]
        await clients[0]._connect(60)
        subscription = await clients[0].subscribe("a")
        waiting = asyncio.create_task(subscription.next())
        await clients[1]._connect(60)
        with pytest.raises(RefusedError) as caught:
            await waiting
        assert caught.value.reason is Reason.TAKEN_OVER
        with pytest.raises(RefusedError):
            await clients[0].flush()
        for client in clients:
            await client.close()


@both
@on_the_loop
async def test_no_broker_is_an_error_that_says_where_and_why(face: Face) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(NotConnectedError, match=str(port)) as caught:
            await face.connect(f"heliograph://127.0.0.1:{port}", timeout=0)
    assert caught.value.reason is Reason.DIAL_FAILED


@both
@on_the_loop
async def test_something_that_is_not_a_broker_is_an_error_too(face: Face) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NotConnectedError, match="not a frame"):
            await face.connect(f"127.0.0.1:{port}", timeout=0)


@both
@on_the_loop
async def test_a_subscription_that_is_confirmed_and_ended_in_one_read_is_an_error(face: Face) -> None:
    """A broker that says both at once leaves no moment in which the subscription exists."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = Frame(await reader.readuntil(b"}"))
        origin = origin_of(bytes.fromhex(json.loads(hello.payload)["secret"]))
        welcome = bodies.Welcome(1, "b", 1, f"{origin:016x}", "anonymous", ["client"], [], {}, 20_000)
        writer.write(control(Kind.WELCOME, 0, bodies.encode(welcome)))
        subscribe = Frame(await reader.readuntil(b"}"))
        goodbye = control(Kind.GOODBYE, 0, bodies.goodbye(Reason.TAKEN_OVER))
        writer.write(control(Kind.CONFIRMED, subscribe.sequence) + goodbye)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = await face.connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(RefusedError):
            await client.subscribe("a")
        await client.close()


@both
@pytest.mark.req("O6")
@on_the_loop
async def test_a_token_opens_the_door_and_a_wrong_one_does_not(face: Face, tmp_path: Path) -> None:
    record = hash_token("sensor-7", [Role.CLIENT], "open sesame", bytes(16))
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("open sesame\n")
    async with a_broker(BrokerConfig(tokens=(record,)), auth="token") as broker:
        async with face.connect(broker.address, entity="sensor-7", token_file=path) as client:
            assert client.entity == "sensor-7"
        for token, reason in (("wrong", Reason.CREDENTIAL_WRONG), ("", Reason.CREDENTIAL_MISSING)):
            with pytest.raises(RefusedError) as caught:
                await face.connect(broker.address, entity="sensor-7", token=token)
            assert caught.value.reason is reason
        path.chmod(0o644)
        with pytest.raises(UsageError, match="chmod 600"):
            await face.connect(broker.address, entity="sensor-7", token_file=path)


@both
@on_the_loop
async def test_address_and_token_can_come_from_the_environment(
    face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = hash_token("me", [Role.CLIENT], "open sesame", bytes(16))
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("open sesame")
    async with a_broker(BrokerConfig(tokens=(record,)), auth="token") as broker:
        monkeypatch.setenv("HELIOGRAPH_URL", broker.address)
        monkeypatch.setenv("HELIOGRAPH_ENTITY", "me")
        monkeypatch.setenv("HELIOGRAPH_TOKEN_FILE", str(path))
        async with face.connect() as client:
            assert client.entity == "me"


@both
@pytest.mark.req("N15")
@on_the_loop
async def test_a_publisher_waits_for_room_and_nothing_is_lost(face: Face) -> None:
    async with a_broker() as broker, face.connect(broker.address) as reader:
        subscription = await reader.subscribe("a", inbox_frames_max=100_000)
        async with face.connect(broker.address, outgoing_bytes_max=20_000) as writer:
            for number in range(2_000):
                await writer.publish("a", b"%d" % number)
                assert writer.report()["outgoing_bytes"] < 21_000
        received = [int((await subscription.next()).payload) for _ in range(2_000)]
        assert received == list(range(2_000))


@pytest.mark.req("N15")
@on_the_loop
async def test_a_publisher_that_holds_waits_for_a_slow_reader_and_nothing_is_lost() -> None:
    limits = LimitsConfig(hold_bytes=10_000, queue_bytes_max=1 << 20)
    async with (
        a_broker(BrokerConfig(limits=limits)) as broker,
        heliograph.connect(broker.address) as reader,
        heliograph.connect(broker.address, hold=True) as writer,
    ):
        subscription = await reader.subscribe("a", policy="hold", inbox_frames_max=50)
        count, payload = 12_000, bytes(1_000)

        async def write() -> None:
            for number in range(count):
                await writer.publish("a", b"%06d" % number + payload)
            await writer.flush()

        writing = asyncio.create_task(write())
        await until(lambda: reader.report()["held"])
        numbers = []
        async for publication in subscription:
            numbers.append(int(publication.payload[:6]))
            if len(numbers) == count:
                break
        await writing
        assert numbers == list(range(count))
        assert reader.report()["lost"] == {"inbox": 0, "outgoing": 0, "broker": 0}


@pytest.mark.req("N15")
@on_the_loop
async def test_a_publisher_waits_for_a_slow_reader_at_another_broker_and_nothing_is_lost() -> None:
    """600 publications of 100 kB, as fast as they can be sent, to a reader that begins late: 300 of them were lost."""
    async with (
        a_network({"a": [], "b": ["a"]}) as brokers,
        heliograph.connect(brokers["b"].address) as reader,
        heliograph.connect(brokers["a"].address, hold=True) as writer,
    ):
        subscription = await reader.subscribe("a", policy="hold", inbox_frames_max=10, wide=True)
        count, payload = 600, bytes(100_000)

        async def write() -> None:
            for number in range(count):
                await writer.publish("a", b"%06d" % number + payload)
            await writer.flush()

        writing = asyncio.create_task(write())
        await until(lambda: any(link["held"] for link in brokers["a"].report("links")))
        numbers = []
        async for publication in subscription:
            numbers.append(int(publication.payload[:6]))
            if len(numbers) == count:
                break
        await writing
        assert numbers == list(range(count))
        assert reader.report()["lost"] == {"inbox": 0, "outgoing": 0, "broker": 0}


@pytest.mark.req("N15")
@both
@on_the_loop
async def test_a_subscriber_that_was_cut_off_as_too_slow_is_told_when_it_is_back(face: Face) -> None:
    """It does not read, so the broker's GOODBYE never reaches it: only the next WELCOME tells it."""
    limits = LimitsConfig(queue_bytes_max=1 << 20, hold_bytes=1 << 19)
    async with (
        a_broker(BrokerConfig(limits=limits)) as broker,
        face.connect(broker.address) as reader,
        heliograph.connect(broker.address) as writer,
    ):
        strict = await reader.subscribe("a", policy="disconnect", inbox_frames_max=2)
        easy = await reader.subscribe("b")
        payload, sent = bytes(100_000), 0
        while sum(link["transport"] != "pipe" for link in broker.report("links")) > 1:  # the writer's own is left
            await writer.publish("a", payload)
            await writer.flush()
            sent += 1
        received = []

        async def read() -> None:
            for _ in range(sent):
                received.append(await strict.next())

        with pytest.raises(RefusedError) as caught:
            await read()
        assert caught.value.reason is Reason.SLOW_CONSUMER
        assert len(received) < sent
        while not any(row["filter"] == "b" for row in broker.report("subscriptions")):
            await asyncio.sleep(0.01)  # it is told first, and subscribes again afterwards
        await writer.publish("b", b"goes on")
        assert (await easy.next()).payload == b"goes on"


@both
@on_the_loop
async def test_leaving_the_context_by_an_error_shows_that_error(face: Face) -> None:
    async with a_broker() as broker:
        client = await face.connect(broker.address)

        async def fail() -> None:
            async with client:
                await client.subscribe("a")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert client.is_closed


@on_the_loop
async def test_a_connection_is_used_once() -> None:
    async with a_broker() as broker:
        connecting = heliograph.connect(broker.address)
        async with connecting:
            pass
        with pytest.raises(UsageError):
            await connecting


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, heliograph; print([m for m in ('asyncio', 'msgspec', 'ssl', 'uvloop') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert set(dir(heliograph)) == set(heliograph.__all__)
    for name in heliograph.__all__:
        assert getattr(heliograph, name) is not None
    with pytest.raises(AttributeError):
        _ = heliograph.nonsense  # type: ignore[attr-defined]
