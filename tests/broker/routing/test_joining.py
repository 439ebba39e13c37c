"""A link carries a publication once: what goes on for members and for other parts of clusters leaves in one parcel."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.wire.broker_bodies import broker_id
from heliograph.wire.frames import Flag, Frame, Kind, control, event
from tests.broker.routing.hostile import Hostile
from tests.broker.routing.mesh import Mesh
from tests.broker.talk import Heard, frames

pytestmark = pytest.mark.req("N5", "N6")


class Watched(Mesh):
    """A mesh that writes down which frames cross which link in parcels."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.parcels: list[tuple[str, str, list[Frame]]] = []
        super().__init__(*args, **fields)

    def carry(self, node: Any, link: int, data: bytes) -> None:
        to = node.ends[link][0].name
        self.parcels += [(node.name, to, frames(f.payload)) for f in frames(data) if f.kind == Kind.PARCEL]
        super().carry(node, link, data)

    def crossed(self, one: str, other: str) -> list[list[bytes]]:
        """The payloads in the parcels over a link, parcel by parcel."""
        return [[frame.payload for frame in inside] for a, b, inside in self.parcels if (a, b) == (one, other)]


def a_line() -> tuple[Watched, dict[str, Heard]]:
    """a - b1 - b2 - c in three clusters: what a sends to both other clusters enters at b1 and goes on through b2."""
    mesh = Watched({"a": ["b1"], "b1": ["b2"], "b2": ["c"]}, {"a": "a", "b1": "b", "b2": "b", "c": "c"})
    mesh.client("a", 1)
    heard = {name: mesh.client(name, 2) for name in ("b1", "b2", "c")}
    return mesh, heard


def test_a_member_and_another_part_behind_it_get_one_parcel() -> None:
    mesh, heard = a_line()
    for name in heard:
        mesh.subscribe(name, 2, "x")
    mesh.publish("a", 1, "x", b"one")
    mesh.publish("a", 1, "x", b"two", b"three")
    assert [each.payloads for each in heard.values()] == [[b"one", b"two", b"three"]] * 3
    assert mesh.crossed("b1", "b2") == [[b"one"], [b"two", b"three"]]
    assert mesh.crossed("b2", "c") == [[b"one"], [b"two", b"three"]]


def test_topics_that_a_member_wants_and_others_that_only_go_on_keep_their_order() -> None:
    mesh, heard = a_line()
    mesh.subscribe("b2", 2, "x/1")
    mesh.subscribe("b1", 2, "x/2")
    mesh.subscribe("c", 2, "x/#")
    node = mesh["a"]
    topics = [1, 2, 2, 3, 1, 1, 3, 2]
    node.say(1, b"".join(node.an_event(1, f"x/{topic}", b"%d" % n) for n, topic in enumerate(topics)))
    mesh.run()
    assert heard["c"].payloads == [b"%d" % n for n in range(len(topics))]
    assert heard["b1"].payloads == [b"%d" % n for n, topic in enumerate(topics) if topic == 2]
    assert heard["b2"].payloads == [b"%d" % n for n, topic in enumerate(topics) if topic == 1]
    crossed = [payload for parcel in mesh.crossed("b1", "b2") for payload in parcel]
    assert sorted(crossed) == sorted(set(crossed))


def test_conditions_are_asked_for_each_publication() -> None:
    mesh, heard = a_line()
    mesh.subscribe("b2", 2, "x", language="predicates", where="k > 1")
    mesh.subscribe("c", 2, "x")
    node = mesh["a"]
    node.say(1, b"".join(node.an_event(1, "x", b"%d" % k, headers=b'{"k":%d}' % k) for k in (0, 1, 2, 3)))
    mesh.run()
    assert heard["b2"].payloads == [b"2", b"3"]
    assert heard["c"].payloads == [b"0", b"1", b"2", b"3"]
    crossed = [payload for parcel in mesh.crossed("b1", "b2") for payload in parcel]
    assert crossed == [b"0", b"1", b"2", b"3"]


def joined(mesh: Mesh, inside: bytes) -> Hostile:
    """A broker of another cluster sends these frames for b and c, which b1 is to match and pass on."""
    hostile = Hostile(mesh, "b1", cluster="theirs")
    hostile.gateway()
    hostile.parcel(inside, clusters=(broker_id("b1"), broker_id("b2"), broker_id("c")), trace=(hostile.broker,))
    return hostile


def test_what_was_seen_here_already_goes_on_all_the_same() -> None:
    """It may not have got farther the first time."""
    mesh, heard = a_line()
    mesh.subscribe("b2", 2, "x")
    mesh.subscribe("c", 2, "x")
    mesh["b1"].broker._sessions.origins.visit(77, mesh.now).admit(5)
    joined(mesh, event(b"x", b"seen", 77, 5) + event(b"x", b"new", 77, 6))
    assert heard["b2"].payloads == [b"new"]
    assert heard["c"].payloads == [b"seen", b"new"]


def test_what_is_malformed_is_counted_here_and_does_not_stop_what_follows() -> None:
    mesh, heard = a_line()
    mesh.subscribe("b2", 2, "x")
    mesh.subscribe("c", 2, "x")
    bad = event(b"x//y", b"", 77, 1) + event(b"x", b"", 77, 2, flags=int(Flag.PACKED))
    hostile = joined(mesh, bad + event(b"x", b"good", 77, 9) + control(Kind.WELCOME))
    assert hostile.end is None
    assert heard["b2"].payloads == heard["c"].payloads == [b"good"]
    refused = mesh.report("b1", "overview")["refused"]
    assert refused["topic_invalid"] == 1
    assert refused["body_malformed"] == 1
    assert refused["flags_unknown"] == 1


def test_a_publication_for_an_inbox_and_a_trace_find_their_way_among_others() -> None:
    mesh, heard = a_line()
    for name in ("b2", "c"):
        mesh.subscribe(name, 2, "x")
    inboxes = [f"Inbox/{broker_id(name):016x}/{mesh[name].origin(2):016x}" for name in ("b2", "c")]
    named = b'{"$d":["%b","%b"]}' % (inboxes[0].encode(), inboxes[1].encode())
    node = mesh["a"]
    first = node.an_event(1, "x", b"one")
    directed = node.an_event(1, "x", b"two", headers=named, flags=int(Flag.DIRECTED))
    node.say(1, first + directed + node.an_event(1, "x", b"three"))
    mesh.run()
    assert heard["b2"].payloads == heard["c"].payloads == [b"one", b"two", b"three"]
