"""A broker that has the network key and lies, and strangers that pose as brokers: nobody else suffers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.broker.config import BrokerConfig, LimitsConfig, LinkConfig, ListenerConfig, NetworkConfig
from heliograph.broker.routing import barriers, exchange, interests
from heliograph.broker.routing import map as network_map
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.notes import NameContested
from heliograph.timekeeping.incarnations import RENEW_NS
from heliograph.wire.broker_bodies import INTERESTS_PER_BODY_MAX, broker_id
from heliograph.wire.frames import HEAD, Kind, control, event, parcel, service
from heliograph.wire.limits import AGE_MAX, CONTROL_BYTES_MAX, FRAME_BYTES_MAX, HEAD_BYTES, LINKS_PER_BROKER_MAX
from tests.broker.routing.hostile import Hostile, proof_of
from tests.broker.routing.mesh import KEY, Mesh, Node
from tests.broker.talk import Heard, Talk

pytestmark = pytest.mark.req("N18")
CHAIN = {"a": ["b"], "b": ["c"]}
LINK = {"versions": [1], "name": "x", "cluster": "main", "incarnation": 1, "nonce": "00", "broker": broker_id("x")}


def beset(**network: Any) -> tuple[Mesh, Hostile, Heard]:
    """Three brokers in a chain, a publisher at one end, a subscriber at the other, and a liar beside the first."""
    mesh = Mesh(CHAIN, **network)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    mesh.client("a", 2)
    hostile = Hostile(mesh, "a")
    hostile.member()
    assert hostile.end is None
    return mesh, hostile, heard


def all_is_well(mesh: Mesh, heard: Heard) -> bool:
    """What is published arrives, over links that still stand."""
    mesh.publish("a", 2, "x", b"good")
    links = {name: {row["broker"] for row in mesh.report(name, "map")["neighbours"]} for name in "abc"}
    return heard.payloads[-1:] == [b"good"] and "b" in links["a"] and links["b"] == {"a", "c"}


# -- strangers --------------------------------------------------------------------------------------------------------


def test_a_proof_that_is_no_hexadecimal_text_is_a_wrong_one() -> None:
    mesh = Mesh({"a": []})
    mesh["a"].attach(5)
    mesh["a"].say(5, control(Kind.LINK, 0, json.dumps(LINK).encode()))
    mesh["a"].say(5, control(Kind.PROOF, 0, '{"proof":"é"}'.encode()))
    assert mesh["a"].hangups[5] is Reason.CREDENTIAL_WRONG


@pytest.mark.req("N18")
def test_who_dials_gets_no_hmac_before_it_has_shown_its_own() -> None:
    mesh = Mesh({"a": []})
    mesh["a"].attach(5)
    mesh["a"].say(5, control(Kind.LINK, 0, json.dumps(LINK).encode()))
    [linked] = mesh["a"].heard[5].answers
    assert linked.kind == Kind.LINKED
    assert "proof" not in json.loads(linked.payload)

    mesh["a"].say(5, control(Kind.PROOF, 0, b'{"proof":"00"}'))
    assert mesh["a"].heard[5].order == ["LINKED", "GOODBYE"]
    assert mesh["a"].hangups[5] is Reason.CREDENTIAL_WRONG


@pytest.mark.req("N18")
def test_who_has_shown_the_key_gets_the_other_proof_first() -> None:
    mesh = Mesh({"a": []})
    mesh["a"].attach(5)
    said = json.dumps(LINK).encode()
    mesh["a"].say(5, control(Kind.LINK, 0, said))
    [linked] = mesh["a"].heard[5].answers
    mesh["a"].say(5, control(Kind.PROOF, 0, json.dumps({"proof": proof_of("dialler", said, linked.payload)}).encode()))
    assert mesh["a"].heard[5].order[:2] == ["LINKED", "PROOF"]
    wanted = proof_of("listener", said, linked.payload)
    assert json.loads(mesh["a"].heard[5].answers[1].payload) == {"proof": wanted}


@pytest.mark.req("N18")
def test_who_is_dialled_cannot_have_a_listener_answer_for_other_names() -> None:
    """Without the key: what the dialled party is told is shown to the broker's own listener, and its answer back."""
    talk = Talk(BrokerConfig(name="b", network=NetworkConfig(key=KEY, links=(LinkConfig(host="x"),))))
    talk.broker.clock(0, 0)
    [(ticket, _)] = talk.broker.take().dials
    talk.attach(7, Peer("tcp", "127.0.0.1:7", None, None, ticket))
    asked = json.loads(talk.heard[7].answers[0].payload)
    talk.attach(8)
    talk.say(8, control(Kind.LINK, 0, json.dumps({**LINK, "nonce": asked["nonce"]}).encode()))
    answered = json.loads(talk.heard[8].answers[0].payload)
    other = {**LINK, "name": "y", "broker": broker_id("y"), "nonce": answered["nonce"]}
    talk.say(7, control(Kind.LINKED, 0, json.dumps(other).encode()))
    assert talk.heard[7].order == ["LINK", "PROOF"]

    talk.say(8, control(Kind.PROOF, 0, talk.heard[7].answers[1].payload))
    assert talk.hangups[8] is Reason.CREDENTIAL_WRONG
    assert talk.broker.report("map")["neighbours"] == []


