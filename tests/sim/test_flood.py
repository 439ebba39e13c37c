"""A flood of silent links in the simulated world: others come in at once."""

from __future__ import annotations

import pytest

from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LimitsConfig, ListenerConfig
from heliograph.client.commands import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.machine import Dial
from heliograph.node import BROKER, Node, build
from heliograph.sim.host import Host
from heliograph.sim.world import World
from tests.sim.machines import add, it, run, tell


def a_broker(world: World, limits: LimitsConfig) -> Host:
    config = BrokerConfig(listeners=(ListenerConfig(host="b"),), limits=limits)
    host = world.add("b", lambda _: build(config, seed=1, incarnation=1))
    world.listen(host, ("b", DEFAULT_PORT), "main", BROKER)
    world.start(host)
    return host


def a_client(world: World, name: str) -> Host:
    config = ClientConfig(targets=(Target(host="b", port=DEFAULT_PORT),), name=name)
    session = Session(config, secret=name.encode().ljust(16), seed=1)
    host = world.add(name, lambda _: Node(name=name, machines={"session": session}, pipes=(), listeners={}))
    world.start(host)
    return host


@pytest.mark.req("O6")
@pytest.mark.parametrize("seed", range(3))
def test_two_thousand_silent_links_of_one_host_do_not_keep_another_host_out(seed: int) -> None:
    world = World(seed)
    broker = a_broker(world, LimitsConfig(handshake_ms=60_000))  # none of them is too slow while this runs
    attacker = add(world, "attacker")

    def flood(machine: object, now: int) -> None:
        for _ in range(2_000):
            it(attacker).outbox.dial(Dial("b", DEFAULT_PORT))

    tell(world, attacker, flood)
    run(world, 1)
    refused = it(broker).report("overview")["refused"]
    assert refused == {"source_over_share": 2_000 - 1_024}
    clients = [a_client(world, f"client-{number}") for number in range(20)]
    run(world, 1)
    assert it(broker).report("overview")["sessions"] == 20
    assert [it(client).report("overview")["state"] for client in clients] == ["connected"] * 20
    assert list(it(broker).report("overview")["refused"]) == ["source_over_share"], "no client was sent away"
