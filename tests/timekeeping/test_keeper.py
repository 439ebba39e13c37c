"""Network time: who is the reference, what happens when it goes, and that stated errors are never too small."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.timekeeping.clock import (
    DRIFT_PPM,
    PPM,
    SLEW_PPM,
    STRATUM_LOCAL,
    STRATUM_MAX,
    UTC,
    Clock,
    Reference,
    Sample,
    Told,
    shown,
)
from heliograph.timekeeping.keeper import LOST_BEATS, SETTLE_BEATS, STEP_NS, Keeper
from tests.examples import examples

pytestmark = pytest.mark.req("N13")

S = 1_000_000_000
MS = 1_000_000
BEAT = S // 2
EPOCH = 1_750_000_000 * S
CRYSTAL_PPM = 30


class Node:
    """A keeper with a steady clock and a wall clock of its own, both wrong; instants are true time."""

    def __init__(self, broker: int, *, wall_off: int = 0, ppm: int = 0, born: int = 0) -> None:
        self.keeper = Keeper(broker, 1_000 * broker, BEAT)
        self.ppm = ppm
        self.base = broker * 77 * S
        self.wall_off = wall_off
        self.tick(born)

    def now(self, instant: int) -> int:
        return self.base + instant + instant * self.ppm // PPM

    def tick(self, instant: int) -> None:
        """The driver tells the wall time, and the broker reviews."""
        self.keeper.wall(EPOCH + instant + self.wall_off, self.now(instant))
        self.keeper.review(self.now(instant))

    def ask(self, other: Node, instant: int, there: int = MS, back: int = MS) -> None:
        """An exchange that began then."""
        told = other.keeper.tell(other.now(instant + there))
        if told is not None:
            asked, here = self.now(instant), self.now(instant + there + back)
            self.keeper.hear(told, here - asked, here)
            self.keeper.review(here)

    def time(self, instant: int) -> int:
        time_ns = self.keeper.time_ns(self.now(instant))
        assert time_ns is not None
        return time_ns

    def error(self, instant: int) -> int:
        return self.keeper.error_ns(self.now(instant))


def settled(*brokers: int, wall_off: int = 0) -> list[Node]:
    """Brokers that have listened long enough, each alone."""
    nodes = [Node(broker, wall_off=wall_off * broker) for broker in brokers]
    for node in nodes:
        node.tick(SETTLE_BEATS * BEAT)
    return nodes


def all_ask_all(nodes: list[Node], instant: int) -> None:
    for one in nodes:
        for other in nodes:
            if one is not other:
                one.ask(other, instant)


def test_a_new_broker_listens_first_and_then_its_own_clock_is_the_reference() -> None:
    node = Node(7)
    assert node.keeper.tell(node.now(0)) is None
    assert not node.keeper.is_synchronised(node.now(0))
    assert node.time(0) == EPOCH  # it has a time all the same

    node.tick(SETTLE_BEATS * BEAT)

    assert node.keeper.is_synchronised(node.now(2 * S))
    assert node.keeper.report(node.now(2 * S))["reference"] == f"{7:016x}"
    assert (node.error(3 * S), node.keeper.stratum) == (0, STRATUM_LOCAL)


def test_a_broker_that_joins_takes_the_time_of_the_network_before_it_has_settled() -> None:
    (old,) = settled(9, wall_off=S)
    new = Node(3, born=10 * S)
    new.ask(old, 10 * S)

    assert new.keeper.reference == old.keeper.reference
    assert abs(new.time(11 * S) - old.time(11 * S)) <= new.error(11 * S) <= 3 * MS


def test_the_lowest_broker_in_reach_is_the_reference() -> None:
    nodes = settled(5, 3, 8, wall_off=S)
    all_ask_all(nodes, 3 * S)
    all_ask_all(nodes, 4 * S)

    assert {node.keeper.reference for node in nodes} == {nodes[1].keeper.reference}
    assert nodes[1].keeper.is_reference
    assert [node.keeper.stratum for node in nodes] == [STRATUM_LOCAL + 1, STRATUM_LOCAL, STRATUM_LOCAL + 1]


def test_a_time_passes_through_others_with_its_error_growing() -> None:
    line = settled(1, 2, 3, 4)
    for after, before in zip(line[1:], line, strict=False):
        after.ask(before, 3 * S)
    errors = [node.error(4 * S) for node in line]

    assert {node.keeper.reference for node in line} == {line[0].keeper.reference}
    assert errors == sorted(errors)
    assert 3 * MS < errors[3] < 4 * MS


def test_utc_is_preferred_to_any_broker() -> None:
    low, high = settled(1, 9)
    sample = Sample(high.now(3 * S), EPOCH + 103 * S, 5 * MS, 3)
    assert high.keeper.hear_server(sample, high.now(3 * S))
    low.ask(high, 4 * S)

    assert low.keeper.reference == high.keeper.reference == UTC
    assert low.keeper.stratum == 4
    assert abs(low.time(5 * S) - (EPOCH + 105 * S)) <= low.error(5 * S)


def test_a_reference_of_which_nothing_new_is_heard_is_lost_and_time_goes_on() -> None:
    first, second, third = nodes = settled(1, 2, 3, wall_off=20 * MS)
    all_ask_all(nodes, 3 * S)
    before = second.time(4 * S)
    for beat in range(6, 6 + 2 * LOST_BEATS):  # the first is gone; the others tell each other of it for a while
        all_ask_all([second, third], beat * BEAT)
        for node in (second, third):
            node.keeper.review(node.now(beat * BEAT))
    at = (6 + 2 * LOST_BEATS) * BEAT

    assert second.keeper.is_reference
    assert third.keeper.reference == second.keeper.reference
    assert abs(second.time(at) - before - (at - 4 * S)) < 2 * MS  # no jump: it goes on from there
    assert first.keeper.is_reference


def test_what_is_still_told_of_a_lost_reference_is_not_believed_until_it_is_back() -> None:
    first, second, third = settled(1, 2, 3)
    second.ask(first, 3 * S)
    third.ask(second, 3 * S)
    second.keeper.review(second.now(3 * S + (LOST_BEATS + 1) * BEAT))
    assert second.keeper.is_reference
    second.ask(third, 8 * S)  # the third has not noticed yet
    assert second.keeper.is_reference

    second.ask(first, 9 * S)
    assert second.keeper.reference == first.keeper.reference


def test_a_step_of_the_references_wall_clock_begins_an_era_that_others_follow() -> None:
    first, second = settled(1, 2)
    second.ask(first, 3 * S)
    old = second.keeper.reference
    first.wall_off = -60 * S
    first.tick(4 * S)
    second.ask(first, 5 * S)

    assert second.keeper.reference != old
    assert abs(second.time(6 * S) - (EPOCH - 54 * S)) <= second.error(6 * S)


def test_a_small_difference_of_the_references_wall_clock_is_slewed_away() -> None:
    (node,) = settled(1)
    era = node.keeper.reference
    node.wall_off = 100 * MS
    node.tick(10 * S)
    shown_at_10, shown_at_20 = node.time(10 * S), node.time(20 * S)

    assert node.keeper.reference == era
    assert abs(shown_at_10 - (EPOCH + 10 * S)) < MS
    assert shown_at_20 - shown_at_10 == 10 * S + 10 * S * SLEW_PPM // PPM
    assert STEP_NS > 100 * MS


def test_a_step_of_a_wall_clock_that_is_not_the_reference_changes_nothing() -> None:
    first, second = settled(1, 2)
    second.ask(first, 3 * S)
    before = second.keeper.tell(second.now(4 * S))
    second.wall_off = 3_600 * S
    second.tick(4 * S)

    assert second.keeper.tell(second.now(4 * S)) == before
    assert second.keeper.report(second.now(4 * S))["ahead_of_wall_ns"] == -3_600 * S


def test_a_reference_that_lives_again_is_another_era() -> None:
    first, second = settled(1, 2)
    second.ask(first, 3 * S)
    again = Node(1, wall_off=S, born=4 * S)
    again.keeper._era += 500
    again.ask(second, 5 * S)
    assert again.keeper.reference is None  # its own old time is no news to it
    again.tick(8 * S)
    second.ask(again, 8 * S)

    assert second.keeper.reference == again.keeper.reference


tolds = st.builds(
    Told,
    st.builds(Reference, st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70)),
    *[st.one_of(st.integers(-(2**70), 2**70), st.integers(0, 10 * S)) for _ in range(3)],
    st.integers(-5, STRATUM_MAX + 5),
)


@given(st.lists(st.tuples(tolds, st.integers(-S, 10 * S)), max_size=20))
def test_whatever_a_neighbour_says_a_time_with_a_sane_error_comes_out(said: list[tuple[Told, int]]) -> None:
    (node,) = settled(5)
    client = Clock()
    for number, (told, delay) in enumerate(said):
        now = node.now((3 + number) * S)
        node.keeper.hear(told, delay, now)
        node.keeper.review(now)
        client.follow(told, delay, now)
        each = node.keeper.tell(now)
        assert each is not None
        assert each.is_sane
    report = node.keeper.report(node.now(30 * S))
    assert report["time_ns"] > 0
    assert shown(report, node.now(31 * S))[0] > report["time_ns"]


@given(st.integers(0, 2**32), st.integers(2, 7))
@examples(60)
def test_two_nodes_of_one_era_are_never_further_apart_than_their_errors_say(seed: int, count: int) -> None:
    """Crystals that run apart, wall clocks that step, ways of any length: a slow and obviously right world."""
    random = Random(seed)
    nodes = [
        Node(broker, wall_off=random.randint(-5 * S, 5 * S), ppm=random.randint(-CRYSTAL_PPM, CRYSTAL_PPM))
        for broker in random.sample(range(1, 100), count)
    ]
    gone: set[int] = set()
    for instant in range(BEAT, 60 * S, BEAT // 2):
        for number, node in enumerate(nodes):
            if number in gone:
                continue
            if random.random() < 0.05:
                node.tick(instant)
            other = random.choice(nodes)
            if other is not node and nodes.index(other) not in gone and random.random() < 0.5:
                node.ask(other, instant, random.randint(1, 50 * MS), random.randint(1, 50 * MS))
        if random.random() < 0.01:
            random.choice(nodes).wall_off += random.randint(-2 * S, 2 * S)
        if random.random() < 0.005 and len(gone) < count - 2:
            gone.add(random.randrange(count))
        later = instant + BEAT // 4 + 100 * MS  # after every exchange of this round
        for one in nodes:
            for other in nodes:
                if one.keeper.reference is not None and one.keeper.reference == other.keeper.reference:
                    apart = abs(one.time(later) - other.time(later))
                    assert apart <= one.error(later) + other.error(later) + 2
    assert DRIFT_PPM >= SLEW_PPM + 2 * CRYSTAL_PPM
