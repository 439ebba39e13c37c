"""Network time on real brokers: a chain agrees, a program's publications carry it, and an NTP server is followed."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns, time_ns
from typing import Any

import pytest

import heliograph
from heliograph.broker.config import BrokerConfig, NetworkConfig, TimeConfig
from heliograph.live.lone import running
from heliograph.machine import Socket, SocketOpened
from heliograph.sim.timeserver import TimeServer
from heliograph.timekeeping.clock import shown
from tests.client.live import LiveBroker, a_broker, a_network, on_the_loop, until

pytestmark = [pytest.mark.live, pytest.mark.req("N13")]

QUICK = NetworkConfig(heartbeat_ms=50)


def time_of(broker: LiveBroker) -> dict[str, Any]:
    report: dict[str, Any] = broker.report("time")
    return report


@on_the_loop
async def test_a_chain_of_brokers_shows_one_time_within_the_stated_errors() -> None:
    async with a_network({"a": [], "b": ["a"], "c": ["b"]}) as brokers:
        await until(
            lambda: (
                all(time_of(each)["synchronised"] for each in brokers.values())
                and len({time_of(each)["reference"] for each in brokers.values()}) == 1
            )
        )
        now = monotonic_ns()  # one process, so one steady clock
        times = [shown(time_of(each), now) for each in brokers.values()]
        for time, error in times:
            for other, other_error in times:
                assert abs(time - other) <= error + other_error
        assert max(error for _, error in times) < 100_000_000


@on_the_loop
async def test_a_programs_publications_say_that_their_clock_is_synchronised_once_it_is() -> None:
    config = BrokerConfig(network=QUICK)
    async with a_broker(config) as broker, heliograph.connect(broker.address) as client:
        subscription = await client.subscribe("x")
        await client.publish("x", b"at once: nothing waits for the time")
        assert (await subscription.next(timeout=60)).timestamp_us is not None
        await until(lambda: client.report("time")["synchronised"])
        before = time_ns()
        await client.publish("x", b"later")
        publication = await subscription.next(timeout=60)
        assert publication.synchronised
        assert publication.timestamp_us is not None
        error_ns = client.report("time")["error_ns"] + 1_000_000_000  # the wall clock may be set meanwhile
        assert before - error_ns < publication.timestamp_us * 1_000 < time_ns() + error_ns


class Server(TimeServer):
    """The simulator's NTP server on a real socket, a day ahead of this computer."""

    address = ("", 0)

    def tell(self, command: Any, now: int) -> None:
        if isinstance(command, SocketOpened):
            self.address = command.address

    def clock(self, wall_ns: int, now: int) -> None:
        super().clock(wall_ns + 86_400_000_000_000, now)


@on_the_loop
async def test_a_broker_follows_a_configured_ntp_server_and_so_do_its_clients() -> None:
    server = Server()
    async with running(server, [Socket(name="ntp")]):
        config = BrokerConfig(network=QUICK, time=TimeConfig(servers=(f"127.0.0.1:{server.address[1]}",)))
        async with a_broker(config) as broker, heliograph.connect(broker.address) as client:
            await until(lambda: time_of(broker)["reference"] == "UTC")
            assert time_of(broker)["stratum"] == 2
            ahead = broker.report("overview")["time"]["ahead_of_wall_ns"]
            assert abs(ahead - 86_400_000_000_000) <= time_of(broker)["error_ns"] + 1_000_000_000
            await until(lambda: client.report("time")["reference"] == "UTC")


@on_the_loop
async def test_a_broker_whose_ntp_server_does_not_answer_starts_and_works_all_the_same() -> None:
    config = replace(BrokerConfig(network=QUICK), time=TimeConfig(servers=("127.0.0.1:1", "no such host")))
    async with a_broker(config) as broker, heliograph.connect(broker.address):
        await until(lambda: time_of(broker)["synchronised"])
        assert time_of(broker)["stratum"] == 10
