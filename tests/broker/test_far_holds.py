"""Publishers that wait for slow consumers at other brokers: HOLD, RELEASE, and what ends a hold without them."""

import json

import pytest

from heliograph.broker.broker import Broker
from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.broker.far_publishers import LEASE_NS, REPEAT_NS
from heliograph.broker.pacing import PACED_BYTES
from heliograph.wire.broker_bodies import broker_id
from heliograph.wire.frames import Kind, control
from tests.broker.routing.mesh import Mesh, Node
from tests.broker.talk import frames

POLITE, HASTY, SLOW, OTHER = 1, 2, 3, 4
LIMITS = LimitsConfig(queue_frames_max=40, hold_ms_max=60_000)  # a queue of 20 holds publishers
NS_PER_MS = 1_000_000
pytestmark = pytest.mark.req("N15")


class SmallMesh(Mesh):
    """Brokers with small queues, and what they say to each other about holds."""

    limits = LIMITS

    def __init__(self, *args: object, limits: LimitsConfig = LIMITS, **kwargs: object) -> None:
        self.limits = limits
        self.said: list[tuple[str, str, str]] = []  # from, to, kind
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def _node(self, name: str, links: list[str], cluster: str, incarnation: int = 1) -> Node:
        node = super()._node(name, links, cluster, incarnation)
        config = BrokerConfig(name=name, network=node.broker._config.network, limits=self.limits)
        node.broker = Broker(config, seed=1, incarnation=incarnation)
        node.broker.clock(0, self.now)
        return node

    def carry(self, node: Node, link: int, data: bytes) -> None:
        for frame in frames(data):
            if frame.kind in (Kind.HOLD, Kind.RELEASE):
                self.said.append((node.name, node.ends[link][0].name, Kind(frame.kind).name))
        super().carry(node, link, data)


def a_mesh(
    links: dict[str, list[str]], clusters: dict[str, str] | None = None, limits: LimitsConfig = LIMITS
) -> SmallMesh:
    """Publishers at a; a slow consumer and another one at the last broker."""
    mesh = SmallMesh(links, clusters, limits=limits)
    last = list(mesh.nodes)[-1]
    mesh.client("a", POLITE, hold=True)
    mesh.client("a", HASTY)
    for link in (SLOW, OTHER):
        mesh.client(last, link)
        mesh.subscribe(last, link, "t", policy="hold" if link == SLOW else "drop_oldest")
    mesh.nodes[last].press(SLOW, True)
    return mesh


def a_pair(limits: LimitsConfig = LIMITS) -> SmallMesh:
    return a_mesh({"a": [], "b": ["a"]}, limits=limits)


def fill(mesh: SmallMesh, publisher: int = POLITE, count: int = 20, at: str = "a") -> None:
    for number in range(count):
        mesh.publish(at, publisher, "t", b"%d" % number)


