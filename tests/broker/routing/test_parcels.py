"""Parcels on their way: what a broker remembers of them, and when it confirms them."""

from typing import Any

import pytest

from heliograph.broker.routing.parcels import CONFIRM_BYTES, CONFIRM_MS
from heliograph.broker.routing.ports import UNCONFIRMED_BYTES_MAX
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5")


def a_chain() -> Mesh:
    """A subscriber at c, a publisher at a, and b between them."""
    mesh = Mesh({"a": ["b"], "b": ["c"]})
    mesh.client("c", 1)
    mesh.client("a", 2)
    mesh.subscribe("c", 1, "x")
    return mesh


def toward(mesh: Mesh, name: str, other: str) -> dict[str, Any]:
    rows = mesh.report(name, "map")["neighbours"]
    return next(row for row in rows if row["broker"] == other)


def test_a_remembered_way_is_not_taken_once_the_map_has_changed() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c", "e"], "c": ["d"], "e": ["d"]})
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    mesh.publish("a", 2, "x", b"one")
    used = "c" if mesh.carried[("b", "c")] > mesh.carried[("b", "e")] else "e"
    mesh.kill(used)
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]


def test_what_is_sent_in_haste_is_confirmed_before_the_sender_must_give_it_up() -> None:
    mesh = a_chain()
    most = 0
    for _ in range(3 * UNCONFIRMED_BYTES_MAX // 50_000):
        mesh.publish("a", 2, "x", bytes(50_000))
        most = max(most, toward(mesh, "a", "b")["unconfirmed_bytes"])
    assert 0 < most <= CONFIRM_BYTES + 50_100
    assert toward(mesh, "a", "b")["given_up"] == 0


def test_a_lone_parcel_is_confirmed_after_a_while_and_not_alone_at_once() -> None:
    mesh = a_chain()
    mesh.publish("a", 2, "x", b"one")
    mesh.pass_time(CONFIRM_MS / 2)
    assert toward(mesh, "a", "b")["unconfirmed_bytes"] > 0
    mesh.pass_time(CONFIRM_MS)
    assert toward(mesh, "a", "b")["unconfirmed_bytes"] == 0


def test_parcels_of_one_read_that_go_the_same_way_leave_in_order() -> None:
    mesh = a_chain()
    relay = mesh["b"]
    came: list[bytes] = []
    carry = mesh.carry
    mesh.carry = lambda node, link, data: came.append(data) if node.name == "a" else carry(node, link, data)
    for n in range(5):
        mesh.publish("a", 2, "x", b"%d" % n)
    mesh.carry = carry
    link = next(number for number, (node, _) in relay.ends.items() if node.name == "a")
    whole = b"".join(came)
    relay.say(link, whole[:40])  # the first is cut off, and gathered
    relay.say(link, whole[40:])
    mesh.run()
    assert mesh["c"].heard[1].payloads == [b"0", b"1", b"2", b"3", b"4"]