@pytest.mark.req("N18")
@pytest.mark.parametrize("how", ["none", "wrong", "reflected", "listener again"])
def test_a_broker_that_we_dialled_is_no_neighbour_before_it_has_shown_the_key(how: str) -> None:
    talk = Talk(BrokerConfig(name="b", network=NetworkConfig(key=KEY, links=(LinkConfig(host="x"),))))
    talk.broker.clock(0, 0)
    [(ticket, _)] = talk.broker.take().dials
    talk.attach(7, Peer("tcp", "127.0.0.1:7", None, None, ticket))
    linked = control(Kind.LINKED, 0, json.dumps(LINK).encode())
    talk.say(7, linked)
    assert talk.heard[7].order == ["LINK", "PROOF"]
    assert talk.broker.report("map")["neighbours"] == []

    answers = {
        "none": control(Kind.PING, 1),
        "wrong": control(Kind.PROOF, 0, b'{"proof":"00"}'),
        "reflected": control(Kind.PROOF, 0, talk.heard[7].answers[1].payload),
        "listener again": linked,
    }
    talk.say(7, answers[how])
    assert talk.broker.report("map")["neighbours"] == []
    wrong = Reason.CREDENTIAL_WRONG if how in ("wrong", "reflected") else Reason.KIND_UNEXPECTED
    assert talk.hangups[7] is wrong


def test_who_is_dialled_as_a_broker_does_not_become_a_client_past_the_listeners_rules() -> None:
    config = BrokerConfig(
        listeners=(ListenerConfig(auth="token"),), network=NetworkConfig(key=KEY, links=(LinkConfig(host="x"),))
    )
    talk = Talk(config)
    talk.broker.clock(0, 0)
    [(ticket, _)] = talk.broker.take().dials
    talk.attach(7, Peer("tcp", "127.0.0.1:7", None, None, ticket))
    talk.say(7, talk.hello(7))
    assert talk.hangups[7] is Reason.KIND_UNEXPECTED


def test_a_link_on_which_a_session_began_is_no_brokers_any_more() -> None:
    mesh = Mesh({"a": []})
    mesh["a"].attach(5)
    mesh["a"].say(5, control(Kind.LINK, 0, json.dumps(LINK).encode()))
    mesh["a"].say(5, mesh["a"].hello(5))
    mesh["a"].say(5, control(Kind.PROOF, 0, b'{"proof":"00"}'))
    assert mesh["a"].hangups[5] is Reason.KIND_UNEXPECTED


