"""Gathering on its own: answers of several attempts in an order that only a busy network brings about."""

from __future__ import annotations

import pytest

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.forwarding import HERE, Arrival, HostRead
from heliograph.discovery.resources.gathering import AnswerGathering, GatheredAnswer, ResourceQuestion
from heliograph.discovery.resources.messages import (
    AdvertisedResource,
    AdvertisementsTold,
    FoundResource,
    ResourceRequest,
)
from heliograph.discovery.resources.places import Places
from heliograph.discovery.resources.table import AdvertisementTable
from heliograph.machine import Timers
from heliograph.wire.ways import WaysHere

ME, HOST, RESOURCE = 1, 2, 77
WHERE = "load >= 0"


def read_at(at: int, load: int) -> FoundResource:
    """The resource as its host read it then."""
    return FoundResource(RESOURCE, HOST, 1, 1, at, at, at, "r", {"load": load})


@pytest.mark.req("R9", "R13")
@pytest.mark.parametrize("late", [5, 15], ids=["older", "newer"])
def test_a_late_shared_answer_does_not_hide_what_its_host_answered_to_the_repeat(late: int) -> None:
    """A request was repeated, because what it shared was too old. While its host answers the repeat, an answer to the
    first attempt arrives too, which the host read before or after that."""
    asked: list[ResourceRequest] = []
    answers: list[GatheredAnswer] = []
    table, places, timers = AdvertisementTable(100), Places(), Timers()
    places.hear(WaysHere(broker=ME, name="me", cluster="main", slot=1, incarnation=1))
    advertised = AdvertisedResource(RESOURCE, False, read_condition(WHERE).text, 1, "r")
    table.learn(AdvertisementsTold(HOST, "host", "main", 2, 1, 1, full=True, add=[advertised]))
    gathering = AnswerGathering(
        *(table, places, timers, 10),
        network_time=lambda now: now,
        time_error=lambda now: 0,
        ask=lambda request, now, holder: asked.append(request),
        arrived=lambda key: {},
        is_settled=lambda: True,
        reply=lambda id: None,
    )
    question = ResourceQuestion(read_condition(WHERE))
    gathering.begin(question, lambda answer, now: answers.append(answer), 1)
    first = (asked[0].id, asked[0].attempt)
    gathering.done(first, Arrival(HERE, None), 2)  # its host was read too early for it
    timers.run(2)
    again = (asked[1].id, asked[1].attempt)
    gathering.found(again, [read_at(10, 1)])
    gathering.found(first, [read_at(late, 2)])
    gathering.done(again, Arrival(HERE, None, hosts={HOST: HostRead(1, 10, 10)}), 20)
    (answer,) = answers
    assert answer.is_complete
    assert [(each.id, each.at) for each in answer.found] == [(RESOURCE, max(10, late))]
