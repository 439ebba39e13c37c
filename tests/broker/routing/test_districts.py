"""Where a cluster is entered: next to the one member that wants a publication, and else at its nearest gateway."""

import pytest

from heliograph.broker.routing.map import ENTRY
from heliograph.errors import Reason
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5")

LINKS = {"a": ["b1", "b4"], "b1": ["b2"], "b2": ["b3"], "b3": ["b4"]}
CLUSTERS = {"a": "a", **{f"b{number}": "b" for number in range(1, 5)}}


def a_network() -> Mesh:
    """b1 - b2 - b3 - b4 are a cluster, and a is linked to both its ends."""
    mesh = Mesh(LINKS, CLUSTERS)
    mesh.client("a", 1)
    return mesh


def entry(mesh: Mesh, topic: bytes) -> list[str]:
    """Where a lets the cluster be entered; "" is anywhere."""
    network = mesh["a"].broker._network
    targets, _ = network.targets_of(topic, inside=False)
    gateways = network.map.gateways
    return [gateways[part ^ ENTRY].name if part ^ ENTRY in gateways else "" for part in targets.parts]


@pytest.mark.parametrize("end", ["b1", "b4"])
def test_a_cluster_is_entered_next_to_the_one_member_that_wants_a_publication(end: str) -> None:
    mesh = a_network()
    heard = mesh.client(end, 2)
    mesh.subscribe(end, 2, "x")
    assert entry(mesh, b"x") == [end]
    before = dict(mesh.carried)
    mesh.publish("a", 1, "x", b"one")
    assert heard.payloads == [b"one"]
    assert {pair for pair in mesh.carried if mesh.carried[pair] != before.get(pair)} == {("a", end)}


def test_where_several_members_want_it_the_nearest_gateway_is_taken_and_everybody_gets_it_once() -> None:
    mesh = a_network()
    heard = [mesh.client(name, 2) for name in ("b1", "b4")]
    for name in ("b1", "b4"):
        mesh.subscribe(name, 2, "x")
    assert entry(mesh, b"x") == [""]
    mesh.publish("a", 1, "x", b"one")
    mesh["b1"].unsubscribe(2)
    mesh.run()
    assert entry(mesh, b"x") == ["b4"]
    mesh.publish("a", 1, "x", b"two")
    assert [each.payloads for each in heard] == [[b"one"], [b"one", b"two"]]


def test_two_wishes_of_one_cluster_at_different_places_are_one_parcel() -> None:
    mesh = a_network()
    heard = [mesh.client(name, 2) for name in ("b1", "b4")]
    mesh.subscribe("b1", 2, "x/+")
    mesh.subscribe("b4", 2, "+/y")
    assert entry(mesh, b"x/y") == [""]
    mesh.publish("a", 1, "x/y", b"one")
    assert [each.payloads for each in heard] == [[b"one"], [b"one"]]


@pytest.mark.req("N8")
def test_a_parcel_whose_entry_is_gone_enters_elsewhere() -> None:
    mesh = a_network()
    heard = mesh.client("b3", 2)
    mesh.subscribe("b3", 2, "x")
    assert entry(mesh, b"x") == ["b4"]
    mesh["a"].publish(1, "x", b"one")  # on its way when b4 dies
    gone = mesh.nodes.pop("b4")
    for other, number in gone.ends.values():
        other.ends.pop(number, None)
        other.broker.detach(number, Reason.RESET, mesh.now)
        other.take()
    mesh.run()
    mesh.pass_time(100)
    assert entry(mesh, b"x") == ["b1"]
    mesh.publish("a", 1, "x", b"two")
    assert heard.payloads == [b"one", b"two"]
