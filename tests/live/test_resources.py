"""Resources in running brokers: register, discover, watch, over a chain of brokers and after a broker dies."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import Any

import pytest

from heliograph import connect, connect_blocking
from heliograph.errors import Reason, RefusedError
from heliograph.wire.frames import Kind, control, service
from tests.live.processes import Process

pytestmark = pytest.mark.live
WAIT_S = 60


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[list[Process]]:
    """Three brokers in a row."""
    key = tmp_path / "network.key"
    key.touch(0o600)
    key.write_text("k" * 64)
    options = ("--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery", "--network-key-file", str(key))
    with ExitStack() as stack:
        brokers: list[Process] = []
        for name in ("one", "two", "three"):
            link = ("--link", f"127.0.0.1:{brokers[-1].port}") if brokers else ()
            brokers.append(stack.enter_context(Process(tmp_path, *options, *link, "--name", name)))
            brokers[-1].line("ready in")
        for broker in brokers[1:]:
            broker.line("neighbour_linked")
        yield brokers


def run(story: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await story

    asyncio.run(bounded())


async def known_at(client: Any, count: int) -> None:
    """Wait until this broker knows so many resources."""
    while (await client.ask("resources", {"do": "tables"}))["known"] < count:
        await asyncio.sleep(0.02)


@pytest.mark.req("R4", "R5", "R6", "R8")
def test_a_machine_is_registered_discovered_and_watched_across_brokers(chain: list[Process]) -> None:
    async def story() -> None:
        first, last = chain[0].port, chain[2].port
        async with await connect(f"127.0.0.1:{first}") as owner, await connect(f"127.0.0.1:{last}") as seeker:
            machine = await owner.register_resource(
                "memory <= 64 and load >= 0",
                attributes={"system": "linux"},
                name="m1",
                values={"memory": 8, "load": 0.5},
            )
            fixed = await owner.register_resource(attributes={"colour": "red"}, model="static", name="printer")
            await known_at(seeker, 2)
            answer = await seeker.discover_resources("memory > 4 and system = 'linux'", deadline=20)
            assert answer.complete
            assert [(each.name, each.host) for each in answer] == [("m1", "one")]
            assert answer.resources[0].values == {"memory": 8, "load": 0.5, "system": "linux"}
            assert len(await seeker.discover_resources("memory > 8", max_age=0, deadline=20)) == 0
            static = await seeker.discover_resources("colour = 'red'", model="static")
            assert [each.name for each in static] == ["printer"]
            async with seeker.watch_resources("memory > 4") as watch:
                seen = [await watch.next()]
                await machine.update({"memory": 16, "load": 0.5})
                seen.append(await watch.next())
                await machine.update({"memory": 2, "load": 0.5})
                seen.append(await watch.next())
                await machine.update({"memory": 16, "load": 0.5})
                seen.append(await watch.next())
                await machine.withdraw()
                seen.append(await watch.next())
            assert [each.kind for each in seen] == ["appeared", "changed", "stopped", "appeared", "vanished"]
            await fixed.withdraw()

    run(story())


@pytest.mark.req("R10")
def test_answers_come_directly_over_links_that_are_kept(chain: list[Process]) -> None:
    async def story() -> None:
        async with (
            await connect(f"127.0.0.1:{chain[0].port}") as owner,
            await connect(f"127.0.0.1:{chain[2].port}") as seeker,
        ):
            for number in range(3):
                await owner.register_resource("load >= 0", name=f"m{number}", values={"load": number})
            await known_at(seeker, 1)
            while not (await seeker.ask("resources", {"do": "tables"}))["address"]:
                await asyncio.sleep(0.05)  # its broker has begun to listen; soon the service knows where
            for _ in range(5):
                answer = await seeker.discover_resources("load >= 1", deliver="direct", deadline=20)
                assert answer.complete
                assert sorted(each.name for each in answer) == ["m1", "m2"]
            counted = await owner.ask("resources", {"do": "tables"})
            assert (counted["direct_links"], counted["direct_links_opened"]) == (1, 1)
            assert counted["direct_messages"] + counted["direct_returned"] >= 5

    run(story())


@pytest.mark.req("R13")
def test_a_resource_whose_broker_dies_attaches_elsewhere_under_the_same_id(chain: list[Process]) -> None:
    """Its client registers it where it is welcomed next, long before the lease has to be renewed."""

    async def story() -> None:
        urls = [f"127.0.0.1:{broker.port}" for broker in chain]
        async with await connect([urls[0], urls[1]]) as owner, await connect(urls[2]) as seeker:
            machine = await owner.register_resource("load >= 0", name="m", values={"load": 7}, lease=3_600)
            await known_at(seeker, 1)
            async with seeker.watch_resources("load >= 0") as watch:
                assert (await watch.next()).host == "one"
                chain[0].send(SIGKILL)
                seen = [await watch.next()]
                while seen[-1].host != "two" or seen[-1].kind not in ("appeared", "changed"):
                    seen.append(await watch.next())
                assert (seen[-1].id, seen[-1].values) == (machine.id, {"load": 7})
            answer = await seeker.discover_resources("load >= 0", max_age=0, deadline=5)
            assert [(each.id, each.host) for each in answer] == [(machine.id, "two")]
            await machine.update({"load": 8})

    run(story())


@pytest.mark.req("R13")
def test_values_that_were_refused_are_not_registered_elsewhere(chain: list[Process]) -> None:
    async def story() -> None:
        urls = [f"127.0.0.1:{broker.port}" for broker in chain]
        async with await connect([urls[0], urls[1]]) as owner, await connect(urls[2]) as seeker:
            machine = await owner.register_resource("load >= 0", name="m", values={"load": 7}, lease=3_600)
            await machine.update({"load": 8})
            with pytest.raises(RefusedError):
                await machine.update({"load": -1})
            assert machine.values == {"load": 8}
            async with seeker.watch_resources("load >= 0") as watch:
                assert (await watch.next()).host == "one"
                chain[0].send(SIGKILL)
                seen = await watch.next()
                while seen.host != "two" or seen.kind not in ("appeared", "changed"):
                    seen = await watch.next()
            assert (seen.id, seen.values) == (machine.id, {"load": 8})

    run(story())


@pytest.mark.req("R13")
def test_what_is_withdrawn_at_another_broker_is_gone_at_the_one_that_hosted_it(chain: list[Process]) -> None:
    """The client has just moved, and nothing has registered its resource where it is now."""

    async def story() -> None:
        urls = [f"127.0.0.1:{broker.port}" for broker in chain]
        async with await connect(urls[0]) as owner, await connect(urls[2]) as seeker, await connect(urls[1]) as moved:
            machine = await owner.register_resource("load >= 0", name="m", values={"load": 7}, lease=3_600)
            await known_at(seeker, 1)
            machine._client = moved
            await machine.withdraw()
            while await seeker.discover_resources("load >= 0"):
                await asyncio.sleep(0.02)
            assert (await owner.ask("resources", {"do": "list"}))["total"] == 0
            await machine.withdraw()  # once more does nothing
            assert (await moved.ask("resources", {"do": "list"}))["total"] == 0

    run(story())


@pytest.mark.req("R7")
def test_static_resources_are_watched_as_they_come_and_go(chain: list[Process]) -> None:
    async def story() -> None:
        async with (
            await connect(f"127.0.0.1:{chain[0].port}") as owner,
            await connect(f"127.0.0.1:{chain[2].port}") as seeker,
        ):
            one = await owner.register_resource(attributes={"colour": "red"}, model="static", name="a")
            await known_at(seeker, 1)
            async with seeker.watch_resources("colour = 'red'", model="static") as watch:
                assert (await watch.next()).name == "a"
                await owner.register_resource(attributes={"colour": "blue"}, model="static", name="b")
                await owner.register_resource(attributes={"colour": "red"}, model="static", name="c")
                assert (await watch.next()).name == "c"
                await one.withdraw()
                change = await watch.next()
                assert (change.kind, change.name) == ("vanished", "a")

    run(story())


@pytest.mark.req("R13")
def test_only_who_has_the_secret_changes_a_resource_and_a_lease_ends_without_its_owner(chain: list[Process]) -> None:
    async def story() -> None:
        async with await connect(f"127.0.0.1:{chain[0].port}") as seeker:
            owner = await connect(f"127.0.0.1:{chain[0].port}")
            machine = await owner.register_resource("load >= 0", name="m", values={"load": 1}, lease=1)
            for body in (
                {"do": "update", "secret": "ab" * 16, "values": {"load": 2}, "version": 1 << 61},
                {"do": "withdraw", "secret": "cd" * 16},
            ):
                with pytest.raises(RefusedError) as refused:
                    await seeker.ask("resources", body)
                assert refused.value.reason is Reason.RESOURCE_UNKNOWN
            with pytest.raises(RefusedError) as refused:
                await machine.update({"load": -1})
            assert refused.value.reason is Reason.RESOURCE_OUT_OF_RANGE
            async with seeker.watch_resources("load >= 0") as watch:
                assert (await watch.next()).kind == "appeared"
                machine._stop()
                await owner.close()
                assert (await watch.next()).kind == "vanished"

    run(story())


@pytest.mark.req("R1", "R12")
def test_wrong_calls_are_refused_with_a_reason(chain: list[Process]) -> None:
    async def story() -> None:
        async with await connect(f"127.0.0.1:{chain[0].port}") as client:
            for where, reason in (
                ("memory >", Reason.CONDITION_INVALID),
                ("memory > 5 and memory < 3", Reason.RESOURCE_CONDITION_UNFIT),
            ):
                with pytest.raises(RefusedError) as refused:
                    await client.discover_resources(where)
                assert refused.value.reason is reason
            with pytest.raises(RefusedError) as refused:
                await client.discover_resources("a = 1 or b = 2", language="sql")
            assert refused.value.reason is Reason.RESOURCE_CONDITION_UNFIT
            with pytest.raises(RefusedError) as refused:
                await client.ask("resources", {"do": "dance"})
            assert refused.value.reason is Reason.RESOURCE_CALL_MALFORMED
            for load in range(5):
                await client.register_resource("load >= 0", name=f"m{load}", values={"load": load})
            answer = await client.discover_resources("load >= 1", best=2, order="load desc")
            assert [each.name for each in answer] == ["m4", "m3"]

    run(story())


def test_a_requester_that_never_reads_loses_its_link_and_others_are_served(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        '[[listener]]\nhost = "127.0.0.1"\nport = 0\n[discovery]\nenabled = false\n'
        "[limits]\nqueue_bytes_max = 1048576\nhold_bytes = 524288\n"
    )
    ask = json.dumps({"do": "discover", "model": "static"}).encode()
    hello = json.dumps({"versions": [1], "secret": "ab" * 16}).encode()
    with (
        Process(tmp_path, "--config", str(config), "--log-format", "json") as broker,
        connect_blocking(f"127.0.0.1:{broker.port}") as client,
        socket.create_connection(("127.0.0.1", broker.port)) as deaf,
    ):
        for number in range(50):
            client.register_resource(attributes={"note": "x" * 3_900, "number": number}, model="static")
        deaf.sendall(control(Kind.HELLO, 0, hello))
        with suppress(ConnectionError):
            for number in range(1, 1_000):  # each answer has several 100 kB
                deaf.sendall(service(b"resources", ask, number))
        assert broker.line("slow_consumer")
        assert len(client.discover_resources(model="static")) == 50


@pytest.mark.req("R4", "R8")
def test_a_blocking_client_registers_discovers_and_watches(chain: list[Process]) -> None:
    with (
        connect_blocking(f"127.0.0.1:{chain[0].port}") as owner,
        connect_blocking(f"127.0.0.1:{chain[2].port}") as seeker,
    ):
        with owner.register_resource("load >= 0", name="m", values={"load": 1}) as machine:
            deadline = monotonic() + WAIT_S
            while not len(answer := seeker.discover_resources("load >= 0", max_age=0, deadline=20)):
                assert monotonic() < deadline, "the last broker does not hear of the resource"
            assert answer.complete
            assert [(each.id, each.values) for each in answer] == [(machine.id, {"load": 1})]
            with seeker.watch_resources("load >= 1") as watch:
                seen = [watch.next(WAIT_S)]
                machine.update({"load": 2})
                seen.append(watch.next(WAIT_S))
                machine.withdraw()
                seen.append(next(iter(watch)))
        assert [(each.kind, each.name) for each in seen] == [("appeared", "m"), ("changed", "m"), ("vanished", "m")]
