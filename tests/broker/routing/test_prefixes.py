"""The prefixes that brokers write are those of the protocol page, whose golden bytes are made with wire/frames.py."""

import pytest

from heliograph.broker.links import Link
from heliograph.broker.routing.ports import HopSink, Neighbour, Sink
from heliograph.broker.routing.targets import Targets
from heliograph.machine import Peer
from heliograph.wire.frames import delivery, event, parcel

FRAMES = event(b"a/b", b"payload", 7, 1)


def a_link() -> Link:
    return Link(1, Peer("tcp", "127.0.0.1:1"), 0)


@pytest.mark.req("N15")
def test_a_delivery_begins_as_the_page_says_and_tells_what_was_lost() -> None:
    link = a_link()
    sink = Sink(link, bytes.fromhex("0100000004030201"), True, False, False)
    for link.dropped in (0, 5, 5, 6):
        assert sink.prefix(len(FRAMES), [FRAMES]) == delivery(sink.numbers, len(FRAMES), link.dropped)


@pytest.mark.req("N5")
def test_a_parcel_begins_as_the_page_says_and_is_numbered_on_its_link() -> None:
    neighbour = Neighbour(a_link(), 9, "b9", "main", 1, dialled=True)
    sink = HopSink(neighbour, Targets(1 << 63 | 5, (17,), (3, 4)), 7, 0x1234, (1, 2))
    for number in (1, 2):
        wanted = parcel(len(FRAMES), 7, 0x1234, 1 << 63 | 5, number, (17,), (1, 2), (3, 4))
        assert sink.prefix(len(FRAMES), [FRAMES]) == wanted
