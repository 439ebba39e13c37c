"""Bounds: what the protocol page promises about sizes and order, at the edges where a fast broker cuts corners.

In:    streams and queues larger than an ordinary session makes.
Out:   claims about frames on the wire and memory in the broker.
State: none.
Not here: random sessions (test_conformance.py), peers that break the rules (test_bad_input.py).
"""

from __future__ import annotations

import tracemalloc

import pytest

from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.errors import Reason
from heliograph.wire.frames import Kind, control
from tests.broker.talk import Talk, frames
from tests.conformance import grammar

SLOW, PUBLISHER, WITNESS = 1, 2, 3


def a_talk(**limits: int) -> Talk:
    talk = Talk(BrokerConfig(limits=LimitsConfig(**limits)))
    for link in (SLOW, PUBLISHER, WITNESS):
        talk.join(link)
    return talk


@pytest.mark.req("N15")
def test_order_holds_while_a_long_backlog_is_handed_over_even_between_takes() -> None:
    talk = a_talk()
    talk.subscribe(SLOW, "a")
    talk.press(SLOW, True)
    for n in range(40):
        talk.publish(PUBLISHER, "a", b"%02d" % n * 25_000)
    talk.broker.press(SLOW, False, talk.now)
    talk.say(PUBLISHER, talk.an_event(PUBLISHER, "a", b"40 is last"), take=False)  # the driver takes once per loop turn
    talk.take()
    talk.pass_time(1)
    assert [int(payload[:2]) for payload in talk.heard[SLOW].payloads] == list(range(41))


@pytest.mark.req("N15")
@pytest.mark.parametrize("payload_bytes", [100, 60_000, 300_000, 1_048_576])
def test_no_delivery_is_larger_than_the_page_says_whatever_came_in_one_piece(payload_bytes: int) -> None:
    talk = a_talk()
    talk.subscribe(WITNESS, "a")
    count = max(3, 4_000_000 // (payload_bytes + 29))
    talk.say(PUBLISHER, b"".join(talk.an_event(PUBLISHER, "a", b"x" * payload_bytes) for _ in range(count)), take=False)
    effects = talk.broker.take()
    written = b"".join(part for link, parts in effects.writes if link == WITNESS for part in parts)
    deliveries = frames(written)
    assert sum(len(frames(delivery.payload)) for delivery in deliveries) == count
    assert max(len(delivery.raw) for delivery in deliveries) <= grammar.BYTES_MAX[grammar.DELIVERY]


def test_a_delivery_for_very_many_subscriptions_stays_within_its_limit() -> None:
    talk = a_talk()
    for first in range(0, 20_000, 500):
        numbers = range(first, first + 500)
        bodies = (b'{"number":%d,"filter":"%s"}' % (n, b"a" if n % 2 else b"a/#") for n in numbers)
        talk.say(WITNESS, b"".join(control(Kind.SUBSCRIBE, 1, body) for body in bodies))
    sizes = (130_000, 130_000, 1_048_576)
    whole = [talk.an_event(PUBLISHER, "a", b"x" * size, headers=b"{}".ljust(65_000)) for size in sizes]
    talk.say(PUBLISHER, b"".join(whole), take=False)
    effects = talk.broker.take()
    written = b"".join(part for link, parts in effects.writes if link == WITNESS for part in parts)
    deliveries = frames(written)
    assert sum(len(frames(delivery.payload)) for delivery in deliveries) == 3
    assert max(len(delivery.raw) for delivery in deliveries) <= grammar.BYTES_MAX[grammar.DELIVERY]


@pytest.mark.req("N15")
@pytest.mark.parametrize("first", ["nothing", "an answer", "a publication that must not be dropped"])
def test_a_subscriber_that_never_reads_costs_a_bounded_amount_of_memory(first: str) -> None:
    """What is dropped must be let go of, also where something that may not be dropped waits in front of it."""
    talk = a_talk(queue_bytes_max=100_000, hold_bytes=50_000)
    talk.subscribe(SLOW, "a")
    talk.subscribe(SLOW, "b", 2, policy="disconnect")
    talk.press(SLOW, True)
    if first == "an answer":
        talk.say(SLOW, control(Kind.PING, 1))
    elif first == "a publication that must not be dropped":
        talk.publish(PUBLISHER, "b")
    talk.publish(PUBLISHER, "a", b"x" * 1_000)
    tracemalloc.start()
    for _ in range(4_000):
        talk.publish(PUBLISHER, "a", b"x" * 1_000)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert talk.broker.report("overview")["dropped"] > 3_500
    assert grown < 1_000_000  # ten times the queue; what was dropped has four megabytes


@pytest.mark.parametrize(
    ("payload_bytes", "headers_bytes"), [(1_048_577, 0), (0, 65_537), (1_048_577, 3), (500_000, 70_000)]
)
@pytest.mark.parametrize("flags", [0, grammar.EXPIRES])
def test_payload_and_headers_have_limits_of_their_own(payload_bytes: int, headers_bytes: int, flags: int) -> None:
    talk = a_talk()
    talk.subscribe(WITNESS, "a")
    headers = b'{"$x":1}'.ljust(headers_bytes) if headers_bytes else b""
    talk.publish(PUBLISHER, "a", b"x" * payload_bytes, headers=headers, flags=flags)
    assert talk.hangups == {PUBLISHER: Reason.FRAME_OVER_LIMIT}
    assert talk.heard[WITNESS].events == []


def test_the_largest_frame_of_the_page_passes() -> None:
    talk = a_talk()
    topic = "a" * 1_024
    talk.subscribe(WITNESS, topic)
    headers = b"{}".ljust(65_536 - 1_024 - 28)
    talk.publish(PUBLISHER, topic, b"x" * 1_048_576, headers=headers)
    assert [len(frame.raw) for _, frame in talk.heard[WITNESS].events] == [1_114_112]


def test_a_smaller_payload_limit_holds_at_its_very_edge() -> None:
    talk = a_talk(payload_bytes_max=1_000)
    talk.subscribe(WITNESS, "a")
    talk.publish(PUBLISHER, "a", b"x" * 1_000, headers=b"{}".ljust(2_000))
    assert [len(payload) for payload in talk.heard[WITNESS].payloads] == [1_000]
    talk.publish(PUBLISHER, "a", b"x" * 1_001)
    assert talk.hangups == {PUBLISHER: Reason.FRAME_OVER_LIMIT}
