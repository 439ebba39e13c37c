"""Brokers that deliver as one."""

from dataclasses import replace

import pytest

from heliograph.broker.commands import Reload
from heliograph.broker.config import LinkConfig
from heliograph.errors import Reason
from heliograph.notes import BrokersLost, BrokersReached, DialFailed, NeighbourSuspected, SettingsReloaded
from heliograph.wire.frames import Flag, Kind, control, event, parcel
from tests.broker.routing.mesh import SETTLE_NS, Mesh

pytestmark = pytest.mark.req("N5")
CHAIN = {"a": ["b"], "b": ["c"]}


def test_a_publication_crosses_a_chain_of_brokers() -> None:
    mesh = Mesh(CHAIN)
    heard = mesh.client("c", 1)
    mesh.client("a", 2)
    mesh.subscribe("c", 1, "x/+")
    mesh.publish("a", 2, "x/y", b"one", b"two")
    mesh.publish("a", 2, "z", b"nobody")
    assert heard.payloads == [b"one", b"two"]


def test_a_large_batch_on_many_topics_keeps_its_order() -> None:
    mesh = Mesh(CHAIN)
    heard = [mesh.client("c", 1), mesh.client("c", 2)]
    mesh.client("a", 3)
    mesh.subscribe("c", 1, "x/1")
    mesh.subscribe("c", 2, "x/2")
    frames = [mesh["a"].an_event(3, f"x/{1 + n % 2}", b"%03d" % n) for n in range(300)]
    mesh["a"].say(3, b"".join(frames))
    mesh.run()
    assert [heard[0].payloads, heard[1].payloads] == [[b"%03d" % n for n in range(m, 300, 2)] for m in (0, 1)]


def test_only_brokers_on_the_way_see_a_publication() -> None:
    mesh = Mesh({"hub": [], "a": ["hub"], "b": ["hub"], "c": ["hub"]})
    heard = mesh.client("a", 1)
    mesh.client("b", 2)
    mesh.subscribe("a", 1, "x")
    before = dict(mesh.carried)
    mesh.publish("b", 2, "x", b"one")
    assert heard.payloads == [b"one"]
    crossed = {pair for pair, count in mesh.carried.items() if count != before.get(pair)}
    assert crossed == {("b", "hub"), ("hub", "a")}


def test_a_publication_that_nobody_wants_stays_where_it_is() -> None:
    mesh = Mesh(CHAIN)
    mesh.client("a", 1)
    before = dict(mesh.carried)
    mesh.publish("a", 1, "x", b"one")
    assert mesh.carried == before


def test_clusters_are_crossed_and_matched_anew() -> None:
    clusters = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c", "c2": "c"}
    mesh = Mesh({"a1": ["a2"], "b1": ["b2"], "c1": ["c2"], "a2": ["b1"], "b2": ["c1"]}, clusters)
    heard = {name: mesh.client(name, 1) for name in ("a1", "b1", "b2", "c2")}
    for name in heard:
        mesh.subscribe(name, 1, "x")
    mesh.client("a1", 2)
    mesh.publish("a1", 2, "x", b"one", b"two")
    assert all(heard[name].payloads == [b"one", b"two"] for name in heard)
    assert all(len(mesh.report(name, "map")["members"]) == 2 for name in clusters), "a cluster's inside stays inside"


@pytest.mark.req("N6")
def test_in_a_ring_everybody_gets_everything_once() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["a"]})
    heard = {name: mesh.client(name, 90 + ord(name)) for name in "abcd"}
    for name in heard:
        mesh.subscribe(name, 90 + ord(name), "#")
    for number, name in enumerate(heard, start=2):
        mesh.client(name, number)
        mesh.publish(name, number, "x", b"from " + name.encode())
    for name in heard:
        assert sorted(heard[name].payloads) == [b"from a", b"from b", b"from c", b"from d"]


@pytest.mark.req("N6")
def test_the_same_publication_entering_at_two_brokers_is_delivered_once() -> None:
    mesh = Mesh(CHAIN)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    mesh.client("a", 7)
    mesh.client("b", 7)
    frame = mesh["a"].an_event(7, "x", b"one")
    for name in "ab":
        mesh[name].say(7, frame)
        mesh.run()
    assert heard.payloads == [b"one"]


