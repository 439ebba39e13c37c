"""When a client looks for a broker again, when it moves, and that it does neither for little."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.commands import Move
from heliograph.client.relocation_policy import (
    AWAY_NS_MAX,
    NS_PER_MS,
    NS_PER_S,
    STAY_NS,
    RelocationPolicy,
    SessionHealth,
)
from heliograph.discovery.brokers.result import SearchResult
from heliograph.errors import Reason
from heliograph.notes import SessionRoamed
from tests.client.script import HERE, THERE, Script
from tests.client.several import Several
from tests.client.test_discover import a_finding, found

pytestmark = pytest.mark.req("N8")

LATER = STAY_NS + NS_PER_S


class Watch:
    """A session's fortunes, second by second."""

    def __init__(self, look_s: int = 100_000, seed: int = 1) -> None:
        self.policy = RelocationPolicy(look_s, seed, 0)
        self.now = 0
        self.measured = 0
        self.links = 1

    def seconds(self, count: int, connected: bool = True, trip_ms: float | None = 1.0) -> list[int]:
        """The seconds at which it wanted to look."""
        looks = []
        for _ in range(count):
            self.now += NS_PER_S
            if trip_ms is not None:
                self.measured += 1
            if self.policy.observe(self.health(connected, trip_ms), self.now):
                looks.append(self.now // NS_PER_S)
        return looks

    def health(self, connected: bool = True, trip_ms: float | None = 1.0) -> SessionHealth:
        trip_ns = None if trip_ms is None else int(trip_ms * NS_PER_MS)
        return SessionHealth("present", connected, self.links, trip_ns, self.measured)

    def chooses(self, result: SearchResult, connected: bool = True) -> bool:
        return self.policy.choose(result, self.health(connected), self.now)


def measured(best_ms: float, present_ms: float | None, best: str = "best") -> SearchResult:
    near = a_finding(best, "heliograph://192.0.2.1:1", trip=best_ms)
    return found(near, a_finding("present", "heliograph://192.0.2.2:1", trip=present_ms))


def test_a_client_that_fares_well_looks_rarely() -> None:
    looks = Watch(look_s=600).seconds(6_000)
    assert 4 <= len(looks) <= 20


def test_clients_of_one_broker_do_not_look_at_the_same_moment() -> None:
    moments = [Watch(600, seed).seconds(1_000)[0] for seed in range(20)]
    assert all(300 <= moment <= 901 for moment in moments)
    assert len(set(moments)) > 15


def test_after_a_long_disconnect_it_looks_and_goes_to_the_nearest() -> None:
    watch = Watch()
    watch.seconds(3)
    assert watch.seconds(4, connected=False) == []
    assert len(watch.seconds(3, connected=False)) == 1
    assert watch.chooses(measured(5.0, None), connected=False)


def test_while_nobody_will_have_it_it_looks_less_and_less_often() -> None:
    looks = Watch().seconds(600, connected=False, trip_ms=None)
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    assert len(looks) >= 7
    assert max(gaps) <= 2 + AWAY_NS_MAX // NS_PER_S
    assert gaps[-1] > gaps[0]


def test_a_broker_that_got_slow_makes_it_look_and_one_slow_answer_does_not() -> None:
    watch = Watch()
    watch.seconds(60)
    assert watch.seconds(1, trip_ms=80.0) + watch.seconds(60) == []
    assert len(watch.seconds(4, trip_ms=80.0)) == 1
    assert watch.policy.why == "the broker got slow"


def test_links_that_break_again_and_again_make_it_look() -> None:
    watch = Watch()
    watch.seconds(60)
    for _ in range(3):
        watch.links += 1
        watch.seconds(1)
    assert watch.policy.why == "the link breaks again and again"


def test_it_moves_for_a_clear_gain_only() -> None:
    watch = Watch()
    watch.seconds(LATER // NS_PER_S)
    assert watch.chooses(measured(5.0, 50.0))
    assert not watch.chooses(measured(40.0, 50.0))
    assert not watch.chooses(measured(0.2, 1.0))  # a fifth, but who would notice
    assert not watch.chooses(measured(5.0, 50.0, best="present"))


def test_it_does_not_leave_soon_after_it_came() -> None:
    watch = Watch()
    watch.seconds(10)
    assert not watch.chooses(measured(5.0, 50.0))


def test_a_broker_that_answers_no_search_is_left_only_if_it_serves_badly_too() -> None:
    watch = Watch()
    watch.seconds(LATER // NS_PER_S)
    assert watch.seconds(4, trip_ms=80.0)
    assert watch.chooses(measured(5.0, None))
    watch.policy.why = "now and then"
    assert not watch.chooses(measured(5.0, None))


# -- and the session does it ----------------------------------------------------------------------------------------


def test_a_session_without_a_link_dials_the_nearest_next_and_not_its_last_broker() -> None:
    script = Script(HERE)
    script.connect()
    script.lose()
    script.refuse_dial()
    script.tell(Move((THERE,), (THERE, HERE)))
    assert script.dial().host == THERE.host
    assert script.connect() == []


def test_a_move_that_fails_leaves_the_session_where_it_is() -> None:
    script = Script(HERE)
    script.connect()
    script.tell(Move((THERE,), (THERE, HERE)))
    assert script.dial().host == THERE.host
    script.refuse_dial()
    script.pass_ms(30_000)
    assert script.session.is_connected
    assert script.hangups == []
    assert not script.overview()["roaming"]


def test_a_broker_that_drains_during_a_move_is_left_at_its_time() -> None:
    script = Script(HERE)
    script.connect()
    script.tell(Move((THERE,), (THERE, HERE)))
    script.dial()
    script.goodbye(Reason.DRAINING, grace_ms=1_000)
    script.refuse_dial()
    script.pass_ms(1_000)
    assert script.hangups


@given(seed=st.integers(0, 10**6))
def test_a_move_to_a_better_broker_loses_and_repeats_nothing(seed: int) -> None:
    net = Several({"a": ["b"]}, seed)
    reader = net.session("reader", "a")
    net.session("other", "b")
    net.subscribe("reader", "t/#")
    target = net.session("guide", "b").config.targets
    expected = []
    for number in range(30):
        if number == 10:
            net.tell("reader", Move(target, target))
        expected.append(b"%d" % number)
        net.publish("other", "t", expected[-1])
        net.step()
    net.pass_ms(1_000)
    assert net.payloads("reader") == expected
    assert len(net.notes("reader", SessionRoamed)) == 1
    assert reader.is_connected
