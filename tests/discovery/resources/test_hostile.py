"""Owners, requesters and neighbours that do harm: everything is bounded, and refused with a reason that is counted."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.messages import (
    AdvertisedResource,
    AdvertisementsOffered,
    AdvertisementsTold,
    FoundResource,
    ResourceRequest,
    ResourceRequestDone,
    ResourcesFound,
    StandingRequests,
)
from tests.discovery.resources.net import Net
from tests.discovery.resources.pipe import OnPipe, RefusedByServiceError


def refused(pipe: OnPipe, body: dict[str, Any], **client: Any) -> str:
    with pytest.raises(RefusedByServiceError) as refusal:
        pipe.ask(body, **client)
    return str(refusal.value)


def named(first: int, count: int) -> str:
    """A condition with so many attributes."""
    return " and ".join(f"a{number} >= 0" for number in range(first, first + count))


@pytest.mark.req("R1", "R6")
def test_values_and_conditions_of_the_wrong_type_are_refused_or_match_nothing() -> None:
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x >= 0 and system = 'linux'", values={"x": 1}))
    secret = {"do": "update", "secret": pipe.register(1)["secret"]}
    for values in ({"x": "one"}, {"x": True}, {"x": 1, "system": 5}):
        assert refused(pipe, {**secret, "values": values, "version": 5}) == "resource_out_of_range"
    assert refused(pipe, {**secret, "values": {"x": [1]}, "version": 5}) == "resource_call_malformed"
    for where in ("x > 1 and x > 'a'", "x = 1 and x = 'one'"):
        assert refused(pipe, {"do": "discover", "where": where}) == "resource_condition_unfit"
    assert pipe.ask({"do": "discover", "where": "x = 'one'"})["resources"] == []
    assert pipe.ask({"do": "discover", "where": "system >= 3"})["resources"] == []
    assert len(pipe.ask({"do": "discover", "where": "x >= 0", "order": "system", "best": 3})["resources"]) == 1
    assert pipe.counted == {
        "resource_condition_unfit": 2,
        "resource_out_of_range": 3,
        "resource_call_malformed": 1,
    }


def test_a_flood_of_registrations_ends_at_the_owners_quota_and_others_go_on() -> None:
    pipe = OnPipe(resources_per_owner_max=100)
    pipe.receive(*(pipe.request(pipe.register(n, where="x >= 0")) for n in range(1_000)))
    assert pipe.service.report("overview")["hosted"] == 100
    assert pipe.counted == {"resources_over_limit": 900}
    assert pipe.ask(pipe.register(5_000, where="x >= 0"), entity="other")["ok"]
    told = [each for each in pipe.sent if isinstance(each, AdvertisementsTold)]
    assert sum(len(each.add) for each in told) == 1, "all are covered by the first"


def test_a_flood_of_advertisements_from_a_neighbour_ends_at_the_tables_limit() -> None:
    pipe = OnPipe(resources_max=50)
    for start in range(0, 640, 64):
        add = [AdvertisedResource(id, True, f"x = {id}", 1) for id in range(start, start + 64)]
        pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, True, add, part=start // 64))
    assert pipe.service.report("overview")["known"] == 50
    assert pipe.counted == {"resources_over_limit": 590}


def test_an_owner_that_names_1024_attributes_is_refused_and_leaves_room_for_others() -> None:
    pipe = OnPipe()
    for first in range(0, 1_024, 32):
        body = pipe.register(first, where=named(first, 32))
        if first < 64:
            assert pipe.ask(body)["ok"]
        else:
            assert refused(pipe, body) == "resource_attributes_over_limit"
    assert pipe.counted == {"resource_attributes_over_limit": 30}
    assert pipe.ask(pipe.register(9_999, where="load >= 0"), entity="other")["ok"]


@pytest.mark.req("O6")
def test_a_client_without_credentials_leaves_room_for_those_of_other_addresses() -> None:
    pipe = OnPipe()
    assert pipe.ask(pipe.register(1, where=named(0, 64)), entity="anonymous", source="10.0.0.1")["ok"]
    more = pipe.register(2, where="load >= 0")
    with pytest.raises(RefusedByServiceError, match="resource_attributes_over_limit"):
        pipe.ask(more, entity="anonymous", source="10.0.0.1")
    assert pipe.ask(more, entity="anonymous", source="10.0.0.2")["ok"]


def test_many_owners_with_many_attributes_fill_the_index_and_the_rest_is_refused() -> None:
    pipe = OnPipe()
    for owner in range(20):
        body = pipe.register(owner, where=named(64 * owner, 64))
        if owner < 16:
            assert pipe.ask(body, entity=f"owner {owner}")["ok"]
        else:
            assert refused(pipe, body, entity=f"owner {owner}") == "resource_attributes_over_limit"
    assert pipe.ask({"do": "discover", "where": "a0 >= 0", "deadline_ms": 10}) is not None


@pytest.mark.parametrize("model", ["static", "dynamic"])
def test_watches_with_too_many_attributes_are_refused(model: str) -> None:
    pipe = OnPipe()
    answers = []
    for first in range(0, 1_500, 100):
        try:
            answers.append(
                pipe.ask({"do": "watch", "watch": 1, "where": named(first, 100), "model": model}, client=first + 10)
            )
        except RefusedByServiceError as refusal:
            answers.append(str(refusal))
    assert answers[10:] == ["resource_attributes_over_limit"] * 5
    assert pipe.counted == {"resource_attributes_over_limit": 5}


def test_a_client_has_so_many_watches_and_no_more() -> None:
    pipe = OnPipe(watches_per_client_max=3)
    watch = {"do": "watch", "where": "x >= 0"}
    assert refused(pipe, {**watch, "watch": 0}) == refused(pipe, watch) == "resource_call_malformed"
    for number in (1, 7, 2):
        assert pipe.ask({**watch, "watch": number}) == {"watch": number}
    assert refused(pipe, {**watch, "watch": 4}) == "resource_requests_over_limit"
    pipe.ask({"do": "unwatch", "watch": 1})
    assert refused(pipe, {**watch, "watch": 2}) == "resource_call_malformed"  # this number is in use
    assert pipe.ask({**watch, "watch": 2}, client=10) == {"watch": 2}  # of another client it is another watch
    pipe.leave(9)
    assert pipe.ask({**watch, "watch": 2}) == {"watch": 2}


@pytest.mark.req("R13")
def test_only_the_secret_of_a_resource_changes_it() -> None:
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x >= 0", values={"x": 1}, version=1))
    stranger = {"secret": f"{2:032x}"}
    for body in (
        {"do": "update", "values": {"x": 2}, "version": 9},
        {"do": "withdraw"},
        {"do": "renew"},
    ):
        assert refused(pipe, {**body, **stranger}) == "resource_unknown"
    for secret in ("", "zz" * 16, "ab" * 10, "AB" * 16):
        assert refused(pipe, {"do": "withdraw", "secret": secret}) == "resource_call_malformed"
    assert refused(pipe, {**pipe.register(1, where="x >= 5"), "epoch": 0}) == "resource_outdated"
    assert pipe.ask({"do": "discover", "where": "x >= 0"})["resources"][0]["values"] == {"x": 1}
    assert pipe.counted == {"resource_outdated": 1, "resource_unknown": 3, "resource_call_malformed": 4}


@pytest.mark.req("R10")
def test_forged_direct_answers_are_not_believed() -> None:
    pipe = OnPipe()
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, False, [AdvertisedResource(7, False, "x >= 0", 1)]))
    pipe.receive(pipe.request({"do": "discover", "where": "x >= 0", "deliver": "normal"}))
    (asked,) = [each for each in pipe.sent if isinstance(each, ResourceRequest)]
    forged = ResourcesFound(asked.id, 0, [FoundResource(666, 2, 1, 1, 1, 1, 1, "evil", {"x": 1})])
    pipe.deliver("Inbox/me/direct/0123456789abcdef", messages.encode(forged))
    pipe.deliver("Inbox/me/direct/0123456789abcdef", messages.encode(ResourceRequestDone(asked.id, 0)))
    pipe.deliver("Inbox/me/direct/0123456789abcdef", b"{not json")
    seal = pipe.service._seal((1, 1, 99))
    assert len(bytes.fromhex(seal)) == 16  # nobody can guess it
    pipe.deliver(f"Inbox/me/direct/{seal}", messages.encode(ResourcesFound((1, 1, 99), 0, forged.found)))
    assert pipe.counted == {"body_malformed": 1, "resource_foreign": 2, "resource_request_unknown": 1}
    pipe.tell(ResourceRequestDone(asked.id, 0, hosts=[(2, 1, 1, 1)]))
    (answer,) = [each for each in pipe.answers.values() if isinstance(each, dict) and "complete" in each]
    assert (answer["complete"], answer["resources"]) == (True, [])


def test_a_neighbour_that_floods_requests_or_answers_nothing_asked_for_is_bounded() -> None:
    pipe = OnPipe(requests_max=20)
    for number in range(60):
        until = pipe.service._time.time_ns(pipe.now) + 10**12
        pipe.tell(ResourceRequest((2, 1, number), 0, "x >= 0", 0, until, "similarity", max_age=10**12))
        pipe.tell(StandingRequests(add=[((2, 1, 1_000 + number), "x >= 0", [1])]))
        pipe.tell(ResourcesFound((1, 1, 5_000 + number), 0, []))
    pipe.tell(b"[]")
    overview = pipe.service.report("overview")
    assert overview["requests"] <= 20
    assert overview["standing"] == 20
    assert pipe.counted["resource_requests_over_limit"] == 40 + 40
    assert pipe.counted["resource_request_unknown"] == 60
    assert pipe.counted["body_malformed"] == 1


LONG_NUMBERS = " and ".join(["x > 0", *(f"x != {number}e17" for number in range(1, 250))])
"""Shorter than a text in a message may be; its canonical form, which writes the numbers out, is longer."""


@pytest.mark.parametrize("where", [LONG_NUMBERS, f"{'n' * 129} = 1"])
def test_a_condition_that_no_neighbour_could_read_is_refused_at_the_door(where: str) -> None:
    pipe = OnPipe()
    assert len(where) < messages.TEXT_LENGTH_MAX
    assert refused(pipe, pipe.register(1, where=where)) == "condition_over_limit"
    assert refused(pipe, pipe.register(1, where=where, model="static")) == "condition_over_limit"
    assert refused(pipe, {"do": "discover", "where": where}) == "condition_over_limit"
    assert refused(pipe, {"do": "watch", "watch": 1, "where": where}) == "condition_over_limit"
    assert pipe.service.report("overview")["hosted"] == 0
    assert pipe.service.report("overview")["standing"] == 0


def test_an_advertisement_that_cannot_be_read_costs_only_itself() -> None:
    pipe = OnPipe()
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, add=[AdvertisedResource(7, False, "y = 7", 1)]))
    good, long, sent = AdvertisedResource(8, False, "y = 8", 1), "y > 0 and " * 500 + "y > 1", len(pipe.sent)
    bad = [AdvertisedResource(7, False, long, 2), AdvertisedResource(9, False, "y = 9", -1)]
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 2, add=[bad[0], good, bad[1]]))
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 3, add=[AdvertisedResource(10, False, "y = 10", 1)]))
    table = pipe.service._core.table
    assert list(table.hosts[2].resources) == [8, 10], "what was known of 7 is no longer true"
    assert pipe.counted == {"body_malformed": 2}
    assert len(pipe.sent) == sent, "nothing is asked for again"


def test_a_message_of_another_kind_with_a_bad_entry_is_refused_whole() -> None:
    pipe = OnPipe()
    pipe.tell(StandingRequests(add=[((2, 1, 1), "x >= 0", [1]), ((2, 1, 2), "x >= 0" + " " * 5_000, [1])]))
    pipe.tell(b'{"say":"told","host":2,"name":"b","cluster":"main","slot":2,"incarnation":1,"number":1,"add":["no"]}')
    assert pipe.service.report("overview")["standing"] == 0
    assert pipe.counted == {"body_malformed": 2}


COUNT_MAX = (1 << 62) - 1


def told_of(broker: int, incarnation: int, number: int) -> AdvertisementsTold:
    """That this broker hosts nothing."""
    return AdvertisementsTold(broker, "abc"[broker - 1], "main", broker, incarnation, number, True)


def all_find_what_a_hosts_now(net: Net, id: int) -> bool:
    net.register("a", id, f"x = {id}")
    net.update("a", id, 1, x=id)
    net.run(0.1)
    answers = [net.ask(at, f"x = {id}") for at in "abc"]
    net.run(1)
    return all(answer and [each.id for each in answer[0].found] == [id] for answer in answers)


@pytest.mark.parametrize("how", ["told", "offered"])
@pytest.mark.parametrize("incarnation", ["ours", "highest", "unbelievable"])
@pytest.mark.parametrize("at", "abc")
def test_lies_about_what_a_broker_hosts_do_no_harm_two_seconds_after_the_liar_was_removed(
    at: str, incarnation: str, how: str
) -> None:
    net = Net(["a", "b", "c", "liar"], [("a", "b"), ("b", "c"), (at, "liar")])
    assert all_find_what_a_hosts_now(net, 1)
    link, core = net.edges[(at, "liar")], net.nodes[at].core
    for _ in range(3):
        highest = core.incarnations.highest(net.now) if incarnation == "highest" else COUNT_MAX
        stated = 1 if incarnation == "ours" else highest
        if how == "told":
            core.hear_neighbour(link, messages.encode(told_of(1, stated, COUNT_MAX)), net.now)
        else:
            core.hear_neighbour(link, messages.encode(AdvertisementsOffered([(1, stated, COUNT_MAX)])), net.now)
        net.run(0.3)
    net.cut((at, "liar"))
    net.reroute()
    net.run(2)
    assert all_find_what_a_hosts_now(net, 2)
    assert [host.broker for host in core.table.hosts.values() if len(host.resources) == 2] == [1]
    assert core.refused.get("incarnation_ahead", 0) == (3 if incarnation == "unbelievable" else 0)


def test_a_lie_about_a_broker_that_hosts_nothing_is_corrected_too() -> None:
    pipe = OnPipe()
    pipe.tell(AdvertisementsTold(1, "a", "main", 1, 1, COUNT_MAX, True, add=[AdvertisedResource(7, True, "x = 1", 1)]))
    told = [each for each in pipe.sent if isinstance(each, AdvertisementsTold)]
    assert [(each.age > (1, COUNT_MAX), each.full, each.add) for each in told] == [(True, True, [])]


def test_lies_about_a_broker_cost_it_one_snapshot_in_a_second() -> None:
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x >= 0"))
    pipe.sent.clear()
    for number in range(10):
        pipe.tell(told_of(1, 100 * number + 100, COUNT_MAX))
    assert [each.age[0] for each in pipe.sent if isinstance(each, AdvertisementsTold)] == [101]
    pipe.pass_time(1_000)
    assert [each.age[0] for each in pipe.sent if isinstance(each, AdvertisementsTold)] == [101, 1_001]
    assert pipe.counted == {"name_taken": 1}


def test_what_is_refused_because_a_clock_is_behind_is_asked_for_again() -> None:
    pipe = OnPipe()
    highest = pipe.service._core.incarnations.highest(pipe.now)
    pipe.tell(told_of(2, highest + 2_000, 1))
    assert pipe.counted == {"incarnation_ahead": 1}
    pipe.pass_time(1_999)
    assert not any(isinstance(each, AdvertisementsOffered) and each.wants for each in pipe.sent)
    pipe.pass_time(1)
    assert [each.wants for each in pipe.sent if isinstance(each, AdvertisementsOffered) and each.wants] == [[2]]
    pipe.tell(told_of(2, highest + 2_000, 1))
    assert pipe.service.report("overview")["refused"] == {"incarnation_ahead": 1}
