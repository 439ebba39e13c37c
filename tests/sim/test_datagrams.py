"""Simulated datagrams: who hears them, and what the network does to them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError, Reason
from heliograph.machine import Socket, SocketFailed, SocketOpened
from heliograph.sim import scenario_files
from heliograph.sim.datagrams import WAITING_MAX, DatagramSettings
from heliograph.sim.distances import Distance, NetworkSettings
from heliograph.sim.faults import Faults
from heliograph.sim.host import Host
from heliograph.sim.loop import MILLISECOND, SECOND
from heliograph.sim.scenario import Fault
from heliograph.sim.world import World
from tests.examples import examples
from tests.sim.machines import CALM, STEADY, add, heard, it, run, send

PORT = 4_717
GROUP = "239.255.71.17"
UDP = Socket(name="udp", port=PORT)
LAN = Socket(name="lan", port=PORT, group=GROUP)


def a_world(seed: int = 1, network: NetworkSettings = CALM, **datagrams: Any) -> World:
    return World(seed, network=network, hosts=STEADY, datagrams=DatagramSettings(**datagrams))


def two(world: World) -> tuple[Host, Host]:
    return add(world, "left", sockets=(UDP,)), add(world, "right", sockets=(UDP,))


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.req("N14")
def test_a_datagram_arrives_with_its_source_at_the_machine_whose_socket_it_is() -> None:
    world = a_world()
    left, right = two(world)
    send(world, left, "udp", ("right", PORT), b"hello")
    run(world, 1)

    assert it(right).of("datagram") == [("datagram", "udp", ("left", PORT), b"hello")]
    assert heard(left) == []


def test_a_machine_is_told_the_address_of_each_socket_once() -> None:
    world = a_world()
    sockets = (UDP, LAN, Socket(name="any"), Socket(name="other"), Socket(name="taken", port=PORT))
    host = add(world, "left", sockets=sockets)
    run(world, 1)

    assert [command for _, command in it(host).of("socket")] == [
        SocketOpened("udp", ("left", PORT)),
        SocketOpened("lan", (GROUP, PORT)),
        SocketOpened("any", ("left", 40_000)),
        SocketOpened("other", ("left", 40_001)),
        SocketFailed("taken", "Address already in use"),
    ]


def test_a_socket_that_nobody_declared_and_a_datagram_over_the_mtu_are_noted_and_dropped() -> None:
    world = a_world(mtu_bytes=1_000)
    left, right = two(world)
    send(world, left, "nowhere", ("right", PORT), b"hello")
    send(world, left, "udp", ("right", PORT), bytes(972), bytes(973))
    run(world, 1)

    assert heard(right) == [bytes(972)]
    dropped = [details for *_, kind, _, details in world.journal.entries if kind == "datagram_dropped"]
    assert dropped == [("nowhere", "socket_missing", 5), ("udp", "datagram_too_large", 973)]
    notes = [details[0].reason for *_, kind, _, details in world.journal.entries if kind == "note"]
    assert notes == [Reason.SOCKET_MISSING, Reason.DATAGRAM_TOO_LARGE]


def test_a_datagram_to_nobody_is_gone() -> None:
    world = a_world()
    left, right = two(world)
    world.crash(right)
    for to in (("right", PORT), ("left", 9), ("nowhere", 1), (GROUP, PORT)):
        send(world, left, "udp", to, b"hello")
    run(world, 1)

    assert heard(left) == []
    assert world.journal.counts["datagram_dropped"] == 0


@pytest.mark.req("N14")
def test_a_multicast_reaches_the_members_on_the_senders_lan() -> None:
    world = a_world(lans={"here": ("left", "near*")})
    hosts = {name: add(world, name, sockets=(UDP, LAN)) for name in ("left", "near", "nearer", "far")}
    deaf = add(world, "near-deaf", sockets=(UDP,))
    send(world, hosts["left"], "udp", (GROUP, PORT), b"anyone?")
    run(world, 1)

    assert {name: heard(host) for name, host in hosts.items()} == {
        "left": [b"anyone?"],  # whoever is a member hears itself too, as on a real network
        "near": [b"anyone?"],
        "nearer": [b"anyone?"],
        "far": [],
    }
    assert heard(deaf) == []
    assert it(hosts["near"]).of("datagram")[0][1:3] == ("lan", ("left", PORT))


def test_a_multicast_that_may_pass_no_network_stays_on_its_host() -> None:
    world = a_world()
    left = add(world, "left", sockets=(Socket(name="udp", ttl=0), LAN))
    right = add(world, "right", sockets=(LAN,))
    send(world, left, "udp", (GROUP, PORT), b"anyone?")
    run(world, 1)

    assert (heard(left), heard(right)) == ([b"anyone?"], [])


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.3, 1.0]))
@examples(30)
@pytest.mark.req("O7")
def test_what_arrives_was_sent_and_comes_as_often_as_the_settings_say(seed: int, loss: float, duplicate: float) -> None:
    world = a_world(seed, loss=loss, duplicate=duplicate, reorder=0.5)
    left, right = two(world)
    sent = numbered(100)
    send(world, left, "udp", ("right", PORT), *sent)
    run(world, 1)

    got = heard(right)
    assert set(got) <= set(sent)
    assert (len(set(got)) == 100) == (loss == 0.0)
    assert (got == []) == (loss == 1.0)
    assert all(got.count(each) == 1 for each in got) or duplicate > 0.0
    assert all(got.count(each) == 2 for each in got) or duplicate < 1.0
    assert world.datagrams.lost == 100 - len(set(got))


def test_datagrams_overtake_each_other_where_links_do_not() -> None:
    world = a_world(reorder=0.5)
    left, right = two(world)
    send(world, left, "udp", ("right", PORT), *numbered(50))
    run(world, 1)

    assert heard(right) != numbered(50)
    assert sorted(heard(right)) == sorted(numbered(50))


def test_a_one_way_partition_loses_datagrams_one_way_even_those_on_their_way() -> None:
    world = a_world()
    left, right = two(world)
    send(world, left, "udp", ("right", PORT), b"on its way")
    run(world, 0.0005)
    world.block(left, right)
    send(world, left, "udp", ("right", PORT), b"lost")
    send(world, right, "udp", ("left", PORT), b"arrives")
    run(world, 1)
    world.unblock(left, right)
    send(world, left, "udp", ("right", PORT), b"healed")
    run(world, 1)

    assert (heard(left), heard(right)) == ([b"arrives"], [b"healed"])


def test_a_host_that_stands_still_keeps_as_many_datagrams_as_its_buffer_holds() -> None:
    world = a_world()
    left, right = two(world)
    world.pause(right)
    send(world, left, "udp", ("right", PORT), *numbered(WAITING_MAX + 10))
    run(world, 1)
    world.go_on(right)
    run(world, 1)

    assert heard(right) == numbered(WAITING_MAX)


def test_a_restarted_host_hears_on_the_same_port_and_gets_nothing_old() -> None:
    world = a_world()
    left, right = two(world)
    send(world, left, "udp", ("right", PORT), b"before")
    run(world, 0.0005)
    world.crash(right)
    world.start(right)
    run(world, 1)
    send(world, left, "udp", ("right", PORT), b"after")
    run(world, 1)

    assert heard(right) == [b"after"]


def test_distances_differ_by_direction_for_links_and_datagrams_alike() -> None:
    distances = (Distance(target="left > right", delay_ms=30), Distance(target="right > *", delay_ms=10))
    world = a_world(network=NetworkSettings(jitter_ms=0, distance=distances))
    left, right = two(world)
    run(world, 1)
    began = world.loop.now
    send(world, left, "udp", ("right", PORT), b"there")
    send(world, right, "udp", ("left", PORT), b"back")
    run(world, 1)

    took = [it(host).nows[-1] - host.shift - began for host in (right, left)]
    assert [round(each / MILLISECOND) for each in took] == [30, 10]
    assert world.distances.delay_ns("left", "elsewhere") == 200_000


def test_a_lossy_while_is_over_when_it_is_over() -> None:
    world = a_world()
    left, right = two(world)
    faults = Faults(world, (Fault(kind="lossy", target="l* > r*", at_s=1, for_s=2, loss=1.0),), 10)
    for _ in range(4):
        send(world, left, "udp", ("right", PORT), b"%d" % (world.loop.now // SECOND))
        send(world, right, "udp", ("left", PORT), b"back")
        run(world, 1.01)

    assert heard(right) == [b"0", b"3"]
    assert len(heard(left)) == 4
    assert faults.count("lossy") == 1


def test_the_seed_decides_what_happens_to_datagrams_and_the_digest_shows_it() -> None:
    def digest(seed: int) -> tuple[str, list[bytes]]:
        world = a_world(seed, loss=0.3, duplicate=0.3, reorder=0.3)
        left, right = two(world)
        send(world, left, "udp", ("right", PORT), *numbered(30))
        run(world, 1)
        return world.digest.hex(), heard(right)

    assert digest(1) == digest(1)
    assert digest(1)[1] != digest(2)[1]

    def after(*datagrams: bytes) -> str:
        world = a_world()
        left, _ = two(world)
        send(world, left, "udp", ("right", PORT), *datagrams)
        run(world, 1)
        return world.digest.hex()

    assert len({after(), after(b"hello"), after(b"hullo")}) == 3


def test_a_scenario_says_how_datagrams_fare_and_what_is_wrong_with_that() -> None:
    head = '[scenario]\nname = "x"\n[topology.brokers.b]\n'
    read = scenario_files.parse(head + '[datagrams]\nloss = 0.1\n[datagrams.lans]\noffice = ["b*"]\n')
    assert (read.datagrams.loss, read.datagrams.lans) == (0.1, {"office": ("b*",)})

    wrong = """
[datagrams]
loss = 2
mtu_bytes = 1
detour_ms = -1
[[network.distance]]
target = "b"
delay_ms = -1
[[fault]]
kind = "lossy"
target = "b"
loss = 1.5
"""
    with pytest.raises(ConfigError) as refused:
        scenario_files.parse(head + wrong)
    paths = [problem.split(" ")[0].rstrip(":") for problem in refused.value.problems]
    assert paths == [
        "network.distance[0].target",
        "network.distance[0].delay_ms",
        "datagrams.loss",
        "datagrams.detour_ms",
        "datagrams.mtu_bytes",
        "fault[0].target",
        "fault[0].loss",
    ]
