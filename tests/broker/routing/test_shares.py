"""Across brokers: shared subscriptions, requests, directed publications, and word that everybody knows."""

import json

import pytest

from heliograph.broker.commands import Drain
from heliograph.wire.frames import Flag, Kind
from tests.broker.routing.mesh import Mesh
from tests.broker.talk import Heard

pytestmark = pytest.mark.req("N19")
CLUSTERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def a_chain() -> Mesh:
    return Mesh({"a": ["b"], "b": ["c"]})


def two_clusters() -> Mesh:
    return Mesh({"a1": ["a2"], "a2": ["b1"], "b1": ["b2"]}, CLUSTERS)


def an_inbox(heard: Heard) -> str:
    return json.loads(heard.answers[0].payload)["inbox"]


def test_each_publication_goes_to_one_member_of_a_group_and_they_take_turns() -> None:
    mesh = Mesh({"a": []})
    members = [mesh.client("a", link) for link in (1, 2, 3)]
    for link in (1, 2, 3):
        mesh.subscribe("a", link, "jobs/+", group="workers")
    plain = mesh.client("a", 4)
    mesh.subscribe("a", 4, "jobs/#")
    mesh.client("a", 5)
    mesh.publish("a", 5, "jobs/x", *(b"%d" % n for n in range(9)))
    assert [len(heard.payloads) for heard in members] == [3, 3, 3]
    assert len(plain.payloads) == 9


def test_a_member_here_comes_first_then_the_nearest() -> None:
    mesh = a_chain()
    near, far = mesh.client("b", 1), mesh.client("c", 2)
    mesh.subscribe("b", 1, "jobs", group="g")
    mesh.subscribe("c", 2, "jobs", group="g")
    mesh.client("a", 3)
    mesh.client("c", 4)
    mesh.publish("a", 3, "jobs", b"1", b"2")
    mesh.publish("c", 4, "jobs", b"3")
    assert near.payloads == [b"1", b"2"]
    assert far.payloads == [b"3"]


def test_groups_and_plain_subscriptions_at_the_same_broker_both_get_it() -> None:
    mesh = a_chain()
    member, plain = mesh.client("c", 1), mesh.client("c", 2)
    mesh.subscribe("c", 1, "jobs", group="g")
    mesh.subscribe("c", 2, "jobs")
    mesh.client("a", 3)
    mesh.publish("a", 3, "jobs", b"1")
    assert member.payloads == plain.payloads == [b"1"]


def test_a_group_is_found_in_another_cluster() -> None:
    mesh = two_clusters()
    member = mesh.client("b2", 1)
    mesh.subscribe("b2", 1, "jobs", group="g")
    mesh.client("a1", 3)
    mesh.publish("a1", 3, "jobs", b"1", b"2")
    assert member.payloads == [b"1", b"2"]


def test_when_the_last_member_at_a_broker_leaves_the_next_nearest_gets_it() -> None:
    mesh = a_chain()
    near, far = mesh.client("b", 1), mesh.client("c", 2)
    mesh.subscribe("b", 1, "jobs", group="g")
    mesh.subscribe("c", 2, "jobs", group="g")
    mesh.client("a", 3)
    mesh["b"].leave(1)
    mesh.publish("a", 3, "jobs", b"on its way")  # a does not know yet; b passes it on
    mesh.publish("a", 3, "jobs", b"after")
    assert near.payloads == []
    assert far.payloads == [b"on its way", b"after"]


def test_a_request_that_nobody_answers_is_refused_at_once() -> None:
    mesh = a_chain()
    asker = mesh.client("a", 1)
    inbox = an_inbox(asker)
    mesh["a"].publish(1, "service", b"?", headers=json.dumps({"$r": f"{inbox}/7"}).encode(), flags=Flag.REQUEST)
    [refusal] = [json.loads(frame.payload) for frame in asker.answers if frame.kind == Kind.REFUSED]
    assert (refusal["reason"], refusal["subject"]) == ("responders_missing", f"{inbox}/7")


def test_a_request_is_answered_across_clusters() -> None:
    mesh = two_clusters()
    asker, answerer = mesh.client("a1", 1), mesh.client("b2", 2)
    inbox = an_inbox(asker)
    mesh.subscribe("a1", 1, f"{inbox}/#")
    mesh.subscribe("b2", 2, "service")
    headers = json.dumps({"$r": f"{inbox}/7"}).encode()
    mesh["a1"].publish(1, "service", b"?", headers=headers, flags=Flag.REQUEST)
    mesh.run()
    assert asker.refusals == []
    [(_, request)] = answerer.events
    mesh.publish("b2", 2, json.loads(request.headers)["$r"], b"!")
    assert asker.payloads == [b"!"]


def test_inboxes_cost_nothing_upstream_and_are_for_their_own_session() -> None:
    mesh = a_chain()
    inboxes = [an_inbox(mesh.client("a", link)) for link in range(1, 20)]
    before = mesh.report("c", "map")["updates_heard"]
    for link, inbox in enumerate(inboxes, start=1):
        mesh.subscribe("a", link, f"{inbox}/#")
    assert mesh.report("c", "map")["updates_heard"] == before
    mesh.subscribe("a", 1, f"{inboxes[1]}/#", 9)
    assert mesh["a"].heard[1].refusals == ["subscribe_denied"]


