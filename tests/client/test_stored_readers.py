"""Readers of stores, in bytes: what a session makes of a store's answers, whatever comes in one read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.client.commands import PublishReliably, ReadStores
from heliograph.errors import Reason
from heliograph.wire import stores
from heliograph.wire.bodies import refusal
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.client.script import Script, an_event, body_of

pytestmark = pytest.mark.req("N10")

STORE = 0xC0FFEE
NAME = f"{STORE:016x}"
OTHER = f"{STORE + 1:016x}"
REFUSED = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
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


def in_store(script: Script, do: str, store: str) -> Frame:
    heard = [frame for frame in script.heard_of(Kind.SERVICE) if "store" in body_of(frame)]
    (asked,) = [frame for frame in heard if (body_of(frame)["do"], body_of(frame)["store"]) == (do, store)]
    return asked


def a_listing(next: int) -> dict[str, Any]:
    return {"logs": [{"log": "main", "first": 0, "next": next, "bytes": 0}]}


def test_a_replay_opens_no_store_before_it_knows_where_to_end() -> None:
    """No store is known at first; one answers late where its log ends; the end stays when it is opened again."""
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a"))
    script.say(an_answer(asked_of(script, "find"), {"stores": []}))
    script.pass_ms(300)
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    listing = in_store(script, "logs", NAME)
    script.say(service(stores.STORES, refusal(Reason.TIME_OUT), listing.sequence, flags=REFUSED))
    script.pass_ms(300)
    script.say(an_answer(in_store(script, "logs", NAME), a_listing(7)))
    opening = in_store(script, "open", NAME)
    assert body_of(opening)["end"] == 7
    script.say(service(stores.STORES, refusal(Reason.TIME_OUT), opening.sequence, flags=REFUSED))
    script.pass_ms(300)
    assert body_of(in_store(script, "open", NAME))["end"] == 7


def test_a_replay_with_an_end_for_one_store_ends_in_another_too() -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", ends={NAME: 3}))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED, {**ADVERTISED, "store": OTHER}]}))
    heard = [body_of(frame) for frame in script.heard_of(Kind.SERVICE)]
    assert [(one["do"], one["store"], one.get("end")) for one in heard] == [("open", NAME, 3), ("logs", OTHER, None)]


@pytest.mark.parametrize("how", [{"follow": True}, {"until_us": 5}, {"name": "n", "secret": b"s" * 32}])
def test_what_follows_or_ends_at_a_time_is_opened_at_once(how: dict[str, Any]) -> None:
    script = Script()
    script.connect()
    script.tell(ReadStores(1, "a", **how))
    script.say(an_answer(asked_of(script, "find"), {"stores": [ADVERTISED]}))
    assert "end" not in body_of(asked_of(script, "open"))


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
