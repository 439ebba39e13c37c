"""Services that attend: frames to the same service at a neighbour, ways, and word that an asker is gone."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import connect, node
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, LinkConfig, NetworkConfig
from heliograph.broker.service_hops import WAITING_BYTES_MAX
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Outbox, Peer
from heliograph.services.broker_session import BrokerSession
from heliograph.sim.host import Host
from heliograph.sim.world import World
from heliograph.wire.frames import Frame, Kind, ServiceFlag, control, service
from heliograph.wire.limits import SERVICE_HOP_BYTES_MAX
from heliograph.wire.ways import LinkedBroker, WaysHere, Word, decode_word, encode
from tests.broker.routing.hostile import Hostile
from tests.broker.routing.mesh import Mesh, Node
from tests.broker.talk import Talk
from tests.live.processes import Process
from tests.services.gossip import GOSSIP_SERVICE, Gossip, GossipConfig
from tests.sim.machines import run

PIPE = 77
NEIGHBOUR = ServiceFlag.NEIGHBOUR
ADDED = "from heliograph import node; from tests.services.gossip import GOSSIP_SERVICE as IT; import sys; "
ADDED += "node.SERVICES = (*node.SERVICES, IT); from heliograph.cli.main import main; "
BROKER = ADDED + "main(['broker', 'run', *sys.argv[1:]])"


def attend(talk: Talk, name: str = "gossip") -> None:
    """A service of this name that attends, on link PIPE."""
    talk.attach(PIPE, Peer("pipe", name))
    talk.say(PIPE, service(b"broker", b'{"do":"attend"}', 1))


def words(talk: Talk) -> list[Word]:
    frames = [frame for frame in talk.heard[PIPE].answers if frame.topic == b"broker" and not frame.flags]
    return [decode_word(frame.payload) for frame in frames]


def hops(talk: Talk) -> list[Frame]:
    return [frame for frame in talk.heard[PIPE].answers if frame.flags & NEIGHBOUR]


def linked(node: Node, name: str) -> int:
    """The link to a neighbour, as the ways told last have it."""
    ways = [word.ways for word in words(node) if word.ways is not None][-1]
    return next(each.link for each in ways.neighbours if each.name == name)


@pytest.fixture
def pair() -> Mesh:
    mesh = Mesh({"a": ["b"]})
    for name in "ab":
        attend(mesh[name])
    return mesh


def send(mesh: Mesh, at: str, link: int, payload: bytes, number: int = 0, name: bytes = b"gossip") -> None:
    mesh[at].say(PIPE, service(name, payload, number, link, flags=NEIGHBOUR))
    mesh.run()


def test_a_frame_makes_one_hop_in_order_and_its_sender_is_known_by_its_link(pair: Mesh) -> None:
    for number in range(5):
        send(pair, "a", linked(pair["a"], "b"), b"%d" % number, number)
    came = hops(pair["b"])
    assert [(frame.payload, frame.sequence) for frame in came] == [(b"%d" % n, n) for n in range(5)]
    assert {frame.origin for frame in came} == {linked(pair["b"], "a")}
    assert hops(pair["a"]) == []


def test_what_cannot_go_is_refused_to_the_sender_and_counted(pair: Mesh) -> None:
    b = linked(pair["a"], "b")
    for link, payload, name in (
        (12345, b"x", b"gossip"),  # no such link
        (PIPE, b"x", b"gossip"),  # no neighbour
        (b, b"x" * (SERVICE_HOP_BYTES_MAX + 1), b"gossip"),
        (b, b"x", b"admin"),  # not itself
    ):
        send(pair, "a", link, payload, 9, name)
    refusals = [decoded["reason"] for decoded in map(_json, hops(pair["a"]))]
    assert refusals == ["closed", "closed", "service_over_limit", "service_unknown"]
    assert {frame.sequence for frame in hops(pair["a"])} == {9}
    assert pair["a"].broker.report("overview")["refused"]["closed"] == 2
    assert hops(pair["b"]) == []


def test_little_waits_for_a_slow_neighbour_and_its_link_survives(pair: Mesh) -> None:
    b = linked(pair["a"], "b")
    pair["a"].press(b, True)
    sent = WAITING_BYTES_MAX // SERVICE_HOP_BYTES_MAX + 8
    for number in range(sent):
        send(pair, "a", b, b"x" * SERVICE_HOP_BYTES_MAX, number)
    refused = hops(pair["a"])
    assert 0 < len(refused) <= 9
    assert {_json(frame)["reason"] for frame in refused} == {"service_over_limit"}
    pair["a"].press(b, False)
    pair.pass_time(10)
    assert [frame.sequence for frame in hops(pair["b"])] == list(range(sent - len(refused)))
    assert pair["a"].broker.report("overview")["neighbours"] == 1


def test_a_neighbour_without_the_service_says_so_and_does_not_hang_up() -> None:
    mesh = Mesh({"a": ["b"]})
    attend(mesh["a"])
    send(mesh, "a", linked(mesh["a"], "b"), b"anybody there?", 4)
    (refusal,) = hops(mesh["a"])
    assert (_json(refusal)["reason"], refusal.sequence) == ("service_unknown", 4)
    assert refusal.flags == 7
    assert mesh["b"].broker.report("overview")["refused"] == {"service_unknown": 1}


def test_a_service_that_does_not_attend_never_gets_a_neighbours_frame() -> None:
    mesh = Mesh({"a": ["b"]})
    attend(mesh["a"], "admin")
    mesh["b"].attach(PIPE, Peer("pipe", "admin"))
    send(mesh, "a", linked(mesh["a"], "b"), b'{"do":"drain"}', 4, b"admin")
    assert mesh["b"].heard[PIPE].answers == []
    assert [_json(frame)["reason"] for frame in hops(mesh["a"])] == ["service_unknown"]


@pytest.mark.parametrize(
    ("flags", "size", "end"),
    [
        (0, 1, Reason.FLAGS_UNKNOWN),
        (1, 1, Reason.FLAGS_UNKNOWN),
        (8, 1, Reason.FLAGS_UNKNOWN),
        (4, SERVICE_HOP_BYTES_MAX + 1, Reason.FRAME_OVER_LIMIT),
        (4, 10, None),
        (7, 10, None),
    ],
)
def test_a_lying_neighbour_loses_its_link_or_is_heard_out(flags: int, size: int, end: Reason | None) -> None:
    mesh = Mesh({"a": []})
    attend(mesh["a"])
    hostile = Hostile(mesh, "a")
    hostile.send(service(b"gossip", b"x" * size, 3, 99, flags=flags))
    assert hostile.end is end
    assert len(hops(mesh["a"])) == (end is None)
    if end is None:
        assert hops(mesh["a"])[0].origin == hostile.link  # not what the frame claims


def test_a_client_cannot_send_as_a_neighbour() -> None:
    talk = Talk()
    attend(talk)
    talk.join(1)
    talk.say(1, service(b"gossip", b"{}", 1, flags=NEIGHBOUR))
    assert talk.hangups[1] is Reason.FLAGS_UNKNOWN


def test_ways_are_told_at_first_and_when_they_change() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["x"]}, {"x": "other"})
    attend(mesh["a"])
    ways = words(mesh["a"])[-1].ways
    assert ways is not None
    assert (ways.name, ways.cluster) == ("a", "main")
    assert [each.name for each in ways.neighbours] == ["b"]
    b = ways.neighbours[0].link
    assert {link for _, _, link, _ in ways.members} == {b}
    assert len(ways.members) == 2
    costs = {broker: cost for _, broker, _, cost in ways.members}
    assert costs[ways.neighbours[0].broker] < max(costs.values())
    assert [(name, link) for name, link, _ in ways.clusters] == [("other", b)]

    told = len(words(mesh["a"]))
    mesh.pass_time(50)
    assert len(words(mesh["a"])) == told  # nothing changed
    mesh.cut(mesh["a"], b, Reason.RESET)
    mesh.run()
    ways = words(mesh["a"])[-1].ways
    assert ways is not None
    assert ways.neighbours == ways.members == ways.clusters == []


def test_a_new_link_to_the_same_neighbour_is_told_before_anything_that_comes_on_it(pair: Mesh) -> None:
    old = linked(pair["b"], "a")
    pair.cut(pair["a"], linked(pair["a"], "b"), Reason.RESET)
    pair.run()
    pair.pass_time(5_000)
    send(pair, "a", linked(pair["a"], "b"), b"again")
    order = [frame for frame in pair["b"].heard[PIPE].answers if frame.flags & NEIGHBOUR or frame.topic == b"broker"]
    new = linked(pair["b"], "a")
    assert new != old
    assert order[-1].origin == new
    send(pair, "b", old, b"too late")
    assert _json(hops(pair["b"])[-1])["reason"] == "closed"


class _Hasty(Hostile):
    """Its proof and its first frame come in one read."""

    def say(self, kind: Kind, body: object, run: bool = True) -> None:
        assert not isinstance(body, bytes)
        hasty = service(b"gossip", b"hello", 0, flags=NEIGHBOUR) if kind == Kind.PROOF else b""
        self.send(control(kind, 0, json.dumps(body).encode()) + hasty, run)


def test_a_service_hears_of_a_neighbour_before_it_hears_from_it() -> None:
    mesh = Mesh({"a": []})
    attend(mesh["a"])
    hasty = _Hasty(mesh, "a")
    told = [frame.origin if frame.flags & NEIGHBOUR else decode_word(frame.payload).ways for frame in _said(mesh["a"])]
    at = told.index(hasty.link)
    ways = told[at - 1]
    assert isinstance(ways, WaysHere)
    assert [each.link for each in ways.neighbours] == [hasty.link]


def _said(talk: Talk) -> list[Frame]:
    return [frame for frame in talk.heard[PIPE].answers if not frame.flags & ServiceFlag.ANSWER]


def test_a_service_hears_that_an_asker_is_gone_once_and_of_nobody_else() -> None:
    talk = Talk()
    attend(talk)
    for link in (1, 2, 3):
        talk.join(link)
    for link in (1, 2):
        talk.say(link, service(b"gossip", b"{}", 5))
        talk.say(link, service(b"gossip", b"{}", 6))
    for link in (1, 3):
        talk.leave(link)
    assert [word.ended for word in words(talk) if word.ended] == [1]


def test_ways_in_golden_bytes() -> None:
    ways = WaysHere(
        5, "b5", "main", 3, 9, [LinkedBroker(7, 6, "b6", "main", 8, 100)], [(4, 6, 7, 100)], [("x", 7, 1100)]
    )
    text = (
        b'{"ways":{"broker":5,"name":"b5","cluster":"main","slot":3,"incarnation":9,'
        b'"neighbours":[{"link":7,"broker":6,"name":"b6","cluster":"main","incarnation":8,"cost":100}],'
        b'"members":[[4,6,7,100]],"clusters":[["x",7,1100]]}}'
    )
    assert encode(Word(ways=ways)) == text
    assert decode_word(text) == Word(ways=ways)
    assert encode(Word(ended=7)) == b'{"ended":7}'


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_word_is_read_or_refused(data: bytes) -> None:
    with suppress(ProtocolError):
        decode_word(data)


@given(st.lists(st.tuples(st.integers(0, 255), st.sampled_from([b"gossip", b"broker"]), st.binary(max_size=40))))
def test_a_session_that_attends_survives_any_frames(said: list[tuple[int, bytes, bytes]]) -> None:
    gossip = Gossip(GossipConfig(), 1)
    gossip.ways.append(WaysHere(1, "a", "main", 0, 1, [LinkedBroker(3, 2, "b", "main", 1, 1)]))
    session = BrokerSession(1, Outbox(), bytes(16), attendant=_Deaf())
    for flags, name, payload in said:
        session.receive(service(name, payload, 1, 3, flags=flags), 0)


class _Deaf:
    """Hears everything and keeps nothing."""

    def hear_ways(self, ways: WaysHere, now: int) -> None: ...
    def hear_neighbour(self, link: int, payload: bytes, now: int) -> None: ...
    def hear_refusal(self, link: int, number: int, reason: Reason, now: int) -> None: ...
    def hear_end(self, asker: int, now: int) -> None: ...
    def hear_untold(self, asker: int, watch: int, now: int) -> None: ...


def test_services_meet_in_the_simulated_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SERVICES", (*node.SERVICES, GOSSIP_SERVICE))
    world = World(1)

    def add(name: str, *links: str) -> Host:
        network = NetworkConfig(key=b"k" * 32, links=tuple(LinkConfig(host=other) for other in links))
        config = BrokerConfig(name=name, network=network)
        host = world.add(name, lambda _: node.build(config, seed=1, incarnation=1, services=[GossipConfig()]))
        world.listen(host, (name, DEFAULT_PORT), "main", node.BROKER)
        world.start(host)
        return host

    one, two, three = add("one"), add("two", "one"), add("three", "two")
    run(world, 5)
    said = {name: [(name, word) for word in "012"] for name in ("one", "two", "three")}
    reports = [host.seat("gossip").machine.report("overview") for host in (one, two, three)]
    assert [sorted(report["neighbours"]) for report in reports] == [["two"], ["one", "three"], ["two"]]
    assert [report["members"] for report in reports] == [2, 2, 2]
    assert reports[0]["heard"] == said["two"]
    assert sorted(reports[1]["heard"]) == sorted([*said["one"], *said["three"]])


@pytest.mark.live
def test_services_meet_in_processes_and_hear_that_an_asker_is_gone(tmp_path: Path) -> None:
    key = tmp_path / "network.key"
    key.touch(0o600)
    key.write_text("k" * 64)
    options = ("--listen", "127.0.0.1:0", "--log-format", "json", "--no-discovery", "--network-key-file", str(key))
    with Process(tmp_path, *options, "--name", "one", program=BROKER) as one:
        link = ("--link", f"127.0.0.1:{one.port}")
        with Process(tmp_path, *options, *link, "--name", "two", program=BROKER) as two:
            two.line("neighbour_linked")

            async def report() -> Any:
                async with await connect(f"127.0.0.1:{two.port}") as client:
                    return await client.ask("gossip", {})

            async def until_met() -> Any:
                while True:
                    found = await report()
                    if len(found["heard"]) == 3 and found["members"] == 1 and found["ended"]:
                        return found
                    await asyncio.sleep(0.05)

            found = asyncio.run(asyncio.wait_for(until_met(), 60))
            assert found["heard"] == [["one", "0"], ["one", "1"], ["one", "2"]]
            assert found["neighbours"] == ["one"]


def _json(frame: Frame) -> Any:
    return json.loads(frame.payload)
