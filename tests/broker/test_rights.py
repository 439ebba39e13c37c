"""Created topics: only a link with a right publishes on them and hears them; without it nothing spreads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.broker.rights import PARKED_NS, Right, Rights
from heliograph.machine import Peer, Timers
from heliograph.model.identity import Identity
from heliograph.wire.frames import service
from tests.broker.talk import Talk

ROOT = "Topics/7d444840-9dc0-11d1-b245-5ffdce74fad2"
PIPE = 50


def a_talk() -> Talk:
    """A broker with two clients and the pipe of a service that says who may do what."""
    talk = Talk()
    talk.attach(PIPE, Peer("pipe", "rights"))
    talk.join(1)
    talk.join(2)
    return talk


def order(talk: Talk, **said: Any) -> dict[str, Any]:
    talk.say(PIPE, service(b"broker", json.dumps(said).encode(), 1))
    answer: dict[str, Any] = json.loads(talk.heard[PIPE].answers[-1].payload)
    return answer


def allow(talk: Talk, link: int, *, publish: bool = True, subscribe: bool = True, ms: int = 10_000) -> dict[str, Any]:
    grants = [f"g{link}"]
    return order(talk, do="allow", link=link, root=ROOT, publish=publish, subscribe=subscribe, ms=ms, grants=grants)


@pytest.mark.req("T11")
def test_without_a_right_nothing_is_published_or_subscribed() -> None:
    talk = a_talk()
    talk.subscribe(1, f"{ROOT}/#")
    talk.publish(2, f"{ROOT}/temperature")
    assert talk.heard[1].refusals == ["subscribe_denied"]
    assert talk.heard[2].refusals == ["publish_denied"]
    assert talk.broker.report("overview")["subscriptions"] == 0


@pytest.mark.req("T11")
@pytest.mark.parametrize("count", [1, 5])
def test_with_a_right_publications_flow_and_after_it_was_revoked_they_do_not(count: int) -> None:
    talk = a_talk()
    assert allow(talk, 1, publish=False) == {"ok": True, "reason": ""}
    allow(talk, 2, subscribe=False)
    talk.subscribe(1, f"{ROOT}/#")
    talk.publish(2, f"{ROOT}/a", *[b"1"] * count)
    assert talk.heard[1].payloads == [b"1"] * count
    assert order(talk, do="forbid", grants=["g2"]) == {"ok": True, "ended": 1}
    talk.publish(2, f"{ROOT}/a", b"2")
    assert talk.heard[2].refusals == ["publish_denied"]
    allow(talk, 2)
    order(talk, do="forbid", grants=["g1"])
    talk.publish(2, f"{ROOT}/a", b"3")
    assert talk.heard[1].payloads == [b"1"] * count
    assert talk.heard[1].refusals == ["grant_revoked"], "its subscription has ended"
    assert talk.broker.report("overview")["subscriptions"] == 0


@pytest.mark.req("T11")
def test_a_right_ends_when_its_time_is_over_and_a_wildcard_never_meets_created_topics() -> None:
    talk = a_talk()
    allow(talk, 1, ms=1_000)
    allow(talk, 2)
    talk.subscribe(1, f"{ROOT}/#")
    talk.subscribe(1, "#", number=2)
    talk.publish(2, f"{ROOT}/a")
    talk.pass_time(1_500)
    talk.publish(2, f"{ROOT}/a")
    assert [numbers for numbers, _ in talk.heard[1].events] == [(1,)]
    assert talk.heard[1].refusals == ["grant_expired"]


@pytest.mark.req("T11")
def test_holders_of_different_grants_share_one_route_table() -> None:
    talk = a_talk()
    for link in range(100, 140):
        talk.join(link)
        root = f"Topics/{link}"
        order(talk, do="allow", link=link, root=root, publish=True, subscribe=True, ms=9_000, grants=[])
        talk.publish(link, f"{root}/x")
    assert talk.broker.report("routes")["cached"] == 40
    talk.publish(100, "Topics/101/x")
    assert talk.heard[100].refusals == ["publish_denied"]


@pytest.mark.req("T11")
def test_a_withdrawn_topic_is_nobodys_and_wildcards_across_topics_are_refused() -> None:
    talk = a_talk()
    allow(talk, 1)
    for pattern in ("Topics/#", "Topics/+/a", "Topics"):
        talk.subscribe(1, pattern, number=7)
    assert talk.heard[1].refusals == ["subscribe_denied"] * 3
    talk.subscribe(1, f"{ROOT}/a")
    order(talk, do="forbid", roots=[ROOT])
    assert talk.heard[1].refusals[-1] == "topic_withdrawn"


@pytest.mark.req("T11")
def test_a_session_that_comes_back_has_its_rights_again_unless_they_were_revoked_meanwhile() -> None:
    for revoked in (False, True):
        talk = a_talk()
        allow(talk, 1)
        talk.leave(1)
        if revoked:
            order(talk, do="forbid", grants=["g1"])
        talk.attach(60)
        talk.say(60, talk.hello(1))
        talk.subscribe(60, f"{ROOT}/#")
        assert talk.heard[60].refusals == (["subscribe_denied"] if revoked else [])
    stranger = a_talk()
    allow(stranger, 1)
    stranger.leave(1)
    stranger.join(61)
    stranger.subscribe(61, f"{ROOT}/#")
    assert stranger.heard[61].refusals == ["subscribe_denied"], "another session"


@pytest.mark.req("O6", "T11")
@pytest.mark.parametrize("is_away", [False, True])
def test_a_right_ends_when_a_certificate_that_it_rests_on_is_revoked(is_away: bool) -> None:
    talk = a_talk()
    said = {"do": "allow", "root": ROOT, "publish": True, "subscribe": True, "ms": 10_000, "grants": []}
    order(talk, link=1, serials=["A1", "B2"], **said)
    order(talk, link=2, serials=["B2"], **said)
    order(talk, link=1, serials=["A1"], **said)  # presented again, with other certificates
    if is_away:
        talk.leave(1)
    order(talk, do="expel", serials=["A1", "C3"])
    if is_away:
        talk.attach(60)
        talk.say(60, talk.hello(1))
    link = 60 if is_away else 1
    talk.subscribe(link, f"{ROOT}/a")
    talk.subscribe(2, f"{ROOT}/a")
    assert talk.heard[link].refusals[-1] == "subscribe_denied"
    assert talk.heard[2].refusals == []
    order(talk, do="expel", serials=["B2"])
    assert talk.heard[2].refusals == ["certificate_revoked"]
    assert talk.broker._subscriptions.rights._resting == {}


def _left(count: int, roots: int) -> Any:
    """Sessions that left with their rights, and what knows them."""
    timers = Timers()
    rights = Rights(timers, lambda root: None, lambda link, root, reason: None, lambda link, root, may: None)
    for link in range(count):
        for root in range(roots):
            right = Right(True, True, 10 * PARKED_NS, (f"g{link}",), ("A1",))
            assert rights.allow(link, b"Topics/%d-%d" % (link, root), right, link)
        rights.leave(link, (link, Identity(f"e{link}", ())), link)
    return timers, rights


@pytest.mark.req("O6", "T11")
def test_rights_of_sessions_that_do_not_come_back_are_forgotten_after_a_minute() -> None:
    timers, rights = _left(3, 4)
    assert rights.parked == 12
    timers.run(PARKED_NS - 1)
    assert rights.parked == 12
    while (at := timers.next()) is not None and at <= PARKED_NS + 3:
        timers.run(PARKED_NS + 3)
    assert rights.parked == 0
    assert rights._resting == {}
    assert rights.expel(["A1"]) == 0
    rights.resume(7, (2, Identity("e2", ())), PARKED_NS + 4)
    assert len(rights) == 0


@pytest.mark.req("O6", "T11")
def test_rights_of_sessions_without_a_link_count_and_give_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.broker.rights.RIGHTS_MAX", 20)
    _, rights = _left(6, 4)
    assert rights.parked <= 20
    here = Right(True, True, PARKED_NS, ("g",))
    assert all(rights.allow(99, b"Topics/%d" % root, here, 0) for root in range(20)), "those with a link have room"
    assert (len(rights), rights.parked) == (20, 0)
    assert not rights.allow(98, b"Topics/0", here, 0)
