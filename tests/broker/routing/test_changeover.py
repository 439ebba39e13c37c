"""A way is left for another behind a marker: nothing overtakes, nothing is lost, and nobody waits for long.

Bytes between brokers are carried one by one here, and can be kept back on one link, as if that were slow.
"""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.links import Link
from heliograph.broker.routing import changeover, eddies
from heliograph.broker.routing.map import Paths
from heliograph.broker.routing.routing import Routing
from heliograph.broker.steps import STEPS_MAX
from heliograph.errors import Reason
from heliograph.notes import ChangeoverCut
from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import broker_id
from heliograph.wire.frames import Frame, Kind, control
from tests.broker.routing.hostile import Hostile
from tests.broker.routing.mesh import Mesh
from tests.broker.talk import Heard, frames

pytestmark = pytest.mark.req("N11", "N5")

DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"]}
HOLD_MS = changeover.HOLD_NS / 1e6
QUIET = {"heartbeat_ms": 60_000, "suspect_ms": 150_000, "dead_ms": 300_000}  # costs are what a test says they are


class Slow:
    """Keeps back what one broker sends to another, until it is let go."""

    def __init__(self, mesh: Mesh, one: str, other: str) -> None:
        self.mesh = mesh
        self.kept: list[tuple[Any, int, bytes]] = []
        self._pair = (one, other)
        self._carry = mesh.carry
        mesh.carry = self._keep  # type: ignore[method-assign]

    def _keep(self, node: Any, link: int, data: bytes) -> None:
        if (node.name, node.ends[link][0].name) == self._pair:
            self.kept.append((node, link, data))
        else:
            self._carry(node, link, data)

    def let_go(self, lose: bool = False) -> None:
        """Everything arrives, in order; or is lost."""
        self.mesh.carry = self._carry  # type: ignore[method-assign]
        for each in [] if lose else self.kept:
            self._carry(*each)
        self.kept.clear()
        self.mesh.run()


def cost(mesh: Mesh, one: str, other: str, cost: int) -> None:
    """A broker finds a link to cost so much from now on, and everybody hears of it."""
    routing = mesh[one].broker._routing
    neighbour = routing.view.neighbours[broker_id(other)]
    neighbour.cost = cost
    mesh[one].broker.wake(mesh.now)
    routing.neighbour_changed(neighbour, mesh.now)
    mesh[one].take()
    mesh.run()
    while routing.view.settled != routing.view.map.version or _told(routing).get(neighbour.broker) != cost:
        mesh.pass_time(5, step_ms=1)


def _told(routing: Routing) -> dict[int, int]:
    """What a broker has told of its links."""
    gateway = routing.view.map.gateways.get(routing.view.me)
    return {**routing.view.map.me.links, **({} if gateway is None else gateway.outside)}


def step(mesh: Mesh, at: str, to: str) -> str:
    routing = mesh[at].broker._routing
    return routing.view.name_of(routing.view.paths.steps[broker_id(to)])


def counts(mesh: Mesh, at: str) -> dict[str, int]:
    found: dict[str, int] = mesh.report(at, "overview")["changeover"]
    return found


def a_diamond() -> tuple[Mesh, Heard]:
    """A publisher at a, a subscriber at d; the way leads through b, and could lead through c."""
    mesh = Mesh(DIAMOND, **QUIET)
    cost(mesh, "a", "c", 5_000)
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    mesh.subscribe("d", 1, "y", 2)
    assert step(mesh, "a", "d") == "b"
    return mesh, heard


def a_change() -> tuple[Mesh, Heard, Slow]:
    """A diamond whose old way is slow while the new one is taken; "one" is on its way."""
    mesh, heard = a_diamond()
    slow = Slow(mesh, "b", "d")
    mesh.publish("a", 2, "x", b"one")
    cost(mesh, "a", "b", 50_000)
    assert step(mesh, "a", "d") == "c"
    return mesh, heard, slow