def test_linked_brokers_do_not_count_as_links_in_their_handshake() -> None:
    config = BrokerConfig(name="a", limits=LimitsConfig(links_unproven_max=2), network=NetworkConfig(key=KEY))
    mesh = Mesh({})
    mesh.nodes["a"] = Node(mesh, "a", config)
    for number in range(3):
        assert Hostile(mesh, "a", 500 + number, f"h{number}").end is None
    mesh.client("a", 1)
    assert 1 not in mesh["a"].hangups


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"broker": 5}, Reason.BODY_MALFORMED),
        ({"broker": broker_id("hostile") ^ 1 << 63}, Reason.BODY_MALFORMED),
        ({"broker": 1 << 64}, Reason.BODY_MALFORMED),
        ({"broker": -1}, Reason.BODY_MALFORMED),
        ({"name": "a"}, Reason.NAME_TAKEN),
        ({"name": "n" * 10_000}, Reason.BODY_MALFORMED),
        ({"cluster": "c" * 10_000}, Reason.BODY_MALFORMED),
        ({"incarnation": AGE_MAX + 1}, Reason.BODY_MALFORMED),
        ({"incarnation": AGE_MAX}, Reason.INCARNATION_AHEAD),
        ({"nonce": "00 11"}, Reason.BODY_MALFORMED),
    ],
)
def test_who_claims_what_no_broker_is_gets_no_link(claims: dict[str, Any], reason: Reason) -> None:
    mesh = Mesh(CHAIN)
    assert Hostile(mesh, "a", **claims).end is reason


# -- the map ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("N4")
@pytest.mark.parametrize(
    "lie",
    [
        {"slot": 64},
        {"slot": -1},
        {"epoch": 1 << 16},
        {"epoch": -1},
        {"incarnation": AGE_MAX + 1},
        {"number": 10**4_000},
        {"number": 1.5},
        {"links": {"1": -1}},
        {"links": {"1": 1 << 70}},
        {"links": {"-1": 1}},
        {"links": {str(1 << 64): 1}},
        {"links": {str(number): 1 for number in range(LINKS_PER_BROKER_MAX + 1)}},
        {"lives": {str(1 << 64): 1}},
        {"lives": {"1": 1 << 64}},
        {"name": "other"},
        {"address": "a" * 1_000},
        {"address": "a\n"},
        {"cluster": "another"},
        {"record": "gateway", "speaker": 1 << 64, "outside": {}, "inside": {}},
        {"record": "gateway", "speaker": -1, "outside": {}, "inside": {}},
        {"record": "gateway", "speaker": 1, "outside": {"1": 1 << 40}, "inside": {}},
        {"record": "gateway", "speaker": 1, "outside": {}, "inside": {str(1 << 64): 1}},
    ],
)
def test_a_record_that_no_broker_would_write_ends_its_link_and_nothing_else(lie: dict[str, Any]) -> None:
    mesh, hostile, heard = beset()
    hostile.member(**lie)
    assert hostile.end is Reason.BODY_MALFORMED
    assert mesh.report("a", "overview")["refused"]["body_malformed"] == 1
    assert all_is_well(mesh, heard)


@pytest.mark.req("N4")
def test_what_a_cluster_says_among_itself_is_not_heard_from_another_cluster() -> None:
    for number, words in enumerate(("member", "interest")):
        mesh = Mesh(CHAIN)
        hostile = Hostile(mesh, "a", 500 + number, cluster="theirs")
        getattr(hostile, words)()
        assert hostile.end is Reason.KIND_UNEXPECTED


@pytest.mark.req("N4")
def test_more_links_than_a_map_has_room_for_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_map, "LINKS_MAX", 100)
    mesh, hostile, heard = beset()
    for number in range(30):
        name = f"phantom{number}"
        hostile.member(broker=broker_id(name), name=name, links={str(other): 1 for other in range(1, 11)})
    assert len(mesh.report("a", "map")["members"]) < 20
    assert mesh.report("a", "overview")["refused"]["brokers_over_limit"] > 10
    assert all_is_well(mesh, heard)


@pytest.mark.req("N4")
@pytest.mark.parametrize("age", [(7, 1), (1, 10**6), (AGE_MAX - 1, AGE_MAX)])
@pytest.mark.parametrize("who", "abc")
def test_a_broker_of_which_others_were_told_lies_is_believed_again(who: str, age: tuple[int, int]) -> None:
    mesh, hostile, heard = beset()
    me, said = broker_id(who), {"incarnation": age[0], "number": age[1]}
    hostile.member(broker=me, name=who, links={}, **said)
    hostile.gateway(broker=me, name=who, cluster="main", outside={}, **said)
    for wide in (False, True):
        hostile.interest(owner=me, wide=wide, **said)
    mesh.pass_time(2_000)
    mesh.subscribe("c", 1, "y", 2)
    mesh.publish("a", 2, "y", b"new")
    assert heard.payloads == [b"new"]
    assert all_is_well(mesh, heard)