@pytest.mark.req("N6", "N10")
def test_a_publication_with_flags_behind_one_of_another_publisher_in_a_parcel_counts_as_its_own_publishers() -> None:
    mesh = Mesh(CHAIN)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    for at, link in (("a", 2), ("a", 3), ("b", 3)):
        mesh.client(at, link)
    repeat = mesh["a"].an_event(3, "x", b"repeat", sequence=2, flags=Flag.REPEAT)
    for link, data in ((2, mesh["a"].an_event(2, "x", b"one")), (3, repeat)):
        mesh["a"].broker.receive(link, data, mesh.now)
    mesh["a"].take()  # both leave in one parcel
    mesh.run()
    mesh.publish("a", 2, "x", b"two")  # has the same number as the one with flags
    mesh["b"].say(3, repeat)
    mesh.run()
    assert heard.payloads == [b"one", b"repeat", b"two"]


@pytest.mark.req("N8")
def test_when_a_broker_on_the_way_dies_another_way_is_taken() -> None:
    mesh = Mesh({"a": ["b", "c"], "d": ["b", "c"]})
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    mesh.publish("a", 2, "x", b"before")
    mesh.kill("b")
    mesh.publish("a", 2, "x", b"after b")
    assert heard.payloads == [b"before", b"after b"]
    mesh.kill("c")
    mesh.publish("a", 2, "x", b"lost")
    assert heard.payloads == [b"before", b"after b"]
    assert any(isinstance(note, BrokersLost) for note in mesh["a"].notes)


def test_a_silent_neighbour_is_suspected_and_what_it_had_not_confirmed_goes_another_way() -> None:
    mesh = Mesh({"a": ["b", "c"], "d": ["b", "c"]})
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    via = (
        "b"
        if mesh["a"].broker._routing.view.paths.steps[mesh["d"].broker._routing.view.me]
        == mesh["b"].broker._routing.view.me
        else "c"
    )
    for other in "ad":
        mesh.stalled.add(frozenset((via, other)))
    mesh.publish("a", 2, "x", b"one")
    assert heard.payloads == []
    mesh.pass_time(2_600)
    assert heard.payloads == [b"one"]
    assert any(isinstance(note, NeighbourSuspected) for note in mesh["a"].notes)
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]


@pytest.mark.req("N8")
def test_every_run_that_waited_for_a_slow_neighbour_goes_another_way_when_it_dies() -> None:
    mesh = Mesh({"a": ["b", "c"], "d": ["b", "c"]})
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    routing = mesh["a"].broker._routing
    via = routing.view.name_of(routing.view.paths.steps[mesh["d"].broker._routing.view.me])
    slow = next(link for link, (end, _) in mesh["a"].ends.items() if end.name == via)
    mesh["a"].press(slow, True)
    for payload in (b"one", b"two", b"three"):
        mesh.publish("a", 2, "x", payload)
    assert heard.payloads == []
    mesh.kill(via)
    assert heard.payloads == [b"one", b"two", b"three"]


def test_what_went_into_a_link_that_is_dead_in_one_direction_goes_another_way_when_the_other_end_says_so() -> None:
    mesh = Mesh({"a": ["b", "c"], "d": ["b", "c"]}, suspect_ms=2_000, dead_ms=60_000, forget_ms=90_000)
    heard = mesh.client("d", 1)
    mesh.client("a", 2)
    mesh.subscribe("d", 1, "x")
    routing = mesh["a"].broker._routing
    via = routing.view.name_of(routing.view.paths.steps[mesh["d"].broker._routing.view.me])
    mesh.muted.add(("a", via))
    mesh.publish("a", 2, "x", b"one")
    assert heard.payloads == []
    mesh.pass_time(2_600)
    assert heard.payloads == [b"one"], "a hears from the other end all the time, and suspects nobody"
    mesh.muted.clear()
    mesh.pass_time(1_000)
    mesh.publish("a", 2, "x", b"two")
    assert heard.payloads == [b"one", b"two"]


