"""News of watches: from a service to a client that asked it, from nobody else, and within the bounds of the link."""

from __future__ import annotations

import json

import pytest

from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.errors import Reason
from heliograph.machine import Peer
from heliograph.wire.frames import Frame, Kind, ServiceFlag, service
from tests.broker.talk import Talk

PIPE, OTHER_PIPE, WATCHER, STRANGER = 70, 71, 1, 2
NEWS = ServiceFlag.NEWS
pytestmark = pytest.mark.req("O6", "R8")


def a_talk(**limits: int) -> Talk:
    """Two services that attend, a client that asked the first, and one that did not."""
    talk = Talk(BrokerConfig(limits=LimitsConfig(**limits)))
    for pipe, name in ((PIPE, "watched"), (OTHER_PIPE, "other")):
        talk.attach(pipe, Peer("pipe", name))
        talk.say(pipe, service(b"broker", b'{"do":"attend"}', 1))
    talk.join(WATCHER)
    talk.join(STRANGER)
    talk.say(WATCHER, service(b"watched", b"{}", 9))
    talk.say(PIPE, service(b"watched", b"{}", 9, WATCHER, flags=ServiceFlag.ANSWER))
    return talk


def tell(talk: Talk, payload: bytes, link: int = WATCHER, pipe: int = PIPE, name: bytes = b"watched") -> None:
    talk.say(pipe, service(name, payload, 5, link, flags=NEWS))


def news(talk: Talk, link: int = WATCHER) -> list[Frame]:
    return [frame for frame in talk.heard[link].answers if frame.kind == Kind.SERVICE and frame.flags & NEWS]


def test_news_reach_the_client_that_asked_in_order_under_the_number_of_its_watch() -> None:
    talk = a_talk()
    for number in range(3):
        tell(talk, b"%d" % number)
    found = [(frame.topic, frame.sequence, frame.flags, frame.origin, frame.payload) for frame in news(talk)]
    assert found == [(b"watched", 5, NEWS, 0, b"%d" % number) for number in range(3)]


def test_a_client_that_never_asked_or_has_left_gets_none_and_no_service_speaks_for_another() -> None:
    talk = a_talk()
    tell(talk, b"x", STRANGER)
    tell(talk, b"x", PIPE)
    tell(talk, b"x", 12345)
    tell(talk, b"x", name=b"other")
    tell(talk, b"x", pipe=OTHER_PIPE)
    tell(talk, b"x", pipe=OTHER_PIPE, name=b"other")
    talk.leave(WATCHER)
    tell(talk, b"x")
    assert [news(talk, link) for link in (WATCHER, STRANGER, PIPE, OTHER_PIPE)] == [[]] * 4
    assert talk.hangups == {}


@pytest.mark.parametrize("flags", [NEWS, NEWS | 2, NEWS | 1, NEWS | 3, NEWS | 4])
def test_a_client_that_sends_news_loses_its_link_and_nobody_hears_them(flags: int) -> None:
    talk = a_talk()
    before = len(talk.heard[PIPE].answers)
    talk.say(STRANGER, service(b"watched", b"{}", 5, WATCHER, flags=flags))
    assert talk.hangups == {STRANGER: Reason.FLAGS_UNKNOWN}
    assert (news(talk), len(talk.heard[PIPE].answers)) == ([], before)


@pytest.mark.parametrize(("limits", "size"), [({"queue_frames_max": 10}, 1), ({"queue_bytes_max": 1 << 20}, 1 << 17)])
def test_a_client_that_does_not_read_keeps_its_link_and_the_service_is_told(limits: dict[str, int], size: int) -> None:
    talk = a_talk(hold_bytes=1 << 19, **limits)
    talk.press(WATCHER, True)
    for _ in range(40):
        tell(talk, b"x" * size)
    untold = news(talk, PIPE)
    assert {(frame.origin, frame.sequence, frame.flags) for frame in untold} == {(WATCHER, 5, NEWS | 2)}
    assert {json.loads(frame.payload)["reason"] for frame in untold} == {"service_over_limit"}
    assert talk.hangups == {}
    talk.press(WATCHER, False)
    talk.pass_time(1)
    assert len(news(talk)) == 40 - len(untold) <= 6
    assert talk.hangups == {}
    tell(talk, b"again")
    assert news(talk)[-1].payload == b"again"
    assert len(news(talk, PIPE)) == len(untold)


def test_news_larger_than_half_a_queue_still_reach_a_client_that_reads() -> None:
    talk = a_talk(queue_bytes_max=1_000, hold_bytes=500)
    tell(talk, b"x" * 600)
    assert len(news(talk)) == 1
