"""A link between brokers that has no more room: what takes the room loses it, and not what is small beside it."""

import pytest

from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N15")

BIG, SMALL, READER = 1, 2, 3
LARGE = bytes(1 << 20)


def a_pair() -> tuple[Mesh, int]:
    """Two brokers: publishers at a, a reader of everything at b, and a's link to b, which takes nothing for now."""
    mesh = Mesh({"a": ["b"]})
    mesh.client("a", BIG)
    mesh.client("a", SMALL)
    mesh.client("b", READER)
    mesh.subscribe("b", READER, "#")
    [link] = mesh["a"].ends
    mesh["a"].press(link, True)
    return mesh, link


def flows_on(mesh: Mesh, link: int) -> list[bytes]:
    mesh["a"].press(link, False)
    mesh.pass_time(100)
    return mesh["b"].heard[READER].payloads


def test_large_publications_for_a_slow_neighbour_cost_no_small_ones() -> None:
    mesh, link = a_pair()
    for number in range(30):
        mesh.publish("a", SMALL, "small", b"%d" % number)
        mesh.publish("a", BIG, "big", b"%04d" % number + LARGE[4:])
    got = flows_on(mesh, link)
    assert [payload for payload in got if len(payload) < 9] == [b"%d" % number for number in range(30)]
    large = [int(payload[:4]) for payload in got if len(payload) > 9]
    assert large == list(range(30 - len(large), 30)), "the oldest large ones made room"
    assert 0 < len(large) < 9


def test_small_publications_that_take_the_room_cost_no_large_ones() -> None:
    mesh, link = a_pair()
    mesh.publish("a", BIG, "big", LARGE)
    for number in range(1_000):
        mesh.publish("a", SMALL, "small", b"%05d" % number + bytes(10_000))
    got = flows_on(mesh, link)
    assert got[0] == LARGE
    small = [int(payload[:5]) for payload in got[1:]]
    assert small == list(range(1_000 - len(small), 1_000))
    assert len(small) < 1_000