def test_a_healed_partition_merges_with_no_interest_lost() -> None:
    mesh = Mesh(CHAIN)
    mesh.client("a", 2)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    mesh.stalled.add(frozenset("bc"))
    mesh.pass_time(15_000)
    mesh.subscribe("c", 1, "y", 2)
    mesh.publish("a", 2, "x", b"lost")
    assert heard.payloads == []
    mesh.stalled.clear()
    mesh.pass_time(10_000)
    mesh.publish("a", 2, "x", b"x again")
    mesh.publish("a", 2, "y", b"y too")
    assert heard.payloads[-2:] == [b"x again", b"y too"]
    assert any(isinstance(note, BrokersReached) for note in mesh["a"].notes)


def test_an_interest_that_ends_stops_the_traffic() -> None:
    mesh = Mesh(CHAIN)
    mesh.client("c", 1)
    mesh.client("a", 2)
    mesh.subscribe("c", 1, "x")
    mesh.publish("a", 2, "x", b"one")
    mesh["c"].leave(1)
    mesh.run()
    before = mesh.carried[("a", "b")]
    mesh.publish("a", 2, "x", b"two")
    assert mesh.carried[("a", "b")] == before


@pytest.mark.req("N18")
def test_a_broker_with_another_key_is_refused() -> None:
    mesh = Mesh({"a": []})
    stranger = Mesh({"z": []}, key=b"other" * 8)
    mesh.nodes["z"] = stranger.nodes["z"]
    stranger.nodes["z"].mesh = mesh
    mesh["z"].broker._peering.aim(LinkConfig(host="a"), mesh.now)
    mesh["z"].take()
    mesh.run()
    assert mesh.report("a", "map")["neighbours"] == []
    assert mesh.report("a", "overview")["refused"].get("credential_wrong") == 1


@pytest.mark.req("N18", "O2")
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b"other" * 8, "credential_wrong: the other broker does not have our network key"),
        (b"", "role_missing: a broker must show a certificate with the role broker, or a network key"),
    ],
    ids=["another key", "no key"],
)
def test_a_link_that_is_dialled_in_vain_is_reported_with_the_last_reason(key: bytes, reason: str) -> None:
    mesh = Mesh({"a": ["b", "nobody", "z"]})
    mesh.kill("nobody")
    mesh.kill("z")
    mesh.nodes["z"] = Mesh({"z": []}, key=key)["z"]
    mesh["z"].mesh = mesh
    mesh.pass_time(5_000)

    report = mesh.report("a", "map")
    assert report["aims"] == [
        {"address": "b:4717", "state": "linked", "broker": "b", "reason": ""},
        {"address": "nobody:4717", "state": "dialling", "broker": "", "reason": "dial_failed"},
        {"address": "z:4717", "state": "dialling", "broker": "", "reason": reason},
    ]
    assert [row["address"] for row in report["neighbours"]] == ["b:4717"]

    mesh.kill("z")
    mesh.add("z", [])
    mesh.pass_time(6_000)
    assert {(aim["state"], aim["reason"]) for aim in mesh.report("a", "map")["aims"] if aim["broker"]} == {
        ("linked", "")
    }


@pytest.mark.req("N18")
def test_a_broker_that_is_refused_says_for_what_reason() -> None:
    mesh = Mesh({"a": []}, key=b"")
    mesh.add("z", ["a"])
    refusal = next(note for note in mesh["z"].notes if isinstance(note, DialFailed))
    assert refusal.address == "a:4717"
    assert refusal.reason is Reason.ROLE_MISSING
    assert "a network key" in refusal.detail
    assert mesh.report("z", "overview")["refused"] == {"goodbye": 1}