def test_what_follows_waits_until_what_went_the_old_way_has_arrived() -> None:
    mesh, heard, slow = a_change()
    mesh.publish("a", 2, "y", b"two")
    assert heard.payloads == []
    assert counts(mesh, "a")["holding"] == 1
    assert counts(mesh, "a")["held_bytes"] > 0
    slow.let_go()
    assert heard.payloads == [b"one", b"two"]
    assert counts(mesh, "a") | {"longest_us": 0, "held_bytes_most": 0} == {
        **{"changes": 1, "answered": 1, "timed_out": 0, "overflowed": 0, "released": 0},
        **{"holding": 0, "held_bytes": 0, "held_bytes_most": 0, "longest_us": 0, "unroutable": 0},
    }
    mesh.publish("a", 2, "x", b"three")
    assert heard.payloads == [b"one", b"two", b"three"]


def test_the_new_way_is_taken_after_the_change_and_the_old_one_no_more() -> None:
    mesh, heard, slow = a_change()
    slow.let_go()
    before = dict(mesh.carried)
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]
    assert {pair for pair in mesh.carried if mesh.carried[pair] != before.get(pair)} == {("a", "c"), ("c", "d")}


def test_what_goes_elsewhere_does_not_wait() -> None:
    mesh, _, slow = a_change()
    near = mesh.client("c", 3)
    mesh.subscribe("c", 3, "y")
    mesh.publish("a", 2, "y", b"two")
    assert near.payloads == [b"two"]
    slow.let_go()


def test_a_marker_that_is_lost_is_not_waited_for_for_ever() -> None:
    mesh, heard, slow = a_change()
    slow.let_go(lose=True)
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == []
    mesh.pass_time(HOLD_MS)
    assert heard.payloads == [b"two"]
    assert counts(mesh, "a")["timed_out"] == 1
    assert ChangeoverCut("timed_out", 1, 1) in mesh["a"].notes


def test_more_than_may_be_held_back_is_sent_on_and_nothing_is_dropped() -> None:
    mesh, heard, slow = a_change()
    size = 60_000
    many = changeover.HELD_BYTES_MAX // size + 10
    for number in range(many):
        mesh.publish("a", 2, "x", b"%06d" % number + bytes(size))
    assert [payload[:6] for payload in heard.payloads] == [b"%06d" % number for number in range(many)]
    assert counts(mesh, "a")["overflowed"] == 1
    assert mesh.report("a", "overview")["dropped"] == 0
    slow.let_go()
    assert len(heard.payloads) == many + 1  # "one" comes late
    assert mesh.report("d", "overview")["late"] == 1


@pytest.mark.req("N8")
@pytest.mark.parametrize("lost", ["b", "elsewhere"])
def test_nobody_waits_once_a_link_is_lost(lost: str) -> None:
    mesh, heard, slow = a_change()
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == []
    if lost == "b":
        mesh.kill("b")
    else:
        mesh["d"].broker._routing.view.neighbours[broker_id("b")].suspected = True
        mesh["d"].broker._routing.announcements.announce(mesh.now)
        mesh["d"].take()
        mesh.run()
    assert b"two" in heard.payloads
    assert counts(mesh, "a")["released"] == 1
    slow.let_go()
    assert sorted(heard.payloads) == [b"one", b"two"]


@pytest.mark.req("N8")
def test_a_lost_neighbour_is_left_at_once() -> None:
    mesh, heard = a_diamond()
    mesh.publish("a", 2, "x", b"one")
    mesh.kill("b")
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]
    assert counts(mesh, "a")["changes"] == 0


def test_a_way_on_which_nothing_is_changes_without_a_marker() -> None:
    mesh, heard = a_diamond()
    mesh.add("e", ["a", "b"])
    mesh.pass_time(300)
    mesh.publish("a", 2, "x", b"one")
    cost(mesh, "a", "e", 9_000 if step(mesh, "a", "e") == "e" else 1)  # another way changes: routes are forgotten
    mesh.pass_time(3_000)
    cost(mesh, "a", "b", 50_000)
    assert step(mesh, "a", "d") == "c"
    assert counts(mesh, "a")["changes"] == 0
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]


