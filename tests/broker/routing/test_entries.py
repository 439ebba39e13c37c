"""Where a cluster is entered: at the nearest gateway of the broker that forwards, whoever wants the publication."""

import pytest

from heliograph.errors import Reason
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5", "N11")

LINKS = {"a": ["b1", "b4"], "b1": ["b2"], "b2": ["b3"], "b3": ["b4"]}
CLUSTERS = {"a": "a", **{f"b{number}": "b" for number in range(1, 5)}}


def a_network() -> Mesh:
    """b1 - b2 - b3 - b4 are a cluster, and a is linked to both its ends."""
    mesh = Mesh(LINKS, CLUSTERS)
    mesh.client("a", 1)
    return mesh


def entry(mesh: Mesh) -> str:
    """Where a enters the cluster."""
    [row] = mesh.report("a", "map")["clusters"]
    name: str = row["nearest_gateway"]
    return name


def test_whoever_wants_a_publication_its_cluster_is_entered_at_one_place() -> None:
    mesh = a_network()
    heard = {name: mesh.client(name, 2) for name in ("b1", "b2", "b3", "b4")}
    for number, name in enumerate(heard, 1):
        mesh.subscribe(name, 2, f"x/{number}", 1)
        mesh.subscribe(name, 2, "all", 2)
    before = dict(mesh.carried)
    for topic in ("x/1", "x/2", "x/3", "x/4", "all"):
        mesh.publish("a", 1, topic, topic.encode())
    used = {pair for pair in mesh.carried if pair[0] == "a" and mesh.carried[pair] != before.get(pair)}
    assert used == {("a", entry(mesh))}
    assert [each.payloads for each in heard.values()] == [[b"x/%d" % number, b"all"] for number in range(1, 5)]


@pytest.mark.req("N8")
def test_a_parcel_whose_entry_is_gone_enters_elsewhere() -> None:
    mesh = a_network()
    heard = mesh.client("b3", 2)
    mesh.subscribe("b3", 2, "x")
    first = entry(mesh)
    mesh["a"].publish(1, "x", b"one")  # on its way when its entry dies
    gone = mesh.nodes.pop(first)
    for other, number in gone.ends.values():
        other.ends.pop(number, None)
        other.broker.detach(number, Reason.RESET, mesh.now)
        other.take()
    mesh.run()
    mesh.pass_time(100)
    assert entry(mesh) != first
    mesh.publish("a", 1, "x", b"two")
    assert heard.payloads == [b"one", b"two"]
