"""Readers of stores, in bytes: what a session makes of a store's answers, whatever comes in one read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.client.commands import PublishReliably, ReadStores
from heliograph.errors import Reason
from heliograph.wire import stores
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.client.script import Script, an_event, body_of

pytestmark = pytest.mark.req("N10")

STORE = 0xC0FFEE
NAME = f"{STORE:016x}"
ADVERTISED = {"store": NAME, "name": "s", "patterns": ["#"], "inbox": "", "ttl_ms": 10_000}


def an_answer(asked: Frame, body: dict[str, Any]) -> bytes:
    return service(stores.STORES, json.dumps(body).encode(), asked.sequence, flags=ServiceFlag.ANSWER)


def asked_of(script: Script, do: str) -> Frame:
    (asked,) = [frame for frame in script.heard_of(Kind.SERVICE) if body_of(frame)["do"] == do]
    return asked


@pytest.mark.parametrize("early", [False, True])
def test_a_replay_that_opens_and_ends_in_one_read_is_there_with_what_it_brought(early: bool) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", ends={NAME: 1}))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    channel, inbox = body_of(opening)["channel"], script.inbox().encode()
    opened = an_answer(opening, {"channel": channel, "position": 0, "first": 0, "next": 1})
    run = stores.stored(inbox, STORE, 0, an_event(1), stores.span(channel, 0, 1, [0]))
    end = stores.stored(inbox, STORE, 0, stores.encode(stores.Notice(channel, 1)), flags=stores.StoredFlag.NOTICE)
    script.say(run + opened + end if early else opened + run + end)
    number = script.outcome(1).value
    taken = script.session.inbox(number)
    assert len(taken) == 1
    assert taken.ended


def test_a_publisher_is_told_that_its_store_has_less_than_it_acknowledged() -> None:
    script = Script()
    script.connect()
    script.tell(PublishReliably("a", [b"x", b"y"], request=1))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    script.say(an_answer(asked_of(script, "attach"), {"have": 0}))
    script.heard()
    script.say(stores.stored(script.inbox().encode(), STORE, 2, b"", flags=stores.StoredFlag.ACK))
    assert script.outcome(1).value == (STORE, 1, 2)
    for have, told in ((2, []), (1, [Reason.STORE_RESET])):
        script.lose()
        services = [frame for frame in script.connect() if frame.kind == Kind.SERVICE]
        (asked,) = [frame for frame in services if body_of(frame)["do"] == "attach"]
        script.say(an_answer(asked, {"have": have}))
        assert [refused.reason for refused in script.session.collect_refusals()] == told


@pytest.mark.parametrize("early", [False, True])
def test_runs_tell_when_their_publications_were_stored(early: bool) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", positions={NAME: 0}, since_us=5, ends={NAME: 2}, raw=True, times=True))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    opening = asked_of(script, "open")
    asked = body_of(opening)
    assert (asked["times"], asked["position"], asked["since_us"]) == (True, 0, 5)
    channel, inbox = asked["channel"], script.inbox().encode()
    opened = an_answer(opening, {"channel": channel, "position": 0, "first": 0, "next": 2})
    times = stores.encode(stores.Notice(channel, 1, taken=[(0, 7)]))
    told = stores.stored(inbox, STORE, 0, times, flags=stores.StoredFlag.NOTICE)
    first = stores.stored(inbox, STORE, 0, an_event(1), stores.span(channel, 0, 1, [0]))
    second = stores.stored(inbox, STORE, 0, an_event(2), stores.span(channel, 1, 2, [0]))
    script.say(told + first + second + opened if early else opened + told + first + second)
    runs = script.session.inbox(script.outcome(1).value).take_all()
    assert [([*run.positions], [*run.taken]) for run in runs] == [([0], [(0, 7)]), ([1], [])]