def test_a_way_that_changes_back_while_it_is_changed_is_changed_once_more_in_order() -> None:
    mesh, heard, slow = a_change()
    mesh.publish("a", 2, "x", b"two")
    cost(mesh, "a", "b", 100)
    assert step(mesh, "a", "d") == "b"
    slow.let_go()
    mesh.publish("a", 2, "y", b"three")
    assert heard.payloads == [b"one", b"two", b"three"]
    assert counts(mesh, "a")["answered"] == counts(mesh, "a")["changes"] == 2


def test_a_broker_on_the_way_changes_for_itself() -> None:
    mesh = Mesh({"p": ["a"], **DIAMOND}, **QUIET)
    cost(mesh, "a", "c", 5_000)
    heard = mesh.client("d", 1)
    mesh.client("p", 2)
    mesh.subscribe("d", 1, "x")
    slow = Slow(mesh, "b", "d")
    mesh.publish("p", 2, "x", b"one")
    cost(mesh, "a", "b", 50_000)
    mesh.publish("p", 2, "x", b"two")
    assert heard.payloads == []
    slow.let_go()
    assert heard.payloads == [b"one", b"two"]
    assert (counts(mesh, "p")["changes"], counts(mesh, "a")["answered"]) == (0, 1)


def test_a_group_of_another_cluster_gets_its_publications_in_order_while_a_way_inside_it_changes() -> None:
    clusters = {"p": "outside", **dict.fromkeys("abcd", "inside")}
    mesh = Mesh({"p": ["a"], **DIAMOND}, clusters, **QUIET)
    cost(mesh, "a", "c", 5_000)
    heard = mesh.client("d", 1)
    mesh.client("p", 2)
    mesh.subscribe("d", 1, "x", group="workers")
    slow = Slow(mesh, "b", "d")
    mesh.publish("p", 2, "x", b"one")
    cost(mesh, "a", "b", 50_000)
    assert step(mesh, "a", "d") == "c"
    mesh.publish("p", 2, "x", b"two")
    assert heard.payloads == []
    slow.let_go()
    assert heard.payloads == [b"one", b"two"]


def two_clusters() -> tuple[Mesh, list[Heard]]:
    """a enters the cluster of b1, b2 and b3 at b1, and could enter it at b2; all three want x."""
    links = {"a": ["b1", "b2"], "b1": ["b2", "b3"], "b2": ["b3"]}
    mesh = Mesh(links, {"a": "a", "b1": "b", "b2": "b", "b3": "b"}, **QUIET)
    cost(mesh, "a", "b2", 9_000)
    mesh.client("a", 1)
    heard = [mesh.client(name, 2) for name in ("b1", "b2", "b3")]
    for name in ("b1", "b2", "b3"):
        mesh.subscribe(name, 2, "x")
    return mesh, heard


def test_a_part_answers_when_all_its_members_have_what_came_before() -> None:
    mesh, heard = two_clusters()
    slow = Slow(mesh, "b1", "b3")
    mesh.publish("a", 1, "x", b"one")
    cost(mesh, "a", "b1", 50_000)
    mesh.publish("a", 1, "x", b"two")
    assert [each.payloads for each in heard] == [[b"one"], [b"one"], []]
    slow.let_go()
    assert [each.payloads for each in heard] == [[b"one", b"two"]] * 3
    assert counts(mesh, "a")["answered"] == 1


def test_an_answer_finds_its_asker_without_a_map() -> None:
    """b1 and those behind it do not know, for a moment, that a is there: the answer goes back as the marker came."""
    mesh, _ = two_clusters()
    slow = Slow(mesh, "b1", "b3")
    mesh.publish("a", 1, "x", b"one")
    cost(mesh, "a", "b1", 50_000)
    mesh.publish("a", 1, "x", b"two")
    routing = mesh["b1"].broker._routing
    known, routing.view._paths = routing.view._paths, Paths()
    number = max(routing.changeover._gathers)
    answer = wire.Marked(routing.view.me, routing.view.me, broker_id("b3"), 9)
    mesh["b1"].broker._routing.changeover.receive(_link(mesh, "b1", "b3"), _marked(answer, number), mesh.now)
    routing.view._paths = known
    mesh["b1"].take()
    mesh.run()
    assert counts(mesh, "a")["answered"] == 1
    slow.let_go()


