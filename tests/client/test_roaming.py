"""Planned roaming among real brokers: nothing lost, nothing repeated, in order, whatever overtakes what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Flush, Publish, Subscribe, Unsubscribe
from heliograph.notes import SessionRestored, SessionRoamed
from tests.client.several import Several
from tests.examples import examples

pytestmark = pytest.mark.req("N8")

SHAPES = {
    "two": ({"a": ["b"]}, None),
    "chain": ({"a": ["b"], "b": ["c"]}, None),
    "triangle": ({"a": ["b", "c"], "b": ["c"]}, None),
    "clusters": ({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"}),
}
shapes = pytest.mark.parametrize("shape", SHAPES)
seeds = st.integers(0, 10**9)
few = examples(20)


def a_net(shape: str, seed: int) -> tuple[Several, str]:
    """Brokers in this shape, and the one that is farthest from a."""
    links, clusters = SHAPES[shape]
    net = Several(links, seed, clusters)
    return net, sorted(net.nodes)[-1]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, count)]


def some_steps(net: Several, most: int = 12) -> None:
    for _ in range(net.random.randrange(most)):
        net.step()


def moves(net: Several, name: str) -> list[tuple[str, str]]:
    return [(note.old[-6:-5], note.new[-6:-5]) for note in net.notes(name, SessionRoamed)]


@shapes
@few
@given(seed=seeds, early=st.integers(0, 60), late=st.integers(1, 60))
def test_publisher_and_subscriber_move_and_every_publication_arrives_once_and_in_order(
    shape: str, seed: int, early: int, late: int
) -> None:
    net, last = a_net(shape, seed)
    net.session("publisher", "a")
    net.session("reader", "a")
    net.session("far", last)
    for name in ("reader", "far"):
        net.subscribe(name, "t/#")
    count = 0
    for turn in range(early + late):
        if turn == early:
            net.drain("a")
        net.publish("publisher", "t/near", *numbered(count + 3, count))
        net.publish("far", "t/far", *numbered(count + 3, count))
        count += 3
        some_steps(net)
    net.pass_ms(1_000)
    for name in ("reader", "far"):
        for topic in ("t/near", "t/far"):
            assert net.payloads(name, topic) == numbered(count)
    assert [old for old, _ in moves(net, "publisher") + moves(net, "reader")] == ["a", "a"]
    assert net.nodes["a"].stopped


@pytest.mark.req("N19")
@shapes
@few
@given(seed=seeds)
def test_each_job_of_a_group_is_done_once_while_its_members_move(shape: str, seed: int) -> None:
    net, last = a_net(shape, seed)
    workers = {"w1": "a", "w2": "a", "w3": last}
    for name, at in workers.items():
        net.session(name, at)
        net.subscribe(name, "jobs", group="workers")
    net.session("near", "a")
    net.session("far", last)
    for turn in range(30):
        if turn == 10:
            net.drain("a")
        net.publish("near", "jobs", b"near %d" % turn)
        net.publish("far", "jobs", b"far %d" % turn)
        some_steps(net)
    net.pass_ms(1_000)
    done = sorted(payload for name in workers for payload in net.payloads(name))
    assert done == sorted(b"%b %d" % (who, turn) for who in (b"near", b"far") for turn in range(30))


@pytest.mark.slow
@pytest.mark.req("N19")
@shapes
@few
@given(seed=seeds)
def test_every_request_is_answered_while_both_sides_move(shape: str, seed: int) -> None:
    net, last = a_net(shape, seed)
    net.session("asker", "a")
    net.session("answerer", "a")
    net.session("far", last)
    net.subscribe("answerer", "ask/near")
    net.subscribe("far", "ask/far")
    asked: dict[int, bytes] = {}
    for turn in range(30):
        if turn == 10:
            net.drain("a")
        for topic in ("ask/near", "ask/far"):
            asked[net.request("asker", topic, b"%b %d" % (topic.encode(), turn))] = b"%b %d" % (topic.encode(), turn)
        some_steps(net)
        net.reply("answerer")
        net.reply("far")
    for _ in range(100):
        some_steps(net)
        net.reply("answerer")
        net.reply("far")
    net.pass_ms(1_000)
    for name in ("answerer", "far"):
        net.reply(name)
    net.pass_ms(1_000)
    assert {number: net.outcomes[number].error for number in asked} == dict.fromkeys(asked)
    assert {number: net.outcomes[number].value.payload for number in asked} == asked
    assert moves(net, "asker") != []


@few
@given(seed=seeds)
def test_a_session_that_does_not_want_its_own_does_not_get_it_by_way_of_the_other_broker(seed: int) -> None:
    net, last = a_net("chain", seed)
    net.session("one", "a")
    net.subscribe("one", "t", echo=False)
    net.session("other", last)
    net.subscribe("other", "t")
    for turn in range(30):
        if turn == 5:
            net.drain("a")
        net.publish("one", "t", b"%d" % turn)
        some_steps(net)
    net.pass_ms(1_000)
    assert net.payloads("one") == []
    assert net.payloads("other") == numbered(30)


@few
@given(seed=seeds, turn_of_change=st.integers(0, 40))
def test_subscriptions_that_come_and_go_during_a_move_are_told_and_have_no_holes(
    seed: int, turn_of_change: int
) -> None:
    net, last = a_net("chain", seed)
    net.session("reader", "a")
    net.session("far", last)
    net.subscribe("reader", "old")
    net.drain("a")
    came, went = net.number(), net.number()
    for turn in range(60):
        if turn == turn_of_change:
            net.tell("reader", Subscribe(came, "new"))
            net.tell("reader", Unsubscribe(went, 1))
        net.publish("far", "new", b"%d" % turn)
        net.publish("far", "old", b"%d" % turn)
        some_steps(net, 4)
    net.pass_ms(1_000)
    assert (net.outcomes[came].error, net.outcomes[went].error) == (None, None)
    new = [int(payload) for payload in net.payloads("reader", "new")]
    old = [int(payload) for payload in net.payloads("reader", "old")]
    assert new == list(range(60 - len(new), 60))
    assert old == list(range(len(old)))
    assert moves(net, "reader") == [("a", "b")]
    assert [row["filter"] for row in net.nodes["reader"].machine.report("subscriptions")] == ["new"]
    assert [row["filter"] for row in net.nodes["b"].machine.report("subscriptions")] == ["new"]


@few
@given(seed=seeds)
def test_one_broker_after_the_other_can_be_drained(seed: int) -> None:
    net, last = a_net("chain", seed)
    net.session("reader", "a")
    net.session("far", last)
    net.subscribe("reader", "t")
    for turn in range(80):
        if turn == 10:
            net.drain("a")
        if turn == 50:
            net.run()
            net.drain("b")
        net.publish("far", "t", b"%d" % turn)
        some_steps(net)
    net.pass_ms(1_000)
    assert net.payloads("reader") == numbered(80)
    assert moves(net, "reader") == [("a", "b"), ("b", "c")]


@few
@given(seed=seeds, steps=st.integers(0, 120))
def test_if_the_next_broker_dies_at_any_moment_of_the_move_the_one_after_it_is_taken(seed: int, steps: int) -> None:
    net, _ = a_net("triangle", seed)
    net.session("reader", "a")
    net.session("publisher", "a")
    net.subscribe("reader", "t")
    net.drain("a", grace_ms=60_000)
    for turn in range(steps):
        net.publish("publisher", "t", b"%d" % turn)
        net.step()
    net.kill("b")
    for turn in range(steps, steps + 10):
        net.publish("publisher", "t", b"%d" % turn)
        some_steps(net)
    net.pass_ms(20_000)
    got = [int(payload) for payload in net.payloads("reader")]
    assert got == sorted(set(got))  # what the dead broker had is lost, and nothing is repeated
    for name in ("reader", "publisher"):
        assert net.nodes[name].machine.report("overview")["broker"] == "c"


@few
@given(seed=seeds, steps=st.integers(0, 120))
def test_if_the_draining_broker_dies_at_any_moment_of_the_move_the_next_one_is_taken_at_once(
    seed: int, steps: int
) -> None:
    net, last = a_net("chain", seed)
    session = net.session("reader", "a")
    net.session("far", last)
    net.subscribe("reader", "t")
    net.drain("a")
    while not session.report("overview")["roaming"]:
        net.step()
    for turn in range(steps):
        net.publish("far", "t", b"%d" % turn)
        net.step()
    net.kill("a")
    net.pass_ms(1_000)
    net.publish("far", "t", b"after")
    net.pass_ms(1_000)
    assert net.nodes["reader"].machine.report("overview")["broker"] == "b"
    assert net.payloads("reader")[-1] == b"after"
    got = [int(payload) for payload in net.payloads("reader")[:-1]]
    assert got == sorted(set(got))
    assert len(net.notes("reader", SessionRestored)) + len(moves(net, "reader")) == 1


def test_publishing_and_flushing_go_on_during_a_move() -> None:
    net, _ = a_net("two", 1)
    session = net.session("publisher", "a")
    net.session("reader", "b")
    net.subscribe("reader", "t")
    net.drain("a")
    flushes = []
    while session.report("overview")["roamed"] == 0:
        net.tell("publisher", Publish("t", b"x"))
        flushes.append(net.number())
        net.tell("publisher", Flush(flushes[-1]))
        assert net.step()
        assert session.is_connected
    assert session.report("overview")["roaming"] is False
    net.run()
    assert [net.outcomes[number].error for number in flushes] == [None] * len(flushes)
    assert len(net.payloads("reader")) == len(flushes)