KINDS = ["member", "gateway", "narrow", "wide"]


def lie(hostile: Hostile, kind: str, who: str, said: tuple[int, int]) -> None:
    """A false record or interest of another broker: it has no links, or wants nothing."""
    about: dict[str, Any] = {"incarnation": said[0], "number": said[1]}
    if kind == "member":
        hostile.member(broker=broker_id(who), name=who, links={}, **about)
    elif kind == "gateway":
        hostile.gateway(broker=broker_id(who), name=who, cluster="main", outside={}, **about)
    else:
        hostile.interest(owner=broker_id(who), wide=kind == "wide", **about)


def highest_at(mesh: Mesh, name: str) -> int:
    """The highest incarnation that this broker believes now."""
    return mesh[name].broker._routing.incarnations.highest(mesh.now)


def hears_what_it_subscribes_to_now(mesh: Mesh, heard: Heard) -> bool:
    mesh.subscribe("c", 1, f"now/{mesh.now}", mesh.now // 1_000_000)
    mesh.publish("a", 2, f"now/{mesh.now}", b"new")
    return heard.payloads[-1:] == [b"new"] and all_is_well(mesh, heard)


@pytest.mark.req("N4")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", "abc")
def test_an_incarnation_that_its_owner_could_not_outbid_is_believed_by_nobody(who: str, kind: str) -> None:
    mesh, hostile, heard = beset()
    lie(hostile, kind, who, (AGE_MAX, AGE_MAX))
    hostile.say(Kind.SYNC, {"has": [[kind, broker_id(who), AGE_MAX, AGE_MAX]]})
    assert mesh.report("a", "overview")["refused"]["incarnation_ahead"] == 2
    assert not [frame for frame in hostile.heard.answers if b'"wants":[[' in frame.payload]
    mesh["a"].leave(hostile.link)
    assert hostile.end is None, "a broker with a faster clock may have passed it on"
    assert {node.broker._routing.view.map.me.incarnation for node in mesh.nodes.values()} == {1}
    mesh.pass_time(100)
    assert hears_what_it_subscribes_to_now(mesh, heard)


@pytest.mark.req("N4")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", "abc")
def test_the_highest_lie_that_is_believed_does_no_harm_a_second_after_the_liar_was_removed(who: str, kind: str) -> None:
    mesh, hostile, heard = beset()
    for _ in range(30):
        lie(hostile, kind, who, (highest_at(mesh, "a"), AGE_MAX))
        mesh.pass_time(100)
    mesh["a"].leave(hostile.link)
    mesh.pass_time(1_100)
    assert hears_what_it_subscribes_to_now(mesh, heard)
    incarnations = [node.broker._routing.view.map.me.incarnation for node in mesh.nodes.values()]
    assert max(incarnations) > 10**12
    assert max(incarnations) < highest_at(mesh, "a")


@pytest.mark.req("N4")
@pytest.mark.parametrize("kind", ["member", "narrow"])
def test_a_broker_whose_clock_is_behind_believes_the_owner_of_a_lie_once_its_clock_is_there(kind: str) -> None:
    mesh, _, heard = beset()
    for name, behind_s in (("a", 5), ("b", 0), ("c", 0)):
        mesh[name].broker.clock((1_800_000_000 - behind_s) * 10**9, mesh.now)
    beside_b = Hostile(mesh, "b", 600, "other")
    lie(beside_b, kind, "c", (highest_at(mesh, "b"), 5))
    mesh["b"].leave(beside_b.link)
    mesh.pass_time(1_100)
    mesh.subscribe("c", 1, "y", 2)
    mesh.publish("a", 2, "y", b"early")
    assert heard.payloads == [], "a does not know yet what c wants now"
    assert mesh.report("a", "overview")["refused"]["incarnation_ahead"] > 0

    mesh.pass_time(5_000)
    mesh.publish("a", 2, "y", b"late")
    assert heard.payloads == [b"late"]
    assert all_is_well(mesh, heard)


@pytest.mark.req("N4")
def test_two_brokers_of_one_name_do_not_outbid_each_other_without_end() -> None:
    mesh = Mesh({**CHAIN, "c": ["d"]})
    network = NetworkConfig(key=KEY, links=(LinkConfig(host="d"),))
    twin = mesh.nodes["twin"] = Node(mesh, "twin", BrokerConfig(name="a", network=network), 5)
    twin.take()
    mesh.pass_time(5_000)
    incarnations = [node.broker._routing.view.map.me.incarnation for node in (mesh["a"], twin)]
    assert max(incarnations) < 5 + 2 * 5_000 * 1_000_000 // RENEW_NS + 5
    assert any(isinstance(note, NameContested) for note in mesh["a"].notes)


# -- interests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"owner": 1 << 64}, Reason.BODY_MALFORMED),
        ({"owner": -1}, Reason.BODY_MALFORMED),
        ({"number": AGE_MAX + 1}, Reason.BODY_MALFORMED),
        ({"add": ["x"] * (INTERESTS_PER_BODY_MAX + 1)}, Reason.BODY_MALFORMED),
        ({"add": [["x", "sql", f"a = '{'y' * 4_000}'"]] * 100}, Reason.BODY_MALFORMED),
        ({"add": ["x//y"]}, Reason.FILTER_INVALID),
        ({"add": [["x", "sql", "y" * 5_000]]}, Reason.CONDITION_OVER_LIMIT),
        ({"add_groups": [["x", "\n"]]}, Reason.BODY_MALFORMED),
    ],
)
def test_an_interest_that_no_broker_would_tell_ends_its_link(lie: dict[str, Any], reason: Reason) -> None:
    mesh, hostile, heard = beset()
    hostile.interest(**lie)
    assert hostile.end is reason
    assert all_is_well(mesh, heard)


