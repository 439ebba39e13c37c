"""What is out of reach is kept for a while, goes to nobody meanwhile, and comes back whole."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.config import LinkConfig
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N4", "N8")

TIMES: dict[str, Any] = {"heartbeat_ms": 500, "suspect_ms": 1_000, "dead_ms": 2_000, "forget_ms": 5_000}


def names(mesh: Mesh, at: str) -> list[str]:
    """Every broker of which something is known there."""
    routing = mesh[at].broker._routing
    return sorted({routing.view.name_of(broker) for _, broker in routing.catalogue.known()})


def remembered(mesh: Mesh, at: str) -> list[str]:
    found: list[str] = mesh.report(at, "map")["remembered"]
    return found


def test_a_broker_that_is_gone_is_remembered_for_a_while_and_then_forgotten() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]}, **TIMES)
    mesh.kill("c")
    mesh.pass_time(4_500)
    assert {"member c", "narrow c"} <= set(remembered(mesh, "a"))
    mesh.pass_time(1_000)
    assert remembered(mesh, "a") == []
    assert names(mesh, "a") == names(mesh, "b") == ["a", "b"]


def test_a_broker_that_joins_is_not_told_of_those_who_are_gone() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]}, **TIMES)
    mesh.kill("c")
    assert "c" in names(mesh, "b")
    mesh.add("d", ["b"])
    mesh.pass_time(100)
    assert names(mesh, "d") == ["a", "b", "d"]


def test_links_that_come_and_go_do_not_keep_the_dead_in_memory() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["a", "dead"]}, **TIMES)
    mesh.kill("dead")
    for _ in range(4):
        for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
            peering = mesh[one].broker._peering
            peering.drop(LinkConfig(host=other))
            mesh[one].take()
            mesh.pass_time(300)
            peering.aim(LinkConfig(host=other), mesh.now)
            mesh[one].take()
            mesh.pass_time(300)
    mesh.pass_time(500)
    assert all(names(mesh, name) == ["a", "b", "c"] for name in "abc")


def test_a_partition_that_outlasts_all_memory_heals_with_no_interest_lost() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, **TIMES)
    heard = mesh.client("d", 1)
    mesh.subscribe("d", 1, "x/+")
    mesh.client("a", 2)
    mesh.stalled.add(frozenset("bc"))
    mesh.pass_time(10_000)
    assert [names(mesh, "a"), names(mesh, "d")] == [["a", "b"], ["c", "d"]]
    mesh.stalled.clear()
    mesh.pass_time(6_000)
    mesh.publish("a", 2, "x/1", b"one")
    assert heard.payloads == [b"one"]


def test_who_has_forgotten_what_a_neighbour_still_remembers_is_told_when_it_comes_back() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, **TIMES)
    heard = mesh.client("d", 1)
    mesh.subscribe("d", 1, "x")
    mesh.client("a", 2)
    mesh.stalled.add(frozenset("bc"))
    mesh.pass_time(2_500)
    routing = mesh["a"].broker._routing
    for item in routing.memory.lost:  # as if a had noticed the loss long before b
        routing._forget(*item)
    mesh["a"].take()
    mesh.stalled.clear()
    mesh.pass_time(3_000)
    assert names(mesh, "a") == ["a", "b", "c", "d"]
    mesh.publish("a", 2, "x", b"one")
    assert heard.payloads == [b"one"]


def test_a_gateway_that_is_none_any_more_and_a_leader_that_is_silent_are_forgotten_elsewhere() -> None:
    clusters = {"a": "x", "b": "x", "f": "x", "c": "y"}
    mesh = Mesh({"b": ["a", "c"], "a": ["c", "f"]}, clusters, **TIMES)
    assert mesh.report("c", "map")["clusters"][0]["leader"] == "a"
    mesh["a"].broker._peering.drop(LinkConfig(host="c"))
    mesh["a"].take()
    mesh.pass_time(2_000)
    assert "gateway a" in remembered(mesh, "c")
    mesh.add("low139", ["b"], "x")  # its slot is 0
    mesh.pass_time(7_000)
    routing = mesh["c"].broker._routing
    assert [gateway.name for gateway in routing.view.map.gateways.values() if gateway.cluster == "x"] == ["b"]
    owners = [owner for owner in routing.view.interests.owners if owner[1]]
    assert owners == [(mesh["low139"].broker._routing.view.me, True)]


def test_a_gateway_that_lost_its_last_link_while_it_was_alone_is_not_taken_for_one_when_it_is_back() -> None:
    clusters = {"a": "x", "b": "x", "g": "x", "c": "y"}
    mesh = Mesh({"g": ["b", "c"], "b": ["a"], "a": ["c"]}, clusters, **TIMES)
    mesh.stalled.add(frozenset("gb"))
    mesh.pass_time(2_500)
    mesh["g"].broker._peering.drop(LinkConfig(host="c"))
    mesh["g"].take()
    mesh.pass_time(100)
    routing = mesh["b"].broker._routing
    for item in routing.memory.lost:  # as if b had begun anew: it learns the old record from a
        routing._forget(*item)
    mesh.stalled.clear()
    mesh.pass_time(1_500)
    assert names(mesh, "b") == ["a", "b", "c", "g"]
    for name in "abc":
        gateways = mesh[name].broker._routing.view.map.gateways.values()
        assert sorted(gateway.name for gateway in gateways if gateway.outside) == ["a", "c"], name
