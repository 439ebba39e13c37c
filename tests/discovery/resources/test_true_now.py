"""An answer is true now: what hosts read after the request was made, or what the requester allowed to be older."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsTold, ResourceRequest
from heliograph.discovery.resources.news import WatchReader
from heliograph.discovery.resources.request_tables import tables_of
from heliograph.discovery.resources.watching import WatchState
from tests.discovery.resources.net import MS, SECOND, Net
from tests.discovery.resources.pipe import OnPipe, RefusedByServiceError

CHAIN = [("a", "b"), ("b", "c"), ("c", "d")]
LONG = 100 * SECOND  # the age that the paper allows


def chain() -> Net:
    return Net(list("abcd"), CHAIN)


def values(answers: list[GatheredAnswer]) -> dict[int, Any]:
    (answer,) = answers
    assert answer.is_complete
    return {each.id: (each.values or {}).get("x") for each in answer.found}


def heard(pipe: OnPipe, reader: WatchReader) -> list[tuple[str, str]]:
    """The changes that a client's watch gets from what it was told."""
    for _, _, payload in pipe.told:
        reader.hear(payload)
    pipe.told.clear()
    changes = iter(reader.take, None)
    return [(change.kind, change.name) for change in changes]


def shared(net: Net) -> int:
    return sum(node.core.forwarding.counts.shared for node in net.nodes.values())


@pytest.mark.req("R9")
def test_by_default_an_update_a_new_resource_and_a_withdrawal_are_seen_by_the_next_request() -> None:
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=5)
    net.run(1)
    for at in "ad":
        net.ask(at, "x >= 0")
    net.run(1)
    net.update("d", 1, 2, x=6)
    seen = {at: net.ask(at, "x >= 0") for at in "ad"}
    net.run(1)
    assert {at: values(answers) for at, answers in seen.items()} == {"a": {1: 6}, "d": {1: 6}}
    net.register("d", 2, "x >= 0")  # covered: other brokers are not told
    net.update("d", 2, 1, x=7)
    seen = {at: net.ask(at, "x >= 0") for at in "ad"}
    net.run(1)
    assert {at: values(answers) for at, answers in seen.items()} == {"a": {1: 6, 2: 7}, "d": {1: 6, 2: 7}}
    net.nodes["d"].core.hosting.withdraw(1)
    seen = {at: net.ask(at, "x >= 0") for at in "ad"}
    net.run(1)
    assert {at: values(answers) for at, answers in seen.items()} == {"a": {2: 7}, "d": {2: 7}}


@pytest.mark.req("R9")
@pytest.mark.parametrize("ahead", [20 * MS, -20 * MS], ids=["ahead", "behind"])
@pytest.mark.parametrize("asked_after_ms", [3, 4, 5])
def test_no_answer_is_old_because_the_clock_of_its_host_is_wrong(ahead: int, asked_after_ms: int) -> None:
    """The value is replaced while the answer to a first request is on its way back; the second request comes then."""
    net = chain()
    net.time_error = 20 * MS
    net.ahead["d"] = ahead
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=5)
    net.run(1)
    first = net.ask("a", "x >= 0")
    net.run(0.003)  # it is at its host
    net.update("d", 1, 2, x=6)
    net.run((asked_after_ms - 3) / 1000)
    second = net.ask("a", "x >= 1")
    net.run(1)
    assert values(first) == {1: 5}
    assert values(second) == {1: 6}


@pytest.mark.req("R9")
def test_reads_of_a_host_are_told_in_their_order_while_the_error_of_its_clock_grows() -> None:
    """Brokers on the way take an answer that was read no later than the last for its repetition."""
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=0)
    net.run(1)
    reads = []
    for x in range(1, 6):
        net.time_error = x * x * 10 * MS
        net.update("d", 1, 1 + x, x=x)
        answers = net.ask("a", "x >= 0")
        net.run(0.01)
        assert values(answers) == {1: x}
        reads.append(answers[0].found[0].at)
    assert reads == sorted(set(reads))


@pytest.mark.req("R9")
def test_a_broker_answers_for_its_own_resources_from_its_own_table_whatever_age_is_allowed() -> None:
    net = Net(list("abcde"), [*CHAIN, ("d", "e")])
    for id, at in enumerate("abde", 1):
        net.register(at, id, "x >= 0")
        net.update(at, id, 1, x=1)
    net.run(1)
    net.ask("d", "x >= 0")
    net.run(1)
    for id, at in enumerate("abde", 1):
        net.update(at, id, 2, x=2)
    answers = net.ask("a", "x >= 1", max_age_ns=LONG)
    net.run(1)
    assert values(answers) == {1: 2, 2: 2, 3: 2, 4: 1}, "of e, which the request did not pass, d has an old answer"