def test_interests_beyond_the_room_for_all_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "INTERESTS_BYTES_MAX", 100 * interests.INTEREST_BYTES)
    mesh, hostile, heard = beset()
    for owner in range(1, 20):
        hostile.interest(owner=owner, add=[f"{owner}/{number}" for number in range(50)])
    known = mesh["a"].broker._routing.view.interests
    assert 50 < len(known) < 100
    assert mesh.report("a", "overview")["refused"]["subscriptions_over_limit"] > 10
    assert all_is_well(mesh, heard)
    mesh["a"].leave(hostile.link)
    mesh.pass_time(70_000)
    assert len(known) < 10, "what nobody wants is forgotten, and there is room again"


def test_snapshots_that_never_end_take_bounded_room_and_one_of_which_parts_were_lost_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interests, "PENDING_BYTES_MAX", 10_000)
    mesh, hostile, heard = beset()
    for owner in range(1, 200):
        hostile.interest(owner=owner, more=True, number=7, add=[f"{owner}/{number}" for number in range(20)])
    known = mesh["a"].broker._routing.view.interests
    assert sum(len(owner.pending) for owner in known.owners.values()) < 20
    hostile.interest(owner=1, number=7, add=["1/20"], total=21)
    asked = [json.loads(frame.payload) for frame in hostile.heard.answers if frame.kind == Kind.SYNC]
    assert asked[-1] == {"wants": [["narrow", 1]]}
    assert known.age(1, False) is None
    assert all_is_well(mesh, heard)


@pytest.mark.req("N8")
def test_a_broker_that_is_linked_in_the_middle_of_a_snapshot_asks_for_the_rest() -> None:
    mesh, hostile, _ = beset()
    pages = [[f"{part}/{number}" for number in range(INTERESTS_PER_BODY_MAX)] for part in range(2)]
    hostile.interest(number=50, more=True, add=pages[0])
    mesh.add("d", ["a"])
    hostile.interest(number=50, add=pages[1], total=1_000)
    mesh.pass_time(500)
    table = mesh["d"].broker._routing.view.interests
    assert len(table.owners[(hostile.broker, False)].filters) == 1_000


# -- questions --------------------------------------------------------------------------------------------------------


