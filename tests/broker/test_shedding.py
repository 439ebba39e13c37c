"""Shedding: when a broker is overloaded, whom it asks to move, how often, and whom it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.broker.commands import Busy, Drain, Reload
from heliograph.broker.config import BrokerConfig, LimitsConfig, LoadConfig
from heliograph.broker.shedding import ASKED_MAX, PART
from heliograph.errors import Reason
from heliograph.notes import SheddingEnded, SheddingStarted
from heliograph.wire.frames import Kind
from tests.broker.talk import Talk

pytestmark = pytest.mark.req("N8")

ELSEWHERE = [f"heliograph://192.0.2.{number}:4717" for number in range(1, 7)]
EASY = LoadConfig(links_permille_high=100, links_permille_low=50, overloaded_s=2, rest_s=60)


class Loaded(Talk):
    """A broker that knows six others."""

    def __init__(self, load: LoadConfig = EASY, **limits: int) -> None:
        super().__init__(BrokerConfig(load=load, limits=LimitsConfig(links_max=100, **limits)))
        self.broker._network.addresses = lambda count: ELSEWHERE[:count]  # type: ignore[method-assign]

    def crowd(self, count: int, **hello: Any) -> None:
        for link in range(1, count + 1):
            self.join(link, **{"features": ["move"], **hello})

    def busy(self, permille: int, seconds: int) -> None:
        for _ in range(seconds):
            self.broker.tell(Busy(permille), self.now)
            self.take()
            self.pass_time(1_000)

    def pass_time(self, ms: float) -> None:
        while ms > 0:
            for link in self.heard:  # everybody is alive
                self.broker.receive(link, b"", self.now)
            super().pass_time(min(ms, 10_000))
            ms -= 10_000

    @property
    def load(self) -> dict[str, Any]:
        return dict(self.broker.report("overview")["load"])

    def advices(self, link: int) -> list[dict[str, Any]]:
        frames = [frame for frame in self.heard[link].answers if frame.kind == Kind.GOODBYE]
        return [json.loads(frame.payload) for frame in frames]

    def asked(self) -> list[int]:
        return [link for link in self.heard if self.advices(link)]


def test_a_crowd_above_the_mark_is_asked_to_move_a_few_at_a_time_and_stays_linked() -> None:
    talk = Loaded()
    talk.crowd(20)
    talk.pass_time(1_999)
    assert talk.asked() == []
    talk.pass_time(1_002)
    assert len(talk.asked()) == 2
    (advice,) = talk.advices(talk.asked()[0])
    assert (advice["reason"], advice["code"]) == ("overloaded", Reason.OVERLOADED)
    assert advice["grace_ms"] > 0
    assert talk.hangups == {}
    assert [note for note in talk.notes if isinstance(note, SheddingStarted)] == [SheddingStarted(0, 200)]


def test_each_is_told_of_another_broker_first() -> None:
    talk = Loaded()
    talk.crowd(20)
    talk.pass_time(9_000)
    firsts = [talk.advices(link)[0]["others"][0] for link in talk.asked()]
    assert set(firsts) == set(ELSEWHERE)
    assert all(len(talk.advices(link)[0]["others"]) == 4 for link in talk.asked())


def test_asking_ends_below_the_low_mark_and_not_before() -> None:
    talk = Loaded()
    talk.crowd(12)
    talk.pass_time(2_001)
    assert talk.load["shedding"]
    for link in range(6):
        talk.leave(link + 1)
        del talk.heard[link + 1]
    talk.pass_time(1_000)
    assert talk.load["shedding"], "6 of 100 is between the marks"
    talk.leave(7)
    talk.leave(8)
    del talk.heard[7], talk.heard[8]
    talk.pass_time(1_000)
    assert not talk.load["shedding"]
    (ended,) = [note for note in talk.notes if isinstance(note, SheddingEnded)]
    assert ended.asked == talk.load["asked_to_move"]
    asked = ended.asked
    talk.pass_time(10_000)
    assert talk.load["asked_to_move"] == asked


def test_one_busy_second_is_no_overload_and_ten_are() -> None:
    talk = Loaded(LoadConfig())
    talk.crowd(5)
    talk.busy(1_000, 1)
    talk.busy(0, 60)
    assert talk.asked() == []
    talk.busy(1_000, 30)
    assert talk.asked()
    assert talk.load["shedding"]
    talk.busy(700, 30)
    assert talk.load["shedding"], "between the marks"
    talk.busy(100, 30)
    assert not talk.load["shedding"]


def test_nobody_is_asked_twice_in_a_while() -> None:
    talk = Loaded()
    talk.crowd(12)
    talk.pass_time(59_000)
    assert all(len(talk.advices(link)) == 1 for link in talk.heard)
    talk.pass_time(60_000)
    assert all(len(talk.advices(link)) == 2 for link in talk.heard)


def test_only_clients_that_said_that_they_can_move_are_asked() -> None:
    talk = Loaded()
    talk.crowd(12, features=["time"])
    talk.join(100, features=["move"])
    talk.pass_time(30_000)
    assert talk.asked() == [100]


def test_a_client_that_came_because_it_was_asked_is_left_alone() -> None:
    talk = Loaded(replace(EASY, links_permille_low=99))
    talk.join(100, features=["move"], moved=True)
    talk.crowd(12)
    talk.pass_time(40_000)
    assert talk.advices(100) == []
    assert talk.load["taken_over_load"] == 1
    talk.pass_time(40_000)
    assert len(talk.advices(100)) == 1


def test_above_the_low_mark_no_clients_of_others_are_taken_but_all_the_rest_are() -> None:
    talk = Loaded()
    talk.crowd(6)
    talk.join(100, features=["move"], moved=True)
    assert talk.hangups == {100: Reason.OVERLOADED}
    assert talk.heard[100].goodbye == "overloaded"
    talk.join(101)
    assert talk.heard[101].order == ["WELCOME"]
    assert talk.broker.report("overview")["refused"] == {"overloaded": 1}


def test_without_others_while_draining_or_switched_off_nobody_is_asked() -> None:
    alone = Loaded()
    alone.broker._network.addresses = lambda count: []  # type: ignore[method-assign]
    off = Loaded(replace(EASY, shed=False))
    drained = Loaded()
    reloaded = Loaded()
    for talk in (alone, off, drained, reloaded):
        talk.crowd(12)
    drained.broker.tell(Drain(60_000), drained.now)
    off_now = BrokerConfig(load=LoadConfig(shed=False), limits=LimitsConfig(links_max=100))
    reloaded.pass_time(2_001)
    asked = reloaded.load["asked_to_move"]
    assert asked
    reloaded.broker.tell(Reload(off_now), reloaded.now)
    for talk in (alone, off, drained, reloaded):
        talk.pass_time(30_000)
    assert [talk.load["asked_to_move"] for talk in (alone, off, drained, reloaded)] == [0, 0, 0, asked]
    assert not reloaded.load["shedding"]


def test_no_more_than_a_part_of_many_is_asked_per_second() -> None:
    talk = Loaded(LoadConfig(overloaded_s=1))
    talk.broker.tell(Reload(BrokerConfig(load=LoadConfig(overloaded_s=1))), talk.now)
    talk.crowd(400)
    talk.busy(1_000, 15)
    before = talk.load["asked_to_move"]
    talk.busy(1_000, 1)
    assert 0 < talk.load["asked_to_move"] - before <= 400 // PART <= ASKED_MAX


def test_the_busiest_are_asked_first() -> None:
    talk = Loaded()
    talk.crowd(12)
    talk.publish(7, "a", *[b"x" * 100] * 10)
    talk.pass_time(2_001)
    assert talk.asked() == [7]


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "busy", "idle", "wait"]), st.integers(1, 20)), max_size=50))
def test_whatever_happens_nobody_loses_a_link_or_is_asked_too_often(steps: list[tuple[str, int]]) -> None:
    talk = Loaded()
    came: dict[int, int] = {}
    for number, (what, who) in enumerate(steps):
        if what == "join" and who not in came:
            came[who] = number + 100
            talk.join(number + 100, features=["move"])
        elif what == "leave" and who in came:
            link = came.pop(who)
            talk.leave(link)
            del talk.heard[link]
        elif what in ("busy", "idle"):
            talk.busy(1_000 if what == "busy" else 0, who)
        else:
            talk.pass_time(1_000 * who)
        assert talk.hangups == {}
        for link in talk.heard:
            assert len(talk.advices(link)) <= 1 + talk.now // (EASY.rest_s * 1_000_000_000)
    assert len(talk.broker._shedding._mobile) <= 2 * len(talk.heard) + 256


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu_permille_low": 0},
        {"cpu_permille_low": 850},
        {"cpu_permille_high": 1_001},
        {"links_permille_low": 950},
        {"overloaded_s": 0},
        {"rest_s": 100_000},
    ],
)
def test_marks_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    (problem,) = LoadConfig(**wrong).problems()
    assert problem.key.startswith("load.")