@pytest.mark.parametrize(
    ("links", "clusters"),
    [
        ({"a": [], "b": ["a"]}, None),
        ({"a": [], "b": ["a"], "c": ["b"]}, None),
        ({"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, {"a": "x", "b": "x", "c": "y", "d": "y"}),
    ],
    ids=["linked", "two hops", "another cluster"],
)
def test_a_publisher_waits_for_a_slow_consumer_at_another_broker(
    links: dict[str, list[str]], clusters: dict[str, str] | None
) -> None:
    mesh = a_mesh(links, clusters)
    last = list(mesh.nodes)[-1]
    fill(mesh, count=19)
    assert mesh["a"].held == {}
    fill(mesh, count=1)
    assert mesh["a"].held == {POLITE: True}
    fill(mesh, count=20)  # what was under way has room
    assert len(mesh[last].heard[OTHER].payloads) == 40
    mesh[last].press(SLOW, False)
    mesh.run()
    assert mesh["a"].held == {POLITE: False}
    assert len(mesh[last].heard[SLOW].payloads) == 40
    assert mesh[last].heard[SLOW].dropped == 0


def test_a_publisher_that_did_not_agree_does_not_wait_and_its_oldest_are_dropped_and_counted() -> None:
    mesh = a_pair()
    fill(mesh, HASTY, 50)
    assert mesh["a"].held == {}
    mesh["b"].press(SLOW, False)
    mesh.publish("a", HASTY, "t", b"last")
    assert [int(payload) for payload in mesh["b"].heard[SLOW].payloads[:-1]] == list(range(10, 50))
    assert mesh["b"].heard[SLOW].dropped == 10


def test_each_publisher_is_asked_for_once_and_then_only_repeated() -> None:
    mesh = a_pair()
    fill(mesh, count=30)
    fill(mesh, HASTY, 5)
    assert mesh.said == [("b", "a", "HOLD")] * 2
    mesh.pass_time(REPEAT_NS / NS_PER_MS + 10)
    assert mesh.said == [("b", "a", "HOLD")] * 4
    mesh["b"].press(SLOW, False)
    mesh.run()
    assert mesh.said[4:] == [("b", "a", "RELEASE")] * 2
    mesh.pass_time(2 * REPEAT_NS / NS_PER_MS)
    assert len(mesh.said) == 6


def test_a_hold_lasts_as_long_as_it_is_repeated_and_no_longer() -> None:
    mesh = a_pair()
    fill(mesh)
    mesh.pass_time(2 * LEASE_NS / NS_PER_MS, step_ms=200)
    assert mesh["a"].held == {POLITE: True}
    mesh.muted.add(("b", "a"))  # the RELEASE does not arrive; b is not missed yet
    mesh["b"].press(SLOW, False)
    mesh.run()
    assert mesh["a"].held == {POLITE: True}
    mesh["a"].now = mesh.now + LEASE_NS
    mesh["a"].broker.wake(mesh["a"].now)
    mesh["a"].take()
    assert mesh["a"].held == {POLITE: False}


def test_a_lost_neighbour_holds_nobody() -> None:
    mesh = a_pair()
    fill(mesh)
    assert mesh["a"].held == {POLITE: True}
    mesh.kill("b")
    assert mesh["a"].held == {POLITE: False}


def test_a_slow_consumer_that_leaves_lets_the_publisher_go() -> None:
    mesh = a_pair()
    fill(mesh)
    mesh["b"].leave(SLOW)
    mesh.run()
    assert mesh["a"].held == {POLITE: False}


def test_two_slow_consumers_at_one_broker_release_together() -> None:
    mesh = a_pair()
    mesh.subscribe("b", OTHER, "t", 2, policy="hold")
    mesh["b"].press(OTHER, True)
    fill(mesh)
    mesh["b"].press(SLOW, False)
    mesh.run()
    assert mesh["a"].held == {POLITE: True}
    mesh["b"].press(OTHER, False)
    mesh.run()
    assert mesh["a"].held == {POLITE: False}


def test_consumers_at_two_brokers_hold_until_the_last_of_them_reads() -> None:
    mesh = a_mesh({"a": [], "c": ["a"], "b": ["a"]})
    mesh.client("c", SLOW)
    mesh.subscribe("c", SLOW, "t", policy="hold")
    mesh["c"].press(SLOW, True)
    fill(mesh)
    for name, held in (("b", True), ("c", False)):
        mesh[name].press(SLOW, False)
        mesh.run()
        assert mesh["a"].held == {POLITE: held}


def test_a_publisher_that_moves_is_held_at_its_new_broker() -> None:
    mesh = a_mesh({"a": [], "c": ["a"], "b": ["a", "c"]})
    fill(mesh)
    mesh["a"].leave(POLITE)
    mesh.run()
    mesh.client("c", POLITE, hold=True)
    mesh["c"]._sequence[POLITE] = 20
    fill(mesh, at="c", count=1)
    assert mesh["c"].held == {POLITE: True}
    mesh["b"].press(SLOW, False)
    mesh.run()
    assert mesh["c"].held == {POLITE: False}


def test_a_consumer_that_takes_nothing_for_long_lets_far_publishers_go_and_keeps_its_link() -> None:
    """They may not have agreed to wait: then it would lose its link for nothing."""
    mesh = a_pair(LimitsConfig(queue_frames_max=40, hold_ms_max=1_000))
    fill(mesh)
    mesh.pass_time(1_100)
    assert mesh["a"].held == {POLITE: False}
    assert mesh["b"].hangups == {}
    fill(mesh, count=30)
    assert mesh["a"].held == {POLITE: False}, "nobody waits for a consumer that is stuck"
    mesh["b"].press(SLOW, False)
    mesh.publish("a", POLITE, "t", b"last")
    assert mesh["b"].heard[SLOW].dropped == 10
    mesh["b"].press(SLOW, True)
    fill(mesh)
    assert mesh["a"].held == {POLITE: True}, "it has read again"


def test_a_publisher_that_agreed_to_wait_does_not_run_far_ahead_of_the_next_broker() -> None:
    """The buffers between brokers may be large: what is in them when a HOLD comes must find room."""
    mesh = a_pair()
    mesh["b"].press(SLOW, False)
    mesh.muted.add(("b", "a"))  # no COUNT arrives
    large = bytes(PACED_BYTES // 8)
    for _ in range(8):
        mesh.publish("a", HASTY, "t", large)
    assert mesh["a"].held == {}
    mesh.publish("a", POLITE, "t", large)
    mesh.publish("a", POLITE, "t", b"the read that notices it")
    assert mesh["a"].held == {POLITE: True}
    mesh.muted.clear()
    mesh.pass_time(210)
    assert mesh["a"].held == {POLITE: False}
    assert mesh["a"].hangups == {}


def test_a_paced_publisher_goes_on_when_the_neighbour_is_lost() -> None:
    mesh = a_pair()
    mesh.muted.add(("b", "a"))
    for _ in range(10):
        mesh.publish("a", POLITE, "t", bytes(PACED_BYTES // 8))
    assert mesh["a"].held == {POLITE: True}
    mesh.kill("b")
    assert mesh["a"].held == {POLITE: False}


def test_a_client_cannot_hold_others() -> None:
    mesh = a_pair()
    body = {"broker": broker_id("a"), "by": 1, "origin": mesh["a"].origin(POLITE), "ttl": 9}
    mesh["a"].say(HASTY, control(Kind.HOLD, 0, json.dumps(body).encode()))
    assert mesh["a"].held == {}
    assert mesh["a"].heard[HASTY].goodbye == "kind_unexpected"
