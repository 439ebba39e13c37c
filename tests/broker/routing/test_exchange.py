"""Neighbours offer what they have and ask for what they lack; and what is asked for without right is not told."""

from __future__ import annotations

import pytest

from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import SYNC_PER_BODY_MAX, Sync
from heliograph.wire.frames import Frame, Kind, control
from tests.broker.routing.mesh import Mesh, Node
from tests.broker.talk import frames

pytestmark = pytest.mark.req("N4", "N18")


def between(mesh: Mesh, one: str, other: str) -> int:
    """The number of the first one's link to the other."""
    return next(link for link, end in mesh[one].ends.items() if end[0].name == other)


def answers(mesh: Mesh, one: str, other: str, body: bytes) -> list[Frame]:
    """What the other says at once to a SYNC of the first one."""
    link = between(mesh, one, other)
    said: list[bytes] = []
    carry = mesh.carry

    def listen(node: Node, link: int, data: bytes) -> None:
        if node.name == other and node.ends[link][0].name == one:
            said.append(data)
        carry(node, link, data)

    mesh.carry = listen
    mesh.carry(mesh[one], link, control(Kind.SYNC, 0, body))
    mesh.step()
    mesh.carry = carry
    return frames(b"".join(said))


def test_what_is_offered_and_unknown_is_asked_for_and_what_is_known_is_not() -> None:
    mesh = Mesh({"a": ["b"]})
    known = mesh["b"].broker._routing
    age = known.catalogue.age("member", known.view.me)
    assert age is not None
    offer = Sync(has=[("member", 77, 1, 1), ("narrow", 78, 1, 1), ("member", known.view.me, *age)])
    [answer] = answers(mesh, "a", "b", wire.encode(offer))
    assert wire.decode_sync(answer.payload) == Sync(wants=[("member", 77), ("narrow", 78)])


def test_what_is_asked_for_is_told_in_full() -> None:
    mesh = Mesh({"a": ["b"]})
    mesh.client("b", 1)
    mesh.subscribe("b", 1, "x")
    me = mesh["b"].broker._routing.view.me
    wishes = Sync(wants=[("member", me), ("narrow", me), ("narrow", 99)])
    record, interest = answers(mesh, "a", "b", wire.encode(wishes))
    assert wire.decode_record(record.payload).broker == me
    told = wire.decode_interest(interest.payload)
    assert (told.full, told.owner, "x" in told.add) == (True, me, True)


def test_the_inside_of_a_cluster_is_not_told_to_another_even_if_it_asks() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]}, {"a": "x", "b": "y", "c": "y"})
    routing = mesh["b"].broker._routing
    inside = [("member", broker) for broker in routing.view.map.members] + [("narrow", routing.view.me)]
    assert answers(mesh, "a", "b", wire.encode(Sync(wants=inside))) == []
    offer = Sync(has=[("member", 77, 1, 1), ("narrow", 77, 1, 1)])
    assert answers(mesh, "a", "b", wire.encode(offer)) == []


def test_more_than_fits_one_body_is_offered_in_several() -> None:
    mesh = Mesh({"a": ["b"]})
    routing = mesh["a"].broker._routing
    bodies: list[bytes] = []
    routing._teller.put = lambda neighbour, kind, body: bodies.append(body)
    routing._exchange.offer([("member", routing.view.me)] * (SYNC_PER_BODY_MAX + 1))
    assert [len(wire.decode_sync(body).has) for body in bodies] == [SYNC_PER_BODY_MAX, 1]


@pytest.mark.parametrize("body", [b'{"has":[["king",1,1,1]]}', b'{"wants":[["member"]]}', b'{"has":7}', b"["])
def test_a_malformed_sync_ends_the_link_and_nothing_else(body: bytes) -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]})
    answers(mesh, "a", "b", body)
    mesh.run()
    assert mesh.report("b", "overview")["refused"]["body_malformed"] == 1
    mesh.pass_time(1_000)
    assert mesh.report("b", "overview")["neighbours"] == 2
