"""Subscriptions that ask for more than a topic: who gets what at one broker."""

from __future__ import annotations

import json

import pytest

from heliograph.broker.steps import STEPS_MAX
from heliograph.wire.frames import Flag, Kind
from tests.broker.talk import Talk

PUBLISHER, PLAIN, PICKY, OTHER = 1, 2, 3, 4
pytestmark = pytest.mark.req("N9")


def a_talk() -> Talk:
    talk = Talk()
    for link in (PUBLISHER, PLAIN, PICKY, OTHER):
        talk.join(link)
    return talk


def publish(talk: Talk, payload: bytes, topic: str = "hosts/h1", link: int = PUBLISHER, **headers: object) -> None:
    talk.publish(link, topic, payload, headers=json.dumps(headers).encode())


def want(talk: Talk, link: int, where: str, number: int = 1, pattern: str = "hosts/#", **fields: object) -> None:
    talk.subscribe(link, pattern, number, where=where, language=fields.pop("language", "predicates"), **fields)


def numbers(talk: Talk, link: int) -> list[tuple[int, ...]]:
    return [found for found, _ in talk.heard[link].events]


def test_a_condition_lets_through_what_fits_and_nothing_else() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk > 120 and system = 'linux'")
    publish(talk, b"yes", disk=200, system="linux")
    publish(talk, b"too small", disk=100, system="linux")
    publish(talk, b"no system", disk=200)
    publish(talk, b"another topic", topic="rooms/r1", disk=200, system="linux")
    talk.publish(PUBLISHER, "hosts/h1", b"no headers")
    assert talk.heard[PICKY].payloads == [b"yes"]


@pytest.mark.parametrize(
    ("language", "where", "topic", "payload", "headers"),
    [
        ("predicates", "disk >= 5", "a", b"", {"disk": 5}),
        ("integer", "10..20", "17", b"", {}),
        ("tags", "class=stock", "class=stock,price=9", b"", {}),
        ("regex", "topic ~ '^ab+$'", "abb", b"", {}),
        ("xpath", "//order[@total > 5]", "orders", b"<o><order total='6'/></o>", {}),
        ("sql", "weight BETWEEN 1 AND 3 AND color LIKE 'r_d%'", "a", b"", {"weight": 2, "color": "reddish"}),
    ],
)
def test_every_language_can_be_spoken(
    language: str, where: str, topic: str, payload: bytes, headers: dict[str, object]
) -> None:
    talk = a_talk()
    want(talk, PICKY, where, pattern="#", language=language)
    publish(talk, payload, topic, **headers)
    publish(talk, b"<nothing/>", "none/of/it")
    assert talk.heard[PICKY].refusals == []
    assert talk.heard[PICKY].payloads == [payload]


def test_a_link_gets_a_publication_once_with_all_its_subscriptions_that_match() -> None:
    talk = a_talk()
    talk.subscribe(PICKY, "hosts/+", 7)
    want(talk, PICKY, "disk > 100", 1)
    want(talk, PICKY, "disk > 150", 2)
    want(talk, PICKY, "disk > 100", 3, "#")
    talk.subscribe(PLAIN, "hosts/h1", 5)
    publish(talk, b"a", disk=160)
    publish(talk, b"b", disk=120)
    publish(talk, b"c", disk=1)
    assert numbers(talk, PICKY) == [(1, 2, 3, 7), (1, 3, 7), (7,)]
    assert numbers(talk, PLAIN) == [(5,)] * 3
    assert talk.heard[PICKY].payloads == talk.heard[PLAIN].payloads == [b"a", b"b", b"c"]


def test_subscriptions_that_come_and_go_are_heeded_at_once() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk > 100", 1)
    publish(talk, b"1", disk=200)
    want(talk, OTHER, "disk > 100", 1)
    publish(talk, b"2", disk=200)
    talk.unsubscribe(PICKY, 1)
    publish(talk, b"3", disk=200)
    talk.leave(OTHER)
    talk.subscribe(PLAIN, "#")
    publish(talk, b"4", disk=200)
    assert talk.heard[PICKY].payloads == [b"1", b"2"]
    assert talk.heard[OTHER].payloads == [b"2", b"3"]
    assert talk.heard[PLAIN].payloads == [b"4"]
    assert talk.broker.report("overview")["subscriptions"] == 1