def test_many_questions_for_one_long_answer_are_answered_once_and_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "TOLD_AT_ONCE", 100)
    mesh, hostile, heard = beset()
    for owner in (1, 2, 3):
        hostile.interest(owner=owner, number=1, add=[f"{owner}/{number}" for number in range(200)])
    told = len(hostile.heard.answers)
    hostile.say(Kind.SYNC, {"wants": [["narrow", owner] for owner in (1, 2, 3)] * 100})
    assert len(hostile.heard.answers) == told + 1, "the rest waits"
    mesh.pass_time(50)
    answers = [frame for frame in hostile.heard.answers[told:] if frame.kind == Kind.INTEREST]
    assert [json.loads(frame.payload)["owner"] for frame in answers] == [1, 2, 3]
    assert all_is_well(mesh, heard)


@pytest.mark.req("N5")
def test_a_neighbour_that_never_reads_loses_its_link_and_holds_nobody() -> None:
    mesh, hostile, heard = beset()
    mesh["a"].broker._links.limits = LimitsConfig(queue_frames_max=50)
    mesh["a"].press(hostile.link, True)
    for number in range(100):
        mesh.subscribe("c", 1, f"topic/{number}", 10 + number)
    mesh.pass_time(100)
    assert hostile.end is Reason.SLOW_CONSUMER
    assert all_is_well(mesh, heard)


@pytest.mark.req("N5")
def test_waves_without_end_by_way_of_one_neighbour_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barriers, "BARRIERS_PER_NEIGHBOUR_MAX", 10)
    mesh, hostile, heard = beset()
    for broker in range(1, 50):
        hostile.say(Kind.WAVE, {"broker": broker, "number": 1, "wide": True, "told": [5, 1, 1]})
    assert mesh.report("a", "overview")["refused"]["requests_over_limit"] == 39
    mesh.subscribe("c", 1, "y", 2, wide=True)
    assert heard.order[-1] == "CONFIRMED"
    assert all_is_well(mesh, heard)


# -- parcels and traces -----------------------------------------------------------------------------------------------


@pytest.mark.req("N5")
def test_a_parcel_that_would_be_too_long_for_the_next_broker_is_refused_by_the_first() -> None:
    mesh, hostile, heard = beset()
    size = FRAME_BYTES_MAX + CONTROL_BYTES_MAX - 2 * HEAD_BYTES - 9
    hostile.parcel(event(b"x", b"y" * size, 9, 1), members=(1 << 64) - 1)
    assert hostile.end is Reason.FRAME_OVER_LIMIT
    assert mesh.report("b", "overview")["refused"] == {}
    assert all_is_well(mesh, heard)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (event(b"x", b"bad", 9, 1, b"", 1), "flags_unknown"),
        (event(b"x", b"bad", 9, 1, b"", 255), "flags_unknown"),
        (event(b"x/#", b"bad", 9, 1, b"", 4), "topic_invalid"),
        (event(b"x/#", b"bad", 9, 1), "topic_invalid"),
        (event(b"x", b"bad", 9, 1, b'{"$d":5}', 8), "headers_malformed"),
        (control(Kind.TRACE, 1), "topic_invalid"),
        (control(Kind.GOODBYE), "body_malformed"),
        (parcel(30, 3, 0, 1, 1) + bytes(30), "body_malformed"),
        (bytes(100_000), "body_malformed"),
    ],
)
def test_what_an_entry_broker_should_have_refused_is_counted_where_it_arrives_and_blamed_on_no_relay(
    frame: bytes, reason: str
) -> None:
    mesh, hostile, heard = beset()
    hostile.parcel(frame, members=1 << mesh["c"].broker._routing.view.map.me.slot)
    assert list(mesh.report("c", "overview")["refused"]) == [reason]
    assert heard.payloads == []
    assert hostile.end is None
    assert all_is_well(mesh, heard)


