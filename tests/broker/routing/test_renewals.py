"""A link between brokers takes the place of another before a certificate ends: in order, without loss, unnoticed."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.model.identity import Identity, Role
from heliograph.notes import NeighbourLost
from tests.broker.routing.mesh import Mesh, Node

ENDS_MS, LATER_MS = 100_000, 10_000_000
CLIENTS = {"a": 1, "b": 2}


class CertifiedMesh(Mesh):
    """Brokers with certificates that end. What one broker sends over its old link can be slow."""

    def __init__(self, links: dict[str, list[str]], certified: bool = True) -> None:
        self.ends_ms = {**dict.fromkeys("ab", ENDS_MS), "c": LATER_MS}
        self.certified = certified
        self.slow: tuple[str, int] | None = None
        self.late: list[tuple[Any, ...]] = []
        super().__init__(links, heartbeat_ms=5_000, suspect_ms=300_000, dead_ms=600_000)

    def _peer(self, node: Node, link: int, ticket: int | None = None) -> Peer:
        identity = Identity(node.name, (Role.BROKER,), "certificate") if self.certified else None
        listener = "main" if ticket is None else None
        ends_ms = self.ends_ms[node.name]
        return Peer("tls", f"127.0.0.1:{link}", listener, identity, ticket, f"{ends_ms:X}", ends_ms)

    def _dial(self, node: Node, ticket: int, host: str) -> None:
        other = self.nodes[host]
        here, there = node.next, other.next
        node.next, other.next = here + 1, there + 1
        node.ends[here], other.ends[there] = (other, there), (node, here)
        other.broker.attach(there, self._peer(node, there), self.now)
        node.broker.attach(here, self._peer(other, here, ticket), self.now)
        other.take()
        node.take()

    def step(self) -> None:
        """What travels on the slow link, its end included, comes when it is released."""
        if (self.work[0][1].name, self.work[0][2]) == self.slow:
            self.late.append(self.work.popleft())
        else:
            super().step()

    def release(self) -> None:
        self.slow = None
        self.work.extend(self.late)
        self.late.clear()
        self.run()

    def links(self) -> list[int]:
        """The numbers of the link between a and b, at a and at b."""
        found = []
        for name, other in ("ab", "ba"):
            neighbours = self.report(name, "map")["neighbours"]
            found += [each["link"] for each in neighbours if each["broker"] == other]
        return found


def a_mesh(certified: bool = True, **more: list[str]) -> CertifiedMesh:
    """Two brokers, with a client at each that publishes for the other."""
    mesh = CertifiedMesh({"b": ["a"], "a": [], **more}, certified)
    for name, client in CLIENTS.items():
        mesh.client(name, client, keep_alive_ms=600_000)
        mesh.subscribe(name, client, f"to-{name}")
    return mesh


@pytest.mark.req("N4", "O6")
@pytest.mark.parametrize("certified", [True, False], ids=["certificates", "key"])
@pytest.mark.parametrize("slow", ["a", "b"])
def test_what_was_sent_on_the_old_link_is_not_overtaken(slow: str, certified: bool) -> None:
    mesh = a_mesh(certified)
    other = "b" if slow == "a" else "a"
    before = mesh.links()
    mesh.slow = (slow, before["ab".index(slow)])
    mesh.publish(slow, CLIENTS[slow], f"to-{other}", b"1", b"2")
    mesh.ends_ms = dict.fromkeys("abc", LATER_MS)
    mesh.pass_time(80_000)
    mesh.publish(slow, CLIENTS[slow], f"to-{other}", b"3")
    mesh.publish(other, CLIENTS[other], f"to-{slow}", b"x")
    assert mesh[other].heard[CLIENTS[other]].payloads == [], "the new link is not read before the old one"
    mesh.release()
    mesh.pass_time(100)
    assert mesh[other].heard[CLIENTS[other]].payloads == [b"1", b"2", b"3"]
    assert mesh[slow].heard[CLIENTS[slow]].payloads == [b"x"]
    assert all(old != new for old, new in zip(before, mesh.links(), strict=True))
    mesh.pass_time(ENDS_MS)
    mesh.publish(slow, CLIENTS[slow], f"to-{other}", b"4")
    assert mesh[other].heard[CLIENTS[other]].payloads[-1] == b"4"
    assert not [note for node in mesh.nodes.values() for note in node.notes if isinstance(note, NeighbourLost)]


@pytest.mark.req("N5", "O6")
def test_if_the_old_link_breaks_too_early_what_was_lost_takes_another_path() -> None:
    mesh = a_mesh(c=["a", "b"])
    before = mesh.links()
    mesh.slow = ("a", before[0])
    mesh.publish("a", 1, "to-b", b"1", b"2")
    mesh.ends_ms = dict.fromkeys("abc", LATER_MS)
    mesh.pass_time(80_000)
    mesh.late.clear()  # it breaks, and takes with it what was under way
    mesh.slow = None
    mesh._cut(mesh["a"], before[0], Reason.RESET)
    mesh.run()
    mesh.pass_time(10_000)
    mesh.publish("a", 1, "to-b", b"3")
    assert mesh["b"].heard[2].payloads == [b"1", b"2", b"3"]


@pytest.mark.req("O6")
def test_without_a_renewed_certificate_the_link_ends_and_comes_back_with_one() -> None:
    mesh = a_mesh()
    mesh.pass_time(ENDS_MS - 1_000)
    assert mesh.links()
    mesh.ends_ms["a"] = LATER_MS  # b's ends
    mesh.pass_time(2_000)
    assert not mesh.links()
    mesh.ends_ms["b"] = LATER_MS
    mesh.pass_time(10_000)
    assert mesh.links()
