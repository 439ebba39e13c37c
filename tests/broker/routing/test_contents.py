"""Across brokers: subscriptions that ask for more than a topic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.broker.routing.interests import AdvertisedInterests, Interests, snapshot_of
from heliograph.broker.routing.reduced import widen
from heliograph.errors import ProtocolError
from heliograph.machine import Peer
from heliograph.model.subscription import Conditional
from heliograph.wire import broker_bodies as wire
from heliograph.wire.broker_bodies import Interest
from heliograph.wire.frames import Kind, control, service
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N9", "R3")
CLUSTERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
WHERE = "disk > 100"


def a_chain() -> Mesh:
    return Mesh({"a": ["b"], "b": ["c"]})


def two_clusters() -> Mesh:
    return Mesh({"a1": ["a2"], "a2": ["b1"], "b1": ["b2"]}, CLUSTERS)


def want(
    mesh: Mesh, name: str, link: int, where: str, number: int = 1, pattern: str = "hosts/#", **fields: Any
) -> None:
    mesh.subscribe(name, link, pattern, number, where=where, language="predicates", **fields)


def publish(mesh: Mesh, name: str, link: int, payload: bytes, **headers: object) -> None:
    mesh.publish(name, link, "hosts/h1", payload, headers=json.dumps(headers).encode())


def told(mesh: Mesh, at: str, of: str) -> int:
    rows = mesh.report(at, "map")["members"]
    (count,) = [row["interests"] for row in rows if row["broker"] == of]
    return int(count)


@pytest.mark.parametrize(("mesh", "entry", "end"), [(a_chain(), "a", "c"), (two_clusters(), "a1", "b2")])
def test_what_fits_crosses_the_network_and_the_rest_does_not_leave_its_broker(mesh: Mesh, entry: str, end: str) -> None:
    heard = mesh.client(end, 1)
    want(mesh, end, 1, WHERE)
    mesh.client(entry, 2)
    before = dict(mesh.carried)
    publish(mesh, entry, 2, b"small", disk=1)
    assert mesh.carried == before
    publish(mesh, entry, 2, b"large", disk=200)
    assert heard.payloads == [b"large"]
    assert heard.events[0][0] == (1,)


def test_a_plain_and_a_conditional_interest_bring_one_copy() -> None:
    mesh = a_chain()
    plain, picky = mesh.client("c", 1), mesh.client("b", 2)
    mesh.subscribe("c", 1, "#")
    want(mesh, "b", 2, WHERE)
    mesh.client("a", 3)
    for disk in (1, 200):
        publish(mesh, "a", 3, b"%d" % disk, disk=disk)
    assert plain.payloads == [b"1", b"200"]
    assert picky.payloads == [b"200"]


def test_a_covered_interest_costs_nothing_upstream_and_comes_back_when_its_coverer_goes() -> None:
    mesh = a_chain()
    heard = mesh.client("c", 1)
    quiet = told(mesh, "a", "c")
    want(mesh, "c", 1, "disk > 100", 1)
    for number in range(2, 20):
        want(mesh, "c", 1, f"disk > {100 + number} and system = 'linux'", number)
    assert told(mesh, "a", "c") == quiet + 1
    mesh["c"].unsubscribe(1, 1)
    mesh.pass_time(10)
    assert told(mesh, "a", "c") == quiet + 1  # the widest of those that are left
    mesh.client("a", 2)
    publish(mesh, "a", 2, b"no", disk=200, system="plan9")
    publish(mesh, "a", 2, b"yes", disk=200, system="linux")
    assert heard.payloads == [b"yes"]
    mesh.subscribe("c", 1, "hosts/#", 30)
    assert told(mesh, "a", "c") == quiet + 1
    publish(mesh, "a", 2, b"all", disk=0)
    assert heard.payloads == [b"yes", b"all"]


def test_a_group_with_a_condition_is_shared_across_brokers() -> None:
    mesh = two_clusters()
    near, far = mesh.client("a2", 1), mesh.client("b2", 2)
    want(mesh, "a2", 1, WHERE, group="g")
    want(mesh, "b2", 2, WHERE, group="g")
    mesh.client("a1", 3)
    for number in range(4):
        publish(mesh, "a1", 3, b"%d" % number, disk=200 if number % 2 else 1)
    assert near.payloads == [b"1", b"3"]
    assert far.payloads == []
    mesh["a2"].leave(1)
    mesh.run()
    publish(mesh, "a1", 3, b"far", disk=200)
    assert far.payloads == [b"far"]


def test_interests_with_conditions_survive_a_snapshot() -> None:
    wanted = [
        b"x",
        Conditional(b"hosts/#", "predicates", "disk > 100"),
        Conditional(b"#", "sql", "a LIKE 'x%' OR b = 1"),
    ]
    known = Interests()
    for body in snapshot_of(7, False, (1, 1), dict.fromkeys(wanted, -1), [(wanted[1], "g")]):
        difference = known.learn(body)
    assert list(known.owners[(7, False)].filters) == wanted
    assert list(known.owners[(7, False)].groups) == [(wanted[1], "g")]
    assert difference is not None
    assert list(difference.patterns) == [b"x", b"hosts/#", b"#"]
    assert known.forget((7, False))
    assert known.fields(b"hosts/h1") == ()


@pytest.mark.req("O6")
@pytest.mark.parametrize("bad", [("a/#/b", "predicates", "a = 1"), ("a", "sql", "x" * 5_000)])
def test_an_interest_that_makes_no_sense_is_the_tellers_fault(bad: tuple[str, str, str]) -> None:
    with pytest.raises(ProtocolError):
        Interests().learn(Interest(7, False, 1, 1, full=True, add=[bad]))


def test_of_a_condition_that_a_broker_cannot_read_the_filter_stands() -> None:
    """A newer broker may speak a language more; its clients get what they want all the same."""
    mesh = a_chain()
    [link] = mesh["a"].ends
    strange = ("hosts/#", "prolog", "likes(X)")
    body = wire.encode(Interest(7, False, 1, 1, full=True, add=[strange]))
    mesh.carry(mesh["a"], link, control(Kind.INTEREST, 0, body))
    mesh.run()

    assert mesh.report("b", "overview")["refused"] == {}
    for name in ("b", "c"):
        interests = mesh[name].broker._routing.view.interests
        assert list(interests.owners[(7, False)].filters) == [Conditional(b"hosts/#", "prolog", "likes(X)")]
        assert [wish.owner.broker for wish in interests.match(b"hosts/h1")] == [7]
        assert interests.fields(b"hosts/h1") == ()


def test_too_many_conditions_are_told_as_their_filters_and_told_again_when_there_are_few() -> None:
    advertised = AdvertisedInterests(7, False, 1, filters_max=16)
    wanted = [Conditional(b"hosts/h%d" % n, "predicates", f"disk = {n}") for n in range(16)]
    advertised.change(wanted)
    assert list(advertised.filters) == wanted
    more = Conditional(b"rooms", "predicates", "t > 1")
    advertised.change([more])
    assert advertised.widened
    assert len(advertised.filters) <= 16
    assert all(isinstance(told, bytes) for told in advertised.filters)
    advertised.change([], [more, *wanted[8:]])
    assert list(advertised.filters) == wanted[:8]


def test_a_long_condition_is_told_as_its_filter() -> None:
    long = Conditional(b"hosts/#", "predicates", "name = '" + "x" * 2_000 + "'")
    assert widen(long, 99) == b"hosts/#"


@pytest.mark.req("N5")
def test_a_trace_says_which_interest_carried_it_and_why_others_did_not() -> None:
    mesh = a_chain()
    for at, link, where in (("c", 1, WHERE), ("b", 2, "disk > 300"), ("a", 3, "system = 'linux'")):
        mesh.client(at, link, name=at)
        want(mesh, at, link, where)
    node = mesh["a"]
    node.attach(50, Peer("pipe", "admin"))
    order = {"do": "trace", "topic": "hosts/h1", "headers": {"disk": 200}}
    node.say(50, service(b"broker", json.dumps(order).encode(), 1))
    mesh.run()
    mesh.pass_time(600)
    found = json.loads(node.heard[50].answers[-1].payload)
    assert [row["broker"] for row in found["brokers"] if row["links"]] == ["c"]
    carried = {row["of"]: (row["matches"], row["where"], row["failed"]) for row in found["interests"] if row["where"]}
    assert carried["c"] == (True, WHERE, "")
    assert carried["b"][0] is False
    assert "disk > 300" in carried["b"][2]
    (here,) = [row for row in found["brokers"] if row["broker"] == "a"]
    assert [(row["matches"], "system" in row["failed"]) for row in here["conditions"]] == [(False, True)]
    assert all(mesh[at].heard[link].events == [] for at, link in (("c", 1), ("b", 2), ("a", 3)))