@pytest.mark.req("N18")
def test_a_client_that_poses_as_a_broker_is_refused() -> None:
    mesh = Mesh(CHAIN)
    for number, frame in enumerate(
        (parcel(0, 5, 0, 7, 1), control(Kind.MAP, 0, b"{}"), control(Kind.INTEREST, 0, b"{}"), control(Kind.COUNT, 5)),
        start=20,
    ):
        mesh.client("a", number)
        mesh["a"].say(number, frame)
        assert mesh["a"].hangups[number] is Reason.KIND_UNEXPECTED
    assert mesh.report("a", "overview")["refused"]["kind_unexpected"] == 4


@pytest.mark.req("N18")
def test_a_hostile_broker_that_writes_wrong_targets_harms_nobody() -> None:
    mesh = Mesh(CHAIN)
    heard = mesh.client("c", 1)
    mesh.subscribe("c", 1, "x")
    [link] = mesh["a"].ends
    frames = event(b"x", b"y", 9, 1)
    for targets in (0, (1 << 64) - 1):
        mesh.carry(mesh["a"], link, parcel(len(frames), 3, 999, targets, 1, (1, 2, 3), (), ()) + frames)
        mesh.carry(mesh["a"], link, parcel(5, 3, 0, targets, 2) + b"junk!")
    mesh.run()
    mesh.client("a", 2)
    mesh.publish("a", 2, "x", b"good")
    assert heard.payloads[-1] == b"good"
    assert len(heard.payloads) == len(set(heard.payloads))


@pytest.mark.req("N4")
def test_a_slot_claimed_twice_goes_to_the_older_broker() -> None:
    mesh = Mesh(CHAIN, slot=5)
    slots = [mesh.report(name, "map")["slot"] for name in "abc"]
    assert len(set(slots)) == 3
    heard = mesh.client("c", 1)
    mesh.client("a", 2)
    mesh.subscribe("c", 1, "x")
    mesh.publish("a", 2, "x", b"one")
    assert heard.payloads == [b"one"]


@pytest.mark.req("N4")
def test_a_broker_that_was_a_gateway_in_an_earlier_life_says_that_it_is_none_any_more() -> None:
    clusters = {"a1": "a", "a2": "a", "b1": "b"}
    mesh = Mesh({"a1": ["a2"], "a2": ["b1"], "b1": ["a1"]}, clusters)
    assert row(mesh, "b1", "gateways", "a1")["outside"] == {"b1": row(mesh, "b1", "neighbours", "a1")["cost"]}
    mesh.kill("a1")
    mesh.add("a1", ["a2"], "a")
    mesh["b1"].broker._peering.drop(LinkConfig(host="a1"))
    mesh.pass_time(500)
    assert row(mesh, "b1", "gateways", "a1")["outside"] == {}


@pytest.mark.req("N4", "N8")
def test_a_gateway_whose_clock_was_set_back_is_believed_after_its_restart() -> None:
    mesh = Mesh({"a": ["b", "c"], "b": ["d"]}, {"a": "1", "b": "2", "c": "3", "d": "4"})
    mesh.kill("a")
    mesh.add("a", ["b"], "1", incarnation=0)
    mesh.pass_time(2_000)
    assert row(mesh, "d", "gateways", "a")["outside"].keys() == {"b"}


def test_a_link_that_is_removed_while_it_is_dialled_does_not_come_up() -> None:
    mesh = Mesh({"a": [], "b": []})
    peering = mesh["a"].broker._peering
    peering.aim(LinkConfig(host="b"), mesh.now)
    mesh["a"].take()
    assert peering.drop(LinkConfig(host="b"))
    mesh.run()
    mesh.pass_time(3_000)
    assert mesh.report("a", "map")["neighbours"] == []
    assert mesh.report("b", "overview")["links"] == 0


@pytest.mark.req("N5")
def test_what_comes_while_a_removed_link_is_closing_goes_another_way() -> None:
    mesh = Mesh({"a": ["b", "c"], "c": ["b"]})
    heard = mesh.client("b", 1)
    mesh.subscribe("b", 1, "x")
    mesh.client("a", 2)
    mesh.publish("a", 2, "x", b"before")
    assert mesh["a"].broker._peering.drop(LinkConfig(host="b"))
    mesh["a"].publish(2, "x", b"meanwhile")
    mesh.run()
    assert heard.payloads == [b"before", b"meanwhile"]


