"""Interests: told in small changes, reduced by covering, and never lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.routing.interests import (
    OWNER_FILTERS_MAX,
    OWNERS_MAX,
    AdvertisedInterests,
    Interests,
    snapshot_of,
)
from heliograph.broker.routing.reduced import SETTLED_AT_ONCE, widen
from heliograph.errors import ProtocolError
from heliograph.model.topics import covers, matches
from heliograph.wire.broker_bodies import Interest
from tests.examples import examples
from tests.matching.test_topics import every_topic, filters

pytestmark = pytest.mark.req("N5")


def learned(known: Interests, interest: Interest) -> list[bytes]:
    difference = known.learn(interest)
    assert difference is not None
    return list(difference.patterns)


@examples(100)
@given(st.lists(filters, max_size=20), st.sampled_from([2, 4, 1000]), st.data())
def test_who_hears_every_change_knows_at_least_what_is_wanted(
    patterns: list[bytes], limit: int, data: st.DataObject
) -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=limit)
    known = Interests()
    for body in advertised.snapshot():
        known.learn(body)
    kept: list[bytes] = []
    for pattern in patterns:
        if kept and data.draw(st.integers(0, 2)) == 0:
            change = advertised.change(remove=[kept.pop(data.draw(st.integers(0, len(kept) - 1)))])
        else:
            kept.append(pattern)
            change = advertised.change(add=[pattern])
        if change is not None:
            for body in advertised.bodies(change):
                assert known.learn(body) is not None
        told = [wish.owner.broker for wish in known.match(b"a/b")]
        assert bool(told) >= any(matches(pattern, b"a/b") for pattern in kept)
    for topic in every_topic:
        wanted = any(matches(pattern, topic) for pattern in kept)
        heard = bool(known.match(topic))
        assert heard == wanted or (heard and advertised.widened)
    fresh = Interests()
    for body in advertised.snapshot():
        fresh.learn(body)
    for topic in every_topic:
        assert bool(fresh.match(topic)) == bool(known.match(topic))


def test_a_covered_filter_is_not_told_and_comes_back_when_the_covering_one_goes() -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=10)
    assert advertised.change(add=[b"a/#"]) is not None
    assert advertised.change(add=[b"a/b"]) is None
    change = advertised.change(remove=[b"a/#"])
    assert change is not None
    assert (change.came, change.went) == ([b"a/b"], [b"a/#"])


def test_advertised_interests_over_their_limit_stay_cheap_and_become_exact_again() -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=100)
    patterns = [b"s/%d/%d" % (number % 50, number) for number in range(5_000)]
    told = [advertised.change(add=[pattern]) for pattern in patterns]
    assert len(advertised.filters) == 50
    assert sum(change is not None for change in told) < 200, "a filter that a wide one stands for is not told"
    for pattern in patterns[50:]:
        advertised.change(remove=[pattern])
    assert sorted(advertised.filters) == sorted(patterns[:50])
    assert not advertised.widened


def test_a_change_that_does_not_follow_is_not_believed() -> None:
    known = Interests()
    assert known.learn(Interest(7, False, 1, 2, add=["a"])) is None
    for body in snapshot_of(7, False, (1, 1), {b"x": 3}, []):
        assert learned(known, body) == [b"x"]
    assert known.learn(Interest(7, False, 1, 3, add=["a"])) is None
    assert learned(known, Interest(7, False, 1, 2, add=["a"])) == [b"a"]
    assert learned(known, Interest(7, False, 1, 2, add=["b"])) == []
    assert known.match(b"b") == []


def test_a_snapshot_in_parts_is_taken_at_once_and_replaces_what_was_known() -> None:
    known = Interests()
    known.learn(Interest(7, False, 1, 1, full=True, add=["old"]))
    patterns = [b"t/%d" % number for number in range(1_200)]
    bodies = snapshot_of(7, False, (2, 5), dict.fromkeys(patterns, -1), [(b"g", "workers")])
    assert len(bodies) == 3
    known.learn(bodies[0])
    assert known.match(b"old")
    assert not known.match(b"t/1")
    known.learn(bodies[1])
    known.learn(bodies[2])
    assert not known.match(b"old")
    assert [wish.group for wish in known.match(b"g")] == ["workers"]
    assert len(known) == 1_201


def test_a_forgotten_owner_wants_nothing() -> None:
    known = Interests()
    known.learn(Interest(7, False, 1, 1, full=True, add=["a"], add_groups=[("b", "g")]))
    assert sorted(known.forget((7, False)).patterns) == [b"a", b"b"]
    assert not known.match(b"a")
    assert len(known) == 0


def test_groups_are_told_once_however_many_members_they_have() -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=10)
    first = advertised.change(add_groups=[(b"a", "g")])
    assert first is not None
    assert first.groups_came == [(b"a", "g")]
    assert advertised.change(add_groups=[(b"a", "g")]) is None
    assert advertised.change(remove_groups=[(b"a", "g")]) is None
    last = advertised.change(remove_groups=[(b"a", "g")])
    assert last is not None
    assert last.groups_went == [(b"a", "g")]


def test_widened_filters_cover_what_they_stand_for() -> None:
    for pattern in (b"a/b/c", b"a/+", b"#", b"a/b/#", b"System/x"):
        for depth in range(4):
            assert covers(widen(pattern, depth), pattern)


@pytest.mark.parametrize(
    "bad", [Interest(1, False, 1, 1, add=["a/#/b"]), Interest(1, False, 1, 1, add_groups=[("a", "")])]
)
def test_a_broker_that_tells_nonsense_is_refused(bad: Interest) -> None:
    with pytest.raises(ProtocolError):
        Interests().learn(bad)


@pytest.mark.slow
@pytest.mark.req("O9")
def test_an_owner_that_does_not_widen_is_kept_up_to_a_limit() -> None:
    known = Interests()
    size = 500
    for number in range(OWNER_FILTERS_MAX // size + 20):
        add = [f"t/{number * size + each}" for each in range(size)]
        known.learn(Interest(5, False, 1, 1, full=True, more=True, add=add))
    known.learn(Interest(5, False, 1, 1, full=True))
    assert len(known) == OWNER_FILTERS_MAX
    known.learn(Interest(5, False, 1, 2, remove=["t/0"], add=["u/0", "u/1"]))
    assert len(known) == OWNER_FILTERS_MAX


@pytest.mark.req("O9")
def test_there_is_room_for_so_many_owners_and_no_more() -> None:
    known = Interests()
    for broker in range(OWNERS_MAX + 10):
        known.learn(Interest(broker, True, 1, 1, full=True))
    assert len(known.owners) == OWNERS_MAX


def test_what_a_departed_filter_covered_is_told_in_slices_and_before_it_goes() -> None:
    advertised = AdvertisedInterests(7, wide=False, incarnation=1, filters_max=10_000)
    advertised.change(add=[b"#"])
    for number in range(5 * SETTLED_AT_ONCE):
        assert advertised.change(add=[b"a/%d" % number]) is None
    slices = [advertised.change(remove=[b"#"])]
    while not advertised.is_settled:
        slices.append(advertised.change())
    told = [(len(one.came), one.went) for one in slices if one is not None]
    assert told == [(SETTLED_AT_ONCE, [])] * 4 + [(SETTLED_AT_ONCE, [b"#"])]
