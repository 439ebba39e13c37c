"""Tracing: the way of a topic, without delivering anything."""

import json

import pytest

from heliograph.machine import Peer
from heliograph.wire.frames import service
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5")


def a_trace(mesh: Mesh, name: str, topic: str) -> dict:
    node = mesh[name]
    node.attach(50, Peer("pipe", "admin"))
    node.say(50, service(b"broker", json.dumps({"do": "trace", "topic": topic}).encode(), 1))
    mesh.run()
    mesh.pass_time(600)
    answer = json.loads(node.heard[50].answers[-1].payload)
    node.leave(50)
    return answer


def test_a_trace_says_who_would_get_a_topic_and_by_which_way() -> None:
    clusters = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    mesh = Mesh({"a1": ["a2"], "a2": ["b1"], "b1": ["b2"]}, clusters)
    heard = [mesh.client(at, link, name=f"at {at}") for at, link in (("a1", 1), ("a2", 2), ("b2", 3))]
    for name, link in (("a1", 1), ("a2", 2), ("b2", 3)):
        mesh.subscribe(name, link, "x/#", 7)
    found = a_trace(mesh, "a1", "x/y")
    assert (found["topic"], found["entry"], found["complete"]) == ("x/y", "a1", True)
    assert [(row["broker"], row["path"]) for row in found["brokers"]] == [
        ("a1", ["a1"]),
        ("a2", ["a1", "a2"]),
        ("b2", ["a1", "a2", "b1", "b2"]),
    ]
    assert [link["name"] for row in found["brokers"] for link in row["links"]] == ["at a1", "at a2", "at b2"]
    assert all(one.events == [] for one in heard)


def test_a_topic_that_nobody_wants_is_traced_to_nobody() -> None:
    mesh = Mesh({"a": ["b"]})
    found = a_trace(mesh, "a", "x")
    assert found["complete"]
    assert [row["links"] for row in found["brokers"]] == [[]]


def test_a_bad_topic_is_told_what_is_wrong() -> None:
    mesh = Mesh({"a": ["b"]})
    assert a_trace(mesh, "a", "x/#")["reason"] == "question_unknown"
