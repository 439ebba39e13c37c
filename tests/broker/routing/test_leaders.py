"""The member that speaks for its cluster leaves: what is on its way under the old name still arrives."""

import pytest

from heliograph.errors import Reason
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5")


def test_nothing_is_lost_between_clusters_while_a_leader_leaves() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"})
    assert mesh.report("b", "map")["leader"] == "a"
    heard = mesh.client("b", 1)
    mesh.subscribe("b", 1, "t")
    mesh.client("c", 2)
    mesh.client("d", 3)
    mesh.nodes.pop("a")
    [(link, _)] = [(link, end) for link, end in mesh["b"].ends.items() if end[0].name == "a"]
    del mesh["b"].ends[link]
    mesh["b"].broker.detach(link, Reason.CLOSED, mesh.now)
    mesh["b"].take()
    for number in range(20):  # b's news travel one step at a time, and publications between them
        mesh["c"].publish(2, "t", b"c%d" % number)
        mesh["d"].publish(3, "t", b"d%d" % number)
        mesh.step()
    mesh.run()
    assert mesh.report("c", "map")["clusters"][0]["leader"] == "b"
    for name in "cd":
        wanted = [f"{name}{number}".encode() for number in range(20)]
        assert [payload for payload in heard.payloads if payload.startswith(name.encode())] == wanted


@pytest.mark.parametrize("at", ["c", "d"])
def test_nothing_is_lost_while_a_broker_joins_that_is_to_speak(at: str) -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"})
    heard = {name: mesh.client(name, 1) for name in "cd"}
    for name in heard:
        mesh.subscribe(name, 1, "t")
    mesh.client("a", 2)
    mesh.client("b", 3)
    assert mesh.report("c", "map")["leader"] == "d"
    joining = mesh.nodes["low139"] = mesh._node("low139", [at], "y", 2)  # its slot is 0
    joining.now = mesh.now
    joining.take()
    numbers = {"a": 0, "b": 0}
    for turn in range(400):
        for link, name in enumerate(numbers, start=2):
            mesh[name].publish(link, "t", f"{name}{numbers[name]}".encode())
            numbers[name] += 1
        for _ in range(3 + turn % 5):
            if mesh.work:
                mesh.step()
        if turn % 20 == 0:
            mesh.now += 1_000_000
            for node in mesh.nodes.values():
                node.now = mesh.now
                node.broker.wake(mesh.now)
                node.take()
    mesh.run()
    assert mesh.report("b", "map")["clusters"][0]["leader"] == f"{joining.broker._routing.view.me:016x}"
    for name, got in heard.items():
        for source, count in numbers.items():
            wanted = [f"{source}{number}".encode() for number in range(count)]
            assert [one for one in got.payloads if one.startswith(source.encode())] == wanted, f"at {name}"


def test_a_leader_ends_when_another_has_taken_over() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"})
    mesh.add("low139", ["d"], "y")
    mesh.pass_time(100)
    owners = mesh["a"].broker._routing.view.interests.owners
    assert mesh["d"].broker._routing.advertising.leadership.advertised is None
    assert owners[(mesh["d"].broker._routing.view.me, True)].filters == {}
    assert len(owners[(mesh["low139"].broker._routing.view.me, True)].filters) == 3


@pytest.mark.parametrize("at", ["c", "d", "low139"])
def test_a_wide_subscription_made_while_another_begins_to_speak_is_confirmed_when_everybody_knows(at: str) -> None:
    for steps in range(0, 60, 2):  # at every stage of the hand-over
        mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"})
        mesh.nodes["low139"] = mesh._node("low139", ["d"], "y", 2)  # its slot is 0
        mesh["low139"].now = mesh.now
        mesh["low139"].take()
        for _ in range(steps):
            go_on(mesh)
        mesh[at].join(9)
        heard = mesh[at].heard[9]
        was_in_reach = bool(mesh[at].broker._routing.view.paths.parts)
        mesh[at].subscribe(9, "t", wide=True)
        for _ in range(2_000):
            if "CONFIRMED" in heard.order:
                break
            go_on(mesh)
        routing = mesh["a"].broker._routing
        targets, _ = routing.destinations.targets_of(b"t", inside=False)
        assert targets.parts or not was_in_reach, f"after {steps} steps a does not know"


def go_on(mesh: Mesh) -> None:
    """The first thing under way arrives; if there is none, a little time passes."""
    if mesh.work:
        mesh.step()
        return
    mesh.now += 500_000
    for node in mesh.nodes.values():
        node.now = mesh.now
        node.broker.wake(mesh.now)
        node.take()
