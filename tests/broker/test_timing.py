"""Time in a broker: what PONGs say, to whom, and what a report shows."""

from __future__ import annotations

import json

import pytest

from heliograph.broker.config import BrokerConfig, TimeConfig
from heliograph.errors import Reason
from heliograph.machine import SocketFailed, SocketOpened
from heliograph.timekeeping.sntp import ANSWER_MODE, PACKET, SOCKET, ntp_stamp
from heliograph.wire.frames import Kind, control
from tests.broker.routing.mesh import Mesh
from tests.broker.talk import Talk

pytestmark = pytest.mark.req("N13")

S = 1_000_000_000
MS = 1_000_000
WALL = 1_750_000_000 * S


def a_broker() -> Talk:
    talk = Talk()
    talk.broker.clock(WALL, talk.now)
    talk.take()
    return talk


def pongs(talk: Talk, link: int) -> list[bytes]:
    """The bodies of the PONGs that this peer got."""
    return [frame.payload for frame in talk.heard[link].answers if frame.kind == Kind.PONG]


def test_the_time_is_told_to_clients_that_asked_for_it_and_to_no_other() -> None:
    talk = a_broker()
    talk.join(1, features=["time"])
    talk.join(2, needs=["time"])
    talk.join(3)
    talk.pass_time(5_000)
    for link in (1, 2, 3):
        talk.say(link, control(Kind.PING, 7))

    told = json.loads(pongs(talk, 1)[0])
    assert told["time"] == WALL + 5 * S
    assert (told["error"], told["stratum"]) == (0, 10)
    assert pongs(talk, 2) == pongs(talk, 1)
    assert pongs(talk, 3) == [b""]
    welcomes = [json.loads(talk.heard[link].answers[0].payload)["features"] for link in (1, 3)]
    assert welcomes == [["time"], []]


def test_a_broker_that_has_just_started_answers_without_a_time() -> None:
    talk = a_broker()
    talk.join(1, features=["time"])
    talk.say(1, control(Kind.PING, 7))
    assert pongs(talk, 1) == [b""]
    assert talk.broker.report("time")["synchronised"] is False


def test_linked_brokers_follow_one_clock_and_reports_name_it() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]})
    for number, node in enumerate(mesh.nodes.values()):
        node.broker.clock(WALL + number * S, mesh.now)
    mesh.pass_time(8_000)
    overviews = {name: node.broker.report("overview")["time"] for name, node in mesh.nodes.items()}

    assert all(time["synchronised"] for time in overviews.values())
    (reference,) = {time["reference"] for time in overviews.values()}
    assert overviews[reference]["stratum"] == 10
    assert all(abs(time["ahead_of_wall_ns"]) <= 2 * S for time in overviews.values())
    assert overviews[reference]["ahead_of_wall_ns"] == 0


@pytest.mark.parametrize("body", [b"x", b"{}", b'{"time": "noon"}', b"[]", b"\xff", b'{"time":1,"error":1}'])
def test_a_neighbour_whose_pong_has_another_body_breaks_the_rules(body: bytes) -> None:
    mesh = Mesh({"a": ["b"]})
    link = next(iter(mesh["a"].ends))
    mesh["a"].broker.receive(link, control(Kind.PONG, mesh.now, body), mesh.now)
    effects = mesh["a"].broker.take()
    assert effects.hangups == [(link, Reason.BODY_MALFORMED)]


def test_a_neighbour_that_tells_an_impossible_time_is_not_believed() -> None:
    mesh = Mesh({"a": ["b"]})
    link = next(iter(mesh["a"].ends))
    before = mesh["a"].broker.report("time")["reference"]
    body = json.dumps({"time": -5, "error": -1, "stratum": 0, "reference": 1, "era": 1}).encode()
    mesh["a"].broker.receive(link, control(Kind.PONG, mesh.now, body), mesh.now)
    assert not mesh["a"].broker.take().hangups
    assert mesh["a"].broker.report("time")["reference"] == before


def test_servers_are_asked_once_there_is_a_socket_and_their_time_is_utc() -> None:
    talk = Talk(BrokerConfig(time=TimeConfig(servers=("ntp.example.org", "192.0.2.1:1123"))))
    talk.broker.clock(WALL, 0)
    assert not talk.broker.take().datagrams
    talk.broker.tell(SocketOpened(SOCKET, ("127.0.0.1", 5)), 0)
    datagrams = talk.broker.take().datagrams
    assert [address for _, address, _ in datagrams] == [("ntp.example.org", 123), ("192.0.2.1", 1123)]

    nonce = PACKET.unpack(datagrams[0][2])[-1]
    stamp = ntp_stamp(WALL + 100 * S)
    data = PACKET.pack(0x20 | ANSWER_MODE, 2, 6, -20, 0, 64, b"", 0, nonce, stamp, stamp)
    talk.broker.receive_datagram(SOCKET, ("192.0.2.9", 123), b"noise", 5 * MS)
    talk.broker.receive_datagram(SOCKET, ("192.0.2.9", 123), data, 10 * MS)
    report = talk.broker.report("overview")["time"]

    assert (report["reference"], report["stratum"], report["synchronised"]) == ("UTC", 3, True)
    assert abs(report["ahead_of_wall_ns"] - 100 * S) < 10 * MS


def test_a_broker_without_its_socket_for_servers_goes_on() -> None:
    talk = Talk(BrokerConfig(time=TimeConfig(servers=("ntp.example.org",))))
    talk.broker.clock(WALL, 0)
    talk.broker.tell(SocketFailed(SOCKET, "no such luck"), 0)
    assert not talk.broker.take().datagrams


def test_what_is_wrong_with_time_servers_is_told_by_its_place() -> None:
    config = TimeConfig(servers=("good", "good:99", "bad:", ":1", "bad:0", "bad:99999", "a:b", "::1"), poll_s=1)
    found = [problem.key for problem in config.problems()]
    assert found == [*(f"time.servers[{number}]" for number in range(2, 8)), "time.poll_s"]
