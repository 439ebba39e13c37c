"""Watches of a session: news come by frames of the broker, each for its watch, and nothing is left of a closed one."""

from __future__ import annotations

import json

import pytest

from heliograph.client.commands import Ask, Close, EndWatch
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.client.script import Script, a_delivery, an_event

pytestmark = pytest.mark.req("O6", "R8")
NEWS = ServiceFlag.NEWS


def watching(*numbers: int) -> Script:
    """A session with these watches."""
    script = Script()
    script.connect()
    for number in numbers:
        begin(script, number)
    return script


def begin(script: Script, number: int, name: str = "resources") -> None:
    script.tell(Ask(number, name, {"do": "watch", "watch": number}, number))
    (asked,) = script.heard_of(Kind.SERVICE)
    script.say(service(asked.topic, b"{}", asked.sequence, flags=ServiceFlag.ANSWER))
    assert script.outcome(number).error is None


def tell(script: Script, number: int, payload: bytes, name: bytes = b"resources", link: int | None = None) -> None:
    script.say(service(name, payload, number, flags=NEWS), link)


def test_news_are_handed_on_by_the_number_of_their_watch_whatever_they_say() -> None:
    script = watching(3, 4)
    for number, payload in ((3, b"a"), (4, b"\xff"), (3, b"")):
        tell(script, number, payload)
    assert script.session.collect_watched() == [(3, b"a"), (4, b"\xff"), (3, b"")]
    assert script.session.collect_watched() == []
    assert (script.overview()["watches"], script.overview()["news_unexpected"]) == (2, 0)


def test_news_may_come_with_the_answer_that_opens_the_watch() -> None:
    script = watching()
    script.tell(Ask(1, "resources", {"watch": 1}, 1))
    (asked,) = script.heard_of(Kind.SERVICE)
    answer = service(b"resources", b"{}", asked.sequence, flags=ServiceFlag.ANSWER)
    script.say(answer + service(b"resources", b"first", 1, flags=NEWS))
    assert script.session.collect_watched() == [(1, b"first")]


def test_news_of_no_open_watch_are_dropped_and_counted() -> None:
    script = watching(3)
    tell(script, 4, b"x")
    tell(script, 3, b"x", b"other")
    script.tell(EndWatch(3))
    tell(script, 3, b"x")
    assert script.session.collect_watched() == []
    assert (script.overview()["watches"], script.overview()["news_unexpected"]) == (0, 3)
    assert script.hangups == []


def test_a_publication_is_never_taken_for_news() -> None:
    script = watching(3)
    script.say(a_delivery([0], [an_event(1, f"{script.inbox()}/resources/3", b"{}")]))
    script.say(a_delivery([], [an_event(2, f"{script.inbox()}/resources/3", b"{}")]))
    assert script.session.collect_watched() == []


def test_a_watch_ends_with_its_link_and_the_program_is_told() -> None:
    script = watching(3, 4)
    tell(script, 3, b"x")
    script.lose()
    assert script.session.collect_watched() == [(3, b"x"), (3, None), (4, None)]
    script.connect()
    begin(script, 5)
    script.tell(Close(script.number()))
    assert script.session.collect_watched() == [(5, None)]
    assert script.overview()["watches"] == 0


def test_a_watch_that_ends_before_there_is_a_link_is_never_asked_for() -> None:
    script = Script()
    script.tell(Ask(1, "resources", {"watch": 1}, 1))
    script.tell(EndWatch(1))
    script.tell(Ask(2, "resources", {"watch": 2}, 2))
    frames: list[Frame] = script.connect()
    assert [json.loads(frame.payload) for frame in frames if frame.kind == Kind.SERVICE] == [{"watch": 2}]
    assert script.overview()["watches"] == 1