@pytest.mark.req("R9")
def test_a_registration_a_change_of_range_and_a_withdrawal_end_sharing_at_their_broker_even_if_covered() -> None:
    net = Net(["a"], [])
    net.register("a", 1, "x >= 0 and x <= 9")
    net.update("a", 1, 1, x=1)
    net.register("a", 2, "x >= 2 and x <= 5")

    def ends_sharing(change: Any) -> bool:
        net.ask("a", "x >= 0")
        net.run(0.1)
        before = tables_of(net.nodes["a"].core.forwarding)["listed"]
        change()
        return before == ["x >= 0"] and tables_of(net.nodes["a"].core.forwarding)["listed"] == []

    assert ends_sharing(lambda: net.register("a", 3, "x >= 3 and x <= 4"))
    assert ends_sharing(lambda: net.register("a", 3, "x >= 3 and x <= 5"))
    assert ends_sharing(lambda: net.nodes["a"].core.hosting.withdraw(3))


@pytest.mark.req("R3", "R9")
def test_what_a_changed_resource_no_longer_covers_is_told() -> None:
    net = chain()
    net.register("a", 1, "x >= 0")
    net.register("a", 2, "x >= 5")
    net.update("a", 2, 1, x=7)
    net.run(1)
    net.register("a", 1, "x >= 0 and x <= 3")
    net.run(1)
    answers = net.ask("d", "x >= 6")
    net.run(1)
    assert values(answers) == {2: 7}


@pytest.mark.req("R9")
@pytest.mark.parametrize("later_ms", range(9))
def test_requests_under_way_share_only_what_was_read_after_the_later_one_was_made(later_ms: int) -> None:
    """The resource changes just before the second request, while the first is on its way."""
    net = chain()
    for id, at in ((1, "c"), (2, "d")):
        net.register(at, id, "x >= 0")
        net.update(at, id, 1, x=1)
    net.run(1)
    first = net.ask("a", "x >= 0")
    net.run(later_ms / 1_000)
    for id, at in ((1, "c"), (2, "d")):
        net.update(at, id, 2, x=2)
    second = net.ask("b", "x >= 1")
    net.run(1)
    assert values(second) == {1: 2, 2: 2}
    assert values(first).keys() == {1, 2}


@pytest.mark.req("R9")
def test_requests_made_at_the_same_time_are_read_once() -> None:
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=1)
    net.run(1)
    net.kinds.clear()
    first, second = net.ask("a", "x >= 0"), net.ask("a", "x >= 1")
    net.run(1)
    assert values(first) == values(second) == {1: 1}
    assert (shared(net), net.kinds["ResourceRequest"]) == (1, 3)


@pytest.mark.req("R9")
def test_an_answer_tells_how_old_its_values_are_and_when_its_hosts_were_read() -> None:
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=1)
    updated = net.now
    net.run(5)
    net.ask("a", "x >= 0")
    net.run(3)
    (answer,) = net.ask("a", "x >= 0", max_age_ns=LONG)
    network_time = net.now + 1_000 * SECOND
    assert network_time - answer.found[0].updated == net.now - updated
    assert 3 * SECOND - 10 * MS < network_time - answer.as_of < 3 * SECOND


@pytest.mark.req("R9")
def test_a_client_that_says_nothing_of_ages_is_told_what_is_true_now() -> None:
    pipe = OnPipe()

    def found() -> dict[str, Any]:
        answer = pipe.ask({"do": "discover", "where": "x >= 0"})
        return {row["name"]: (row["values"]["x"], row["age_ms"]) for row in answer["resources"]}

    register = {**pipe.register(1, where="x >= 0"), "values": {"x": 1}, "version": 1}
    pipe.ask(register)
    assert found() == {"r1": (1, 0)}
    pipe.pass_time(400)
    pipe.ask({"do": "update", "secret": register["secret"], "values": {"x": 2}, "version": 2})
    pipe.pass_time(300)
    assert found() == {"r1": (2, 300)}
    pipe.ask({**pipe.register(2, where="x >= 0"), "values": {"x": 3}})
    assert found() == {"r1": (2, 300), "r2": (3, 0)}
    pipe.ask({"do": "withdraw", "secret": register["secret"]})
    assert found() == {"r2": (3, 0)}