def _link(mesh: Mesh, at: str, other: str) -> Link:
    return mesh[at].broker._routing.view.neighbours[broker_id(other)].link


def _marked(answer: wire.Marked, number: int) -> Frame:
    return Frame(control(Kind.MARKED, number, wire.encode(answer)))


def test_publications_of_a_read_that_was_put_off_go_by_the_ways_of_then() -> None:
    mesh, heard = a_diamond()
    mesh.subscribe("d", 1, "t/#", 3, language="predicates", where="k > 0")
    node = mesh["a"]
    slow = Slow(mesh, "b", "d")
    many = [b"%d" % number for number in range(3 * STEPS_MAX)]
    node.broker.receive(2, b"".join(node.an_event(2, "t/x", one, headers=b'{"k":1}') for one in many), mesh.now)
    assert node.broker._reading._postponed
    routing = node.broker._routing
    neighbour = routing.view.neighbours[broker_id("b")]
    neighbour.cost = 50_000
    routing.neighbour_changed(neighbour, mesh.now)
    routing.settle(mesh.now)
    mesh["a"].take()
    mesh.run()
    mesh.pass_time(10)
    assert heard.payloads == []
    assert counts(mesh, "a")["holding"] == 1
    slow.let_go()
    assert heard.payloads == many


# -- different views --------------------------------------------------------------------------------------------------


def without_maps(mesh: Mesh, to: str) -> None:
    """A broker hears no more of the map."""
    carry = mesh.carry

    def filtered(node: Any, link: int, data: bytes) -> None:
        if link in node.ends and node.ends[link][0].name == to:
            data = b"".join(frame.raw for frame in frames(data) if frame.kind != Kind.MAP)
        carry(node, link, data)

    mesh.carry = filtered  # type: ignore[method-assign]


def at_odds() -> tuple[Mesh, Heard]:
    """a takes b for the next hop to d, and b takes a: it has not heard that the link from a to d is slow now."""
    mesh = Mesh({"a": ["b", "d"], "b": ["d"]}, **QUIET)
    cost(mesh, "b", "d", 20_000)
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    assert (step(mesh, "a", "d"), step(mesh, "b", "d")) == ("d", "a")
    without_maps(mesh, "b")
    cost(mesh, "a", "d", 60_000)
    assert (step(mesh, "a", "d"), step(mesh, "b", "d")) == ("b", "a")
    return mesh, heard


def test_what_would_turn_back_waits_in_order_until_views_agree() -> None:
    mesh, heard = at_odds()
    before = dict(mesh.carried)
    for number in range(5):
        mesh.publish("a", 2, "x", b"%d" % number)
    assert heard.payloads == []
    assert mesh.carried.get(("b", "a")) == before.get(("b", "a"))
    cost(mesh, "b", "a", 90_000)
    assert step(mesh, "b", "d") == "d"
    assert heard.payloads == [b"0", b"1", b"2", b"3", b"4"]
    report = mesh.report("b", "overview")["eddies"]
    assert (report["waited"], report["timed_out"], report["waiting_bytes"]) == (5, 0, 0)


def test_what_waits_goes_back_in_order_once_the_broker_before_takes_another_way() -> None:
    mesh, heard = at_odds()
    for number in range(5):
        mesh.publish("a", 2, "x", b"%d" % number)
    cost(mesh, "a", "d", 10)
    mesh.publish("a", 2, "x", b"5")
    assert heard.payloads == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert counts(mesh, "a")["answered"] == counts(mesh, "a")["changes"]
    assert mesh.report("b", "overview")["eddies"]["timed_out"] == 0


def test_where_views_never_agree_nothing_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eddies, "WAIT_NS", 500_000_000)
    mesh, _ = at_odds()
    mesh.publish("a", 2, "x", b"one")
    mesh.pass_time(100 * eddies.WAIT_NS / 1e6, step_ms=100)
    reports = [mesh.report(name, "overview") for name in ("a", "b")]
    assert sum(report["eddies"]["timed_out"] for report in reports) > 3
    assert sum(report["eddies"]["waiting_bytes"] for report in reports) == 0
    assert sum(report["eddies"]["unroutable"] + report["parcels_unroutable"] for report in reports) == 1


