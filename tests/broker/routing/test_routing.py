"""Routing without a broker: neighbours and frames in, frames and next hops out."""

from __future__ import annotations

from collections import deque

import pytest

from heliograph.broker.routing.config import NetworkConfig
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.plans import TTL
from heliograph.broker.routing.ports import HopSink, Neighbour, Port, Sink
from heliograph.broker.routing.routing import Routing
from heliograph.broker.routing.targets import Targets
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Peer, Timers
from heliograph.model.subscription import Policy, Subscription
from heliograph.notes import NeighbourLost
from heliograph.wire.broker_bodies import Member, broker_id, encode
from heliograph.wire.frames import Frame, Kind, control, event

MS = 1_000_000


class Wires:
    """Writes to links at once: a control frame is heard by the other end, a run is kept under its next hop."""

    def __init__(self) -> None:
        self.frames: deque[tuple[Port, bytes]] = deque()
        self.runs: list[tuple[str, bytes]] = []
        self.refused: list[Reason] = []

    def put(self, link: Port, frame: bytes) -> None:
        self.frames.append((link, frame))

    def deliver(self, publisher: Port, sink: Sink, chunk: bytes, now: Instant) -> None:
        if sink.link.taker is not None:
            sink.link.taker(sink, chunk, now)
            return
        assert isinstance(sink, HopSink)
        sink.prefix(len(chunk), [chunk])  # numbers the parcel and keeps it until it is confirmed
        self.runs.append((sink.neighbour.name, chunk))

    def abandon(self, link: Port) -> list[tuple[Sink, bytes]]:
        return []

    def hang_up(self, link: Port, reason: Reason, text: str = "") -> None:
        raise AssertionError("routing ends no link by itself")

    def count(self, reason: Reason) -> None:
        self.refused.append(reason)


class Node:
    """One broker's routing, and nothing else of it."""

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.wires = Wires()
        self.outbox = Outbox()
        self.timers = Timers()
        self.forgotten: list[bytes] = []  # patterns; "#" where everything was
        self.routing = Routing(
            name,
            1,
            NetworkConfig(cluster=cluster),
            self.wires,
            self.outbox,
            self.timers,
            forget=self.forgotten.append,
            forget_all=lambda: self.forgotten.append(b"#"),
            settled=lambda: None,
            stand_back=lambda cluster: None,
        )

    def hops(self, topic: bytes) -> list[str]:
        return [sink.neighbour.name for sink in self.routing.destinations.elsewhere(topic, False).hops]

    def want(self, pattern: bytes) -> None:
        self.routing.local_change([Subscription(1, pattern, Policy.DROP_OLDEST, True, "")], [])


