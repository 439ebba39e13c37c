"""The shortcut against the long way: whatever is said, brokers that take it do the same as brokers that do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.wire.frames import Kind, control
from tests.broker.forms import FORMS, use
from tests.broker.routing.mesh import Mesh

BROKERS = {"a": ["b"], "b": ["c"], "c": []}
CLUSTERS = [{}, {"c": "other"}, {"b": "other", "c": "third"}]
AT = {1: "a", 2: "a", 3: "b", 4: "c", 5: "c"}  # a client -> its broker
TOPICS = ["t", "t/u", "v"]
FILTERS = ["t", "t/#", "+/u", "v", "#"]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from([1, 3, 4]), st.sampled_from(TOPICS), st.integers(1, 3)),
        st.tuples(st.just("publish"), st.just(1), st.just("t"), st.just(1)),
        st.tuples(st.just("again"), st.sampled_from([1, 3]), st.sampled_from(TOPICS), st.integers(0, 4)),
        st.tuples(st.just("large"), st.just(1), st.sampled_from(TOPICS), st.sampled_from([40_000, 70_000])),
        st.tuples(st.just("subscribe"), st.sampled_from(list(AT)), st.sampled_from(FILTERS), st.integers(1, 4)),
        st.tuples(st.just("unsubscribe"), st.sampled_from(list(AT)), st.just(""), st.integers(1, 4)),
        st.tuples(st.just("press"), st.sampled_from([2, 4, 5]), st.just(""), st.integers(0, 1)),
        st.tuples(st.just("ping"), st.sampled_from(list(AT)), st.just(""), st.integers(1, 9)),
        st.tuples(st.just("wait"), st.just(1), st.just(""), st.sampled_from([1, 50, 400])),
    ),
    min_size=5,
    max_size=60,
)


def tell(shortcuts: bool, clusters: dict[str, str], story: list[tuple[str, int, str, int]]) -> tuple[Mesh, Any]:
    """A chain of brokers after a story; everything that can be seen of it."""
    mesh = Mesh(BROKERS, clusters)
    for node in mesh.nodes.values():
        node.shortcuts = shortcuts
    for link, at in AT.items():
        mesh.client(at, link)
    mesh.subscribe("c", 4, "t", 4)
    for what, link, name, number in story:
        _do(mesh, what, link, name, number)
    for link, at in AT.items():
        mesh[at].press(link, False)
    mesh.run()
    mesh.pass_time(300)
    heard = {link: (mesh[at].heard[link].order, mesh[at].heard[link].events) for link, at in AT.items()}
    told = {link: [(numbers, frame.raw) for numbers, frame in events] for link, (_, events) in heard.items()}
    reports = [mesh.report(name, question) for name in BROKERS for question in ("overview", "links", "map", "routes")]
    return mesh, ({link: order for link, (order, _) in heard.items()}, told, reports)


def _do(mesh: Mesh, what: str, link: int, name: str, number: int) -> None:
    node = mesh[AT[link]]
    if what == "publish":
        mesh.publish(node.name, link, name, *(b"p%d" % n for n in range(number)))
    elif what == "again":
        mesh.publish(node.name, link, name, sequence=number)
    elif what == "large":
        mesh.publish(node.name, link, name, bytes(number))
    elif what == "subscribe":
        mesh.subscribe(node.name, link, name, number)
    elif what == "unsubscribe":
        node.unsubscribe(link, number)
    elif what == "press":
        node.press(link, bool(number))
    elif what == "ping":
        node.say(link, control(Kind.PING, number))
    else:
        mesh.pass_time(number)
    mesh.run()


@pytest.mark.req("N5", "N6")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("clusters", CLUSTERS, ids=["one cluster", "two", "three"])
def test_the_shortcut_does_what_the_long_way_does(form: str, clusters: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    use(form, monkeypatch)
    short = {"a": 0, "b": 0, "c": 0}

    @settings(max_examples=40)
    @given(steps)
    def compare(story: list) -> None:
        mesh, by_shortcut = tell(True, clusters, story)
        _, long = tell(False, clusters, story)
        assert by_shortcut == long
        for name in short:
            short[name] += mesh[name].short

    compare()
    assert all(short.values())  # where a publication enters, on its way, and where it arrives


@pytest.mark.parametrize("form", FORMS)
def test_one_publication_at_a_time_takes_the_shortcut_at_every_broker(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(form, monkeypatch)
    mesh = Mesh(BROKERS)
    heard = mesh.client("c", 4)
    mesh.client("a", 1)
    mesh.subscribe("c", 4, "t/#")
    for n in range(10):
        mesh.publish("a", 1, "t/u", b"%d" % n)
    assert heard.payloads == [b"%d" % n for n in range(10)]
    assert [mesh[name].short for name in "abc"] == [9, 9, 9]  # the first one finds the way


@pytest.mark.parametrize("form", FORMS)
def test_it_is_not_taken_while_effects_wait(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(form, monkeypatch)
    mesh = Mesh({"a": []})
    mesh.client("a", 1)
    mesh.client("a", 2)
    mesh.subscribe("a", 2, "t")
    node = mesh["a"]
    mesh.publish("a", 1, "t")
    node.say(1, control(Kind.PING, 7), take=False)
    assert node.broker.shortcut(1, node.an_event(1, "t"), mesh.now) is None


@pytest.mark.req("N15")
@pytest.mark.parametrize("form", FORMS)
def test_it_is_not_taken_to_a_link_that_is_slow(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(form, monkeypatch)
    mesh = Mesh({"a": []})
    mesh.client("a", 1)
    heard = mesh.client("a", 2)
    mesh.subscribe("a", 2, "t")
    mesh.publish("a", 1, "t", b"finds the way")
    mesh["a"].press(2, True)
    assert mesh["a"].broker.shortcut(1, mesh["a"].an_event(1, "t"), mesh.now) is None
    mesh.publish("a", 1, "t", b"waits")
    assert heard.payloads == [b"finds the way"]
    mesh["a"].press(2, False)
    assert heard.payloads[-1] == b"waits"