@pytest.mark.parametrize(
    "body",
    [
        b'{"broker":"b","cluster":"main","path":[],"groups":0,"links":[{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
        b"[",
        b"\xff",
    ],
)
def test_an_answer_to_a_trace_that_is_none_is_counted_and_left_out(body: bytes) -> None:
    mesh, hostile, heard = beset()
    answers: list[Any] = []
    node = mesh["a"].broker
    node._orders._tracing.start(b"x", b"", b"", node._links.by_id[2], answers.append, mesh.now)
    head = HEAD.pack(HEAD_BYTES - 4 + 1 + len(body), Kind.TRACED, 0, 1, node._routing.view.me, 1, 0)
    hostile.parcel(head + b"x" + body, members=1 << node._routing.view.map.me.slot)
    mesh["a"].take()
    mesh.pass_time(600)
    assert [row["broker"] for row in answers[0]["brokers"]] == ["c"]
    assert mesh.report("a", "overview")["refused"] == {"body_malformed": 1}
    assert all_is_well(mesh, heard)


def test_an_answer_to_a_trace_is_short_enough_to_travel_however_many_subscriptions_it_names() -> None:
    mesh, _, heard = beset()
    long = " or ".join(f"a = '{number}'" for number in range(60))
    for link in range(10, 20):
        mesh.client("c", link)
        for number in range(1, 200):
            mesh["c"].subscribe(link, "x", number)
        mesh["c"].subscribe(link, "x", 200, language="sql", where=long)
        mesh.pass_time(20)
    answers: list[Any] = []
    node = mesh["a"].broker
    node._orders._tracing.start(b"x", b"", b"", node._links.by_id[2], answers.append, mesh.now)
    mesh["a"].take()
    mesh.pass_time(600)
    [row] = answers[0]["brokers"]
    assert len(row["links"]) == 11
    assert max(len(link["numbers"]) for link in row["links"]) == 100
    assert max(len(one["failed"]) for one in row["conditions"]) <= 256
    assert all_is_well(mesh, heard)


# -- anything ---------------------------------------------------------------------------------------------------------

IDS = [broker_id(name) for name in ("a", "b", "c", "hostile", "nobody")]
numbers = st.sampled_from([0, 1, 2, 63, 64, 1 << 16, 1 << 32, 1 << 61, 1 << 63, 1 << 64, 1 << 200, -1, -(1 << 63)])
ids = st.sampled_from([*IDS, IDS[0] ^ 1 << 63, 7]) | numbers
plain = st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=5) | st.sampled_from(["main", "x", "+/#"])
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ids.map(str), inner, max_size=3), max_leaves=6
)
links = st.dictionaries(ids.map(str), numbers, max_size=4)
whats = st.sampled_from(["member", "gateway", "narrow", "wide"])
tolds = st.sampled_from(
    ["x", "+/#", "#", "Inbox/1/#", ["x", "sql", "a > 1"], ["x", "klingon", "?"], ["x", "sql", "(("]]
)
groups = st.lists(st.tuples(tolds, st.sampled_from(["g", "", "h"])), max_size=3)
records = {
    **{"name": st.sampled_from(["a", "b", "c", "hostile", "nobody"]), "cluster": st.sampled_from(["main", "theirs"])},
    **{"incarnation": numbers, "number": numbers, "lives": links, "address": st.text(max_size=3)},
}
LIES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "member": {**records, "slot": numbers, "epoch": numbers, "links": links},
    "gateway": {**records, "speaker": ids, "outside": links, "inside": links},
    "interest": {
        **{"owner": ids, "wide": st.booleans(), "incarnation": numbers, "number": numbers, "total": numbers},
        **{"full": st.booleans(), "more": st.booleans()},
        **{"add": st.lists(tolds, max_size=3), "remove": st.lists(tolds, max_size=3)},
        **{"add_groups": groups, "remove_groups": groups},
    },
    "sync": {
        "has": st.lists(st.tuples(whats, ids, numbers, numbers), max_size=4),
        "wants": st.lists(st.tuples(whats, ids), max_size=4),
    },
    "wave": {
        **{"broker": ids, "number": numbers, "wide": st.booleans(), "answer": st.booleans()},
        "told": st.tuples(ids, numbers, numbers),
    },
    "marked": {
        **{"broker": ids, "speaker": ids, "by": ids, "ttl": numbers},
        "way": st.lists(ids, max_size=18),
    },
    "mark": {"broker": ids, "speaker": ids},
    "pong": dict.fromkeys(("time", "error", "stratum", "reference", "era", "age"), numbers),
}