@pytest.mark.req("N5", "N8")
def test_what_a_broken_link_had_not_confirmed_turns_back_where_that_is_the_only_way() -> None:
    mesh = Mesh({"a": ["b", "d"], "c": ["b", "d"]})
    heard = mesh.client("c", 1)
    mesh.client("a", 2)
    mesh.subscribe("c", 1, "x")
    routing = mesh["a"].broker._routing
    via = routing.view.name_of(routing.view.paths.steps[mesh["c"].broker._routing.view.me])
    mesh.stalled.add(frozenset((via, "c")))
    mesh.publish("a", 2, "x", b"one")
    assert heard.payloads == []
    mesh.pass_time(2_600)
    assert heard.payloads == [b"one"]


@pytest.mark.req("O5")
def test_new_settings_add_and_remove_links_and_say_what_needs_a_restart() -> None:
    mesh = Mesh({"a": ["b"], "c": []})
    before = mesh["a"].broker._config
    network = replace(before.network, links=(LinkConfig(host="c"),), slot=9, suspect_ms=3_000)
    mesh["a"].broker.tell(Reload(replace(before, network=network)), mesh.now)
    mesh["a"].take()
    mesh.pass_time(500)
    assert [row["broker"] for row in mesh.report("a", "map")["neighbours"]] == ["c"]
    assert SettingsReloaded(0, 0, ["network.slot"]) in mesh["a"].notes
    mesh.stalled.add(frozenset("ac"))
    mesh.pass_time(2_300)
    assert not row(mesh, "a", "neighbours", "c")["suspected"], "the new patience is in force"
    mesh.pass_time(1_000)
    assert row(mesh, "a", "neighbours", "c")["suspected"]


@pytest.mark.req("O5")
def test_links_that_were_added_by_command_outlast_new_settings() -> None:
    mesh = Mesh({"a": ["b"], "c": []})
    mesh["a"].broker._peering.aim(LinkConfig(host="c"), mesh.now)
    mesh["a"].take()
    mesh.run()
    mesh["a"].broker.tell(Reload(mesh["a"].broker._config), mesh.now)
    mesh["a"].take()
    mesh.pass_time(500)
    assert [row["broker"] for row in mesh.report("a", "map")["neighbours"]] == ["b", "c"]


def row(mesh: Mesh, at: str, table: str, broker: str) -> dict:
    """What a broker's map has about another."""
    return next(row for row in mesh.report(at, "map")[table] if row["broker"] == broker)


def go_on(mesh: Mesh) -> None:
    """The next thing happens: something arrives or, if nothing is under way, a little time passes."""
    if mesh.work:
        mesh.step()
    else:
        mesh._tick(SETTLE_NS // 4)


@pytest.mark.req("N5")
@pytest.mark.parametrize("links", [{"b": ["a"]}, {"b": ["a"], "d": ["a", "b"]}, {"b": ["a"], "d": ["b"], "e": ["d"]}])
def test_a_wide_subscription_is_confirmed_when_the_paths_to_a_new_broker_are_in_force(
    links: dict[str, list[str]],
) -> None:
    mesh = Mesh(links)
    others = dict(enumerate(sorted(mesh.nodes), 3))  # by the link of their client
    for link, name in others.items():
        mesh.client(name, link)
    for name, dialled in {"z": "a", "c": "b"}.items():  # having settled for one, brokers wait a little for the other
        mesh.nodes[name] = mesh._node(name, [dialled], "main", 2)
        mesh[name].now = mesh.now
        mesh[name].take()
    new = mesh["c"]
    new.join(2)
    while any(len(mesh.report(name, "map")["members"]) < len(mesh.nodes) for name in mesh.nodes):
        go_on(mesh)
    new.subscribe(2, "x", 1, wide=True)
    heard = new.heard[2]
    while "CONFIRMED" not in heard.order:
        go_on(mesh)
    for link, name in others.items():
        mesh[name].publish(link, "x", name.encode())
    mesh.run()
    assert sorted(heard.payloads) == [name.encode() for name in others.values()]