def test_one_member_of_a_group_with_a_condition_gets_what_fits() -> None:
    talk = a_talk()
    for link in (PICKY, OTHER):
        want(talk, link, "disk > 100", group="workers")
    for number in range(10):
        publish(talk, b"%d" % number, disk=99 + 2 * (number % 2))
    heard = talk.heard[PICKY].payloads + talk.heard[OTHER].payloads
    assert sorted(heard) == [b"1", b"3", b"5", b"7", b"9"]
    assert talk.heard[PICKY].payloads
    assert talk.heard[OTHER].payloads


def test_a_publisher_that_wants_no_echo_gets_none() -> None:
    talk = a_talk()
    want(talk, PUBLISHER, "disk > 100", echo=False)
    want(talk, PICKY, "disk > 100")
    publish(talk, b"mine", disk=200)
    publish(talk, b"another's", link=OTHER, disk=200)
    assert talk.heard[PUBLISHER].payloads == [b"another's"]
    assert talk.heard[PICKY].payloads == [b"mine", b"another's"]


def test_access_rules_hold_for_conditions_too() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk > 0", pattern="#")
    publish(talk, b"open", topic="hosts/h1", disk=1)
    talk.subscribe(PICKY, "System/#", 2, where="disk > 0", language="predicates")
    assert talk.heard[PICKY].refusals == ["subscribe_denied"]
    assert talk.heard[PICKY].payloads == [b"open"]


@pytest.mark.req("O6")
def test_a_condition_that_makes_no_sense_is_refused_with_its_place() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk >")
    want(talk, PICKY, "x", language="prolog")
    want(talk, PICKY, "(" * 10_000, language="sql")
    assert talk.heard[PICKY].refusals[:2] == ["condition_invalid", "language_unsupported"]
    assert len(talk.heard[PICKY].refusals) == 3
    said = json.loads(talk.heard[PICKY].answers[-3].payload)["text"]
    assert "character" in said
    assert talk.hangups == {}


def test_a_request_that_fits_nobodys_condition_has_no_responders() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk > 100")
    for disk in (1, 200):
        headers = json.dumps({"disk": disk, "$r": "Inbox/0"}).encode()
        talk.say(PUBLISHER, talk.an_event(PUBLISHER, "hosts/h1", b"?", headers=headers, flags=Flag.REQUEST))
    assert talk.heard[PUBLISHER].refusals == ["responders_missing"]
    assert talk.heard[PICKY].payloads == [b"?"]


def test_a_long_run_is_matched_in_slices_and_order_holds() -> None:
    talk = a_talk()
    want(talk, PICKY, "n >= 0")
    talk.subscribe(PLAIN, "#")
    count = 3 * STEPS_MAX
    frames = [
        talk.an_event(PUBLISHER, "hosts/h1", b"%d" % n, headers=json.dumps({"n": n}).encode()) for n in range(count)
    ]
    frames.insert(count // 2, talk.an_event(PUBLISHER, "other", b"between", sequence=count + 1))
    talk.say(PUBLISHER, b"".join(frames))
    assert 0 < len(talk.heard[PICKY].payloads) <= STEPS_MAX
    assert talk.held[PUBLISHER]
    talk.pass_time(0)
    assert talk.heard[PICKY].payloads == [b"%d" % n for n in range(count)]
    assert [payload for payload in talk.heard[PLAIN].payloads if payload != b"between"] == talk.heard[PICKY].payloads
    assert len(talk.heard[PLAIN].payloads) == count + 1
    assert not talk.held[PUBLISHER]


def test_a_report_shows_what_is_asked() -> None:
    talk = a_talk()
    want(talk, PICKY, "disk>100  and a=1")
    (row,) = talk.broker.report("subscriptions")
    assert (row["language"], row["filter"]) == ("predicates", "hosts/#")
    assert "disk > 100" in row["where"]
    assert [frame.kind for frame in talk.heard[PICKY].answers][-1] == Kind.CONFIRMED


def test_conditions_that_no_index_can_hold_are_refused_before_an_event_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.matching.contents.RESIDUES_MAX", 5)
    talk = a_talk()
    for number in range(1, 8):
        want(talk, PICKY, f"x + {number} = 3 OR x = 7", number, language="sql")
    want(talk, PICKY, "x > 1", 8)
    assert talk.heard[PICKY].refusals == ["subscriptions_over_limit"] * 2
    publish(talk, b"seven", x=7)
    assert numbers(talk, PICKY) == [(1, 2, 3, 4, 5, 8)]

    talk.unsubscribe(PICKY, 1)
    want(talk, PICKY, "x + 9 = 3 OR x = 7", 9, language="sql")
    publish(talk, b"seven", x=7)
    assert numbers(talk, PICKY)[-1] == (2, 3, 4, 5, 8, 9)
