"""A session's network time: asked for after a WELCOME, used for stamps, and never waited for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.client import commands
from heliograph.errors import Reason
from heliograph.timekeeping.clock import Reference, Told
from heliograph.wire.frames import Frame, Kind
from heliograph.wire.times import pong
from tests.client.script import MS, WALL_NS, Script, body_of

pytestmark = pytest.mark.req("N13")

TIME_NS = WALL_NS + 3_600_000 * MS  # the broker's clock is an hour ahead of ours


def told(time_ns: int = TIME_NS, error_ns: int = 0, era: int = 1) -> Told:
    return Told(Reference(5, era), time_ns, error_ns, 0, 10)


def stamps(script: Script) -> dict[str, Any]:
    """The reserved headers of something published now."""
    script.tell(commands.Publish("a", b"x"))
    (frame,) = script.heard_of(Kind.EVENT)
    headers: dict[str, Any] = json.loads(frame.headers)
    return headers


def connected() -> tuple[Script, Frame]:
    """A session whose broker tells the time, and its first question."""
    script = Script()
    (hello,) = script.attach()
    assert "time" in body_of(hello)["features"]
    script.welcome(features=["time"])
    (ping,) = script.heard_of(Kind.PING)
    return script, ping


def test_stamps_are_the_brokers_time_as_soon_as_it_was_told() -> None:
    script, ping = connected()
    assert stamps(script) == {"$t": (WALL_NS + script.now - 1) // 1_000, "$u": True}
    script.now += 10 * MS
    script.say(pong(ping.sequence, told()))

    assert stamps(script) == {"$t": (TIME_NS + 5 * MS) // 1_000}
    report = script.machine.report("time")
    assert (report["synchronised"], report["stratum"]) == (True, 11)
    assert 5 * MS <= report["error_ns"] < 6 * MS


def test_the_fastest_of_the_first_exchanges_counts() -> None:
    script, ping = connected()
    for took_ms in (40, 2, 30, 20):
        script.now += took_ms * MS
        script.say(pong(ping.sequence, told(TIME_NS + script.now)))
        assert script.wake_at is not None
        script.pass_ms((script.wake_at - script.now) // MS)  # to the instant of the next question
        (ping,) = script.heard_of(Kind.PING)
    assert script.machine.report("time")["error_ns"] < 2 * MS


def test_a_broker_that_knows_no_time_is_asked_again_and_one_that_tells_none_is_not() -> None:
    script, ping = connected()
    for _ in range(6):
        script.say(pong(ping.sequence, None))
        script.pass_ms(1_000)
        (ping, *_) = script.heard_of(Kind.PING)
    assert "$u" in stamps(script)

    script = Script()
    script.connect()
    script.pass_ms(15_000)
    assert script.heard_of(Kind.PING) == []


def test_a_pong_that_was_not_timed_says_nothing() -> None:
    script, ping = connected()
    script.say(pong(ping.sequence, None))
    assert "$u" in stamps(script)
    script.tell(commands.Flush(script.number()))
    (flush, *_) = script.heard_of(Kind.PING)
    script.say(pong(flush.sequence, told()))
    assert "$u" in stamps(script)


def test_another_era_replaces_what_was_known() -> None:
    script, ping = connected()
    script.say(pong(ping.sequence, told()))
    script.pass_ms(250)
    (ping,) = script.heard_of(Kind.PING)
    script.say(pong(ping.sequence, told(TIME_NS * 2 // 3, 50 * MS, era=2)))
    assert stamps(script)["$t"] == TIME_NS * 2 // 3 // 1_000


def test_the_time_outlives_the_link_it_came_by() -> None:
    script, ping = connected()
    script.say(pong(ping.sequence, told()))
    script.lose()
    script.connect()
    assert "$u" not in stamps(script)


def test_a_broker_that_tells_an_impossible_time_loses_its_link() -> None:
    script, ping = connected()
    script.say(pong(ping.sequence, told(error_ns=-1)))
    assert script.hangups == [(script.link, Reason.BODY_MALFORMED)]