@pytest.mark.req("R6")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"values": {"x": -1}}, "resource_out_of_range"),
        ({"where": "y >= 0", "values": {"x": 1}}, "resource_out_of_range"),
        ({"where": "x >= 0 and y >= 0", "values": {"x": 1, "y": 1}}, "resource_attributes_over_limit"),
    ],
)
def test_a_refused_registration_changes_nothing(change: dict[str, Any], reason: str) -> None:
    pipe = OnPipe(attributes_per_owner_max=1)
    register = {**pipe.register(1, where="x >= 0"), "values": {"x": 7}, "version": 1}
    with pytest.raises(RefusedByServiceError, match=reason):
        pipe.ask({**register, **change})
    assert pipe.ask({"do": "list"})["total"] == 0
    pipe.ask(register)
    pipe.told.clear()
    pipe.ask({"do": "watch", "watch": 5, "where": "x >= 0"})
    pipe.told.clear()
    with pytest.raises(RefusedByServiceError, match=reason):
        pipe.ask({**register, "epoch": 2, "version": 2, **change})
    (row,) = pipe.ask({"do": "discover", "where": "x >= 0"})["resources"]
    assert (row["name"], row["values"]) == ("r1", {"x": 7})
    assert pipe.told == []


@pytest.mark.req("R8")
def test_a_watch_tells_of_a_resource_once_it_has_reported_values() -> None:
    """Whether it matches was not known before; and when it went without values, nobody could tell."""
    pipe = OnPipe()
    for number in (1, 2):
        pipe.ask(pipe.register(number, where="x >= 0"))
    pipe.ask({"do": "update", "secret": pipe.register(2)["secret"], "values": {"x": 2}, "version": 1})
    pipe.ask({"do": "watch", "watch": 5, "where": "x >= 0"})
    reader = WatchReader(WatchState())
    assert heard(pipe, reader) == [("appeared", "r2")]
    pipe.ask({"do": "withdraw", "secret": pipe.register(1)["secret"]})
    pipe.ask({"do": "withdraw", "secret": pipe.register(2)["secret"]})
    assert heard(pipe, reader) == [("vanished", "r2")]


@pytest.mark.req("R9")
def test_an_operator_bounds_the_age_of_answers_by_how_long_they_are_kept() -> None:
    pipe = OnPipe(cache_s=10)
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, False, [AdvertisedResource(7, False, "x >= 0", 1)]))
    pipe.receive(pipe.request({"do": "discover", "where": "x >= 0", "max_age_s": 99}))
    (asked,) = [each for each in pipe.sent if isinstance(each, ResourceRequest)]
    assert (asked.max_age, asked.until - asked.issued) == (10 * SECOND, 10 * SECOND)


@pytest.mark.req("R13")
def test_a_host_with_a_new_incarnation_and_the_same_links_is_asked_for_its_states_again() -> None:
    """A broker raises its incarnation without a restart if others know a newer record under its name."""
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=1)
    net.run(1)
    net.nodes["a"].core.standing.add(0, (1, 1, 1), "x >= 0")
    net.run(1)
    net.nodes["a"].stirred.clear()
    net.nodes["d"].incarnation += 1
    net.reroute()
    net.register("d", 2, "y >= 0")
    net.run(1)
    host = net.nodes["a"].core.table.hosts[4]
    assert (host.incarnation, sorted(host.resources)) == (2, [1, 2])
    assert net.nodes["a"].stirred == [(1, 1, 1)]


@pytest.mark.req("R9")
@pytest.mark.parametrize("deliver", ["similarity", "direct"])
def test_a_broker_that_answered_is_not_missing_because_another_one_did_not(deliver: str) -> None:
    """A link loses everything, which nobody has noticed yet. What the requester's own broker answered counts."""
    net = chain()
    for number, at in enumerate("ad", 1):
        net.register(at, number, "x >= 0")
        net.update(at, number, 1, x=number)
    net.run(1)
    for wire in net.nodes["c"].wires.values():
        wire.cut = wire.to == "d"
    asked = net.ask("a", "x >= 0", deliver=deliver)
    net.run(3)
    (answer,) = asked
    assert [each.id for each in answer.found] == [1]
    assert not answer.is_complete
    assert answer.missing == ["d"]
