"""The parts of resource discovery, one by one: tables, leases, owners, orders, watchers; and bad input."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.resources import messages
from heliograph.discovery.resources.calls import REQUESTS
from heliograph.discovery.resources.conditions import fixed_condition, read_condition
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.messages import AdvertisementsTold, FoundResource
from heliograph.discovery.resources.ordering import best, enough
from heliograph.discovery.resources.watching import WatchState
from heliograph.errors import ConditionError, ProtocolError, Reason
from tests.discovery.resources.net import SECOND, Net

CHAIN = [("a", "b"), ("b", "c"), ("c", "d")]


def chain(**config: Any) -> Net:
    return Net(list("abcd"), CHAIN, config=ResourcesConfig(**config))


def refusal(call: Any) -> Reason:
    with pytest.raises(ProtocolError) as refused:
        call()
    return refused.value.reason


# -- tables (R1 to R3) --------------------------------------------------------------------------------------------


@pytest.mark.req("R2")
def test_an_advertisement_floods_once_and_its_withdrawal_undoes_it() -> None:
    net = chain()
    net.register("a", 1, "x >= 0", static=True)
    net.run(1)
    assert [len(node.core.table) for node in net.nodes.values()] == [1, 1, 1, 1]
    assert net.kinds["AdvertisementsTold"] == 3
    net.nodes["a"].core.hosting.withdraw(1)
    net.run(1)
    assert [len(node.core.table) for node in net.nodes.values()] == [0, 0, 0, 0]


@pytest.mark.req("R3")
def test_a_covered_dynamic_advertisement_is_told_when_the_covering_one_goes_and_a_static_one_at_once() -> None:
    net = chain()
    net.register("a", 1, "x >= 0")
    net.register("a", 2, "x >= 5")
    net.run(1)
    assert len(net.nodes["d"].core.table) == 1
    net.nodes["a"].core.hosting.withdraw(1)
    net.run(1)
    assert list(net.nodes["d"].core.table.hosts[1].resources) == [2]
    net.register("a", 3, "x >= 6", static=True)
    net.run(1)
    assert len(net.nodes["d"].core.table) == 2


@pytest.mark.req("R2")
def test_a_gap_is_closed_by_a_snapshot() -> None:
    net = chain()
    for id in range(1, 150):
        net.register("a", id, f"x = {id}", static=True)
    net.run(1)
    table = net.nodes["d"].core.table
    assert len(table) == 149
    told = AdvertisementsTold(1, "a", "main", 1, 1, 999, remove=[5])
    link = next(iter(net.nodes["d"].wires))
    net.nodes["d"].core.hear_neighbour(link, messages.encode(told), net.now)
    net.run(1)
    assert len(table) == 149
    assert net.nodes["d"].core.refused == {"resource_table_stale": 1}


@pytest.mark.req("R3")
def test_a_covered_continuous_request_is_held_back_and_told_when_the_covering_one_goes() -> None:
    net = chain()
    net.register("d", 1, "x >= 0")
    net.run(1)
    standing = net.nodes["a"].core.standing
    standing.add(0, (1, 1, 1), "x >= 0")
    standing.add(0, (1, 1, 2), "x >= 5")
    net.run(1)
    assert len(net.nodes["d"].core.standing.requests) == 1
    net.update("d", 1, 1, x=7)
    net.run(1)
    assert {id for id, _ in net.nodes["a"].states} == {(1, 1, 1), (1, 1, 2)}
    standing.drop(0, (1, 1, 1))
    net.run(1)
    assert list(net.nodes["d"].core.standing.requests) == [(1, 1, 2)]
    before = net.kinds["ResourceState"]
    net.update("d", 1, 2, x=1)  # it was 7: who watched that has to know
    net.update("d", 1, 3, x=2)  # and this concerns nobody
    net.run(1)
    assert net.kinds["ResourceState"] == before + 3


@pytest.mark.req("R4", "R5")
def test_a_static_request_is_answered_by_its_own_broker() -> None:
    net = chain()
    net.register("a", 1, "system = 'linux' and memory <= 2 and disk <= 320", static=True)
    net.register("a", 2, "memory <= 9")
    net.run(1)
    net.kinds.clear()
    found = net.nodes["c"].core.static(read_condition("memory > 1"))
    assert [row.advertised.name for row in found] == ["R1"]
    assert not net.kinds


# -- owners -------------------------------------------------------------------------------------------------------


@pytest.mark.req("R6")
def test_an_update_outside_its_ranges_is_refused() -> None:
    net = chain()
    net.register("a", 1, "x >= 0 and x <= 9")
    assert refusal(lambda: net.update("a", 1, 1, x=10)) is Reason.RESOURCE_OUT_OF_RANGE
    assert refusal(lambda: net.update("a", 1, 1, y=1)) is Reason.RESOURCE_OUT_OF_RANGE
    with pytest.raises(ProtocolError, match=r"x = '10' is outside: advertised is x"):
        net.update("a", 1, 1, x=10)
    with pytest.raises(ProtocolError, match=r"x = 'ten' is outside"):
        net.update("a", 1, 1, x="ten")
    net.register("a", 2, "memory >= 0 and memory <= 9")
    with pytest.raises(ProtocolError, match=r"memory has no value \(did you mean it by memroy\?\); advertised"):
        net.update("a", 2, 1, memroy=2)
    with pytest.raises(ProtocolError, match=r"x has no value; advertised is x"):
        net.update("a", 1, 1, y=1)
    assert refusal(lambda: net.update("a", 3, 1, x=1)) is Reason.RESOURCE_UNKNOWN
    net.update("a", 1, 5, x=1)
    assert refusal(lambda: net.update("a", 1, 4, x=2)) is Reason.RESOURCE_OUTDATED


@pytest.mark.req("R6")
def test_a_resource_without_an_update_is_reported_as_such() -> None:
    net = chain()
    net.register("a", 1, "x >= 0")
    net.run(1)
    answers = net.ask("d", "x >= 3")
    net.run(3)
    assert [(each.name, each.values) for each in answers[0].found] == [("R1", None)]


@pytest.mark.req("R13")
def test_a_lease_ends_and_a_resource_that_is_attached_elsewhere_leaves_its_old_broker() -> None:
    net = chain()
    net.register("a", 1, "x >= 0", lease_s=5)
    net.register("a", 2, "x >= 0", epoch=1)
    net.register("d", 2, "x >= 0", epoch=2)
    net.run(1)
    assert list(net.nodes["a"].core.hosting.resources) == [1]
    net.run(5)
    assert not net.nodes["a"].core.hosting.resources
    assert refusal(lambda: net.register("d", 2, "x >= 1", epoch=1)) is Reason.RESOURCE_OUTDATED


def test_an_owner_has_so_many_resources_and_attributes_and_no_more() -> None:
    net = chain(resources_per_owner_max=3, attributes_per_owner_max=4)
    for id in (1, 2, 3):
        net.register("a", id, f"a{id} >= 0")
    assert refusal(lambda: net.register("a", 4, "a1 >= 0")) is Reason.RESOURCES_OVER_LIMIT
    net.nodes["a"].core.hosting.withdraw(3)
    wide = " and ".join(f"b{number} >= 0" for number in range(5))
    assert refusal(lambda: net.register("a", 4, wide)) is Reason.RESOURCE_ATTRIBUTES_OVER_LIMIT
    net.register("a", 4, "a1 >= 0")


# -- answers ------------------------------------------------------------------------------------------------------


def a_find(id: int, host: int = 1, **values: Any) -> FoundResource:
    return FoundResource(id, host, 1, 1, 1, 1, 1, f"R{id}", values)


@pytest.mark.req("R12")
def test_the_best_are_chosen_by_attribute_nearness_and_company() -> None:
    found = [a_find(1, 1, load=3), a_find(2, 2, load=1), a_find(3, 2, load=2), a_find(4, 3)]
    costs = {1: 10, 2: 50, 3: 1}.__getitem__
    assert [each.id for each in best(found, 2, "load", costs)] == [2, 3]
    assert [each.id for each in best(found, 0, "load desc", costs)] == [1, 3, 2, 4]
    assert [each.id for each in best(found, 2, "near", costs)] == [4, 1]
    assert {each.id for each in best(found, 2, "together", costs)} == {2, 3}
    assert [each.id for each in enough(found, 1, "load")] == [2]
    assert len(enough(found, 1, "together")) == 4


@pytest.mark.req("R12")
def test_a_host_passes_on_enough_and_not_everything() -> None:
    net = chain()
    for id in range(1, 21):
        net.register("d", id, "load >= 0")
        net.update("d", id, 1, load=id)
    net.run(1)
    answers = net.ask("a", "load >= 0", best=3, order="load")
    net.run(1)
    assert [each.id for each in answers[0].found] == [1, 2, 3]
    assert net.nodes["d"].core.forwarding.counts.results == 3


@pytest.mark.req("R9")
def test_a_new_advertisement_ends_a_covering_and_an_old_answer_is_not_shared() -> None:
    net = chain()
    net.register("d", 1, "x >= 0")
    net.update("d", 1, 1, x=5)
    net.register("c", 3, "x >= 0 and x < 1")  # so that the first request asks there, too
    net.update("c", 3, 1, x=0)
    net.run(1)
    net.ask("a", "x >= 0")
    net.run(1)
    net.register("c", 2, "x >= 0")
    net.update("c", 2, 1, x=5)
    net.run(1)
    answers = net.ask("a", "x >= 1", max_age_ns=50 * SECOND)
    net.run(1)
    assert sorted(each.id for each in answers[0].found) == [1, 2]
    net.update("d", 1, 2, x=6)
    fresh = net.ask("a", "x >= 2")
    shared = net.ask("a", "x >= 2", max_age_ns=50 * SECOND)
    net.run(1)
    assert {each.id: (each.values or {})["x"] for each in fresh[0].found} == {1: 6, 2: 5}
    assert {each.id: (each.values or {})["x"] for each in shared[0].found} == {1: 5, 2: 5}


@pytest.mark.req("R13")
def test_an_answer_names_the_brokers_that_are_missing() -> None:
    net = chain()
    for id, at in ((1, "b"), (2, "d")):
        net.register(at, id, "x >= 0")
        net.update(at, id, 1, x=1)
    net.run(1)
    net.cut(("c", "d"))
    net.reroute()
    answers = net.ask("a", "x >= 0")
    net.run(5)
    assert [each.id for each in answers[0].found] == [1]
    assert (answers[0].is_complete, answers[0].missing) == (False, ["d"])


@pytest.mark.req("R6", "R13")
def test_an_answer_has_nothing_of_a_host_that_withdrew_everything_in_the_meantime() -> None:
    net = chain()
    for id, at in ((1, "b"), (2, "d")):
        net.register(at, id, "x >= 0")
        net.update(at, id, 1, x=1)
    net.run(1)
    net.cut(("c", "d"))  # the answer waits for d until its deadline
    answers = net.ask("a", "x >= 0")
    net.run(0.5)
    net.nodes["b"].core.hosting.withdraw(1)
    net.run(5)
    assert (answers[0].found, answers[0].missing, list(answers[0].hosts)) == ([], ["d"], [])


# -- watchers -----------------------------------------------------------------------------------------------------


def told(number: int, fits: bool = True, **values: Any) -> dict[str, Any]:
    said = {"id": "1", "name": "m", "host": "a", "epoch": 1, "incarnation": 1, "number": number}
    return {**said, "values": values or None, "fits": fits, "gone": not values}


@pytest.mark.req("R8")
def test_a_watcher_is_told_each_change_once_whatever_is_repeated_or_saved() -> None:
    watch = WatchState()
    kinds = [change.kind for n in (1, 1, 2, 1) for change in watch.state(told(n, x=n))]
    assert kinds == ["appeared", "changed"]
    again = WatchState.resumed(watch.saved())
    assert again.snapshot([told(2, x=2)], {"a": (1, 2)}) == []
    assert [change.kind for change in again.state(told(3, False, x=0))] == ["stopped"]
    assert [change.kind for change in again.state(told(4, x=9))] == ["appeared"]
    assert again.snapshot([], {"a": (1, 3)}) == []  # older than what is known
    assert [change.kind for change in again.snapshot([], {"a": (1, 5)})] == ["stopped"]
    assert [change.kind for change in watch.state(told(9, False))] == ["vanished"]


# -- bad input ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_message_is_read_or_refused(data: bytes) -> None:
    for decode in (messages.decode, REQUESTS.decode):
        with suppress(ProtocolError):
            decode(data)


IDS = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3)).map(list)
TEXTS = st.sampled_from(["x >= 0", "x >= 1 and x <= 4", "x >", "true", "x = 1 and x = 2", "x > 1 and s = 'a'"])
RESOURCES = st.tuples(st.integers(0, 4), st.booleans(), TEXTS, st.integers(0, 3)).map(list)
FOUND = st.tuples(
    *(st.integers(0, 4), st.integers(0, 4), st.just(1), st.just(1)),
    *(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
).map(lambda each: [*each, "n", None, "x >"])
LIES = st.one_of(
    st.fixed_dictionaries(
        {
            **{"say": st.just("told"), "host": st.integers(0, 5), "name": st.just("h"), "cluster": st.just("main")},
            **{"slot": st.integers(0, 5), "incarnation": st.integers(0, 3), "number": st.integers(0, 4)},
            **{"full": st.booleans(), "more": st.booleans(), "add": st.lists(RESOURCES, max_size=3)},
            "remove": st.lists(st.integers(0, 4), max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            **{"say": st.just("ask"), "id": IDS, "attempt": st.integers(0, 2), "where": TEXTS},
            **{"issued": st.integers(0, 1 << 50), "until": st.integers(0, 1 << 50), "max_age": st.integers(0, 1 << 40)},
            **{"deliver": st.sampled_from(["similarity", "normal", "direct", "?"]), "cover": st.none() | IDS},
        }
    ),
    st.fixed_dictionaries(
        {"say": st.just("found"), "id": IDS, "attempt": st.integers(0, 2), "found": st.lists(FOUND, max_size=3)}
    ),
    st.fixed_dictionaries(
        {
            **{"say": st.just("done"), "id": IDS, "attempt": st.integers(0, 2), "cover": st.none() | IDS},
            **{"lost": st.booleans(), "uncovered": st.booleans()},
        }
    ),
    st.fixed_dictionaries({"say": st.just("want"), "drop": st.lists(IDS, max_size=2)}),
    st.fixed_dictionaries(
        {"say": st.just("want"), "add": st.lists(st.tuples(IDS, TEXTS, st.just([1, 4])), max_size=2)}
    ),
    st.fixed_dictionaries({"say": st.just("stir"), "ids": st.lists(IDS, max_size=3)}),
    st.fixed_dictionaries({"say": st.just("offer"), "wants": st.lists(st.integers(0, 5)), "fresh": st.booleans()}),
)


@given(st.lists(LIES, max_size=12))
def test_a_lying_neighbour_does_no_harm_that_is_not_counted(lies: list[dict[str, Any]]) -> None:
    net = Net(["a", "b"], [("a", "b")])
    net.register("a", 1, "x >= 0 and x <= 9")
    net.update("a", 1, 1, x=3)
    node = net.nodes["a"]
    link = next(iter(node.wires))
    for lie in lies:
        node.core.hear_neighbour(link, json.dumps(lie).encode(), net.now)
        net.run(0.01)
    net.run(1)
    assert list(node.core.hosting.resources) in ([1], [])  # a newer registration elsewhere may be claimed
    answers = net.ask("a", "x >= 1", max_age_ns=0, deadline_ns=SECOND)
    net.run(3)
    assert len(answers) == 1


@pytest.mark.req("R1")
@pytest.mark.parametrize("text", ["a = 1 or b = 2", "not (a = 1)"])
def test_only_conjunctions_are_taken_in_either_language(text: str) -> None:
    assert read_condition("a > 1 and b = 'x'", "sql").text == "a > 1 and b = 'x'"
    with pytest.raises(ConditionError):
        read_condition(text, "sql")


def test_fixed_attributes_are_a_condition() -> None:
    assert read_condition(fixed_condition({"system": "li'nux", "cores": 8, "and": True})).has(
        {"system": "li'nux", "cores": 8, "and": True}
    )
