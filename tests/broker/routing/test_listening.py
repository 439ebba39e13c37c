"""Subscriptions that only listen, as stores and monitors do: they get everything, and no request counts on them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.routing.interests import AdvertisedInterests, Interests, snapshot_of
from heliograph.model.topics import matches
from heliograph.wire.broker_bodies import Interest
from heliograph.wire.frames import Flag, Kind
from tests.broker.routing.mesh import Mesh
from tests.broker.talk import Heard
from tests.examples import examples
from tests.matching.test_topics import every_topic, filters

pytestmark = pytest.mark.req("N19")

CLUSTERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
ASKER = 90


def two_clusters() -> Mesh:
    return Mesh({"a1": ["a2"], "a2": ["b1"], "b1": ["b2"]}, CLUSTERS)


def is_refused(mesh: Mesh, at: str, topic: str, **headers: Any) -> bool:
    """Ask once, at this broker; True if the broker says at once that no subscriber answers."""
    link = ASKER + list(mesh.nodes).index(at)  # an origin of its own at each broker
    asker: Heard = mesh[at].heard[link] if link in mesh[at].heard else mesh.client(at, link)
    before = len(asker.refusals)
    inbox = next(json.loads(frame.payload)["inbox"] for frame in asker.answers if frame.kind == Kind.WELCOME)
    text = json.dumps({"$r": f"{inbox}/7", **headers}).encode()
    mesh.publish(at, link, topic, b"?", headers=text, flags=Flag.REQUEST)
    return len(asker.refusals) > before


@pytest.mark.parametrize("at", ["a1", "a2", "b2"])  # the same broker, the same cluster, another cluster
def test_one_that_only_listens_hears_a_request_and_is_no_responder(at: str) -> None:
    mesh = two_clusters()
    listener = mesh.client(at, 1)
    mesh.subscribe(at, 1, "#", listens=True)
    assert is_refused(mesh, "a1", "service")
    assert listener.payloads == [b"?"]


@pytest.mark.parametrize("at", ["a1", "a2", "b2"])
def test_a_responder_is_known_beside_one_that_listens_to_everything(at: str) -> None:
    mesh = two_clusters()
    listener, answerer = mesh.client(at, 1), mesh.client(at, 2)
    mesh.subscribe(at, 1, "#", listens=True)
    mesh.subscribe(at, 2, "service")
    assert not is_refused(mesh, "a1", "service")
    assert is_refused(mesh, "a1", "nobody")
    mesh[at].unsubscribe(2)
    mesh.run()
    assert is_refused(mesh, "a1", "service")
    assert listener.payloads == [b"?"] * 3
    assert answerer.payloads == [b"?"]


def test_a_client_that_listens_to_all_and_answers_some_answers_these() -> None:
    mesh = Mesh({"a": ["b"]})
    mesh.client("b", 1)
    mesh.subscribe("b", 1, "#", 1, listens=True)
    mesh.subscribe("b", 1, "service", 2)
    for at in ("a", "b"):
        assert not is_refused(mesh, at, "service")
        assert is_refused(mesh, at, "nobody")


def test_a_condition_decides_who_answers() -> None:
    mesh = Mesh({"a": ["b"]})
    mesh.client("b", 1)
    mesh.subscribe("b", 1, "#", 1, listens=True, language="predicates", where="size > 0")
    mesh.subscribe("b", 1, "service", 2, language="predicates", where="size > 10")
    for at in ("a", "b"):
        assert is_refused(mesh, at, "service", size=5)
        assert not is_refused(mesh, at, "service", size=50)


def test_a_member_of_a_group_answers_and_cannot_only_listen() -> None:
    mesh = Mesh({"a": ["b"]})
    member = mesh.client("b", 1)
    mesh.subscribe("b", 1, "service", 1, group="g", listens=True)
    assert member.refusals == ["body_malformed"]
    assert is_refused(mesh, "a", "service")
    mesh.subscribe("b", 1, "service", 2, group="g")
    assert not is_refused(mesh, "a", "service")


def test_a_broker_that_is_linked_later_learns_who_only_listens() -> None:
    mesh = two_clusters()
    mesh.client("b2", 1)
    mesh.subscribe("b2", 1, "#", 1, listens=True)
    mesh.subscribe("b2", 1, "service", 2)
    mesh.add("a3", ["a1"], "a")
    mesh.pass_time(1_000)
    assert is_refused(mesh, "a3", "nobody")
    assert not is_refused(mesh, "a3", "service")


def test_a_new_leader_tells_other_clusters_who_only_listens() -> None:
    mesh = Mesh({"a1": ["a2", "b1"], "a2": ["b1"]}, {"a1": "a", "a2": "a", "b1": "b"})
    for at in ("a1", "a2"):
        mesh.client(at, 1)
        mesh.subscribe(at, 1, "#", 1, listens=True)
        mesh.subscribe(at, 1, f"service/{at}", 2)
    leader = min(("a1", "a2"), key=lambda name: int(mesh.report(name, "map")["slot"]))
    other = "a2" if leader == "a1" else "a1"
    assert not is_refused(mesh, "b1", f"service/{leader}")
    mesh.kill(leader)
    mesh.pass_time(2_000)
    assert is_refused(mesh, "b1", f"service/{leader}")
    assert not is_refused(mesh, "b1", f"service/{other}")
    assert is_refused(mesh, "b1", "nobody")


@examples(100)
@given(st.lists(st.tuples(filters, st.booleans()), max_size=20), st.sampled_from([3, 1_000]), st.data())
def test_others_know_who_may_answer_and_who_hears(
    wishes: list[tuple[bytes, bool]], limit: int, data: st.DataObject
) -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=limit)
    known, late = Interests(), Interests()
    for body in advertised.snapshot():
        known.learn(body)
    kept: list[tuple[bytes, bool]] = []
    for wish in wishes:
        goes = bool(kept) and data.draw(st.integers(0, 2)) == 0
        pattern, listens = kept.pop(data.draw(st.integers(0, len(kept) - 1))) if goes else wish
        if not goes:
            kept.append(wish)
        key = f"{'remove' if goes else 'add'}{'_listening' if listens else ''}"
        change = advertised.change(**{key: [pattern]})
        for body in advertised.bodies(change) if change is not None else ():
            assert known.learn(body) is not None
    while not advertised.is_settled:
        change = advertised.change()
        for body in advertised.bodies(change) if change is not None else ():
            assert known.learn(body) is not None
    for body in advertised.snapshot():
        late.learn(body)
    for topic in every_topic:
        for listens in (False, True):
            wanted = any(kind is listens and matches(pattern, topic) for pattern, kind in kept)
            for table in (known, late):
                heard = any(one.listens is listens for one in table.match(topic))
                assert heard == wanted or (heard and advertised.widened)


def test_a_snapshot_in_parts_has_both_classes_and_counts_them() -> None:
    patterns = [b"t/%d" % number for number in range(700)]
    bodies = snapshot_of(7, False, (1, 1), patterns, [(b"g", "workers")], patterns)
    assert len(bodies) == 3
    known = Interests()
    known.learn(bodies[0])
    assert known.learn(bodies[2]) is None, "a part is missing"
    for body in bodies:
        known.learn(body)
    assert len(known) == 1_401
    assert [one.listens for one in known.match(b"t/5")] == [False, True]
    change = Interest(7, False, 1, 2, remove_listening=["t/5"])
    difference = known.learn(change)
    assert difference is not None
    assert difference.listening_went == [b"t/5"]
    assert [one.listens for one in known.match(b"t/5")] == [False]
    known.forget((7, False))
    assert len(known) == 0