@st.composite
def lies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A word as brokers tell each other, true but for a few fields; one of them, perhaps, is not even of its type."""
    word = draw(st.sampled_from(["gateway", *LIES]))
    names = draw(st.lists(st.sampled_from(list(LIES[word])), min_size=1, max_size=2, unique=True))
    fields = {name: draw(LIES[word][name]) for name in names}
    if "name" in fields:
        fields["broker"] = broker_id(fields["name"])
    if draw(st.integers(0, 5)) == 5:
        fields[names[0]] = draw(anything)
    return word, fields


def tell(hostile: Hostile, word: str, fields: dict[str, Any]) -> None:
    """Say one of them; what is not a lie is as a good broker would say it."""
    truth: dict[str, dict[str, Any]] = {
        "sync": {},
        "wave": {"broker": hostile.broker, "number": 1, "wide": True},
        "marked": {"broker": broker_id("a"), "speaker": 1, "by": 1, "ttl": 64},
        "mark": {"broker": broker_id("a"), "speaker": 1},
        "pong": {"time": 1, "error": 1, "stratum": 3, "reference": 1, "era": 1, "age": 1},
    }
    if word == "mark":  # it comes in parcels, for us and for others
        body = json.dumps({**truth[word], **fields}).encode()
        hostile.parcel(control(Kind.MARK, 1, body), members=3, clusters=(hostile.speaker, broker_id("a")))
    elif word in truth:
        hostile.say(Kind[word.upper()], {**truth[word], **fields})
    elif word == "interest":
        hostile.interest(**{"owner": hostile.speaker, "wide": hostile.cluster != "main", "add": ["x"], **fields})
    else:
        getattr(hostile, word)(**fields)


@example([("gateway", {"speaker": 1 << 64})])
@example([("gateway", {"speaker": -1})])
@given(st.lists(lies(), min_size=1, max_size=8))
def test_whatever_a_linked_broker_says_nobody_fails_and_all_is_well_once_it_is_gone(
    said: list[tuple[str, dict[str, Any]]],
) -> None:
    cluster = "theirs" if said[0][0] == "gateway" else "main"
    mesh = Mesh(CHAIN)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    mesh.client("a", 2)
    hostile: Hostile | None = None
    for link, (word, fields) in enumerate(said, start=500):
        if hostile is None or hostile.end is not None:
            hostile = Hostile(mesh, "a", link, cluster=cluster)
            (hostile.member if cluster == "main" else hostile.gateway)(incarnation=link)
            mesh.pass_time(50)  # until it is told that we are a gateway
        tell(hostile, word, fields)
        if hostile.end is None:
            tell(hostile, "interest", {})
        mesh.publish("a", 2, "x", b"meanwhile")
        mesh.report("a", "map")
    if hostile is not None and hostile.end is None:
        mesh["a"].leave(hostile.link)
    mesh.pass_time(3_000, step_ms=50)
    assert all_is_well(mesh, heard)


@pytest.mark.req("O6")
def test_however_many_clusters_a_broker_invents_what_services_are_told_fits_a_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.broker.ways.CLUSTERS_BYTES", 2_000)
    mesh = Mesh({"a": []})
    mesh["a"].attach(50, Peer("pipe", "resources"))
    mesh["a"].say(50, service(b"broker", b'{"do":"attend"}', 1))
    hostile = Hostile(mesh, "a", cluster="theirs")
    names = [f"g{number:02}" for number in range(60)]
    hostile.gateway(outside={str(broker_id(name)): 1 for name in ["a", *names]})
    for number, name in enumerate(names):
        cluster = f"{number:02}".rjust(100, "x")
        between = {str(hostile.broker): 1}
        hostile.gateway(broker=broker_id(name), name=name, cluster=cluster, speaker=broker_id(name), outside=between)
    mesh.run()
    told = [json.loads(frame.payload) for frame in mesh["a"].heard[50].answers if b'"ways"' in frame.payload]
    clusters = told[-1]["ways"]["clusters"]
    assert 5 <= len(clusters) <= 2_000 // 100
    assert mesh["a"].hangups == {}
