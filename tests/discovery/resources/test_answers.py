"""Answers to clients: in parts that fit in a frame, ordered in slices, and bounded; changes told together."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.discovery.resources.answers import KEPT_MAX, ORDERED_MAX, SLICE_ROWS, best_company
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsTold
from heliograph.discovery.resources.news import WatchReader
from heliograph.discovery.resources.ordering import best
from heliograph.discovery.resources.watching import WatchState
from heliograph.wire.pages import PAGE_BYTES, PAGE_ROWS
from tests.discovery.resources.pipe import OnPipe, RefusedByServiceError
from tests.discovery.resources.test_parts import a_find

LARGE = 3 * SLICE_ROWS + 17


def told_many(pipe: OnPipe, count: int, text: str = "") -> list[tuple[int, int]]:
    """The neighbour hosts this many static resources; their sizes and ids."""
    random = Random(count)
    sizes = [random.randrange(500) for _ in range(count)]
    add = [AdvertisedResource(id, True, f"size = {size}{text}", 1, f"r{id}") for id, size in enumerate(sizes, 1)]
    for start in range(0, count, 64):
        more = start + 64 < count
        pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, more, add[start : start + 64], part=start // 64))
    return [(size, id) for id, size in enumerate(sizes, 1)]


def fetched(pipe: OnPipe, **question: Any) -> tuple[list[dict[str, Any]], int]:
    """A whole answer, and how many parts it came in."""
    answer = pipe.ask({"do": "discover", "model": "static", **question})
    rows, more, parts = answer["resources"], answer["more"], 1
    while more:
        part = pipe.ask({"do": "part", **more})
        assert 0 < len(part["resources"]) <= PAGE_ROWS
        rows += part["resources"]
        more, parts = part["more"], parts + 1
    assert answer["total"] == len(rows)
    return rows, parts


@pytest.mark.req("R5")
def test_a_long_static_answer_is_ordered_in_slices_and_comes_in_parts() -> None:
    pipe = OnPipe()
    sizes = told_many(pipe, LARGE)
    before = pipe.wakes
    rows, parts = fetched(pipe)
    assert sorted(int(row["id"], 16) for row in rows) == [id for _, id in sorted(sizes, key=lambda each: each[1])]
    assert parts == -(-LARGE // PAGE_ROWS)
    assert pipe.wakes - before >= LARGE // SLICE_ROWS, "one slice per wake"
    for order, expected in (
        ("size", sorted(sizes)),
        ("size desc", sorted(sizes, key=lambda each: (-each[0], each[1]))),
        ("near", sorted(sizes, key=lambda each: each[1])),
    ):
        ordered, _ = fetched(pipe, order=order)
        assert [(row["values"]["size"], int(row["id"], 16)) for row in ordered] == expected
        some, _ = fetched(pipe, order=order, best=SLICE_ROWS + 5)
        assert [int(row["id"], 16) for row in some] == [id for _, id in expected[: SLICE_ROWS + 5]]
    short, parts = fetched(pipe, where="size = 7")
    assert parts == 1
    assert len(short) == sum(size == 7 for size, _ in sizes)


@pytest.mark.req("R5")
def test_the_parts_of_an_answer_with_long_rows_fit_in_frames() -> None:
    pipe = OnPipe()
    told_many(pipe, 300, f" and note = '{'x' * 3_900}'")
    rows, parts = fetched(pipe)
    assert len(rows) == 300
    assert parts >= 300 * 3_900 // PAGE_BYTES + 1


@pytest.mark.req("R5")
def test_an_answer_is_what_the_table_contained_when_it_was_asked() -> None:
    pipe = OnPipe()
    told_many(pipe, LARGE)
    answer = pipe.ask({"do": "discover", "model": "static"})
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 2, remove=list(range(1, 400))))
    rest = answer["resources"]
    while answer["more"]:
        answer = pipe.ask({"do": "part", **answer["more"]})
        rest += answer["resources"]
    assert len(rest) == LARGE


def test_the_parts_that_a_client_never_fetches_are_forgotten_and_counted() -> None:
    pipe = OnPipe()
    told_many(pipe, PAGE_ROWS + 1)
    first = pipe.ask({"do": "discover", "model": "static"})
    for _ in range(KEPT_MAX + 5):
        pipe.ask({"do": "discover", "model": "static"})
    assert pipe.counted == {"resource_requests_over_limit": 6}
    with pytest.raises(RefusedByServiceError):
        pipe.ask({"do": "part", **first["more"]})
    last = pipe.ask({"do": "discover", "model": "static"})
    with pytest.raises(RefusedByServiceError):
        pipe.ask({"do": "part", **last["more"]}, client=10)  # it belongs to another client
    pipe.leave(9)
    with pytest.raises(RefusedByServiceError):
        pipe.ask({"do": "part", **last["more"]})


@pytest.mark.req("R7")
@pytest.mark.parametrize("count", [0, 1, 200, 201, 1_000, 1_001, 1_200, 1_201, 2_345])
def test_a_long_static_snapshot_is_told_in_slices_and_changes_in_between_win(count: int) -> None:
    pipe = OnPipe()
    if count:
        told_many(pipe, count)
    assert pipe.ask({"do": "watch", "watch": 3, "model": "static"}) == {"watch": 3}
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 2, remove=[1, count], full=not count))
    reader = WatchReader(WatchState())
    for number, (client, watch, payload) in enumerate(pipe.told, 1):
        assert (client, watch, json.loads(payload)["number"]) == (9, 3, number)
        reader.hear(payload)
    assert reader.is_synced
    assert sum(len(json.loads(payload).get("snapshot", ())) for _, _, payload in pipe.told) == count
    assert sorted(int(id, 16) for id, each in reader.state.resources.items() if each.fits) == list(range(2, count))


@pytest.mark.req("R7")
def test_a_change_between_the_slices_of_a_snapshot_wins() -> None:
    pipe = OnPipe()
    told_many(pipe, 5_000)
    pipe.service.receive(1, pipe.request({"do": "watch", "watch": 1, "model": "static"}), pipe.now)
    pipe.service.wake(pipe.now)  # the first slice only
    gone = AdvertisementsTold(2, "b", "main", 2, 1, 2, remove=[3, 4_999])
    pipe.tell(gone)
    said = [json.loads(payload) for _, _, payload in pipe.told]
    assert ["hosts" in each for each in said].count(True) == 1
    first_state = next(number for number, each in enumerate(said) if "states" in each)
    assert 0 < first_state < len(said) - 1, "the change came between two parts"
    reader = WatchReader(WatchState())
    for _, _, payload in pipe.told:
        reader.hear(payload)
    there = {int(id, 16) for id, each in reader.state.resources.items() if each.fits}
    assert there == {*range(1, 5_001)} - {3, 4_999}


COMPANY = st.dictionaries(st.integers(1, 9), st.tuples(st.integers(1, 4), st.integers(0, 30)), min_size=1, max_size=6)


@pytest.mark.req("R12")
@given(COMPANY, st.integers(1, 8))
def test_static_resources_near_one_another_are_chosen_as_dynamic_ones_are(
    hosts: dict[int, tuple[int, int]], count: int
) -> None:
    cost = {host: far for host, (_, far) in hosts.items()}.__getitem__
    found = [a_find(100 * host + n, host) for host, (many, _) in hosts.items() for n in range(many)]
    first = best_company({host: many for host, (many, _) in hosts.items()}, cost, count)

    def spread(chosen: list[int]) -> int:
        return min(
            sum(0 if one == other else cost(one) + cost(other) for other in chosen) for one in dict.fromkeys(chosen)
        )

    ours = sorted(found, key=lambda each: (each.host != first, cost(each.host), each.id))[:count]
    theirs = best(found, count, "together", cost)
    assert spread([each.host for each in ours]) == spread([each.host for each in theirs])


@pytest.mark.req("R2")
def test_registrations_that_arrive_together_are_told_in_one_message() -> None:
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x = 1", model="static"))
    pipe.sent.clear()
    pipe.receive(*(pipe.request(pipe.register(n, where=f"x = {n}", model="static")) for n in range(2, 50)))
    assert [type(each).__name__ for each in pipe.sent] == ["AdvertisementsTold"]
    assert isinstance(pipe.sent[0], AdvertisementsTold)
    assert len(pipe.sent[0].add) == 48
    assert Counter(type(each).__name__ for each in pipe.answers.values()) == {"dict": 48}
    found = pipe.ask({"do": "discover", "model": "static"})
    assert found["total"] == 49


@pytest.mark.req("R2", "R5")
def test_a_request_right_after_a_registration_finds_it_and_one_after_a_withdrawal_does_not() -> None:
    pipe = OnPipe()
    register = pipe.register(1, where="x = 1", model="static")
    withdraw = {"do": "withdraw", "secret": register["secret"]}
    discover = {"do": "discover", "model": "static"}
    pipe.receive(*(pipe.request(body) for body in (register, discover, withdraw, discover, register, discover)))
    totals = [answer["total"] for _, answer in sorted(pipe.answers.items()) if "total" in answer]
    assert totals == [1, 0, 1]


@pytest.mark.req("O6")
def test_a_client_that_wants_many_long_answers_keeps_no_other_from_one() -> None:
    pipe = OnPipe()
    told_many(pipe, LARGE)
    ask, flood = {"do": "discover", "model": "static", "order": "size"}, {"entity": "anonymous", "source": "10.0.0.9"}
    before = pipe.wakes
    pipe.receive(
        *(pipe.request(ask, **flood) for _ in range(ORDERED_MAX + 6)),
        pipe.request(ask, client=10, entity="anonymous", source="10.0.0.3"),
    )
    numbers = list(pipe.answers)
    refused = [number for number, answer in pipe.answers.items() if isinstance(answer, RefusedByServiceError)]
    assert len(refused) == 7, "six are too many, and one gives way"
    wakes = 2 * -(-LARGE // SLICE_ROWS) + 1
    assert numbers.index(ORDERED_MAX + 7) < 10, "it takes turns with the other client, not with each of its answers"
    assert pipe.wakes - before > ORDERED_MAX * (wakes - 1)
    answer = pipe.answers[ORDERED_MAX + 7]
    got = len(answer["resources"])
    while answer["more"]:
        answer = pipe.ask({"do": "part", **answer["more"]}, client=10)
        got += len(answer["resources"])
        pipe.receive(pipe.request({"do": "discover", "model": "static"}, **flood))
    assert got == LARGE


def test_half_fetched_answers_of_one_client_push_out_only_its_own() -> None:
    pipe = OnPipe()
    told_many(pipe, PAGE_ROWS + 1)
    first = pipe.ask({"do": "discover", "model": "static"}, client=10, entity="other")
    for _ in range(KEPT_MAX + 5):
        pipe.ask({"do": "discover", "model": "static"})
    assert pipe.counted == {"resource_requests_over_limit": 6}
    rest = pipe.ask({"do": "part", **first["more"]}, client=10)
    assert len(first["resources"]) + len(rest["resources"]) == PAGE_ROWS + 1