# -- hostile brokers --------------------------------------------------------------------------------------------------


@pytest.mark.req("N18")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"broker":1,"speaker":1,"by":1,"ttl":256}',
        b'{"broker":1,"speaker":1,"by":18446744073709551616,"ttl":1}',
        b'{"broker":1,"speaker":1,"by":1,"ttl":1,"way":[' + b",".join([b"1"] * 17) + b"]}",
    ],
)
def test_an_answer_that_is_none_ends_its_link(body: bytes) -> None:
    mesh, heard = a_diamond()
    hostile = Hostile(mesh, "a")
    hostile.say(Kind.MARKED, body)
    assert hostile.end is Reason.BODY_MALFORMED
    mesh.publish("a", 2, "x", b"good")
    assert heard.payloads == [b"good"]


@pytest.mark.req("N18")
def test_an_answer_that_nobody_waits_for_is_nothing_and_one_for_others_is_passed_on_as_long_as_it_lives() -> None:
    mesh, _ = a_diamond()
    hostile = Hostile(mesh, "a")
    a, b = broker_id("a"), broker_id("b")
    before = dict(mesh.carried)
    said = {"speaker": 1, "by": 1, "way": [7, b]}
    for number, broker in enumerate((a, 12345)):
        hostile.say(Kind.MARKED, {**said, "broker": broker, "ttl": 0 if number else 5})
    assert mesh.carried == before
    hostile.say(Kind.MARKED, {**said, "broker": b, "ttl": 5})
    assert {pair for pair in mesh.carried if mesh.carried[pair] != before.get(pair)} == {("a", "b")}
    assert hostile.end is None


@pytest.mark.req("N18")
def test_a_marker_that_is_none_is_counted_and_its_relay_is_not_blamed() -> None:
    mesh, _ = a_diamond()
    hostile = Hostile(mesh, "a")
    bit = 1 << mesh["a"].broker._routing.view.map.me.slot
    for body in (b"", b"{}", b'{"broker":-1,"speaker":1}', b"\xff"):
        hostile.parcel(control(Kind.MARK, 1, body), members=bit)
    assert hostile.end is None
    assert mesh.report("a", "overview")["refused"]["body_malformed"] == 4


@pytest.mark.req("N18", "O9")
def test_markers_that_wait_for_members_are_bounded_per_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changeover, "GATHERS_PER_NEIGHBOUR_MAX", 5)
    mesh, _ = two_clusters()
    mesh.publish("a", 1, "x", b"one")
    hostile = Hostile(mesh, "b1", cluster="theirs")
    hostile.gateway()
    slow = Slow(mesh, "b1", "b3")
    mark = control(Kind.MARK, 1, wire.encode(wire.Mark(hostile.broker, hostile.broker)))
    for _ in range(20):
        hostile.parcel(mark, clusters=(broker_id("b1"),))
    assert len(mesh["b1"].broker._routing.changeover._gathers) == 5
    assert mesh.report("b1", "overview")["refused"]["requests_over_limit"] == 15
    slow.let_go()
    assert not mesh["b1"].broker._routing.changeover._gathers
    assert [frame.kind for frame in hostile.heard.answers].count(Kind.MARKED) == 5


@pytest.mark.req("N18")
def test_markers_whose_members_never_answer_are_forgotten() -> None:
    mesh, _ = two_clusters()
    mesh.publish("a", 1, "x", b"one")
    hostile = Hostile(mesh, "b1", cluster="theirs")
    hostile.gateway()
    slow = Slow(mesh, "b1", "b3")
    hostile.parcel(control(Kind.MARK, 1, wire.encode(wire.Mark(hostile.broker, 7))), clusters=(broker_id("b1"),))
    assert mesh["b1"].broker._routing.changeover._gathers
    slow.let_go(lose=True)
    mesh.pass_time(HOLD_MS)
    assert not mesh["b1"].broker._routing.changeover._gathers
