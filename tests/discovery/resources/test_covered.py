"""Advertisements that others of the same broker cover: what is told, and what it costs when covering ones go."""

from __future__ import annotations

from random import Random

import pytest

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.hosting import EXPIRED_AT_ONCE
from heliograph.discovery.resources.messages import AdvertisedResource
from heliograph.discovery.resources.own_advertisements import COVERED_AT_ONCE, MOVES_MAX, OwnAdvertisements
from tests.discovery.resources.net import Net

NESTED = 1_000


def resource(id: int, where: str, epoch: int = 1, attached: bool = False) -> AdvertisedResource:
    return AdvertisedResource(id, False, read_condition(where).text, epoch, "", attached)


def nested(count: int = NESTED) -> list[AdvertisedResource]:
    """The first covers all others, the second all but the first, …"""
    return [resource(id, f"m >= 0 and m <= {10**6 - id}") for id in range(count)]


@pytest.mark.req("R3")
def test_whatever_comes_and_goes_all_is_told_or_covered_by_what_is_told() -> None:
    random = Random(7)
    own, told, all_of = OwnAdvertisements(), dict[int, AdvertisedResource](), dict[int, AdvertisedResource]()
    for epoch in range(3_000):
        came: list[AdvertisedResource] = []
        went = [id for id in list(all_of) if random.random() < 0.05]
        for id in range(random.randrange(4)):
            id = random.randrange(40)
            low, high = random.randrange(8), random.randrange(8, 16)
            where = f"x >= {low} and x <= {high}" + " and y = 1" * random.randrange(2)
            if id not in [each.id for each in came]:
                came.append(resource(id, where, epoch, random.random() < 0.1))
                went += [id] if id in all_of and id not in went else []
        add, remove = own.change(came, went)
        for id in went:
            del all_of[id]
        all_of.update((each.id, each) for each in came)
        for id in remove:
            del told[id]
        told.update((each.id, each) for each in add)
        assert told == own.told
        for each in all_of.values():
            assert each.id in told or not each.attached
            wanted = read_condition(each.where)
            coverers = [read_condition(other.where) for other in told.values()]
            assert any(other.covers(wanted) and other.box.keys() == wanted.box.keys() for other in coverers)
        assert own.is_unfinished or all(id in all_of for id in told)


def test_owners_who_withdraw_one_wide_resource_after_the_other_cost_no_more_than_what_they_registered() -> None:
    own = OwnAdvertisements()
    add, _ = own.change(nested(), [])
    assert [each.id for each in add] == [0]
    for id in range(NESTED // 2):
        own.change([], [id])
        while own.is_unfinished:
            own.change([], [])
    assert own.searches <= NESTED * (1 + MOVES_MAX)
    assert len(own.told) == NESTED // 2


def test_equal_advertisements_take_the_place_of_one_another_without_looking_at_the_others() -> None:
    own = OwnAdvertisements()
    own.change([resource(id, "x >= 0") for id in range(NESTED)], [])
    for id in range(NESTED - 1):
        add, remove = own.change([], [id])
        assert ([each.id for each in add], remove) == ([id + 1], [id])
    assert own.searches < 2 * NESTED
    assert own.change([], [NESTED - 1]) == ([], [NESTED - 1])


def test_what_covers_many_is_told_until_each_of_them_is_covered_again_or_told() -> None:
    own = OwnAdvertisements()
    own.change([resource(0, "x >= 0"), *(resource(id, f"x = {id}") for id in range(1, NESTED))], [])
    searches, told = own.searches, 0
    for changes in range(1, NESTED):
        add, remove = own.change([], [] if changes > 1 else [0])
        told += len(add)
        assert own.searches - searches <= changes * COVERED_AT_ONCE
        assert remove == ([] if own.is_unfinished else [0])
        if not own.is_unfinished:
            break
    assert told == NESTED - 1
    assert changes > NESTED // COVERED_AT_ONCE


def test_what_is_told_anew_under_the_name_of_one_that_covered_many_hides_none_of_them() -> None:
    own = OwnAdvertisements()
    own.change([resource(0, "x >= 0"), *(resource(id, f"x = {id}") for id in range(1, NESTED))], [])
    add, remove = own.change([resource(0, "y >= 0", 2)], [0])
    assert (len(add), remove, own.is_unfinished) == (NESTED, [], False)


def test_leases_that_end_together_end_in_slices_and_all_brokers_hear_it() -> None:
    net = Net(["a", "b"], [("a", "b")])
    for id in range(3 * EXPIRED_AT_ONCE):
        net.register("a", id, f"m = {id}", lease_s=60)
    net.run(30)
    assert len(net.nodes["b"].core.table) == 3 * EXPIRED_AT_ONCE
    before = net.kinds["AdvertisementsTold"]
    net.run(31)
    assert net.kinds["AdvertisementsTold"] - before == 3
    assert len(net.nodes["b"].core.table) == 0
    assert len(net.nodes["a"].core.take_expired()) == 3 * EXPIRED_AT_ONCE