@pytest.mark.req("N5")
def test_a_directed_publication_reaches_those_it_names_and_nobody_else() -> None:
    mesh = two_clusters()
    named = [mesh.client("a1", 1), mesh.client("a2", 2), mesh.client("b2", 3)]
    other = mesh.client("b2", 4)
    mesh.subscribe("b2", 4, "#")
    mesh.client("a1", 5)
    headers = json.dumps({"$d": [an_inbox(heard) for heard in named]}).encode()
    mesh["a1"].publish(5, "note", b"for you", headers=headers, flags=Flag.DIRECTED)
    mesh.run()
    assert [heard.payloads for heard in named] == [[b"for you"]] * 3
    assert other.payloads == []


def test_a_directed_publication_without_good_destinations_is_refused() -> None:
    mesh = a_chain()
    heard = mesh.client("a", 1)
    for bad in ([], ["nobody"], "Inbox", ["Inbox/1/2"]):
        mesh["a"].publish(1, "note", headers=json.dumps({"$d": bad}).encode(), flags=Flag.DIRECTED)
    assert heard.refusals == ["headers_malformed"] * 4


def test_a_member_that_does_not_want_its_own_leaves_it_to_members_elsewhere() -> None:
    mesh = a_chain()
    publisher, other = mesh.client("a", 1), mesh.client("b", 2)
    mesh.subscribe("a", 1, "jobs", group="g", echo=False)
    mesh.subscribe("b", 2, "jobs", group="g")
    mesh.publish("a", 1, "jobs", b"1")
    assert (publisher.payloads, other.payloads) == ([], [b"1"])


@pytest.mark.req("N5")
@pytest.mark.parametrize("links", [{"a": []}, {"a": ["b"]}], ids=["alone", "alone in its cluster"])
def test_a_wide_subscription_is_confirmed_where_there_is_nobody_to_tell(links: dict[str, list[str]]) -> None:
    mesh = Mesh(links, {"a": "x", "b": "y"})
    heard = mesh.client("a", 1)
    mesh.subscribe("a", 1, "x", wide=True)
    assert heard.order[-1] == "CONFIRMED"


@pytest.mark.req("N8")
def test_a_draining_broker_stays_a_part_of_the_network_until_its_clients_have_left() -> None:
    mesh = a_chain()
    heard = mesh.client("a", 1)
    mesh.subscribe("a", 1, "x")
    mesh.client("b", 2)
    mesh["a"].broker.tell(Drain(10_000), mesh.now)
    mesh["a"].take()
    mesh.run()
    mesh.publish("b", 2, "x", b"still")
    assert heard.payloads == [b"still"]
    assert not mesh["a"].stopped
    mesh["a"].leave(1)
    mesh.run()
    assert mesh["a"].stopped
    assert mesh.report("b", "overview")["neighbours"] == 1


@pytest.mark.req("N5")
def test_a_wide_subscription_is_confirmed_when_everybody_knows() -> None:
    mesh = two_clusters()
    heard = mesh.client("b2", 1)
    mesh["b2"].subscribe(1, "x", wide=True)
    assert "CONFIRMED" not in heard.order
    mesh.run()
    assert heard.order[-1] == "CONFIRMED"
    mesh.client("a1", 2)
    mesh.publish("a1", 2, "x", b"one")
    assert heard.payloads == [b"one"]


def test_a_wide_subscription_is_confirmed_at_last_even_if_a_neighbour_is_silent() -> None:
    mesh = a_chain()
    heard = mesh.client("c", 1)
    mesh.stalled.add(frozenset("ab"))
    mesh["c"].subscribe(1, "x", wide=True)
    mesh.run()
    assert "CONFIRMED" not in heard.order
    mesh.pass_time(12_000)
    assert "CONFIRMED" in heard.order


def test_many_wide_subscriptions_at_once_take_two_questions_and_none_is_confirmed_early() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"]}, {"a": "1", "b": "1", "c": "2"})
    heard = mesh.client("a", 1)
    before = len(heard.answers)
    for number in range(1, 201):
        mesh["a"].subscribe(1, f"t/{number}", number, wide=True)
    far = mesh["c"].broker._routing.view.interests
    carried = mesh.carried[("a", "b")]
    while mesh.work:
        mesh.step()
        confirmed = [frame.sequence - 1000 for frame in heard.answers[before:] if frame.kind == Kind.CONFIRMED]
        assert all(far.match(b"t/%d" % number) for number in confirmed)
    assert sorted(confirmed) == list(range(1, 201))
    assert mesh.carried[("a", "b")] - carried <= 200 + 8, "what is told is one write each, and two questions are few"


def test_a_question_of_a_broker_that_began_anew_is_not_taken_for_one_of_its_earlier_life() -> None:
    mesh = Mesh({"b": ["a", "c"]}, {"a": "1", "b": "1", "c": "2"})
    mesh.client("a", 1)
    mesh.stalled.add(frozenset("bc"))
    mesh["a"].subscribe(1, "x", wide=True)  # b waits for c, which is silent
    mesh.run()
    mesh.kill("a")
    mesh.add("a", [], "1")
    mesh.pass_time(150)
    heard = mesh.client("a", 1)
    mesh["a"].subscribe(1, "y", wide=True)
    mesh.run()
    assert mesh.report("a", "overview")["neighbours"] == 1
    assert "CONFIRMED" not in heard.order