class Net:
    """Several of them; time passes by hand."""

    def __init__(self, links: str, **clusters: str) -> None:
        self.now = 0
        self.nodes: dict[str, Node] = {}
        self.ends: dict[Port, tuple[Node, Port]] = {}
        for one, other in links.split():
            for name in (one, other):
                if name not in self.nodes:
                    self.nodes[name] = Node(name, clusters.get(name, "main"))
            self.link(one, other)
        self.pass_time()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def link(self, one: str, other: str) -> None:
        ports = {name: Port(len(self.ends) + at, Peer("tcp", name), self.now) for at, name in enumerate((one, other))}
        for here, there in ((one, other), (other, one)):
            node, far = self[here], self[there]
            self.ends[ports[here]] = (far, ports[there])
            cluster = far.routing.view.map.me.cluster
            neighbour = Neighbour(ports[here], broker_id(there), there, cluster, 1, here == one)
            ports[here].rise(neighbour)
            node.routing.view.neighbours[neighbour.broker] = neighbour
            node.routing.neighbour_up(neighbour, self.now)

    def cut(self, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            view = self[here].routing.view
            neighbour = view.neighbours.pop(broker_id(there))
            self[here].routing.neighbour_down(neighbour, self.now)
        self.pass_time()

    def pass_time(self) -> None:
        """Half a second: everything that is told is heard."""
        for _ in range(100):
            self.now += 5 * MS
            for node in self.nodes.values():
                node.timers.run(self.now)
                if not node.routing.view.is_settled:
                    node.routing.settle_soon(self.now)
            while any(node.wires.frames for node in self.nodes.values()):
                for node in self.nodes.values():
                    while node.wires.frames:
                        port, raw = node.wires.frames.popleft()
                        far, end = self.ends[port]
                        if end.neighbour in far.routing.view.neighbours.values():
                            far.routing.receive(end, Frame(raw), self.now)


@pytest.mark.req("N5")
def test_what_a_broker_wants_is_known_along_a_line_and_leads_to_its_next_hop() -> None:
    net = Net("ab bc")
    net["c"].want(b"x/#")
    net.pass_time()
    assert net["a"].hops(b"x/1") == ["b"]
    assert net["b"].hops(b"x/1") == ["c"]
    assert net["a"].hops(b"y") == []
    assert b"x/#" in net["a"].forgotten


def test_another_cluster_hears_of_it_from_the_leader() -> None:
    net = Net("ab bc cd", a="left", b="left", c="right", d="right")
    net["d"].want(b"x")
    net.pass_time()
    assert net["a"].hops(b"x") == ["b"]
    assert net["b"].hops(b"x") == ["c"]
    (sink,) = net["a"].routing.destinations.elsewhere(b"x", False).hops
    assert sink.targets.members == 0
    assert len(sink.targets.parts) == 1


@pytest.mark.req("N8")
def test_what_a_lost_neighbour_had_not_confirmed_goes_another_way() -> None:
    net = Net("ab bd ac cd")
    net["d"].want(b"x")
    net.pass_time()
    a = net["a"]
    (via,) = a.hops(b"x")
    targets, _ = a.routing.destinations.targets_of(b"x", False)
    frames = event(b"x", b"", 7, 1)
    publisher = Port(99, Peer("tcp", "client"), 0)
    assert a.routing.forwarding.forward(publisher, targets, frames, TTL, (), net.now)
    net.cut("a", via)
    assert a.wires.runs == [(via, frames), ({"b": "c", "c": "b"}[via], frames)]
    assert NeighbourLost(via, 1) in a.outbox.notes
    assert a.forgotten[-1] == b"#"
    assert a.hops(b"x") == [{"b": "c", "c": "b"}[via]]


def test_what_is_confirmed_is_not_sent_again() -> None:
    net = Net("ab bd ac cd")
    net["d"].want(b"x")
    net.pass_time()
    a = net["a"]
    (via,) = a.hops(b"x")
    targets, _ = a.routing.destinations.targets_of(b"x", False)
    a.routing.forwarding.forward(Port(99, Peer("tcp", "client"), 0), targets, event(b"x", b"", 7, 1), TTL, (), net.now)
    neighbour = a.routing.view.neighbours[broker_id(via)]
    a.routing.receive(neighbour.link, Frame(control(Kind.COUNT, neighbour.sent_number)), net.now)
    net.cut("a", via)
    assert len(a.wires.runs) == 1


def test_a_client_hears_once_everybody_in_reach_knows() -> None:
    net = Net("ab bc")
    known: list[bool] = []
    net["c"].want(b"x")
    net["c"].routing.when_known(lambda now: known.append(net["a"].hops(b"x") == ["b"]), net.now)
    assert known == []
    net.pass_time()
    assert known == [True]


def test_what_is_for_the_cluster_is_not_heard_from_outside() -> None:
    net = Net("ab", a="left", b="right")
    a = net["a"]
    link = a.routing.view.neighbours[broker_id("b")].link
    record = Member(broker_id("m"), "m", "left", 3, 0, 1, 1, {})
    with pytest.raises(ProtocolError, match="members of the cluster"):
        a.routing.receive(link, Frame(control(Kind.MAP, 0, encode(record))), net.now)


def test_a_count_names_the_last_parcel_and_not_what_follows_it_in_the_read() -> None:
    net = Net("ab")
    b = net["b"]
    neighbour = b.routing.view.neighbours[broker_id("a")]
    arrived: list[bytes] = []
    parcels = Parcels(
        b.routing.view,
        b.routing.plans,
        b.wires,
        b.timers,
        Outbox().guard,
        lambda neighbour, now: None,
        lambda link, frames, way, now: arrived.append(frames),
    )
    far = net["a"].routing.view.neighbours[broker_id("b")]
    slot = b.routing.view.map.me.slot
    frames = event(b"x", b"", 7, 1)
    sink = far.sink(Targets(1 << slot), TTL, b.routing.view.epoch, (broker_id("a"),))
    read = sink.prefix(len(frames), [frames]) + frames
    end = parcels.read(neighbour.link, neighbour, read + control(Kind.PING, 999), 0, net.now)
    assert (end, arrived) == (len(read), [frames])
    assert neighbour.heard_in == 1
